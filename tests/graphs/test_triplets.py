"""Triplets mined by both strategies, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import (
    ClassMasses,
    KNNGraph,
    class_masses,
    knn_graph,
    mine_triplets,
    propagate_affinities,
    propagate_labels,
)
from ssdml.graphs.triplets import affinity_lookup
from tests import reference

STRATEGIES = ["neighborhood", "propagated"]


@pytest.fixture
def blobs(rng):
    """Three blobs of 60 rows that touch, three labels each."""
    centers = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    truth = np.repeat(np.arange(3), 60)
    X = centers[truth] + rng.standard_normal((180, 2))
    y = np.full(180, -1)
    labeled = np.concatenate([np.arange(3), 60 + np.arange(3), 120 + np.arange(3)])
    y[labeled] = truth[labeled]
    return knn_graph(X, 8), y, truth


@pytest.fixture(params=["masses", "edges", "all"])
def affinities(request, blobs):
    graph, y, _ = blobs
    if request.param == "masses":
        return class_masses(graph, y, decay=0.9)
    return propagate_affinities(graph, y, decay=0.9, sides="two", pairs=request.param)


def entries(affinities, i, j):
    if isinstance(affinities, ClassMasses):
        return affinities.affinities(i, j)
    dense = affinities.toarray() if sparse.issparse(affinities) else affinities
    return dense[i, j]


class TestNeighborhood:
    @pytest.mark.parametrize("n_neighbors", [2, 5, 8])
    def test_agrees_with_the_slow_twin(self, rng, n_neighbors):
        graph = knn_graph(rng.standard_normal((50, 3)), n_neighbors)
        W = rng.integers(-2, 3, (50, 50)) / 2.0  # many ties: rank in the graph decides
        W = (W + W.T) / 2
        triplets = mine_triplets(graph, W, strategy="neighborhood")
        expected = reference.neighborhood_triplets(graph.indices, W)
        mined = np.stack([triplets.anchor, triplets.positive, triplets.negative], axis=1)
        np.testing.assert_array_equal(mined, expected)
        np.testing.assert_array_equal(triplets.weight, 1.0)

    def test_all_kinds_of_affinities_agree(self, blobs):
        graph, y, _ = blobs
        masses = class_masses(graph, y, decay=0.9, tol=1e-10)
        full = masses.affinities(np.arange(180)[:, None], np.arange(180)[None, :])
        on_edges = np.zeros((180, 180))
        np.put_along_axis(on_edges, graph.indices, 1, axis=1)
        on_edges = sparse.csr_array(full * on_edges)
        expected = mine_triplets(graph, full, strategy="neighborhood")
        for kind in (masses, on_edges):
            mined = mine_triplets(graph, kind, strategy="neighborhood")
            np.testing.assert_array_equal(mined.positive, expected.positive)
            np.testing.assert_array_equal(mined.negative, expected.negative)

    def test_masses_are_compared_by_their_affinities_alone(self):
        # Row 1 leans to the class of row 0, but its affinity is below that of row 2.
        F = np.array([[0.4, 0.3, 0.3], [0.36, 0.32, 0.32], [0.1, 0.2, 0.2]])
        graph = KNNGraph(np.array([[1, 2], [0, 2], [0, 1]]), np.ones((3, 2)))
        masses = ClassMasses(F)
        assert masses.affinities(0, 1) < masses.affinities(0, 2) < 0
        assert mine_triplets(graph, masses, strategy="neighborhood").positive[0] == 2

    def test_an_odd_k_leaves_the_middle_neighbor_out(self):
        graph = KNNGraph(np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]), np.ones((4, 3)))
        W = np.zeros((4, 4))
        W[0] = [0.0, 0.1, 0.3, 0.2]
        triplets = mine_triplets(graph, W, strategy="neighborhood")
        assert (triplets.positive[0], triplets.negative[0]) == (2, 1)

    def test_a_part_is_drawn_by_seed(self, blobs):
        graph, y, _ = blobs
        masses = class_masses(graph, y)
        whole = np.stack(mine_triplets(graph, masses, strategy="neighborhood")[:3], axis=1)
        options = {"strategy": "neighborhood", "n_triplets": 100}
        part = mine_triplets(graph, masses, random_state=3, **options)
        assert len({*map(tuple, np.stack(part[:3], axis=1))}) == 100
        assert {*map(tuple, np.stack(part[:3], axis=1))} <= {*map(tuple, whole)}
        again = mine_triplets(graph, masses, random_state=3, **options)
        np.testing.assert_array_equal(again.negative, part.negative)

    def test_one_neighbor_is_too_few(self):
        graph = KNNGraph(np.array([[1], [0]]), np.ones((2, 1)))
        with pytest.raises(ValueError, match=r"at least 2 neighbors .* got n_neighbors=1\. Copies"):
            mine_triplets(graph, np.eye(2), strategy="neighborhood")


class TestPropagated:
    def test_positives_attract_and_negatives_repel(self, blobs, affinities):
        graph, _, _ = blobs
        t = mine_triplets(graph, affinities, random_state=0)
        assert (t.anchor != t.positive).all()
        assert (t.anchor != t.negative).all()
        assert (t.positive != t.negative).all()
        to_negative = entries(affinities, t.anchor, t.negative)
        if sparse.issparse(affinities):
            # Beyond the anchor's own edges it is the positive that repels the negative.
            from_positive = entries(affinities, t.positive, t.negative)
            to_negative = np.where(to_negative == 0, from_positive, to_negative)
        assert (to_negative < 0).all()
        if not isinstance(affinities, ClassMasses):
            assert (entries(affinities, t.anchor, t.positive) > 0).all()

    def test_weights_lie_between_zero_and_one(self, blobs, affinities):
        t = mine_triplets(blobs[0], affinities, random_state=0)
        assert (t.weight > 0).all()
        assert (t.weight <= 1).all()

    def test_most_weight_is_right(self, blobs):
        graph, y, truth = blobs
        t = mine_triplets(graph, class_masses(graph, y, decay=0.9), random_state=0)
        right = truth[t.anchor] == truth[t.positive]
        wrong = truth[t.anchor] == truth[t.negative]
        assert np.average(right, weights=t.weight) > 0.97
        assert np.average(wrong, weights=t.weight) < 0.05
        assert np.average(wrong, weights=t.weight) < wrong.mean()

    def test_weight_is_product_of_confidences(self):
        F = np.array([[0.9, 0.1], [0.4, 0.0], [0.1, 0.3], [0.2, 0.6]])
        graph = KNNGraph(np.array([[1, 2], [0, 3], [3, 0], [2, 1]]), np.ones((4, 2)))
        t = mine_triplets(graph, ClassMasses(F), n_triplets=40, random_state=0)
        p = F / F.sum(axis=1, keepdims=True)
        entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1)
        confidence = (1 - entropy / np.log(2)) ** 2
        expected = confidence[t.anchor] * confidence[t.positive] * confidence[t.negative]
        np.testing.assert_allclose(t.weight, expected)

    def test_doubt_is_not_difference(self):
        # Ten classes; rows 0 and 1 lean to the first with 0.3 of their mass, row 2 to the second.
        # The vote of the masses says that 0 and 1 differ: 2 F_0·F_1 = 0.29 < 1.
        F = np.full((3, 10), 0.7 / 9)
        F[[0, 1], 0] = F[2, 1] = 0.3
        graph = KNNGraph(np.array([[1, 2], [0, 2], [0, 1]]), np.ones((3, 2)))
        masses = ClassMasses(F)
        assert masses.affinities(0, 1) < 0
        t = mine_triplets(graph, masses, n_triplets=30, random_state=0)
        assert {*zip(t.anchor, t.positive, t.negative, strict=True)} == {(0, 1, 2), (1, 0, 2)}

    def test_negatives_are_neighbors_first(self):
        # Row 3 is a neighbor of row 0 and of another class; rows 4 and 5 are as well, far away.
        F = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
        indices = np.array([[1, 2, 3], [0, 2, 4], [0, 1, 5], [4, 5, 0], [3, 5, 1], [3, 4, 2]])
        t = mine_triplets(KNNGraph(indices, np.ones((6, 3))), ClassMasses(F), n_triplets=60)
        np.testing.assert_array_equal(t.negative, (t.anchor + 3) % 6)

    def test_then_negatives_are_neighbors_of_positive(self):
        # Row 0 has neighbors of its own class alone; its positives 1 and 2 border on 3.
        F = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
        indices = np.array([[1, 2], [0, 3], [1, 3], [4, 5], [3, 5], [3, 4]])
        t = mine_triplets(KNNGraph(indices, np.ones((6, 2))), ClassMasses(F), n_triplets=60)
        np.testing.assert_array_equal(t.negative[t.anchor == 0], 3)

    def test_then_negatives_come_from_likely_class(self):
        # Two islands of classes 0 and 1, one of class 2; rows of class 0 lean a little to class 1.
        F = np.repeat([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]], 4, axis=0)
        island = np.array([[1, 2], [0, 2], [0, 1], [0, 1]])
        graph = KNNGraph(np.r_[island, island + 4, island + 8], np.ones((12, 2)))
        t = mine_triplets(graph, ClassMasses(F), n_triplets=240, random_state=0)
        of_first = t.negative[t.anchor < 4]
        assert of_first.size == 80
        assert ((of_first >= 4) & (of_first < 8)).all()

    def test_positives_may_lie_anywhere(self, blobs):
        graph, y, truth = blobs
        t = mine_triplets(graph, class_masses(graph, y, decay=0.9), random_state=0)
        near = (graph.indices[t.anchor] == t.positive[:, None]).any(axis=1)
        assert near.mean() < 0.5
        assert (truth[t.anchor] == truth[t.positive])[~near].mean() > 0.9

    def test_each_row_is_an_anchor_equally_often(self, blobs):
        graph, y, _ = blobs
        t = mine_triplets(graph, class_masses(graph, y, decay=0.9), n_triplets=450, random_state=0)
        counts = np.bincount(t.anchor, minlength=180)
        assert counts.max() <= 3
        assert 400 <= t.anchor.size <= 450
        assert (np.diff(t.anchor) >= 0).all()

    def test_seed_decides_in_any_blocks(self, blobs, monkeypatch):
        graph, y, _ = blobs
        masses = class_masses(graph, y, decay=0.9)
        first = mine_triplets(graph, masses, random_state=1)
        for random_state in (1, np.random.default_rng(1)):
            again = mine_triplets(graph, masses, random_state=random_state)
            np.testing.assert_array_equal(np.stack(again), np.stack(first))
        other = mine_triplets(graph, masses, random_state=2)
        assert (other.positive[:50] != first.positive[:50]).any()
        monkeypatch.setattr("ssdml.graphs.triplets.BLOCK_ANCHORS", 7)
        assert mine_triplets(graph, masses, random_state=1).anchor.size > 0.9 * first.anchor.size

    def test_propagated_labels_serve_as_masses(self, blobs):
        graph, y, truth = blobs
        labels = propagate_labels(graph, y)
        t = mine_triplets(graph, ClassMasses(labels), random_state=0)
        assert np.average(truth[t.anchor] == truth[t.positive], weights=t.weight) > 0.97

    def test_rows_without_mass_are_in_no_triplet(self):
        F = np.array([[1.0, 0], [1, 0], [0, 1], [0, 0]])
        graph = KNNGraph(np.array([[3, 1], [3, 0], [3, 0], [0, 1]]), np.ones((4, 2)))
        t = mine_triplets(graph, ClassMasses(F), n_triplets=40, random_state=0)
        assert 3 not in np.concatenate(t[:3])
        assert {*t.anchor.tolist()} == {0, 1}  # row 2 is alone in its class

    def test_rows_of_even_masses_are_excluded(self):
        F = np.array([[0, 1, 0, 0], [0, 1, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0, 0, 1]])
        graph = KNNGraph(np.array([[1, 2], [0, 2], [0, 1], [0, 2]]), np.ones((4, 2)))
        with pytest.warns(RuntimeWarning, match="found no anchor"):
            mine_triplets(graph, ClassMasses(F), n_triplets=40, random_state=0)

    def test_on_edges_negatives_oppose_the_positive(self):
        # Row 0 knows row 1 alone; row 1 is repelled by row 2.
        W = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, -0.25], [0.0, -0.25, 0.0]])
        graph = KNNGraph(np.array([[1], [2], [1]]), np.ones((3, 1)))
        t = mine_triplets(graph, sparse.csr_array(W), n_triplets=3, random_state=0)
        assert (t.anchor[0], t.positive[0], t.negative[0]) == (0, 1, 2)
        np.testing.assert_allclose(t.weight[0], np.sqrt(0.5 * 0.25) / 0.5)

    def test_array_gives_positives_beyond_neighbors(self):
        # Rows 0 and 3 attract each other and neighbor 1 and 2, which repel them.
        W = np.full((4, 4), -1.0) + 6 * np.eye(4)
        W[0, 3] = W[3, 0] = 1.0
        graph = KNNGraph(np.array([[1, 2], [0, 2], [0, 1], [1, 2]]), np.ones((4, 2)))
        t = mine_triplets(graph, W, n_triplets=40, random_state=0)
        assert {*zip(t.anchor, t.positive, strict=True)} == {(0, 3), (3, 0)}

    @pytest.mark.parametrize(
        "nothing",
        [
            ClassMasses(np.ones((3, 1))),
            ClassMasses(np.zeros((3, 2))),
            np.ones((3, 3)),
            np.zeros((3, 3)),
            sparse.csr_array((3, 3)),
        ],
        ids=["one class", "no mass", "all alike", "all zero", "no edges"],
    )
    def test_nothing_to_mine_warns_and_returns_nothing(self, nothing):
        graph = KNNGraph(np.array([[1, 2], [0, 2], [0, 1]]), np.ones((3, 2)))
        with pytest.warns(RuntimeWarning, match="found no anchor with .* lower decay"):
            t = mine_triplets(graph, nothing, strategy="propagated")
        assert [part.size for part in t] == [0, 0, 0, 0]
        assert t.anchor.dtype == np.int64


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_affinities_are_never_written(blobs, strategy):
    graph, y, _ = blobs
    masses = class_masses(graph, y)
    W = propagate_affinities(graph, y, sides="two")
    for array in (graph.indices, graph.distances, masses.masses, W.data, W.indices, W.indptr):
        array.flags.writeable = False
    mine_triplets(graph, masses, strategy=strategy, random_state=0)
    mine_triplets(graph, W, strategy=strategy, random_state=0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.ones((2, 3)), r"affinities must have shape \(3, 3\).*got \(2, 3\). Pass those of"),
        (sparse.csr_array((4, 4)), r"affinities must have shape \(3, 3\).*got \(4, 4\)"),
        (ClassMasses(np.ones((4, 2))), r"affinities must have shape \(3, 2\).*got \(4, 2\)"),
        (np.full((3, 3), np.nan), "affinities must be finite"),
    ],
)
def test_affinities_of_another_graph_are_refused(strategy, wrong, message):
    graph = KNNGraph(np.array([[1, 2], [0, 2], [0, 1]]), np.ones((3, 2)))
    with pytest.raises(ValueError, match=message):
        mine_triplets(graph, wrong, strategy=strategy)


def test_bad_options_are_named():
    graph = KNNGraph(np.array([[1, 2], [0, 2], [0, 1]]), np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"strategy must be one of .* Did you mean 'neighborhood'"):
        mine_triplets(graph, np.eye(3), strategy="neighbourhood")
    with pytest.raises(ValueError, match="n_triplets must be at least 1; got 0"):
        mine_triplets(graph, np.eye(3), n_triplets=0)
    with pytest.raises(TypeError, match="mine_triplets: graph must be a KNNGraph; got ndarray"):
        mine_triplets(np.eye(3), np.eye(3))


@pytest.mark.parametrize("strategy", ["neighborhood", "propagated"])
class TestAnchors:
    def test_only_given_rows_are_anchors(self, rng, strategy):
        graph = knn_graph(rng.standard_normal((60, 3)), 6)
        masses = ClassMasses(rng.dirichlet(np.full(3, 0.1), 60))
        anchors = np.array([41, 3, 17, 3])
        triplets = mine_triplets(graph, masses, strategy=strategy, anchors=anchors, random_state=0)
        assert set(triplets.anchor) == {3, 17, 41}
        assert len(triplets.anchor) <= 3 * 3

    def test_all_rows_are_the_default(self, rng, strategy):
        graph = knn_graph(rng.standard_normal((60, 3)), 6)
        masses = ClassMasses(rng.dirichlet(np.full(3, 0.1), 60))
        options = {"strategy": strategy, "random_state": 0}
        every = mine_triplets(graph, masses, anchors=np.arange(60), **options)
        for given, expected in zip(every, mine_triplets(graph, masses, **options), strict=True):
            np.testing.assert_array_equal(given, expected)

    @pytest.mark.parametrize(
        ("anchors", "found"),
        [
            ([], "none"),
            ([0, 60], "int64 from 0 to 60"),
            ([-1], "int64 from -1 to -1"),
            ([0.5], "float64 from 0.5 to 0.5"),
            (np.ones(60, bool), r"bool from True to True. Pass numpy.flatnonzero\(anchors\)"),
        ],
    )
    def test_others_are_refused(self, rng, strategy, anchors, found):
        graph = knn_graph(rng.standard_normal((60, 3)), 6)
        with pytest.raises(ValueError, match=f"anchors must be rows from 0 to 59, .*got {found}"):
            mine_triplets(graph, ClassMasses(np.ones((60, 1))), strategy=strategy, anchors=anchors)


def test_blocks_of_anchors_follow_the_rules(rng, monkeypatch):
    """Signs of affinities are right in many blocks as in one."""
    graph = knn_graph(rng.standard_normal((80, 3)), 6)
    masses = ClassMasses(rng.dirichlet(np.full(4, 0.2), 80))
    monkeypatch.setattr("ssdml.graphs.triplets.BLOCK_ANCHORS", 7)
    monkeypatch.setattr("ssdml.graphs.triplets.BLOCK_ROWS", 5)
    triplets = mine_triplets(graph, masses, strategy="propagated", n_triplets=33, random_state=1)
    lookup = affinity_lookup(masses, 80, "test")
    assert (lookup.evidence(triplets.anchor, triplets.positive) > 0).all()
    assert len(triplets.anchor) > 20
    opposed = lookup.evidence(triplets.anchor, triplets.negative)
    beside = lookup.evidence(triplets.positive, triplets.negative)
    assert ((opposed < 0) | ((opposed == 0) & (beside < 0))).all()
