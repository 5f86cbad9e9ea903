"""Propagation of labels with the evidence of a classifier, against its closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import adjacency, knn_graph, propagate_labels
from ssdml.graphs.propagation import coarsening
from ssdml.graphs.propagation.class_prior import estimate_prior, shrunken_shares


@pytest.fixture
def graph(rng):
    return knn_graph(rng.standard_normal((60, 4)), 6)


@pytest.fixture
def y(rng):
    y = np.full(60, -1)
    y[rng.permutation(60)[:9]] = np.arange(9) % 3
    return y


@pytest.fixture
def evidence(rng):
    return rng.dirichlet(np.ones(3), 60)


def closed_form(graph, y, evidence, decay, weight):
    """Scores ``(1 - γ) (I - γ S)^-1 (H + μ Q)`` by a dense inverse."""
    W = adjacency(graph).toarray()
    roots = np.sqrt(W.sum(axis=1))
    sources = np.where((y == -1)[:, None], weight * evidence, y[:, None] == np.arange(3))
    return (1 - decay) * np.linalg.solve(
        np.eye(len(y)) - decay * W / np.outer(roots, roots), sources
    )


@pytest.mark.parametrize("decay", [0.3, 0.97])
@pytest.mark.parametrize("weight", [0.05, 1.0])
@pytest.mark.parametrize("cached", [1, 10**6])  # with and without reordered rows
def test_scores_equal_the_closed_form(graph, y, evidence, decay, weight, cached, monkeypatch):
    monkeypatch.setattr(coarsening, "CACHED_ENTRIES", cached)
    monkeypatch.setattr(coarsening, "CLUSTER_ROWS", 10)  # with 100, one cluster: no new order
    _, solution = propagate_labels(
        graph,
        y,
        decay=decay,
        evidence=evidence,
        evidence_weight=weight,
        tol=1e-10,
        return_solution=True,
    )
    expected = closed_form(graph, y, evidence, decay, weight)
    np.testing.assert_allclose(solution.values, expected, rtol=1e-7, atol=1e-10)


def test_distributions_follow_the_scores_and_the_prior(graph, y, evidence):
    prior = np.array([0.5, 0.3, 0.2])
    found = propagate_labels(graph, y, evidence=evidence, class_prior=prior, tol=1e-10)
    shares = closed_form(graph, y, evidence, 0.99, 1.0)
    shares /= shares.sum(axis=1, keepdims=True)
    shares *= prior / shares.sum(axis=0)
    np.testing.assert_allclose(found, shares / shares.sum(axis=1, keepdims=True), rtol=1e-6)


def test_labeled_rows_ignore_their_evidence(graph, y, evidence):
    before = propagate_labels(graph, y, evidence=evidence)
    evidence[y != -1] = np.nan
    np.testing.assert_array_equal(propagate_labels(graph, y, evidence=evidence), before)


def test_without_reach_rows_keep_their_evidence(graph, y, evidence):
    shares = propagate_labels(
        graph, y, decay=1e-9, evidence=evidence, class_prior=evidence[y == -1].mean(axis=0)
    )
    ratios = shares[y == -1] / evidence[y == -1]  # up to one factor per class, and per row
    np.testing.assert_allclose(
        ratios / ratios[:, :1], np.tile(ratios[0] / ratios[0, 0], (51, 1)), rtol=1e-6
    )


def test_faint_evidence_is_no_evidence(graph, y, evidence):
    faint = propagate_labels(graph, y, evidence=evidence, evidence_weight=1e-12, tol=1e-10)
    np.testing.assert_allclose(faint, propagate_labels(graph, y, tol=1e-10), atol=1e-8)


def test_evidence_reaches_parts_without_labels(y, evidence):
    parts = sparse.block_diag([np.ones((30, 30)) - np.eye(30)] * 2).tocsr()
    labels = np.where(np.arange(60) < 30, y, -1)
    evidence[30:] = [0.1, 0.1, 0.8]
    found = propagate_labels(parts, labels, evidence=evidence)  # and does not warn
    assert (found[30:].argmax(axis=1) == 2).all()


def test_order_of_rows_changes_nothing(graph, y, evidence, rng):
    order = rng.permutation(60)
    W = adjacency(graph)
    found = propagate_labels(W[order][:, order], y[order], evidence=evidence[order], tol=1e-10)
    expected = propagate_labels(W, y, evidence=evidence, tol=1e-10)[order]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_uniform_prior_is_an_even_array(graph, y, evidence):
    y[np.flatnonzero(y == 0)[:2]] = -1
    even, uniform = (
        propagate_labels(graph, y, evidence=evidence, class_prior=prior)
        for prior in (np.full(3, 1 / 3), "uniform")
    )
    np.testing.assert_array_equal(even, uniform)
    labeled = propagate_labels(graph, y, evidence=evidence, class_prior="labeled")
    np.testing.assert_array_equal(labeled, propagate_labels(graph, y, evidence=evidence))
    assert np.abs(labeled - even).max() > 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Q: Q[:, :2], r"evidence must have shape \(60, 3\).*got \(60, 2\)"),
        (lambda Q: 2 * Q, "evidence must hold probabilities that sum to 1.*predict_proba"),
        (lambda Q: Q - 0.5, "evidence must hold probabilities"),
        (lambda Q: np.full_like(Q, np.nan), "evidence must hold probabilities.*nan.*in row"),
    ],
)
def test_evidence_that_is_no_distribution_is_refused(graph, y, evidence, change, message):
    with pytest.raises(ValueError, match=message):
        propagate_labels(graph, y, evidence=change(evidence))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.inf, 1e300])
def test_weight_must_be_positive(graph, y, evidence, weight):
    with pytest.raises(ValueError, match="evidence_weight must be"):
        propagate_labels(graph, y, evidence=evidence, evidence_weight=weight)


def test_evidence_may_be_a_tensor(graph, y, evidence):
    torch = pytest.importorskip("torch")
    expected = propagate_labels(graph, y, evidence=evidence)
    given = torch.from_numpy(evidence).requires_grad_()
    np.testing.assert_array_equal(propagate_labels(graph, y, evidence=given), expected)


@pytest.mark.parametrize("skewed", [False, True])
def test_estimated_prior_follows_the_unlabeled_rows(graph, y, rng, skewed):
    """Even labels of classes of which one holds nine tenths of the rows."""
    truth = rng.choice(3, 60, p=[0.9, 0.05, 0.05] if skewed else [1 / 3] * 3)
    evidence = 0.1 * rng.dirichlet(np.ones(3), 60) + 0.9 * np.eye(3)[truth]
    found = propagate_labels(graph, y, evidence=evidence, class_prior="estimate")
    even = np.full(3, 1 / 3)
    prior = estimate_prior(evidence[y == -1], even, 3).shares
    np.testing.assert_array_equal(
        found, propagate_labels(graph, y, evidence=evidence, class_prior=prior)
    )
    assert (prior[0] > 0.8) == skewed
    assert np.allclose(prior, even) != skewed


def test_estimate_with_all_rows_labeled_shrinks_their_shares(graph, evidence):
    y = np.repeat([0, 1, 2], [50, 5, 5])
    prior = shrunken_shares(np.array([50, 5, 5]))
    found, expected = (
        propagate_labels(graph, y, evidence=evidence, class_prior=p) for p in ("estimate", prior)
    )
    np.testing.assert_array_equal(found, expected)


def test_estimate_needs_evidence(graph, y):
    with pytest.raises(ValueError, match="evidence must be given with class_prior='estimate'"):
        propagate_labels(graph, y, class_prior="estimate")


def test_prior_of_another_name_is_refused(graph, y):
    with pytest.raises(ValueError, match="must be 'labeled', 'uniform', 'estimate' or an array"):
        propagate_labels(graph, y, class_prior="balanced")


def test_prior_that_does_not_sum_to_one_is_refused(graph, y):
    with pytest.raises(ValueError, match=r"class_prior must sum to 1; got .* 1\.2\. Divide it"):
        propagate_labels(graph, y, class_prior=[0.4, 0.4, 0.4])
