"""SSDML.paper() against a slow implementation of Dutta et al. (2021)."""

from __future__ import annotations

import numpy as np
import pytest
from pymanopt import Problem, function
from pymanopt.manifolds import Stiefel
from pymanopt.optimizers import ConjugateGradient
from sklearn.preprocessing import Normalizer

from ssdml import SSDML
from ssdml.metric import alternation
from ssdml.utils.linalg import random_orthonormal
from tests import reference


def slow_angular(X, triplets, angle):
    """The objective of the paper, triplet by triplet, averaged, with its gradient."""
    factor = 4 * np.tan(np.radians(angle)) ** 2

    def objective(L):
        value, gradient = 0.0, np.zeros_like(L)
        for a, p, n in triplets:
            near, far = X[a] - X[p], X[n] - (X[a] + X[p]) / 2
            margin = ((L.T @ near) ** 2).sum() - factor * ((L.T @ far) ** 2).sum()
            value += np.log1p(np.exp(margin))
            slope = 1 / (1 + np.exp(-margin))
            outer = np.outer(near, near) - factor * np.outer(far, far)
            gradient += 2 * slope * outer @ L
        return value / len(triplets), gradient / len(triplets)

    return objective


def test_paper_warns_of_short_rows_and_takes_long_ones(blobs):
    X, _, labels = blobs
    with pytest.warns(UserWarning, match=r"unit length with partition_size; .* random start, as"):
        SSDML.paper(random_state=0).fit(1e-4 * X, labels)
    fitted = SSDML.paper(random_state=0).fit(1e120 * X, labels)  # warnings are errors
    assert fitted.history_[0]["n_iter"] > 0


def test_paper_agrees_with_a_slow_implementation(blobs):
    """One-sided affinities, neighborhood triplets, ten steps from a random start."""
    X, _, labels = blobs
    X = Normalizer().fit_transform(X)
    model = SSDML.paper(random_state=np.random.RandomState(3)).fit(X, labels)

    indices, _ = reference.knn(X, 10)
    W = reference.one_sided_affinities(indices, labels, 0.99)
    triplets = reference.neighborhood_triplets(indices, W)
    objective = slow_angular(X, triplets, 40.0)
    manifold = Stiefel(5, 2)
    seed = np.random.RandomState(3).randint(np.iinfo(np.int32).max)
    start = random_orthonormal(5, 2, np.random.default_rng(seed))
    problem = Problem(
        manifold,
        function.numpy(manifold)(lambda L: objective(L)[0]),
        euclidean_gradient=function.numpy(manifold)(lambda L: objective(L)[1]),
    )
    search = ConjugateGradient(max_iterations=10, verbosity=0)
    expected = search.run(problem, initial_point=start).point

    np.testing.assert_array_equal(
        np.sort(np.array(model.triplets_[:3]).T, axis=0), np.sort(triplets, axis=0)
    )
    np.testing.assert_allclose(model.components_, expected.T, atol=1e-6)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-12)


def test_paper_has_the_published_parameters():
    params = SSDML.paper().get_params()
    assert params["guard"] is False
    assert params["input_weight"] == 0
    assert (params["propagation"], params["mining"]) == ("one-sided", "neighborhood")
    assert params["partition_size"] == 9000
    assert SSDML.paper(7, partition_size=50).get_params()["partition_size"] == 50
    assert SSDML.paper(7).n_components == 7


@pytest.mark.parametrize(
    ("partition_size", "max_rounds", "expected"),
    [(9000, None, 1), (50, None, 2), (10, None, 5), (50, 1, 1), (50, 4, 4)],
)
def test_number_of_partitions(blobs, partition_size, max_rounds, expected):
    """100 unlabeled rows: as many partitions as they fill, at most 5, unless given."""
    X, _, labels = blobs
    model = SSDML.paper(partition_size=partition_size, max_rounds=max_rounds, random_state=0)
    model.fit(X, labels)
    assert len(model.history_) == expected
    rows = 20 + min(partition_size, 100)
    assert [entry["n_triplets"] for entry in model.history_] == [rows * 5] * expected
    assert model.triplets_.anchor.max() < len(X)


def test_partitions_are_disjoint(blobs, monkeypatch):
    seen = []
    monkeypatch.setattr(
        alternation,
        "mine",
        lambda s, *rest, mine=alternation.mine: seen.append(s) or mine(s, *rest),
    )
    X, _, labels = blobs
    SSDML.paper(partition_size=50, random_state=0).fit(X, labels)
    rows = np.concatenate([part.X[part.labels == -1] for part in seen])
    np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(X[labels == -1], axis=0))
