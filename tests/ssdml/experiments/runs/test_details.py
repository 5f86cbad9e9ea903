"""Details of a run: the map, the answers, the file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ssdml.datasets import label_scarce_split
from ssdml.evaluation import reliability
from ssdml.evaluation.predictions import Confusion, Predictions
from ssdml.experiments.runs import details
from ssdml.experiments.runs.details import (
    Answers,
    MapSample,
    RunDetails,
    load_details,
    map_neighbors,
    map_rows,
    map_sample,
    save_details,
)

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
def test_details_survive_a_round_trip(tmp_path, rng, with_sample):
    sample = MapSample(rng.normal(size=(5, 2)).astype(np.float32), np.arange(5), np.arange(5) > 2)
    saved = RunDetails(
        CONFIG | {"seed": 0},
        ["careful"],
        {"both": 50.0},
        [*"abcdefghiß"],
        sample=sample if with_sample else None,
    )
    save_details(tmp_path / "deep" / "x.npz", saved)
    loaded = load_details(tmp_path / "deep" / "x.npz")
    for name in ("config", "warnings", "purity", "class_names"):
        assert getattr(loaded, name) == getattr(saved, name)
    assert (loaded.sample is None) == (not with_sample)
    if with_sample:
        for name, array in vars(sample).items():
            np.testing.assert_array_equal(getattr(loaded.sample, name), array)
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
    "no answers": lambda path: rewrite(path, rows=..., neighbors=...),
    "an array under another name": lambda path: rewrite(path, neighbors=..., neighbots=np.ones(3)),
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
