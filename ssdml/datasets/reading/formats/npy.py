"""Files of NumPy: .npy, and several arrays in the files of a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.reading.formats.tables import table_suffix
from ssdml.utils.files import Archive, check_npy
from ssdml.utils.typing import Array

# A file, the name of an array in it, None if it is of one array, and the shape, None if unknown.
Place = tuple[Path, str | None, tuple[int, ...] | None]
PLAIN_ARRAYS = "Save plain arrays of numbers or strings: objects are not unpickled."


class ArrayFiles:
    """Arrays of the .npy and .npz files in a folder, by name.

    The name is that of the file, with its folder and without its ending; of several arrays in a
    .npz file, their names follow. What all names begin with is left out, up to a sign.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     files = [Path(folder) / f"kmnist-test-{name}.npy" for name in ("imgs", "labels")]
    ...     for file in files:
    ...         np.save(file, np.arange(3))
    ...     ArrayFiles(Path(folder), files).names
    ['imgs', 'labels']
    """

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        found: dict[str, Place] = {}
        for path in files:
            inside, place = _inside(path), path.relative_to(folder)
            names = _names(place.with_suffix("").as_posix(), inside)
            if not found.keys().isdisjoint(names):
                names = _names(place.as_posix(), inside)
            found.update(zip(names, ((path, *array) for array in inside), strict=True))
        words = [re.split(r"(?<=[-_./])", name) for name in found]
        heads = enumerate(zip(*words, strict=False))
        start = next((i for i, word in heads if len({*word}) > 1), 0)
        names = ["".join(of_name[start:]) for of_name in words]
        self._places = dict(zip(names, found.values(), strict=True))

    @property
    def names(self) -> list[str]:
        """Names of the arrays, in the order of the files."""
        return list(self._places)

    def name_of(self, path: Path) -> str:
        """Return the name of the only array in a file."""
        return next(name for name, place in self._places.items() if place[0] == path)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of an array; None if it cannot be read, as one of objects."""
        return self._places[name][2]

    def __getitem__(self, name: str) -> Array:
        path, inner, _ = self._places[name]
        if inner is None:
            return read_npy(path)
        with Archive(path, PLAIN_ARRAYS) as archive:
            return archive[inner]


def _inside(path: Path) -> list[tuple[str | None, tuple[int, ...] | None]]:
    """Return the names in a file, None if it is of one array, and the shapes of its arrays."""
    if path.suffix.lower() == ".npz":
        with Archive(path, PLAIN_ARRAYS) as archive:
            return [(name, archive.shape(name)) for name in archive.names]
    try:
        return [(None, check_npy(path, PLAIN_ARRAYS))]
    except (ValueError, OSError):  # the reader of the array will tell
        return [(None, None)]


def _names(stem: str, inside: Sequence[tuple[str | None, Any]]) -> list[str]:
    """Name the arrays of a file; the only one is called as the file is."""
    return [stem if len(inside) == 1 else f"{stem}/{inner}" for inner, _ in inside]


def label_file(path: Path) -> Path:
    """Return the file of the labels: a final ``X`` becomes ``y``, otherwise ``_y`` is appended."""
    ends_in_x = path.stem == "X" or path.stem.endswith("_X")
    return path.with_stem(f"{path.stem[:-1]}y" if ends_in_x else f"{path.stem}_y")


def read_npy(path: Path, *, in_place: bool = False) -> npt.NDArray[Any]:
    """Read a .npy file, or the only array of a .npz; memory-mapped if ``in_place``."""
    if path.suffix.lower() == ".npz" and path.is_file():  # KMNIST has one array per file
        with Archive(path, PLAIN_ARRAYS) as archive:
            if len(archive.names) == 1:
                return archive[archive.names[0]]
    if path.is_dir() or path.suffix.lower() in (".npz", ".mat"):
        kind = "a folder" if path.is_dir() else "several arrays"
        raise ValueError(
            f"{path} must be a .npy file with one array; got {kind}. Pass it alone, with samples "
            "and labels inside."
        )
    if table_suffix(path) is not None:
        raise ValueError(
            f"{path} must be a .npy file with one array; got a table. Pass one table alone, with "
            "its labels in a column."
        )
    check_npy(path, PLAIN_ARRAYS)
    return np.load(path, allow_pickle=False, mmap_mode="r" if in_place else None)
