"""What a reader of the report sees of an item: a small picture of it, or its text."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.runs.results import RESUME
from ssdml.utils.persistence import atomic_write
from ssdml.utils.typing import Ints

SIDE = 48  # pixels: what larger pictures are made smaller to
MOST_CHARACTERS = 240  # of a text
QUALITY = 75  # of pictures in color, which are photographs; gray ones lose nothing

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Cards:
    """Pictures of items, side by side in one sheet, or their texts; neither where X is numbers."""

    rows: Ints  # (n,) numbers of the items in the data set, rising, in the order of the pictures
    texts: list[str]
    sheet: bytes  # WebP; empty where there are no pictures
    size: tuple[int, int]  # height and width of a picture, in pixels
    n_columns: int  # pictures beside each other


def item_cards(dataset: Dataset, rows: Ints) -> Cards:
    """Cards of some rows of a data set as it was read.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> cards = item_cards(load_dataset("digits"), np.arange(10))
    >>> cards.size, cards.n_columns, cards.sheet[:4]
    ((8, 8), 4, b'RIFF')
    """
    if dataset.texts is not None:
        return Cards(rows, [_shortened(text) for text in dataset.texts[rows]], b"", (0, 0), 0)
    pictures = _pictures(dataset, rows)
    if pictures is None:
        return Cards(rows, [], b"", (0, 0), 0)
    n_columns = int(np.ceil(np.sqrt(len(rows))))
    return Cards(rows, [], _sheet(pictures, n_columns), pictures.shape[1:3], n_columns)


def cards_path(out: Path, data: str) -> Path:
    """Where a folder of results has the cards of a data set, by its fingerprint."""
    return out / "cards" / f"{data[:16]}.npz"


def save_cards(path: Path, cards: Cards) -> None:
    """Write the file whole, or raise OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, way_out=RESUME) as unfinished, unfinished.open("wb") as file:
        np.savez(
            file,
            rows=cards.rows,
            texts=np.array(cards.texts, dtype=np.str_),
            sheet=np.frombuffer(cards.sheet, np.uint8),
            size=np.array(cards.size),
            n_columns=cards.n_columns,
        )


def load_cards(path: Path) -> Cards | None:
    """What :func:`save_cards` wrote; None where the file is missing."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        height, width = stored["size"].tolist()
        return Cards(
            rows=stored["rows"],
            texts=stored["texts"].tolist(),
            sheet=stored["sheet"].tobytes(),
            size=(height, width),
            n_columns=int(stored["n_columns"]),
        )


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def _pictures(dataset: Dataset, rows: Ints) -> Bytes | None:
    """Small pictures (n, height, width, 1 or 3); None where the items are no images."""
    if isinstance(dataset.X, ImageFiles):
        images = dataset.X[rows].resized(SIDE, 1.0)
        return np.stack(images.__getitems__(range(len(rows)))).transpose(0, 2, 3, 1)
    shape = dataset.item_shape
    if shape is None or (len(shape) == 3 and shape[2] not in (1, 3)) or len(shape) > 3:
        return None
    images = dataset.X[rows].reshape(len(rows), *shape[:2], -1)
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:  # of no unit that we know
        images = (images - low) / ((high - low) or 1.0)
    return _small((255 * images).round().astype(np.uint8))


def _small(pictures: Bytes) -> Bytes:
    """The pictures, none longer or wider than `SIDE`."""
    height, width = pictures.shape[1:3]
    if max(height, width) <= SIDE:
        return pictures
    from PIL import Image

    scale = SIDE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = [np.asarray(_as_image(p).resize(size, Image.Resampling.BILINEAR)) for p in pictures]
    return np.stack(small).reshape(len(pictures), size[1], size[0], -1)


def _sheet(pictures: Bytes, n_columns: int) -> bytes:
    """All pictures in one image, row by row, as WebP."""
    n, height, width, channels = pictures.shape
    n_rows = -(-n // n_columns)
    cells = np.zeros((n_rows * n_columns, height, width, channels), np.uint8)
    cells[:n] = pictures
    grid = cells.reshape(n_rows, n_columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    whole = _as_image(grid.reshape(n_rows * height, n_columns * width, channels))
    buffer = io.BytesIO()
    whole.save(buffer, "WEBP", lossless=channels == 1, quality=QUALITY)
    return buffer.getvalue()


def _as_image(pixels: Bytes) -> Any:
    from PIL import Image

    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
