"""Thumbnails: each at its place, with its pixels or its text."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ssdml.datasets import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.runs import thumbnails
from ssdml.experiments.runs.thumbnails import (
    MOST_CHARACTERS,
    SIDE,
    load_thumbnails,
    make_thumbnails,
    save_thumbnails,
    thumbnails_path,
)


def images(shape, n=7, high=255.0) -> Dataset:
    """Images of one brightness each, all different."""
    levels = np.linspace(0, high, n, dtype=np.float32) / 255
    X = np.repeat(levels[:, None], int(np.prod(shape)), axis=1)
    return Dataset("flat", X, np.arange(n), tuple("abcdefg"[:n]), None, shape)


def cut_out(kept, number):
    """Cut the image of this number out of a sheet."""
    sheet = np.asarray(Image.open(io.BytesIO(kept.sheet)))
    height, width = kept.size
    row, column = divmod(number, kept.n_columns)
    return sheet[row * height : (row + 1) * height, column * width : (column + 1) * width]


@pytest.mark.parametrize("shape", [(6, 9), (6, 9, 1)])
def test_gray_image_keeps_its_pixels(shape):
    dataset = images(shape)
    rows = np.array([3, 0, 6, 5])
    kept = make_thumbnails(dataset, rows)
    assert kept.size == (6, 9)
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(cut_out(kept, number)[..., 0], round(255 * row / 6))


def test_a_large_sheet_of_gray_images_is_compressed(monkeypatch, rng):
    noise = replace(images((6, 9)), X=rng.random((7, 54), dtype=np.float32))
    exact = make_thumbnails(noise, np.arange(7))
    monkeypatch.setattr(thumbnails, "MOST_LOSSLESS", 100)
    kept = make_thumbnails(noise, np.arange(7))
    assert len(kept.sheet) < len(exact.sheet)
    assert np.corrcoef(cut_out(kept, 3)[..., 0].ravel(), noise.X[3])[0, 1] > 0.5


def test_color_image_keeps_its_colors_nearly():
    dataset = images((32, 32, 3))
    kept = make_thumbnails(dataset, np.arange(7))
    for number in range(7):
        assert abs(cut_out(kept, number).mean() - 255 * number / 6) < 4


def test_large_images_shrink_and_keep_their_shape():
    kept = make_thumbnails(images((96, 60)), np.arange(7))
    assert kept.size == (48, 30)
    np.testing.assert_array_equal(cut_out(kept, 6), 255)


def test_pixels_in_other_units_are_rescaled():
    dataset = images((4, 4))
    other = replace(dataset, X=dataset.X * 1000 - 300)
    kept = make_thumbnails(other, np.arange(7))
    np.testing.assert_array_equal(cut_out(kept, 0), 0)
    np.testing.assert_array_equal(cut_out(kept, 6), 255)


def test_images_in_files_are_read(tmp_path):
    for name, color in (("a.png", (200, 0, 0)), ("b.png", (0, 0, 200))):
        Image.new("RGB", (80, 60), color).save(tmp_path / name)
    files = ImageFiles(tmp_path, ["a.png", "b.png"], size=224)
    kept = make_thumbnails(Dataset("files", files, np.arange(2), ("a", "b")), np.array([1, 0]))
    assert kept.size == (SIDE, SIDE)
    assert cut_out(kept, 0).mean(axis=(0, 1)).argmax() == 2
    assert cut_out(kept, 1).mean(axis=(0, 1)).argmax() == 0


def test_long_texts_are_shortened():
    texts = np.array(["short", "x" * 500], dtype=object)
    dataset = Dataset("texts", np.eye(2, dtype=np.float32), np.arange(2), ("a", "b"), texts=texts)
    kept = make_thumbnails(dataset, np.array([1, 0]))
    assert kept.texts[1] == "short"
    assert kept.texts[0] == "x" * (MOST_CHARACTERS - 1) + "…"


@pytest.mark.parametrize("shape", [None, (4, 4, 5), (2, 2, 2, 2)])
def test_tabular_data_have_no_thumbnails(shape):
    dataset = replace(images((4, 4, 5)), item_shape=shape)
    kept = make_thumbnails(dataset, np.arange(7))
    assert kept.sheet == b""
    assert kept.texts == []


@pytest.mark.parametrize("kind", ["images", "texts", "numbers"])
def test_thumbnails_survive_a_round_trip(tmp_path, kind):
    dataset = images((5, 4))
    if kind != "images":
        texts = np.array([f"ß {i}" for i in range(7)], dtype=object)
        dataset = replace(dataset, item_shape=None, texts=texts if kind == "texts" else None)
    saved = make_thumbnails(dataset, np.arange(7))
    save_thumbnails(tmp_path / "thumbnails" / "x.npz", saved)
    loaded = load_thumbnails(tmp_path / "thumbnails" / "x.npz")
    np.testing.assert_array_equal(loaded.rows, saved.rows)
    for name in ("texts", "sheet", "size", "n_columns"):
        assert getattr(loaded, name) == getattr(saved, name)


def test_missing_thumbnails_are_none(tmp_path):
    assert load_thumbnails(tmp_path / "x.npz") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": np.array([2, 1, 0, 3, 4, 5, 6])},
        {"rows": np.zeros((7, 1))},
        {"texts": np.array(["a"])},
        {"size": np.array([8])},
        {"sheet": ...},
    ],
)
def test_damaged_thumbnails_are_refused_by_name(tmp_path, changes):
    path = tmp_path / "x.npz"
    save_thumbnails(path, make_thumbnails(images((8, 8)), np.arange(7)))
    arrays = dict(np.load(path)) | changes
    np.savez(path, **{name: part for name, part in arrays.items() if part is not ...})
    with pytest.raises(ValueError, match=r"x\.npz: not the thumbnails of a data set .* Delete it"):
        load_thumbnails(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"x\.npz: cannot be read .* Delete it"):
        load_thumbnails(path)


def test_thumbnails_lie_in_their_folder(tmp_path):
    with pytest.raises(ValueError, match=r"fingerprint of data must be hexadecimal; got '\.\./x'"):
        thumbnails_path(tmp_path, "../x")
