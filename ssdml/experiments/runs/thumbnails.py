"""Thumbnails of the samples on the report's maps: a small image, or the text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.runs.details import map_rows
from ssdml.experiments.runs.grid import Run
from ssdml.experiments.runs.results import RESUME
from ssdml.utils.persistence import atomic_write
from ssdml.utils.typing import Ints

THUMBNAILS = "thumbnails"
SIDE = 48  # pixels
MOST_CHARACTERS = 240  # of a text
QUALITY = 75  # of color images, which are photographs; gray ones are lossless

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Thumbnails:
    """Images of samples in one sheet, or their texts; neither for tabular data."""

    rows: Ints  # (n,) indices of the samples in the data set, ascending
    texts: list[str]
    sheet: bytes  # WebP; empty without images
    size: tuple[int, int]  # height and width of an image, in pixels
    n_columns: int  # of the sheet


def make_thumbnails(dataset: Dataset, rows: Ints) -> Thumbnails:
    """Make the thumbnails of some samples of a data set as it was loaded.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> made = make_thumbnails(load_dataset("digits"), np.arange(10))
    >>> made.size, made.n_columns, made.sheet[:4]
    ((8, 8), 4, b'RIFF')
    """
    if dataset.texts is not None:
        return Thumbnails(rows, [_shortened(text) for text in dataset.texts[rows]], b"", (0, 0), 0)
    images = _images(dataset, rows)
    if images is None:
        return Thumbnails(rows, [], b"", (0, 0), 0)
    n_columns = int(np.ceil(np.sqrt(len(rows))))
    return Thumbnails(rows, [], _sheet(images, n_columns), images.shape[1:3], n_columns)


def keep_thumbnails(out: Path, dataset: Dataset, runs: Sequence[Run]) -> None:
    """Write the thumbnails of the samples on the maps of some runs, beside those already there.

    ``dataset`` is as it was loaded: its images are still images.
    """
    drawn = {(run.split, run.map_rows) for run in runs if run.map_rows}
    if not drawn:
        return
    path = thumbnails_path(out, runs[0].config["data"])
    kept = load_thumbnails(path)
    rows = [part for split, n_rows in drawn for part in map_rows(split, n_rows)]
    every = np.unique(np.concatenate([*rows, [] if kept is None else kept.rows]).astype(np.int64))
    if kept is None or len(every) > len(kept.rows):
        save_thumbnails(path, make_thumbnails(dataset, every))


def thumbnails_path(out: Path, data: str) -> Path:
    """File of the thumbnails of a data set, by its fingerprint."""
    return out / THUMBNAILS / f"{data[:16]}.npz"


def save_thumbnails(path: Path, thumbnails: Thumbnails) -> None:
    """Write the file atomically, or raise OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = vars(thumbnails) | {
        "texts": np.array(thumbnails.texts, dtype=np.str_),
        "sheet": np.frombuffer(thumbnails.sheet, np.uint8),
    }
    with atomic_write(path, way_out=RESUME) as unfinished, unfinished.open("wb") as file:
        np.savez(file, **arrays)


def load_thumbnails(path: Path) -> Thumbnails | None:
    """Read what :func:`save_thumbnails` wrote; None if there is no file."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        height, width = stored["size"].tolist()
        return Thumbnails(
            rows=stored["rows"],
            texts=stored["texts"].tolist(),
            sheet=stored["sheet"].tobytes(),
            size=(height, width),
            n_columns=int(stored["n_columns"]),
        )


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def _images(dataset: Dataset, rows: Ints) -> Bytes | None:
    """Small images (n, height, width, 1 or 3); None if the samples are no images."""
    if isinstance(dataset.X, ImageFiles):
        images = dataset.X[rows].resized(SIDE, 1.0)
        return np.stack(images.__getitems__(range(len(rows)))).transpose(0, 2, 3, 1)
    shape = dataset.item_shape
    if shape is None or (len(shape) == 3 and shape[2] not in (1, 3)) or len(shape) > 3:
        return None
    images = dataset.X[rows].reshape(len(rows), *shape[:2], -1)
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:  # unknown unit
        images = (images - low) / ((high - low) or 1.0)
    return _shrunk((255 * images).round().astype(np.uint8))


def _shrunk(images: Bytes) -> Bytes:
    """Resize the images so that no side exceeds `SIDE`."""
    height, width = images.shape[1:3]
    if max(height, width) <= SIDE:
        return images
    from PIL import Image

    scale = SIDE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = [np.asarray(_as_image(p).resize(size, Image.Resampling.BILINEAR)) for p in images]
    return np.stack(small).reshape(len(images), size[1], size[0], -1)


def _sheet(images: Bytes, n_columns: int) -> bytes:
    """Lay the images out row by row in one WebP image."""
    n, height, width, channels = images.shape
    n_rows = -(-n // n_columns)
    cells = np.zeros((n_rows * n_columns, height, width, channels), np.uint8)
    cells[:n] = images
    grid = cells.reshape(n_rows, n_columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    whole = _as_image(grid.reshape(n_rows * height, n_columns * width, channels))
    buffer = io.BytesIO()
    whole.save(buffer, "WEBP", lossless=channels == 1, quality=QUALITY)
    return buffer.getvalue()


def _as_image(pixels: Bytes) -> Any:
    from PIL import Image

    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
