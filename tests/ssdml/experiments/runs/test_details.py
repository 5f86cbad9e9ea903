"""What the report needs beyond the rows: the sample on the map, the file."""

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


def test_a_map_holds_test_rows_and_labeled_rows_and_marks_these(blobs):
    test, labeled = map_rows(label_scarce_split(blobs, 2, seed=0))
    sample = map_sample(blobs.X[test], blobs.X[labeled], blobs.y[test], blobs.y[labeled])
    np.testing.assert_array_equal(sample.embedding[~sample.is_labeled], blobs.X[test])
    np.testing.assert_array_equal(sample.embedding[sample.is_labeled], blobs.X[labeled])
    np.testing.assert_array_equal(sample.y[sample.is_labeled], blobs.y[labeled])


def test_neighbors_on_a_map_are_the_nearest_others_even_of_copies(rng):
    Z = np.repeat(rng.normal(size=(9, 3)), 2, axis=0)  # each row twice
    found = map_neighbors(Z)
    assert found.shape == (18, details.MAP_NEIGHBORS)
    assert (found != np.arange(18)[:, None]).all()
    distances = np.linalg.norm(Z[:, None] - Z, axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, : details.MAP_NEIGHBORS]
    np.testing.assert_allclose(np.take_along_axis(distances, found, axis=1), nearest)


def test_a_large_map_is_the_same_sample_for_every_method(blobs):
    split = label_scarce_split(blobs, 2, seed=0)
    first, second = (map_rows(split, 10)[0] for _ in range(2))
    assert len(np.unique(first)) == 10
    assert set(first) <= set(split.test)
    np.testing.assert_array_equal(first, second)


def test_a_wide_embedding_keeps_its_distances_on_few_components(rng):
    flat = rng.normal(size=(80, 20)) @ rng.normal(size=(20, 200))
    kept = details._leading_components(flat)
    assert kept.shape == (80, details.MAP_COMPONENTS)
    assert kept.dtype == np.float32
    distances = [np.linalg.norm(Z[:40] - Z[40:], axis=1) for Z in (flat, kept)]
    np.testing.assert_allclose(*distances, rtol=1e-4)  # float32


@pytest.mark.parametrize("is_sure", [True, False])
@pytest.mark.parametrize("predicts", [True, False])
def test_answers_come_back_as_they_were_saved(tmp_path, predicts, is_sure):
    saved = Answers(np.arange(4), np.arange(12).reshape(4, 3), None, None, None)
    if predicts:
        confidence = np.array([0.9, 0.5, 0.6, 1.0], dtype=np.float32)
        found = Predictions(np.array([0, 1, 1, 0]), confidence if is_sure else confidence * np.nan)
        bins = reliability(confidence, np.array([True, False, True, True])) if is_sure else None
        mixed_up = Confusion(np.array([0, 1]), np.array([0, 0]), np.array([3, 1]))
        saved = replace(saved, predictions=found, confusion=mixed_up, reliability=bins)
    save_details(tmp_path / "x.npz", RunDetails({}, history=[{"loss": 0.5}], answers=saved))
    loaded = load_details(tmp_path / "x.npz")
    assert loaded.history == [{"loss": 0.5}]
    for name in ("rows", "neighbors", "predictions", "confusion", "reliability"):
        before, after = getattr(saved, name), getattr(loaded.answers, name)
        if before is None:
            assert after is None
        else:
            assert type(after) is type(before)
            for one, other in zip(np.atleast_1d(before), np.atleast_1d(after), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("with_sample", [True, False])
def test_details_come_back_as_they_were_saved(tmp_path, rng, mined, with_sample):
    sample = MapSample(rng.normal(size=(5, 2)).astype(np.float32), np.arange(5), np.arange(5) > 2)
    kept = (sample, mined) if with_sample else (None, None)
    saved = RunDetails(
        {"seed": 0}, ["careful"], {"both": 50.0}, ["a", "ß"], sample=kept[0], mined=kept[1]
    )
    save_details(tmp_path / "deep" / "x.npz", saved)
    loaded = load_details(tmp_path / "deep" / "x.npz")
    for name in ("config", "warnings", "purity", "class_names"):
        assert getattr(loaded, name) == getattr(saved, name)
    assert (loaded.sample is None) == (loaded.mined is None) == (not with_sample)
    if with_sample:
        for name, array in vars(sample).items():
            np.testing.assert_array_equal(getattr(loaded.sample, name), array)
        assert loaded.mined.to_arrays().keys() == mined.to_arrays().keys()
        for name, array in mined.to_arrays().items():
            np.testing.assert_array_equal(loaded.mined.to_arrays()[name], array)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.npz"]


def test_missing_details_are_none(tmp_path):
    assert load_details(tmp_path / "x.npz") is None


def test_details_that_do_not_fit_on_the_disk_leave_no_part_behind(tmp_path, monkeypatch):
    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match=r"No space left.*go on with --resume.*x\.npz"):
        save_details(tmp_path / "x.npz", RunDetails({}))
    assert list(tmp_path.iterdir()) == []
