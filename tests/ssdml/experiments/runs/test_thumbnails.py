"""Pictures and texts of items: each is where it is said to be, and looks as it did."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ssdml.datasets import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.runs import thumbnails as cards
from ssdml.experiments.runs.thumbnails import item_cards, load_cards, save_cards


def images(shape, n=7, high=255.0) -> Dataset:
    """Images of one brightness each, all different."""
    levels = np.linspace(0, high, n, dtype=np.float32) / 255
    X = np.repeat(levels[:, None], int(np.prod(shape)), axis=1)
    return Dataset("flat", X, np.arange(n), tuple("abcdefg"[:n]), None, shape)


def cut_out(kept, number):
    """The picture that a sheet holds for the item of this number."""
    sheet = np.asarray(Image.open(io.BytesIO(kept.sheet)))
    height, width = kept.size
    row, column = divmod(number, kept.n_columns)
    return sheet[row * height : (row + 1) * height, column * width : (column + 1) * width]


@pytest.mark.parametrize("shape", [(6, 9), (6, 9, 1)])
def test_a_grey_picture_keeps_its_pixels_at_its_place(shape):
    dataset = images(shape)
    rows = np.array([3, 0, 6, 5])
    kept = item_cards(dataset, rows)
    assert kept.size == (6, 9)
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(cut_out(kept, number)[..., 0], round(255 * row / 6))


def test_a_color_picture_keeps_its_colors_nearly():
    dataset = images((32, 32, 3))
    kept = item_cards(dataset, np.arange(7))
    for number in range(7):
        assert abs(cut_out(kept, number).mean() - 255 * number / 6) < 4


def test_large_pictures_are_made_smaller_and_keep_their_form():
    kept = item_cards(images((96, 60)), np.arange(7))
    assert kept.size == (48, 30)
    np.testing.assert_array_equal(cut_out(kept, 6), 255)


def test_pixels_of_another_unit_are_brought_into_range():
    dataset = images((4, 4))
    other = replace(dataset, X=dataset.X * 1000 - 300)
    kept = item_cards(other, np.arange(7))
    np.testing.assert_array_equal(cut_out(kept, 0), 0)
    np.testing.assert_array_equal(cut_out(kept, 6), 255)


def test_pictures_in_files_are_read(tmp_path):
    for name, color in (("a.png", (200, 0, 0)), ("b.png", (0, 0, 200))):
        Image.new("RGB", (80, 60), color).save(tmp_path / name)
    files = ImageFiles(tmp_path, ["a.png", "b.png"], size=224)
    kept = item_cards(Dataset("files", files, np.arange(2), ("a", "b")), np.array([1, 0]))
    assert kept.size == (cards.SIDE, cards.SIDE)
    assert cut_out(kept, 0).mean(axis=(0, 1)).argmax() == 2
    assert cut_out(kept, 1).mean(axis=(0, 1)).argmax() == 0


def test_a_text_is_kept_and_a_long_one_shortened():
    texts = np.array(["short", "x" * 500], dtype=object)
    dataset = Dataset("texts", np.eye(2, dtype=np.float32), np.arange(2), ("a", "b"), texts=texts)
    kept = item_cards(dataset, np.array([1, 0]))
    assert kept.texts[1] == "short"
    assert kept.texts[0] == "x" * (cards.MOST_CHARACTERS - 1) + "…"


@pytest.mark.parametrize("shape", [None, (4, 4, 5), (2, 2, 2, 2)])
def test_rows_of_numbers_have_neither(shape):
    dataset = replace(images((4, 4, 5)), item_shape=shape)
    kept = item_cards(dataset, np.arange(7))
    assert kept.sheet == b""
    assert kept.texts == []


@pytest.mark.parametrize("kind", ["pictures", "texts", "numbers"])
def test_cards_come_back_as_they_were_saved(tmp_path, kind):
    dataset = images((5, 4))
    if kind != "pictures":
        texts = np.array([f"ß {i}" for i in range(7)], dtype=object)
        dataset = replace(dataset, item_shape=None, texts=texts if kind == "texts" else None)
    saved = item_cards(dataset, np.arange(7))
    save_cards(tmp_path / "cards" / "x.npz", saved)
    loaded = load_cards(tmp_path / "cards" / "x.npz")
    np.testing.assert_array_equal(loaded.rows, saved.rows)
    for name in ("texts", "sheet", "size", "n_columns"):
        assert getattr(loaded, name) == getattr(saved, name)


def test_missing_cards_are_none(tmp_path):
    assert load_cards(tmp_path / "x.npz") is None
