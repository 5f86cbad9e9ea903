"""A user's own files in the formats of MNIST and CIFAR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ssdml.datasets.base import RawItems
from ssdml.datasets.known.cifar import read_cifar10, read_cifar100
from ssdml.datasets.known.idx import IMAGES, idx_parts, read_idx_folder
from ssdml.datasets.reading.summary import Summary, counted

CIFAR100 = {"meta", "train", "test"}


def read_published_format(folder: Path, files: Sequence[Path]) -> RawItems | None:
    """Read a folder of files in the format of MNIST or CIFAR; None if it holds none.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged, or there are several data sets.
    """
    places = {path.parent: reader for path in files if (reader := _reader(path, files))}
    if len(places) > 1:
        names = ", ".join(sorted(str(place) for place in places))
        raise ValueError(f"{folder}: must hold one data set; got {names}. Name one of these.")
    for place, read in places.items():
        return _summarized(place, read(place))
    return None


def read_idx_pair(path: Path) -> RawItems | None:
    """Read a file of images in the format of MNIST, with its labels; None for other files."""
    match = IMAGES.fullmatch(path.name)
    return match and _summarized(path, read_idx_folder(path.parent, [match[1]]))


def _reader(path: Path, files: Sequence[Path]) -> Callable[[Path], RawItems] | None:
    """Return the reader of the folder of a file that tells the format."""
    if IMAGES.fullmatch(path.name):
        return lambda folder: read_idx_folder(folder, idx_parts(folder))
    if path.name == "batches.meta":
        return read_cifar10
    if path.name == "meta" and {path.with_name(name) for name in CIFAR100} <= {*files}:
        return read_cifar100
    return None


def _summarized(path: Path, raw: RawItems) -> RawItems:
    height, width = raw.items.shape[1:3]
    images = f"{counted(len(raw.items), 'image')} of {width} x {height} pixels"
    summary = Summary(str(path), {"samples": images})
    if raw.test is not None:
        summary.facts["test rows"] = f"{raw.test.sum():,}"
    return raw._replace(summary=summary)
