"""What the report needs beyond the rows: the sample on the map, the file."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.datasets import label_scarce_split
from ssdml.experiments import details
from ssdml.experiments.details import (
    MapSample,
    RunDetails,
    load_details,
    map_sample,
    save_details,
)
from ssdml.experiments.methods import InputFeatures


def test_a_map_holds_test_rows_and_labelled_rows_and_marks_these(blobs):
    split = label_scarce_split(blobs, 2, seed=0)
    sample = map_sample(InputFeatures(), blobs, split)
    np.testing.assert_array_equal(sample.embedding[~sample.is_labeled], blobs.X[split.test])
    np.testing.assert_array_equal(sample.embedding[sample.is_labeled], blobs.X[split.labeled])
    np.testing.assert_array_equal(sample.y[sample.is_labeled], blobs.y[split.labeled])


def test_a_large_map_is_the_same_sample_for_every_method(blobs, monkeypatch):
    monkeypatch.setattr(details, "MAP_ROWS", 10)
    split = label_scarce_split(blobs, 2, seed=0)
    first, second = (details.map_rows(split)[0] for _ in range(2))
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


@pytest.mark.parametrize("with_sample", [True, False])
def test_details_come_back_as_they_were_saved(tmp_path, rng, mined, with_sample):
    sample = MapSample(rng.normal(size=(5, 2)).astype(np.float32), np.arange(5), np.arange(5) > 2)
    kept = (sample, mined) if with_sample else (None, None)
    saved = RunDetails({"seed": 0}, ["careful"], {"both": 50.0}, ["a", "ß"], *kept)
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
