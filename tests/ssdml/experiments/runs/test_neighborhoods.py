"""What a run keeps of one row's neighborhood: which row, which edges, which triplets."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ssdml.experiments.runs import details as neighborhoods
from ssdml.experiments.runs.details import N_NEIGHBORS, SHOWN_TRIPLETS, MinedSample, mined_sample
from ssdml.graphs import ClassMasses, Triplets, knn_graph, mine_triplets, propagate_labels


@pytest.fixture
def learned(rng):
    """Rows of three classes that overlap, a few labels, and a model that has mined triplets."""
    y = np.repeat(np.arange(3), 40)
    X = rng.normal(size=(120, 4)) + 1.5 * np.eye(4)[y]
    labels = np.full(120, -1)
    few = np.arange(120).reshape(3, 40)[:, :5].ravel()
    labels[few] = y[few]
    graph = knn_graph(X, N_NEIGHBORS)
    distributions = propagate_labels(graph, labels)
    mined = mine_triplets(graph, ClassMasses(distributions), n_triplets=2400, random_state=0)
    model = SimpleNamespace(triplets_=mined, label_distributions_=distributions)
    return model, X, labels, y


def test_the_anchor_is_the_labeled_row_with_the_most_neighbors_of_another_class(learned):
    model, X, labels, y = learned
    mined = mined_sample(model, X, labels, y)
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1 : N_NEIGHBORS + 1]
    others = (y[nearest] != y[:, None]).sum(axis=1)
    candidates = [i for i in np.flatnonzero(labels != -1) if i in model.triplets_.anchor]
    assert mined.around.rows[0] == max(candidates, key=lambda i: others[i])
    assert others[mined.around.rows[0]] > 0
    assert mined.around.rows[1 : N_NEIGHBORS + 1].tolist() == nearest[mined.around.rows[0]].tolist()


def test_it_keeps_the_graph_the_labels_and_the_classes_of_its_rows(learned):
    model, X, labels, y = learned
    mined = mined_sample(model, X, labels, y)
    rows, graph = mined.around.rows, knn_graph(X, N_NEIGHBORS)
    matrix = graph.to_csr().toarray()[np.ix_(rows, rows)]
    expected = np.argwhere(np.triu(np.maximum(matrix, matrix.T)) > 0)
    np.testing.assert_array_equal(mined.around.edges, expected)
    np.testing.assert_array_equal(mined.around.labels, labels[rows])
    np.testing.assert_array_equal(mined.y, y[rows])


def test_it_keeps_the_first_triplets_of_the_anchor_and_their_number(learned):
    model, X, labels, y = learned
    mined = mined_sample(model, X, labels, y)
    around, mine = mined.around, model.triplets_.anchor == mined.around.rows[0]
    assert mined.n_triplets == mine.sum() > SHOWN_TRIPLETS
    for kept, all_of_them in (
        (around.positives, model.triplets_.positive),
        (around.negatives, model.triplets_.negative),
    ):
        np.testing.assert_array_equal(around.rows[kept], all_of_them[mine][:SHOWN_TRIPLETS])


def test_edges_say_by_their_sign_and_size_what_the_miner_goes_by(learned):
    model, X, labels, y = learned
    around = mined_sample(model, X, labels, y).around
    F = model.label_distributions_
    entropies = -(F * np.log(np.where(F > 0, F, 1))).sum(axis=1) / np.log(3)
    i, j = around.rows[around.edges.T]
    trust = (1 - entropies[i]) * (1 - entropies[j])
    np.testing.assert_allclose(np.abs(around.affinities), trust / trust.max(), atol=1e-12)
    likeliest = F.argmax(axis=1)
    np.testing.assert_array_equal(around.affinities > 0, likeliest[i] == likeliest[j])
    votes = ClassMasses(F).affinities(i, j)
    assert (around.affinities[votes > 0] > 0).all()


def test_it_is_the_same_row_for_every_model_that_mines_for_it(learned):
    model, X, labels, y = learned
    first = mined_sample(model, X, labels, y).around.rows[0]
    other = mine_triplets(
        knn_graph(X, N_NEIGHBORS), ClassMasses(model.label_distributions_), strategy="neighborhood"
    )
    model = SimpleNamespace(**vars(model) | {"triplets_": other})
    assert mined_sample(model, X, labels, y).around.rows[0] == first


def test_neighbors_whose_class_nobody_knows_count_for_neither(learned):
    model, X, labels, y = learned
    hardest = mined_sample(model, X, labels, y).around
    unknown = y.copy()
    unknown[hardest.rows[1 : N_NEIGHBORS + 1]] = -1
    assert mined_sample(model, X, labels, unknown).around.rows[0] != hardest.rows[0]


def test_many_labeled_rows_are_not_all_searched(learned, monkeypatch):
    model, X, labels, y = learned
    monkeypatch.setattr(neighborhoods, "MOST_ANCHORS", 2)
    candidates = [i for i in np.flatnonzero(labels != -1) if i in model.triplets_.anchor]
    assert mined_sample(model, X, labels, y).around.rows[0] in candidates[:2]


@pytest.mark.parametrize("anchors", [None, [], [3]])
def test_without_triplets_of_a_labeled_row_there_is_nothing_to_keep(learned, anchors):
    model, X, labels, y = learned
    labels[3] = -1
    ends = None if anchors is None else np.array([anchors] * 3, dtype=np.int64)
    model.triplets_ = None if ends is None else Triplets(*ends, np.ones(len(anchors)))
    assert mined_sample(model, X, labels, y) is None
    assert mined_sample(SimpleNamespace(), X, labels, y) is None


def test_a_model_without_distributions_keeps_edges_without_affinities(learned):
    model, X, labels, y = learned
    around = mined_sample(SimpleNamespace(triplets_=model.triplets_), X, labels, y).around
    assert len(around.edges) >= N_NEIGHBORS
    assert not around.affinities.any()


def test_few_rows_have_fewer_neighbors(learned):
    X = learned[1]
    few = SimpleNamespace(
        triplets_=Triplets(np.array([0]), np.array([1]), np.array([2]), np.ones(1)),
        label_distributions_=np.eye(3),
    )
    mined = mined_sample(few, X[:3], np.array([0, -1, 1]), np.array([0, 0, 1]))
    assert mined.around.n_neighbors == 2
    assert sorted(mined.around.rows) == [0, 1, 2]


def test_a_sample_comes_back_from_its_arrays_and_arrays_without_one_give_none(learned):
    kept = mined_sample(*learned)
    arrays = kept.to_arrays()
    loaded = MinedSample.from_arrays(arrays)
    assert loaded.n_triplets == kept.n_triplets
    np.testing.assert_array_equal(loaded.y, kept.y)
    assert isinstance(loaded.around.n_neighbors, int)
    for name, value in kept.around._asdict().items():
        np.testing.assert_array_equal(getattr(loaded.around, name), value)
    assert sum(array.nbytes for array in arrays.values()) < 10_000
    assert MinedSample.from_arrays({"embedding": np.ones(3)}) is None
