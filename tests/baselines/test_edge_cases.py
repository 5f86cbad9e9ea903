"""Known answers of each baseline for degenerate labels and rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from ssdml.baselines import APIT, APLLR, ISDML, LRML, SERAPH, DeepBaseline
from ssdml.baselines.apit import Prior, itml
from ssdml.baselines.batch_losses import EntropyLoss
from ssdml.baselines.deep.alternation import METHODS
from ssdml.baselines.isdml import density_weights, kernel_width
from ssdml.baselines.lrml import edge_scatter
from ssdml.baselines.pairs import labeled_pairs
from ssdml.baselines.propagated import near_prior, propagated_scatter
from ssdml.baselines.seraph import Model, Terms, em_objective, gradient, objective
from ssdml.graphs import knn_graph, pair_scatter
from ssdml.utils.linalg import shrink

PRIOR = Prior(np.eye(4), 1, True)


@pytest.fixture(scope="module")
def data():
    """Three clusters in four dimensions."""
    return make_blobs(90, 4, centers=3, cluster_std=2.0, random_state=0)


@pytest.fixture(scope="module")
def few(data):
    """Five labels per class."""
    return np.where(np.arange(90) < 15, data[1], -1)


@pytest.fixture(scope="module")
def one_class(few):
    return np.where(few == 1, 1, -1)


@pytest.fixture(scope="module")
def one_label(data):
    """One label per class."""
    labels = np.full(90, -1)
    labels[np.unique(data[1], return_index=True)[1]] = [0, 1, 2]
    return labels


@pytest.fixture(scope="module")
def rows(data):
    """Centered, with total variance 1, as the methods see them."""
    X = data[0] - data[0].mean(axis=0)
    return X / np.sqrt(X.var(axis=0).sum())


def fitted(method, X, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tested in test_laws.py
        return clone(method).set_params(random_state=0).fit(X, labels)


def matrix(method, X, labels):
    return fitted(method, X, labels).get_mahalanobis_matrix()


def assert_is_matrix(found, M):
    """Compare up to scale."""
    np.testing.assert_allclose(found, len(M) * M / np.trace(M), rtol=1e-8, atol=1e-10)


linear = pytest.mark.parametrize("method", [LRML(), LRML(normalized=True), ISDML()], ids=repr)


class TestTermsOfTheLinearObjective:
    @linear
    def test_similar_term_drops_without_similar_pairs(self, method, data, one_label):
        without = clone(method).set_params(similar_weight=0.0)
        found = matrix(method, data[0], one_label)
        np.testing.assert_array_equal(found, matrix(without, data[0], one_label))

    @linear
    def test_dissimilar_term_drops_without_dissimilar_pairs(self, method, data, one_class):
        without = clone(method).set_params(dissimilar_weight=0.0)
        model = fitted(method, data[0], one_class)
        assert model.info_["dissimilar_weight"] == 0
        found = model.get_mahalanobis_matrix()
        np.testing.assert_array_equal(found, matrix(without, data[0], one_class))

    @linear
    def test_only_the_laplacian_remains_without_labels(self, method, data, rows):
        """H^-1 of the mean scatter of the edges, and the ridge."""
        graph = knn_graph(rows, method.n_neighbors)
        if isinstance(method, LRML):
            R = edge_scatter(rows, graph, normalized=method.normalized)
        else:
            W = density_weights(rows, graph, kernel_width(rows, graph, 10.0))
            R = pair_scatter(rows, W) / (W.sum() / 2)
        M = np.linalg.inv(R + 1e-3 * np.trace(R) / 4 * np.eye(4))
        found = matrix(method, data[0], np.full(90, -1))
        np.testing.assert_allclose(found, 4 * M / np.trace(M), atol=1e-8)


@pytest.mark.parametrize("method", [APLLR(), APIT(), APIT(prior="gmml")], ids=repr)
def test_prior_is_the_identity_without_labels(method, data, rows):
    nothing = np.full(90, -1)
    model = fitted(method, data[0], nothing)
    K = propagated_scatter(rows, nothing, knn_graph(rows, 10), decay=0.99)
    M = near_prior(np.eye(4), K, None, "").M
    assert np.abs(M - np.eye(4) * np.trace(M) / 4).max() > 1e-6
    assert_is_matrix(model.get_mahalanobis_matrix(), M)


def test_apllr_shrinks_singular_scatters(rng):
    """Both have rank below 6 in 40 dimensions, so only the shrunk ones have an inverse."""
    X, labels = rng.standard_normal((20, 40)), np.where(np.arange(20) < 6, np.arange(20) % 2, -1)
    rows = X - X.mean(axis=0)
    rows /= np.sqrt(rows.var(axis=0).sum())
    known = rows[:6]
    pairs = [(i, j) for i in range(6) for j in range(i)]
    kinds = {True: [], False: []}
    for i, j in pairs:
        kinds[bool(labels[i] == labels[j])].append(np.outer(*2 * [known[i] - known[j]]))
    S, D = (np.mean(kinds[same], axis=0) for same in (True, False))
    assert max(np.linalg.matrix_rank(S), np.linalg.matrix_rank(D)) < 6
    shrunk = [0.9 * part + 0.1 * np.trace(part) / 40 * np.eye(40) for part in (S, D)]
    values, vectors = np.linalg.eigh(np.linalg.inv(shrunk[0]) - np.linalg.inv(shrunk[1]))
    prior = (vectors * np.maximum(values, 1e-6 * values[-1])) @ vectors.T
    model = fitted(APLLR(graph_weight=0.0), X, labels)
    assert model.info_["raised"] == (values < 1e-6 * values[-1]).sum()
    assert_is_matrix(model.get_mahalanobis_matrix(), prior)


def test_apllr_prior_without_similar_pairs(data, rows, one_label):
    model = fitted(APLLR(), data[0], one_label)
    K = propagated_scatter(rows, one_label, knn_graph(rows, 10), decay=0.99)
    M = near_prior(np.eye(4), K, model.info_["graph_weight"], "APLLR").M
    assert_is_matrix(model.get_mahalanobis_matrix(), M)


def test_apllr_prior_without_dissimilar_pairs(data, rows, one_class):
    model = fitted(APLLR(), data[0], one_class)
    K = propagated_scatter(rows, one_class, knn_graph(rows, 10), decay=0.99)
    S = shrink(labeled_pairs(rows, one_class).similar, 0.1)
    assert_is_matrix(
        model.get_mahalanobis_matrix(), np.linalg.inv(S + model.info_["graph_weight"] * K)
    )


@pytest.mark.parametrize("prior", [None, "gmml"])
def test_equal_labeled_rows_keep_the_graph_weight(data, rng, prior):
    """Rounding errors of their mean must not count as a scatter."""
    method = APLLR() if prior is None else APIT(prior=prior)
    labels = np.where(np.arange(90) < 9, np.arange(90) % 3, -1)
    for draw in range(5):
        X = data[0] + rng.standard_normal(4)
        X[:9] = X[draw + labels[:9]]  # three times each
        assert fitted(method, X, labels).info_["graph_weight"] > 1e-6
        X[:9] = X[draw]
        assert fitted(method, X, labels).info_["graph_weight"] > 1e-6


@pytest.mark.parametrize("kind", ["similar", "dissimilar"])
def test_apit_prior_uses_the_available_pairs(data, rows, one_class, one_label, kind):
    labels = one_class if kind == "similar" else one_label
    known = np.flatnonzero(labels >= 0)
    first, second = np.triu_indices(len(known), k=1)
    differences = rows[known[first]] - rows[known[second]]
    none, exact = np.empty((0, 4)), {"tol": 1e-13, "max_iter": 20_000}
    prior = itml(*((differences, none) if kind == "similar" else (none, differences)), **exact).M
    assert np.abs(prior - np.eye(4)).max() > 0.1
    model = fitted(APIT(**exact), data[0], labels)
    K = propagated_scatter(rows, labels, knn_graph(rows, 10), decay=0.99)
    M = near_prior(prior, K, model.info_["graph_weight"], "APIT").M
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), 4 * M / np.trace(M), atol=1e-8)


class TestITMLWithOneKindOfPairs:
    """Pairs along two axes, of squares 1 and 4: one of them violates the bound."""

    pairs = np.diag([1.0, 2.0])

    def test_similar_pairs_shrink_to_their_bound(self):
        M = itml(self.pairs, np.empty((0, 2)), slack=1e8, tol=1e-12).M
        np.testing.assert_allclose(M, np.diag([1.0, np.percentile([1, 4], 5) / 4]), rtol=1e-6)

    def test_dissimilar_pairs_grow_to_their_bound(self):
        M = itml(np.empty((0, 2)), self.pairs, slack=1e8, tol=1e-12).M
        np.testing.assert_allclose(M, np.diag([np.percentile([1, 4], 95), 1.0]), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*far from all others")
def test_apit_reports_an_outlier(data, few):
    X = data[0].copy()
    X[0] = 1e7
    with pytest.raises(
        ValueError, match=r"APIT: X must hold .* got distances from 1\.96 to 2e\+07,"
    ):
        APIT(random_state=0).fit(X, few)
    M = APIT(random_state=0, prior="gmml").fit(X, few).get_mahalanobis_matrix()
    assert np.isfinite(M).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("far", [3e4, 1e7, 1e11])
def test_outliers_give_an_error_or_finite_metric(data, few, far):
    """No error of a library escapes, whichever way the row lies."""
    told = []
    for method, place in ((APIT(random_state=0), 0), (ISDML(), 50), (LRML(), 50)):
        for seed in range(6):
            X = data[0].copy()
            X[place] = far * np.random.default_rng(seed).standard_normal(4)
            try:
                M = method.fit(X, few).get_mahalanobis_matrix()
            except ValueError as error:
                told.append(str(error))
            else:
                assert np.isfinite(M).all()
    assert all("Look for a row far from all others" in message for message in told)
    assert bool(told)


def test_seraph_warns_if_no_step_rises(data, few, monkeypatch):
    """Simulates a row at 1e11, where the outcome depends on the last bits."""
    monkeypatch.setattr("ssdml.baselines.seraph.HALVINGS", 0)
    model = SERAPH(random_state=0)
    with pytest.warns(ConvergenceWarning, match="none did. Look for a row far from all others"):
        model.fit(data[0], few)
    M = model.get_mahalanobis_matrix()
    np.testing.assert_allclose(M, M[0, 0] * np.eye(4), atol=1e-9 * M[0, 0])


def test_apit_draws_20_pairs_per_squared_class_count(data, monkeypatch):
    given = []
    monkeypatch.setattr(
        "ssdml.baselines.apit.itml",
        lambda *differences, **options: (given.append(list(map(len, differences))), PRIOR)[1],
    )
    X, y = data
    APIT(random_state=0).fit(X, y)
    monkeypatch.setattr("ssdml.baselines.apit.MAX_PAIRS", 50)
    APIT(random_state=0).fit(X, y)
    assert given == [[90, 90], [25, 25]]  # 20 * 3² / 2


def test_apllr_without_positive_eigenvalue_uses_the_identity(rng):
    """Both classes at the same four points: similar pairs are farther apart."""
    X = np.vstack([5 * np.eye(2), -5 * np.eye(2)] * 2 + [rng.standard_normal((40, 2))])
    labels = np.r_[np.repeat([0, 1], 4), np.full(40, -1)]
    with pytest.warns(UserWarning, match="APLLR: similar pairs must lie closer than") as told:
        model = APLLR(graph_weight=0.0).fit(X, labels)
    assert told[0].filename == __file__
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), np.eye(2), atol=1e-12)


@pytest.mark.parametrize(
    ("method", "labels_of", "bounded"),
    [
        (SERAPH(), "one_label", True),
        (SERAPH(solver="em"), "one_label", True),
        (SERAPH(trace_weight=1e-6), "one_label", False),
        (SERAPH(), "few", False),
    ],
)
def test_seraph_bounds_the_trace_if_needed(method, labels_of, bounded, data, request, monkeypatch):
    monkeypatch.setattr("ssdml.baselines.seraph.LARGEST_TRACE", 1.5)  # M begins at trace d = 4
    labels = request.getfixturevalue(labels_of)
    problem = method._pose(data[0], labels, np.random.default_rng(0))
    _, unit = method._terms(problem)
    trace = np.trace(method._learn(problem)[0]) / unit
    assert (trace == pytest.approx(6)) == bounded


@pytest.mark.parametrize(
    ("kind", "value", "slope"), [(1, 1 - 1e8, -1.0), (-1, 0.0, 0.0), (0, 0.0, 0.0)]
)
def test_objective_with_saturated_probabilities(kind, value, slope):
    """At a squared distance of 1e8, where p underflows to 0."""
    pair = np.array([[0.0], [1e4]])
    terms, model = Terms(pair, np.array([[0, 1]]), np.array([kind]), np.ones(1), 0.5), Model(1.0, 0)
    found = objective(np.eye(1), terms, model)
    assert found.value == pytest.approx(value)
    assert found.slopes.item() == pytest.approx(slope, abs=1e-12)
    assert np.isfinite(gradient(found.slopes, terms, model)).all()
    assert em_objective(np.eye(1), terms, model) == pytest.approx(value)


def test_batch_loss_with_saturated_probabilities():
    squares = torch.tensor([[0.0, 1e8, 1e8], [1e8, 0.0, 1e8], [1e8, 1e8, 0.0]], requires_grad=True)
    loss = EntropyLoss(1.0, 2.0)(squares, torch.tensor([0, 0, -1]), torch.zeros(3, 3))
    loss.backward()
    assert loss.item() == pytest.approx(1e8)
    expected = torch.zeros(3, 3)
    expected[0, 1] = 1.0
    assert torch.equal(squares.grad, expected)


class TestTooLargeWeights:
    """A given weight is lowered with a warning; None takes the bound silently."""

    @pytest.mark.parametrize(
        ("method", "name"),
        [
            (LRML(), "dissimilar_weight"),
            (ISDML(), "dissimilar_weight"),
            (APLLR(), "graph_weight"),
            (APIT(random_state=0), "graph_weight"),
        ],
        ids=lambda value: str(value),
    )
    def test_too_large_weights_fall_to_the_default_bound(self, method, name, data, few):
        auto = clone(method).fit(data[0], few)  # in silence: warnings are errors
        given = clone(method).set_params(**{name: 1e6})
        with pytest.warns(UserWarning, match=rf"{name} must be at most .* got 1000000") as told:
            model = given.fit(data[0], few)
        assert {warning.filename for warning in told} == {__file__}
        most = model.info_[name]
        assert auto.info_[name] == (most if name == "dissimilar_weight" else min(1.0, most))
        small = clone(method).set_params(**{name: most / 2}).fit(data[0], few)
        assert small.info_[name] == most / 2

    def test_combined_scatter_stays_positive_definite(self, data, rows, few):
        pairs = labeled_pairs(rows, few)
        R = edge_scatter(rows, knn_graph(rows, 6))
        with pytest.warns(UserWarning, match="dissimilar_weight must be at most"):
            H, _ = LRML(dissimilar_weight=1e6)._combine(pairs, R)
        assert np.linalg.eigvalsh(H)[0] > 0


class Blind(nn.Module):
    """Maps items with a small last entry to zeros."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.inner = nn.Linear(6, 8)

    def forward(self, items):
        return self.inner(items) * (items[:, 5:] > -1.5)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", METHODS)
def test_networks_may_produce_zero_rows(name, rng):
    X = rng.standard_normal((80, 6)).astype(np.float32)
    y = np.arange(80) % 2
    X[:, 0] += 3 * y
    X[:, 5] = np.where(np.arange(80) % 5 == 0, -9, 0)
    params = {"tol": 0.1} if name == "seraph" else {}
    model = DeepBaseline(
        name, Blind(), 4, method_params=params, epochs=2, batch_size=20, random_state=0,
        device="cpu",
    )  # fmt: skip
    with pytest.warns(RuntimeWarning, match="all zero for 20% of the samples"):
        model.fit(X, np.where(np.arange(80) < 20, y, -1))
    assert (model.transform(X)[::5] == 0).all()
    assert np.isfinite(model.transform(X)).all()
    assert all(np.isfinite(entry["losses"]).all() for entry in model.history_)
    assert all(torch.isfinite(value).all() for value in model.network_.state_dict().values())


@pytest.mark.parametrize("method", [APIT, APLLR, ISDML, LRML, SERAPH])
def test_no_method_raises_where_underflow_does(data, few, method):
    X = data[0].astype(np.float32)
    X[0] *= 1e4
    with np.errstate(under="raise"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the far row
        method(random_state=0).fit(X, few).transform(1e-20 * X)
