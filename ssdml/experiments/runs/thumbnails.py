"""Thumbnails of the samples on the report's maps: a small image, or the text."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.runs.details import map_rows
from ssdml.experiments.runs.grid import Run
from ssdml.experiments.runs.results import RESUME
from ssdml.utils.files import read_npz
from ssdml.utils.persistence import atomic_write
from ssdml.utils.typing import Ints

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAILS = "thumbnails"
WAY_OUT = "Delete it; the comparison makes it again."
SIDE = 48  # pixels
MOST_CHARACTERS = 240  # of a text
QUALITY = 75  # of color images, which are photographs, and of large sheets
MOST_LOSSLESS = 4_000_000  # bytes of a sheet of gray images


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
        texts = [
            text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
            for text in dataset.texts[rows]
        ]
        return Thumbnails(rows, texts, b"", (0, 0), 0)
    images = _images(dataset, rows)
    if images is None:
        return Thumbnails(rows, [], b"", (0, 0), 0)
    n_columns = int(np.ceil(np.sqrt(len(rows))))
    width, height = images[0].size
    return Thumbnails(rows, [], _sheet(images, n_columns), (height, width), n_columns)


def update_thumbnails(out: Path, dataset: Dataset, runs: Sequence[Run]) -> None:
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
    if not re.fullmatch("[0-9a-f]{16,}", data):
        raise ValueError(f"{out}: the fingerprint of data must be hexadecimal; got {data!r}.")
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
    """Read what :func:`save_thumbnails` wrote; None if there is no file.

    Raises ValueError, naming the file, if it is damaged.
    """
    if not path.exists():
        return None
    stored = read_npz(path, advice=WAY_OUT)
    try:
        rows, texts = stored["rows"], stored["texts"].tolist()
        height, width = map(int, stored["size"].tolist())
        is_whole = rows.ndim == 1 and rows.dtype.kind in "iu" and (np.diff(rows) > 0).all()
        if not is_whole or (texts and len(texts) != len(rows)):
            raise ValueError("rows must be ascending integers, each with its text")
        return Thumbnails(
            rows=rows,
            texts=[str(text) for text in texts],
            sheet=stored["sheet"].tobytes(),
            size=(height, width),
            n_columns=int(stored["n_columns"]),
        )
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"{path}: not the thumbnails of a data set ({type(error).__name__}: {error}). {WAY_OUT}"
        ) from error


def _images(dataset: Dataset, rows: Ints) -> list[Image] | None:
    """Small images; None if the samples are no images."""
    from PIL.Image import Resampling, fromarray

    if isinstance(dataset.X, ImageFiles):
        files = dataset.X[rows].resized(SIDE, 1.0)
        return [
            fromarray(image.transpose(1, 2, 0)) for image in files.__getitems__(range(len(rows)))
        ]
    shape = dataset.item_shape
    if shape is None or (len(shape) == 3 and shape[2] not in (1, 3)) or len(shape) > 3:
        return None
    X = dataset.X[rows].reshape(len(rows), *shape[:2], -1)
    low, high = float(X.min()), float(X.max())
    if low < 0 or high > 1:  # unknown unit
        X = (X - low) / ((high - low) or 1.0)
    pixels = (255 * X).round().astype(np.uint8)
    images = [fromarray(image[..., 0] if image.shape[-1] == 1 else image) for image in pixels]
    scale = SIDE / max(shape[:2])
    if scale >= 1:
        return images
    height, width = (max(1, round(side * scale)) for side in shape[:2])
    return [image.resize((width, height), Resampling.BILINEAR) for image in images]


def _sheet(images: Sequence[Image], n_columns: int) -> bytes:
    """Lay the images out row by row in one WebP image."""
    from PIL.Image import new

    mode, (width, height) = images[0].mode, images[0].size
    sheet = new(mode, (n_columns * width, -(-len(images) // n_columns) * height))
    for i, image in enumerate(images):
        sheet.paste(image, (i % n_columns * width, i // n_columns * height))
    for lossless in (True, False) if mode == "L" else (False,):
        buffer = io.BytesIO()
        sheet.save(buffer, "WEBP", lossless=lossless, quality=QUALITY)
        if buffer.tell() <= MOST_LOSSLESS:
            break
    return buffer.getvalue()
