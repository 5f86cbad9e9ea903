"""SERAPH: objective, gradient and ascent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from ssdml.baselines import SERAPH
from ssdml.baselines.seraph import (
    LARGEST_TRACE,
    Model,
    Terms,
    alternate,
    ascend,
    em_objective,
    gradient,
    objective,
    posterior,
    project_psd,
)


@pytest.fixture
def terms(rng):
    """Forty pairs of twelve rows, some twice."""
    kinds = rng.integers(-1, 2, size=40)
    ends = rng.integers(12, size=(40, 2))
    return Terms(rng.standard_normal((12, 3)), ends, kinds, rng.uniform(1, 3, size=40), 0.7)


def one_pair(difference, kind, entropy_weight):
    rows = np.stack([np.zeros_like(difference), difference])
    return Terms(rows, np.array([[0, 1]]), np.array([kind]), np.ones(1), entropy_weight)


@pytest.fixture
def M(rng):
    root = rng.standard_normal((3, 3))
    return root @ root.T / 3


def test_objective_equals_the_sum_over_pairs(terms, M):
    total = -0.2 * np.trace(M)
    for (i, j), kind, count in zip(terms.ends, terms.kinds, terms.counts, strict=True):
        x = terms.rows[i] - terms.rows[j]
        p = expit(1.5 - x @ M @ x)
        if kind:
            total += count * np.log(p if kind > 0 else 1 - p)
        else:
            total += 0.7 * count * (p * np.log(p) + (1 - p) * np.log(1 - p))
    assert objective(M, terms, Model(1.5, 0.2)).value == pytest.approx(total)


@pytest.mark.parametrize("with_posteriors", [False, True])
def test_gradient_matches_finite_differences(terms, M, rng, with_posteriors):
    posteriors = rng.uniform(size=40) if with_posteriors else None
    model = Model(1.5, 0.2)
    found = gradient(objective(M, terms, model, posteriors).slopes, terms, model)
    numeric = approx_fprime(
        M.ravel(), lambda m: objective(m.reshape(3, 3), terms, model, posteriors).value, 1e-7
    )
    np.testing.assert_allclose(found.ravel(), numeric, rtol=1e-4, atol=1e-4)


def test_step_lengths_decay_as_root_of_t(terms):
    """0.1 d / sqrt(t) along the gradient, unless halved."""
    model, M = Model(1.5, 0.2), np.eye(3)
    for t in (1, 2, 3):
        found = ascend(np.eye(3), terms, model, max_iter=t, tol=0.0).M
        upwards = gradient(objective(M, terms, model).slopes, terms, model)
        expected = project_psd(M + 0.3 / np.sqrt(t) * upwards / np.linalg.norm(upwards))
        assert objective(expected, terms, model).value > objective(M, terms, model).value
        np.testing.assert_allclose(found, expected, atol=1e-12)
        M = found


def test_median_pair_starts_at_the_threshold(rng, monkeypatch):
    X, labels = rng.standard_normal((40, 3)), np.where(np.arange(40) < 12, np.arange(40) % 3, -1)
    method = SERAPH(threshold=2.5)
    whole, _ = method._terms(method._pose(X, labels, np.random.default_rng(0)))
    squares = ((whole.rows[whole.ends[:, 0]] - whole.rows[whole.ends[:, 1]]) ** 2).sum(axis=1)
    assert np.median(squares) == pytest.approx(2.5)
    assert (whole.counts == 1).all()
    monkeypatch.setattr("ssdml.baselines.seraph.N_PAIRS", 20)
    few, _ = method._terms(method._pose(X, labels, np.random.default_rng(0)))
    for kind in (1, -1, 0):
        assert (few.kinds == kind).sum() <= 20
        stood_for = few.counts[few.kinds == kind].sum()
        assert stood_for == pytest.approx((whole.kinds == kind).sum())
    assert few.entropy_weight == whole.entropy_weight


def test_median_ignores_pairs_of_equal_rows(rng):
    X = np.repeat(rng.standard_normal((5, 3)), 8, axis=0)  # most pairs of a class are equal rows
    labels = np.repeat(np.arange(5), 8)
    method = SERAPH(threshold=2.5)
    terms, _ = method._terms(method._pose(X, labels, np.random.default_rng(0)))
    squares = ((terms.rows[terms.ends[:, 0]] - terms.rows[terms.ends[:, 1]]) ** 2).sum(axis=1)
    apart = squares > 1e-12
    assert not apart.all()
    assert np.median(squares[apart]) == pytest.approx(2.5)


def test_known_answers_at_the_threshold():
    """One pair at distance 1, M = 1, threshold 1: similar with probability 1/2."""
    for kind, value, slope in ((1, -np.log(2), -0.5), (-1, -np.log(2), 0.5), (0, -np.log(2), 0.0)):
        found = objective(np.eye(1), one_pair(np.ones(1), kind, 1.0), Model(1.0, 0.0))
        assert found.value == pytest.approx(value)
        assert found.slopes.item() == pytest.approx(slope)


def test_posterior_follows_its_equation():
    distance = np.sqrt(1 - np.log(0.7 / 0.3))  # p = 0.7
    terms = one_pair(np.array([distance]), 0, 0.5)
    assert posterior(np.eye(1), terms, Model(1.0, 0.0)).item() == pytest.approx(0.780905, abs=1e-6)


def test_posterior_maximizes_the_em_objective(terms, M):
    """By definition: H(q) + (1 + mu) E_q ln p for each unknown pair."""
    model, mu = Model(1.5, 0.2), 0.7

    def value(q):
        total = -0.2 * np.trace(M)
        for (i, j), kind, count, b in zip(terms.ends, terms.kinds, terms.counts, q, strict=True):
            x = terms.rows[i] - terms.rows[j]
            p = expit(1.5 - x @ M @ x)
            if kind:
                total += count * np.log(p if kind > 0 else 1 - p)
            else:
                likely = b * np.log(p) + (1 - b) * np.log(1 - p)
                unsure = -b * np.log(b) - (1 - b) * np.log(1 - b)
                total += count * mu / (1 + mu) * (unsure + (1 + mu) * likely)
        return total

    q = posterior(M, terms, model)
    best = em_objective(M, terms, model)
    assert value(q) == pytest.approx(best, rel=1e-12)
    for change in (-1e-3, 1e-3):
        assert value(np.clip(q + change, 1e-9, 1 - 1e-9)) < best


def test_ascent_rises_and_stays_positive_semidefinite(terms):
    M, values, _ = ascend(np.eye(3), terms, Model(1.0, 0.1), max_iter=100, tol=0)
    assert len(values) > 10
    assert (np.diff(values) >= 0).all()
    assert np.linalg.eigvalsh(M)[0] >= -1e-10


def test_one_similar_pair_shrinks_m_along_itself(rng):
    x = rng.standard_normal(3)
    terms = one_pair(x, 1, 0.0)
    M, *_ = ascend(np.eye(3), terms, Model(1.0, 0.0), max_iter=50, tol=0)
    change = np.eye(3) - M
    assert x @ change @ x > 0.1
    # The change is a multiple of x x^T.
    np.testing.assert_allclose(change, change[0, 0] / x[0] ** 2 * np.outer(x, x), atol=1e-10)


def test_projection_is_nearest_and_bounds_the_trace(rng):
    A = rng.standard_normal((4, 4))
    A += A.T
    values, vectors = np.linalg.eigh(A)
    nearest = (vectors * np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(project_psd(A), nearest, atol=1e-12)
    assert np.trace(project_psd(A, 0.5)) == pytest.approx(0.5)


def test_em_rounds_rise(terms):
    M, values, _ = alternate(np.eye(3), terms, Model(1.0, 0.1), max_iter=30, tol=0)
    assert len(values) > 5
    # After thirty rounds a step adds less than the rounding of the sum.
    rounding = len(terms.counts) * np.finfo(float).eps * np.abs(values).max()
    assert (np.diff(values) >= -rounding).all()
    assert values[-1] > values[0] + 1
    assert values[-1] == em_objective(M, terms, Model(1.0, 0.1))
    assert np.linalg.eigvalsh(M)[0] >= -1e-10


@pytest.mark.parametrize("solver", ["gradient", "em"])
class TestConvergence:
    """Ten steps raise the objective by at most ``10 * tol``, or a warning follows."""

    def test_too_few_steps_warn(self, solver):
        X, y = make_blobs(60, 3, centers=2, cluster_std=3.0, random_state=0)
        labels = np.where(np.arange(60) < 12, y, -1)
        with pytest.warns(ConvergenceWarning, match=r"SERAPH: max_iter=1 steps must come to tol"):
            SERAPH(max_iter=1, solver=solver, random_state=0).fit(X, labels)

    def test_defaults_converge(self, solver):
        X, y = make_blobs(90, 4, centers=3, cluster_std=2.0, random_state=0)
        labels = np.where(np.arange(90) < 20, y, -1)
        model = SERAPH(solver=solver, random_state=0).fit(X, labels)  # warnings are errors
        values = np.array(model.info_["values"])
        turn = 10 if solver == "gradient" else 1
        rise = (values[turn:] - values[:-turn]) / np.abs(values[turn:])
        assert rise[-1] <= 0.01
        assert (rise[:-1] > 0.01).all()  # it stops at the first such round

    def test_start_at_the_maximum_converges(self, solver):
        """A pair of equal rows: no M changes its distance."""
        run = ascend if solver == "gradient" else alternate
        still = run(np.eye(2), one_pair(np.zeros(2), 1, 0.0), Model(1.0, 0.0), max_iter=5, tol=0)
        assert still.converged
        np.testing.assert_array_equal(still.M, np.eye(2))


def test_trace_bound_and_rounds_are_as_documented():
    """1,000 d, and max_iter gradient steps, ten per round."""
    assert LARGEST_TRACE == 1000
    X, y = make_blobs(60, 3, centers=2, cluster_std=3.0, random_state=0)
    labels = np.where(np.arange(60) < 12, y, -1)
    with pytest.warns(ConvergenceWarning):
        model = SERAPH(max_iter=25, solver="em", tol=1e-12, random_state=0).fit(X, labels)
    assert len(model.info_["values"]) == 1 + 3


def test_pairs_become_certain_without_labels():
    X, _ = make_blobs(60, 3, centers=2, random_state=0)
    with pytest.warns(UserWarning, match="no row has a label"):
        values = SERAPH(random_state=0, tol=0.01).fit(X, np.full(60, -1)).info_["values"]
    assert values[-1] > values[0] + 0.05


def test_auto_weights_unknown_pairs_as_known_ones():
    X, y = make_blobs(30, 3, centers=2, random_state=0)
    labels = np.where(np.arange(30) < 10, y, -1)
    model = SERAPH(random_state=0).fit(X, labels)
    assert model.info_["entropy_weight"] == pytest.approx(45 / (30 * 29 / 2 - 45))
    both = SERAPH(random_state=0, unlabeled_pairs="both").fit(X, labels)
    assert both.info_["entropy_weight"] == pytest.approx(45 / 190)
