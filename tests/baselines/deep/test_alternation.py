"""DeepBaseline: mini-batch losses, and the alternation with each method."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch.utils._python_dispatch import TorchDispatchMode

from ssdml.baselines import DeepBaseline
from ssdml.baselines.base import factor
from ssdml.baselines.batch_losses import LaplacianLoss, kinds_of_pairs, pairs_about_mean
from ssdml.baselines.deep.alternation import METHODS, BaselineTrainer, draw_batch
from ssdml.baselines.lrml import edge_scatter
from ssdml.baselines.propagated import propagated_scatter
from ssdml.baselines.seraph import Model, objective
from ssdml.graphs import knn_graph, pair_scatter
from tests.deep import small_images, small_network

every_method = pytest.mark.parametrize("name", sorted(METHODS))


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def pose(rng):
    """Solve a method on rows with a third of labels."""
    X = rng.standard_normal((60, 4)) * [1, 1, 1, 3]
    few = np.where(np.arange(60) < 20, np.arange(60) % 3, -1)

    def posed(name, labels=few, **options):
        method = METHODS[name](**options)
        problem = method._pose(X, labels, np.random.default_rng(0))
        M, info = method._learn(problem)
        return method, problem, M, info

    return posed


def loss_of_all(method, problem, M, info):
    """Compute the loss of the batch of all rows, and its weights."""
    L = torch.from_numpy(factor(M, np.eye(4), 4, scaled=False).T)
    Z = torch.from_numpy(problem.X) @ L
    squares = (Z[:, None] - Z).square().sum(dim=2)
    loss = method._batch_loss(problem, info)
    weights = loss.weights_of(np.arange(len(Z)))
    labels = torch.from_numpy(problem.labels)
    return loss(squares, labels, torch.from_numpy(weights)).item(), weights


def dense_affinities(problem, decay=0.99):
    """Compute the walks P and the propagated affinities by definition."""
    labels, graph = problem.labels, problem.graph
    n = len(labels)
    Q = np.zeros((n, n))
    np.put_along_axis(Q, graph.indices, 1 / graph.n_neighbors, axis=1)
    P = (1 - decay) * np.linalg.inv(np.eye(n) - decay * Q)
    known = labels >= 0
    both = known[:, None] & known
    W0 = np.where(both, np.where(labels[:, None] == labels, 1.0, -1.0), np.eye(n))
    W = (P @ W0 + (P @ W0).T) / 2
    np.fill_diagonal(W, 0)
    return P, W, (Q + Q.T) > 0


class TestLossOnAllRows:
    """The mini-batch loss on all rows equals the objective of the metric."""

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("lrml", {"similar_weight": 2.0}),
            ("lrml", {"normalized": True, "graph_weight": 3.0}),
            ("isdml", {"tol": 1e-9}),
            ("isdml", {"density": "neighbors", "dissimilar_weight": 0.1}),
        ],
    )
    def test_laplacian_loss_equals_the_objective(self, pose, name, options):
        method, problem, M, info = pose(name, **options)
        (S, D, *_), d = problem.pairs, 4
        if name == "lrml":
            R = edge_scatter(problem.X, problem.graph, normalized=method.normalized)
            value = info["value"]
        else:
            R = pair_scatter(problem.X, info["edges"]) / (info["edges"].sum() / 2)
            value = info["values"][-1] + np.linalg.slogdet(M)[1]  # less the barrier
        attracted = method.similar_weight * S + method.graph_weight * R
        ridge = method.ridge * np.trace(attracted) / d * np.trace(M)
        found, _ = loss_of_all(method, problem, M, info)
        assert found == pytest.approx(value - ridge, rel=1e-9)
        assert found == pytest.approx(
            np.trace(M @ (attracted - info["dissimilar_weight"] * D)), rel=1e-9
        )

    @pytest.mark.parametrize("unlabeled_pairs", ["all", "both"])
    def test_entropy_loss_equals_the_objective(self, pose, unlabeled_pairs):
        """Less the trace, and a pair that is known counting one."""
        options = {"unlabeled_pairs": unlabeled_pairs, "trace_weight": 0.5}
        method, problem, M, info = pose("seraph", **options)
        terms, unit = method._terms(problem)  # all pairs: there are few
        model = Model(method.threshold, method.trace_weight)
        learned = M / unit
        assert objective(learned, terms, model).value == pytest.approx(info["values"][-1])
        value = info["values"][-1] + method.trace_weight * np.trace(learned)
        n_known = (terms.kinds != 0).sum()
        found, _ = loss_of_all(method, problem, M, info)
        assert found == pytest.approx(-value / n_known, rel=1e-9)

    @pytest.mark.parametrize("name", ["apllr", "apit"])
    def test_affinity_loss_equals_the_objective(self, pose, name):
        """With every row labeled all affinities are known; then it is tr(M K), less its scale."""
        method, problem, M, info = pose(name, np.arange(60) % 3)
        K = propagated_scatter(problem.X, problem.labels, problem.graph, decay=0.99)
        found, weights = loss_of_all(method, problem, M, info)
        n_pairs = np.count_nonzero(weights) / 2
        assert found == pytest.approx(60 / n_pairs * np.trace(M @ K), rel=1e-6)

    @pytest.mark.parametrize("name", ["apllr", "apit"])
    def test_affinity_loss_averages_over_known_pairs(self, pose, name):
        method, problem, M, info = pose(name)
        P, W, edge = dense_affinities(problem)
        known = problem.labels >= 0
        total, n_pairs = 0.0, 0
        for i in range(60):
            for j in range(i):
                if not (edge[i, j] or known[i] or known[j]):
                    continue
                sent_back = 0.0
                if known[i] != known[j] and not edge[i, j]:
                    sent_back = (P[i, j] if known[i] else P[j, i]) / 2
                x = problem.X[i] - problem.X[j]
                total += (W[i, j] - sent_back) * (x @ M @ x)
                n_pairs += 1
        found, _ = loss_of_all(method, problem, M, info)
        # Affinities of edges are within 1e-4, and the squared distances some units.
        assert found == pytest.approx(total / n_pairs, abs=2e-4)

    @pytest.mark.parametrize("name", ["apllr", "apit"])
    def test_known_affinities_match_the_dense_matrix(self, pose, name):
        method, problem, _, info = pose(name)
        P, W, edge = dense_affinities(problem)
        known = problem.labels >= 0
        both = known[:, None] & known
        found = method._batch_loss(problem, info).weights_of(np.arange(60))
        np.testing.assert_allclose(found[edge], W[edge], atol=2e-4)
        np.testing.assert_allclose(found[both], W[both], atol=2e-4)
        # With one end labeled, what the other sends back is left out.
        one = (known[:, None] ^ known) & ~edge
        sent_back = np.where(known[:, None], P, P.T)
        np.testing.assert_allclose(found[one], (W - sent_back / 2)[one], atol=2e-4)
        assert not found[~edge & ~known[:, None] & ~known].any()


def test_batch_pulls_represent_all_rows(rng):
    pulls, Z = rng.standard_normal(12), torch.from_numpy(rng.standard_normal((12, 3)))
    edges = sparse.csr_array(np.eye(12)[::-1])  # of sum 12, and none within the batch
    loss, batch = LaplacianLoss(edges, 0.0, 0.0, 1.0, pulls), np.arange(4)
    squares = (Z[batch, None] - Z[batch]).square().sum(dim=2)
    weights = torch.from_numpy(loss.weights_of(batch))
    about_mean = (Z[batch] - Z[batch].mean(dim=0)).square().sum(dim=1).numpy()
    found = loss(squares, torch.full((4,), -1), weights).item()
    assert found == pytest.approx(12 / 4 * 2 * (pulls[batch] @ about_mean) / 12)


def test_pulls_to_the_mean_equal_pairs(rng):
    pulls, Z = rng.standard_normal(7), rng.standard_normal((7, 3))
    squares = ((Z[:, None] - Z) ** 2).sum(axis=2)
    expected = pulls @ ((Z - Z.mean(axis=0)) ** 2).sum(axis=1)
    assert (pairs_about_mean(pulls) * squares).sum() / 2 == pytest.approx(expected, rel=1e-12)


@every_method
def test_batch_without_pairs_has_finite_loss(pose, name):
    method, problem, _, info = pose(name)
    loss = method._batch_loss(problem, info)
    squares = torch.ones(3, 3, requires_grad=True)
    value = loss(squares, torch.tensor([0, -1, -1]), torch.zeros(3, 3))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(squares.grad).all()


def test_each_pair_has_one_kind():
    labels = torch.tensor([0, 1, 0, -1, 2])
    total = sum(mask.int() for mask in kinds_of_pairs(labels))
    assert torch.equal(total, torch.ones(5, 5).triu(1).int())


def test_batch_contains_labeled_rows_and_neighbors(rng):
    graph = knn_graph(rng.standard_normal((200, 3)), 5)
    known = np.arange(40)
    batch = draw_batch(known, graph, 60, rng)
    assert len(batch) == 60
    assert set(batch[:20]) <= set(known)
    rows, neighbors = batch[20:40], batch[40:]
    assert all(b in graph.indices[a] for a, b in zip(rows, neighbors, strict=True))
    assert len(draw_batch(np.arange(2), graph, 60, rng)) == 60


class Sizes(TorchDispatchMode):
    """Records the size of the largest tensor created."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and not made._is_view():
            self.largest = max(self.largest, made.numel())
        return made


def model(name, **options):
    recipe = {
        "backbone": small_network(),
        "n_components": 16,
        "partition_size": 150,
        "epochs": 4,
        "epochs_per_partition": 2,
        "batch_size": 30,
        "random_state": 0,
        "device": "cpu",
    }
    return DeepBaseline(name, **(recipe | options))


@pytest.fixture(scope="module")
def digits():
    return small_images()


@pytest.fixture(scope="module", params=sorted(METHODS))
def learned(request, digits):
    """A fitted model per method, and its losses beside those computed from differences."""
    X, _, labels = digits
    seen, loss = [], BaselineTrainer._loss

    def spy(run, batch):
        value = loss(run, batch)
        part = run.parts[len(run.history)]
        np.testing.assert_array_equal(part[batch.rows], batch.items)
        assert len(set(batch.items.tolist())) < len(part) < len(X)
        with torch.no_grad():
            items = torch.from_numpy(X[batch.items])[:, None]
            Z = (run.network.features(items) @ run.network.metric).numpy()
        squares = torch.from_numpy(((Z[:, None] - Z) ** 2).sum(axis=2))
        weights = torch.from_numpy(run.objective.loss.weights_of(batch.rows)).to(squares)
        known = torch.from_numpy(labels[batch.items])
        seen.append((value.item(), run.objective.loss(squares, known, weights).item()))
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaselineTrainer, "_loss", spy)
        return model(request.param).fit(X, labels), seen


class TestAlternation:
    def test_metric_and_network_are_learned(self, digits, learned):
        X, y, _ = digits
        fitted, _ = learned
        assert fitted.transform(X).shape == (len(X), 16)
        assert (fitted.transduction_ == y).mean() > 0.6
        before = small_network().state_dict()
        after = fitted.network_.backbone.backbone.state_dict()
        assert all(not torch.equal(before[key], after[key]) for key in before)
        assert [len(entry["losses"]) for entry in fitted.history_] == [2, 2]

    def test_step_descends_the_objective_of_its_rows(self, learned):
        found, expected = np.transpose(learned[1])
        assert len(found) > 4
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    @every_method
    def test_step_forms_no_pair_differences(self, digits, name):
        """They would take b² l numbers, 1.1 GB for a batch of 2,048 with 64 columns."""
        X, _, labels = digits
        b = 150
        with Sizes() as sizes:
            model(name, epochs=1, batch_size=b).fit(X, labels)
        assert b**2 <= sizes.largest < 8 * b**2

    def test_loss_decreases(self, digits):
        X, _, labels = digits
        options = {"epochs": 12, "epochs_per_partition": 12, "learning_rate": 1e-3}
        options["dampening"] = 0.0
        losses = model("lrml", **options).fit(X, labels).history_[0]["losses"]
        assert losses[-1] < losses[0]

    def test_metric_is_full_by_default(self, digits):
        X, _, labels = digits
        full = model("lrml", n_components=None, epochs=2).fit(X, labels)
        d = len(full.components_.T)
        assert full.components_.shape == (d, d)
        assert full.transform(X).shape == (len(X), d)
        assert np.linalg.matrix_rank(full.components_) == d

    @every_method
    def test_trace_is_d_for_unit_variance(self, digits, name):
        """The scale of a metric does not change its objective, but the steps of the network."""
        X, _, labels = digits
        options = {"n_components": None, "partition_size": None, "learning_rate": 1e-12}
        if name == "seraph":
            options["method_params"] = {"tol": 0.1}
        fitted = model(name, epochs=1, epochs_per_partition=1, **options).fit(X, labels)
        with torch.no_grad():
            features = fitted.network_.features(torch.from_numpy(X).float()[:, None])
        trace = (fitted.components_**2).sum() * features.double().var(dim=0, correction=0).sum()
        d = features.shape[1]
        assert (float(trace) == pytest.approx(d, rel=0.01)) == (name != "seraph")

    def test_method_params_reach_the_method(self, digits):
        X, _, labels = digits
        plain, other = (
            model("lrml", epochs=2, method_params=params).fit(X, labels)
            for params in (None, {"graph_weight": 5.0})
        )
        assert np.abs(plain.components_ - other.components_).max() > 1e-3
        with pytest.raises(ValueError, match="Invalid parameter 'weight' for estimator LRML"):
            model("lrml", method_params={"weight": 1}).fit(X, labels)
        with pytest.raises(ValueError, match="The 'graph_weight' parameter of LRML must be"):
            model("lrml", method_params={"graph_weight": -1.0}).fit(X, labels)

    def test_seraph_has_the_published_objective_by_default(self, digits):
        """Eq. (1) of Dutta et al.: a trace term, and pairs of two unlabeled samples."""
        X, _, labels = digits
        assert model("seraph").method_defaults["trace_weight"] == 1.0
        assert model("seraph").method_defaults["unlabeled_pairs"] == "both"
        options = {"epochs": 1, "partition_size": None}
        fits = [
            model("seraph", method_params={"tol": 0.1, **params}, **options).fit(X, labels)
            for params in ({}, {"trace_weight": 0.0, "unlabeled_pairs": "all"})
        ]
        n_unlabeled, n = np.count_nonzero(labels == -1), len(labels)
        known = n - n_unlabeled
        counts = [entry["n_unknown"] for fit in fits for entry in fit.history_]
        assert counts == [
            n_unlabeled * (n_unlabeled - 1) // 2,
            n * (n - 1) // 2 - known * (known - 1) // 2,
        ]

    @pytest.mark.filterwarnings("ignore:.*embedding is almost constant:RuntimeWarning")
    @every_method
    def test_missing_pairs_warn(self, digits, name):
        X, y, labels = digits
        params = {"tol": 0.1} if name == "seraph" else None  # M grows without bound; see its laws
        one_class = np.where(labels == 3, 3, -1)
        one_label = np.full(len(y), -1)
        one_label[[np.flatnonzero(y == c)[0] for c in range(10)]] = np.arange(10)
        for given, message in (
            (one_class, "only one class is labeled, so"),
            (one_label, "one label, so no"),
        ):
            with pytest.warns(UserWarning, match=rf"{METHODS[name].__name__}: .*{message}"):
                fitted = model(name, epochs=1, method_params=params).fit(X, given)
            assert np.isfinite(fitted.transform(X)).all()

    @pytest.mark.parametrize("name", ["seraph", "isdml", "apit"])
    def test_too_few_method_steps_warn(self, digits, name):
        X, _, labels = digits
        options = {"epochs": 1, "method_params": {"max_iter": 1, "tol": 1e-9}}
        with pytest.warns(ConvergenceWarning, match="max_iter=1 steps must come to tol=1e-09"):
            model(name, **options).fit(X, labels)

    def test_unknown_method_raises(self, digits):
        X, _, labels = digits
        with pytest.raises(ValueError, match="The 'method' parameter of DeepBaseline must be"):
            model("lmnn").fit(X, labels)
