"""Details of a run: the map, the mined neighborhood, the file."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from ssdml.datasets import label_scarce_split
from ssdml.evaluation import reliability
from ssdml.evaluation.predictions import Confusion, Predictions
from ssdml.experiments.runs import details
from ssdml.experiments.runs.details import (
    N_NEIGHBORS,
    SHOWN_TRIPLETS,
    Answers,
    MapSample,
    RunDetails,
    load_details,
    map_neighbors,
    map_rows,
    map_sample,
    mined_sample,
    save_details,
)
from ssdml.graphs import ClassMasses, Triplets, knn_graph, mine_triplets, propagate_labels

CONFIG = {"parameters": {"class": "SSDML"}}


def test_map_marks_its_labeled_samples(blobs):
    test, labeled = map_rows(label_scarce_split(blobs, 2, seed=0), 1500)
    sample = map_sample(blobs.X[test], blobs.X[labeled], blobs.y[test], blobs.y[labeled])
    np.testing.assert_array_equal(sample.embedding[~sample.is_labeled], blobs.X[test])
    np.testing.assert_array_equal(sample.embedding[sample.is_labeled], blobs.X[labeled])
    np.testing.assert_array_equal(sample.y[sample.is_labeled], blobs.y[labeled])


def test_map_neighbors_of_duplicates_exclude_the_sample(rng):
    Z = np.repeat(rng.normal(size=(9, 3)), 2, axis=0)  # each row twice
    found = map_neighbors(Z)
    assert found.shape == (18, details.MAP_NEIGHBORS)
    assert (found != np.arange(18)[:, None]).all()
    distances = np.linalg.norm(Z[:, None] - Z, axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, : details.MAP_NEIGHBORS]
    np.testing.assert_allclose(np.take_along_axis(distances, found, axis=1), nearest)


def test_large_maps_draw_the_same_samples(blobs):
    split = label_scarce_split(blobs, 2, seed=0)
    first, second = (map_rows(split, 10)[0] for _ in range(2))
    assert len(np.unique(first)) == 10
    assert set(first) <= set(split.test)
    np.testing.assert_array_equal(first, second)


def test_wide_embedding_keeps_distances_on_few_components(rng):
    flat = rng.normal(size=(80, 20)) @ rng.normal(size=(20, 200))
    y = np.arange(40)
    kept = map_sample(flat[:40], flat[40:], y, y).embedding
    assert kept.shape == (80, details.MAP_COMPONENTS)
    assert kept.dtype == np.float32
    distances = [np.linalg.norm(Z[:40] - Z[40:], axis=1) for Z in (flat, kept)]
    np.testing.assert_allclose(*distances, rtol=1e-4)  # float32


@pytest.fixture
def learned(rng):
    """Overlapping classes, a few labels, and a model with mined triplets."""
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


def test_anchor_has_most_neighbors_of_other_classes(learned):
    model, X, labels, y = learned
    mined = mined_sample(model, X, labels, y)
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1 : N_NEIGHBORS + 1]
    others = (y[nearest] != y[:, None]).sum(axis=1)
    candidates = [i for i in np.flatnonzero(labels != -1) if i in model.triplets_.anchor]
    assert mined.around.rows[0] == max(candidates, key=lambda i: others[i])
    assert others[mined.around.rows[0]] > 0
    assert mined.around.rows[1 : N_NEIGHBORS + 1].tolist() == nearest[mined.around.rows[0]].tolist()


def test_neighborhood_keeps_graph_labels_and_classes(learned):
    model, X, labels, y = learned
    mined = mined_sample(model, X, labels, y)
    rows, graph = mined.around.rows, knn_graph(X, N_NEIGHBORS)
    matrix = graph.to_csr().toarray()[np.ix_(rows, rows)]
    expected = np.argwhere(np.triu(np.maximum(matrix, matrix.T)) > 0)
    np.testing.assert_array_equal(mined.around.edges, expected)
    np.testing.assert_array_equal(mined.around.labels, labels[rows])
    np.testing.assert_array_equal(mined.y, y[rows])


def test_neighborhood_keeps_first_triplets_and_their_number(learned):
    model, X, labels, y = learned
    mined = mined_sample(model, X, labels, y)
    around, mine = mined.around, model.triplets_.anchor == mined.around.rows[0]
    assert mined.n_triplets == mine.sum() > SHOWN_TRIPLETS
    for kept, all_of_them in (
        (around.positives, model.triplets_.positive),
        (around.negatives, model.triplets_.negative),
    ):
        np.testing.assert_array_equal(around.rows[kept], all_of_them[mine][:SHOWN_TRIPLETS])


def test_edge_affinities_match_the_miner(learned):
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


def test_anchor_does_not_depend_on_the_model(learned):
    model, X, labels, y = learned
    first = mined_sample(model, X, labels, y).around.rows[0]
    other = mine_triplets(
        knn_graph(X, N_NEIGHBORS), ClassMasses(model.label_distributions_), strategy="neighborhood"
    )
    model = SimpleNamespace(**vars(model) | {"triplets_": other})
    assert mined_sample(model, X, labels, y).around.rows[0] == first


def test_neighbors_of_unknown_class_do_not_count(learned):
    model, X, labels, y = learned
    hardest = mined_sample(model, X, labels, y).around
    unknown = y.copy()
    unknown[hardest.rows[1 : N_NEIGHBORS + 1]] = -1
    assert mined_sample(model, X, labels, unknown).around.rows[0] != hardest.rows[0]


def test_number_of_candidate_anchors_is_limited(learned, monkeypatch):
    model, X, labels, y = learned
    monkeypatch.setattr(details, "MOST_ANCHORS", 2)
    candidates = [i for i in np.flatnonzero(labels != -1) if i in model.triplets_.anchor]
    assert mined_sample(model, X, labels, y).around.rows[0] in candidates[:2]


@pytest.mark.parametrize("anchors", [None, [], [3]])
def test_no_labeled_triplets_keep_no_neighborhood(learned, anchors):
    model, X, labels, y = learned
    labels[3] = -1
    ends = None if anchors is None else np.array([anchors] * 3, dtype=np.int64)
    model.triplets_ = None if ends is None else Triplets(*ends, np.ones(len(anchors)))
    assert mined_sample(model, X, labels, y) is None
    assert mined_sample(SimpleNamespace(), X, labels, y) is None


def test_model_without_distributions_has_no_affinities(learned):
    model, X, labels, y = learned
    around = mined_sample(SimpleNamespace(triplets_=model.triplets_), X, labels, y).around
    assert len(around.edges) >= N_NEIGHBORS
    assert not around.affinities.any()


def test_few_samples_have_fewer_neighbors(learned):
    X = learned[1]
    few = SimpleNamespace(
        triplets_=Triplets(np.array([0]), np.array([1]), np.array([2]), np.ones(1)),
        label_distributions_=np.eye(3),
    )
    mined = mined_sample(few, X[:3], np.array([0, -1, 1]), np.array([0, 0, 1]))
    assert mined.around.n_neighbors == 2
    assert sorted(mined.around.rows) == [0, 1, 2]


@pytest.mark.parametrize("is_sure", [True, False])
@pytest.mark.parametrize("predicts", [True, False])
def test_answers_survive_a_round_trip(tmp_path, predicts, is_sure):
    saved = Answers(np.arange(4), np.arange(12).reshape(4, 3), None, None, None)
    if predicts:
        confidence = np.array([0.9, 0.5, 0.6, 1.0], dtype=np.float32)
        found = Predictions(np.array([0, 1, 1, 0]), confidence if is_sure else confidence * np.nan)
        bins = reliability(confidence, np.array([True, False, True, True])) if is_sure else None
        mixed_up = Confusion(np.array([0, 1]), np.array([0, 0]), np.array([3, 1]))
        saved = replace(saved, predictions=found, confusion=mixed_up, reliability=bins)
    details = RunDetails(CONFIG, class_names=["a", "b"], history=[{"loss": 0.5}], answers=saved)
    save_details(tmp_path / "x.npz", details)
    loaded = load_details(tmp_path / "x.npz")
    assert loaded.history == [{"loss": 0.5}]
    for name in ("rows", "neighbors", "predictions", "confusion", "reliability"):
        before, after = getattr(saved, name), getattr(loaded.answers, name)
        if before is None:
            assert after is None
        else:
            assert type(after) is type(before)
            parts = (before, after) if isinstance(before, tuple) else ([before], [after])
            for one, other in zip(*parts, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("with_sample", [True, False])
def test_details_survive_a_round_trip(tmp_path, rng, mined, with_sample):
    sample = MapSample(rng.normal(size=(5, 2)).astype(np.float32), np.arange(5), np.arange(5) > 2)
    kept = (sample, mined) if with_sample else (None, None)
    saved = RunDetails(
        CONFIG | {"seed": 0},
        ["careful"],
        {"both": 50.0},
        [*"abcdefghiß"],
        sample=kept[0],
        mined=kept[1],
    )
    save_details(tmp_path / "deep" / "x.npz", saved)
    loaded = load_details(tmp_path / "deep" / "x.npz")
    for name in ("config", "warnings", "purity", "class_names"):
        assert getattr(loaded, name) == getattr(saved, name)
    assert (loaded.sample is None) == (loaded.mined is None) == (not with_sample)
    if with_sample:
        for name, array in vars(sample).items():
            np.testing.assert_array_equal(getattr(loaded.sample, name), array)
        assert loaded.mined.n_triplets == mined.n_triplets
        assert isinstance(loaded.mined.around.n_neighbors, int)
        np.testing.assert_array_equal(loaded.mined.y, mined.y)
        for name, array in mined.around._asdict().items():
            np.testing.assert_array_equal(getattr(loaded.mined.around, name), array)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.npz"]


def test_missing_details_are_none(tmp_path):
    assert load_details(tmp_path / "x.npz") is None


def test_full_disk_leaves_no_partial_details(tmp_path, monkeypatch):
    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match=r"No space left.*repeat the command with --resume.*x\.npz"):
        save_details(tmp_path / "x.npz", RunDetails(CONFIG))
    assert list(tmp_path.iterdir()) == []


def whole_details(rng):
    """Details with a map of three test samples and two labeled ones."""
    sample = MapSample(
        rng.normal(size=(5, 2)).astype(np.float32), np.arange(5) % 2, np.arange(5) > 2
    )
    answers = Answers(np.arange(5), np.array([[1], [2], [0]]), None, None, None)
    return RunDetails(CONFIG, class_names=["a", "b"], sample=sample, answers=answers)


DAMAGED = {
    "no archive": lambda path: path.write_bytes(b"no archive"),
    "an empty file": lambda path: path.write_bytes(b""),
    "a cut file": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "a turned bit": lambda path: path.write_bytes(turned(path.read_bytes(), 300)),
    "no map": lambda path: rewrite(path, y=...),
    "classes without a name": lambda path: rewrite(path, y=np.full(5, 2)),
    "a short column": lambda path: rewrite(path, is_labeled=np.zeros(4, bool)),
    "NaN": lambda path: rewrite(path, embedding=np.full((5, 2), np.nan)),
    "a neighbor that is not there": lambda path: rewrite(path, neighbors=np.array([[9], [0], [0]])),
    "deep JSON": lambda path: rewrite(path, meta="[" * 10**5),
    "other JSON": lambda path: rewrite(path, meta="[]"),
    "no configuration": lambda path: rewrite(path, meta='{"config": {}}'),
    "objects": lambda path: np.savez(path, meta=np.array([{}], dtype=object)),
}


def turned(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def rewrite(path, **changes):
    """Change arrays of a file, and remove those that are ..."""
    arrays = dict(np.load(path)) | changes
    np.savez_compressed(path, **{name: part for name, part in arrays.items() if part is not ...})


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_details_are_refused_by_name(tmp_path, rng, case):
    path = tmp_path / "x.npz"
    save_details(path, whole_details(rng))
    load_details(path)
    DAMAGED[case](path)
    with pytest.raises(ValueError, match=rf"^{path}: "):
        load_details(path)
