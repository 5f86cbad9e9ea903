"""Readers of CUB, Cars, SOP, In-Shop and Caltech-101 in their published layouts.

The images stay in their files (`ImageFiles`). Training and test classes are disjoint: the training
classes are the first half by number or name, or those in the publishers' lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.reading.formats.matlab import read_mat
from ssdml.datasets.reading.image_folders import read_image_folder, read_image_zip
from ssdml.utils.files import check_inside, read_text
from ssdml.utils.typing import Ints


def read_cub(folder: Path) -> RawItems:
    """Read CUB-200-2011: ``images/``, and ``{images,image_class_labels,classes}.txt``."""
    names = _numbered(folder / "images.txt")
    classes = _numbered(folder / "image_class_labels.txt")
    titles = _numbered(folder / "classes.txt")
    if names.keys() != classes.keys():
        raise ValueError(
            f"{folder}: images.txt and image_class_labels.txt must number the same images; got "
            f"{len(names)} and {len(classes)}."
        )
    labels = np.array(_integers(folder / "image_class_labels.txt", [classes[n] for n in names]))
    _check_classes(folder / "image_class_labels.txt", labels, len(titles))
    files = _files(folder / "images", list(names.values()))
    class_names = tuple(title.partition(".")[2] or title for title in titles.values())
    return RawItems(files, labels - 1, second_half(labels - 1), class_names=class_names)


def read_cars(folder: Path) -> RawItems:
    """Read Cars-196: ``cars_annos.mat`` and ``car_ims``, or ``devkit`` and ``cars_{train,test}``.

    The labels of the test images may be in the devkit or one folder above.
    """
    if (folder / "cars_annos.mat").is_file():
        path = folder / "cars_annos.mat"
        content = read_mat(path, "annotations", "class_names")
        names, classes = _annotations(path, content["annotations"], "relative_im_path")
        titles = content["class_names"]
    else:
        path = folder / "devkit/cars_meta.mat"
        titles = read_mat(path, "class_names")["class_names"]
        names, classes = [], []
        for place, lists in DEVKIT.items():
            annotated = _first_of(folder, lists)
            content = read_mat(annotated, "annotations")
            found, numbers = _annotations(annotated, content["annotations"], "fname")
            names += [f"{place}/{name}" for name in found]
            classes += numbers
    if not isinstance(titles, list) or not all(isinstance(title, str) for title in titles):
        raise ValueError(f"{path}: class_names must be a cell array of names.")
    labels = np.array(classes)
    _check_classes(path, labels, len(titles))
    files = _files(folder, names)
    return RawItems(files, labels - 1, second_half(labels - 1), class_names=tuple(titles))


def _annotations(path: Path, table: Any, column: str) -> tuple[list[str], list[int]]:
    """Return file names and classes of a structure array."""
    names, classes = (
        table.get(k, []) if isinstance(table, dict) else [] for k in (column, "class")
    )
    is_whole = all(isinstance(c, int) or (isinstance(c, float) and c.is_integer()) for c in classes)
    is_text = all(isinstance(name, str) for name in names)
    if not (len(names) == len(classes) > 0 and is_whole and is_text):
        raise ValueError(
            f"{path}: annotations must be a structure array with text in {column!r} and whole "
            "numbers in 'class'. Download it again."
        )
    return names, [int(c) for c in classes]


DEVKIT = {
    "cars_train": ("devkit/cars_train_annos.mat",),
    "cars_test": ("devkit/cars_test_annos_withlabels.mat", "cars_test_annos_withlabels.mat"),
}


def read_sop(folder: Path) -> RawItems:
    """Read Stanford Online Products: ``Ebay_{train,test}.txt`` and the folders they name."""
    names, labels, test = [], [], []
    for part in ("train", "test"):
        rows = list(_table(folder / f"Ebay_{part}.txt", 4, skipped=1))
        names += [row[3] for row in rows]
        labels += _integers(folder / f"Ebay_{part}.txt", [row[1] for row in rows])
        test += [part == "test"] * len(rows)
    return RawItems(_files(folder, names), np.array(labels), np.array(test))


def read_inshop(folder: Path) -> RawItems:
    """Read In-Shop: ``[Eval/]list_eval_partition.txt`` (train, query or gallery), ``[Img/]img``."""
    path = _first_of(folder, [f"{place}list_eval_partition.txt" for place in ("", "Eval/")])
    rows = list(_table(path, 3, skipped=2))
    names, items, parts = (np.array(column) for column in zip(*rows, strict=True))
    if not set(parts.tolist()) <= {"train", "query", "gallery"}:
        other = sorted(set(parts.tolist()) - {"train", "query", "gallery"})
        raise ValueError(f"{path}: the third column must be train, query or gallery; got {other}.")
    home = folder / "Img" if (folder / "Img/img").is_dir() else folder
    return RawItems(
        _files(home, names.tolist()), items, parts != "train", gallery=parts == "gallery"
    )


CLUTTER = "BACKGROUND_Google"  # images of no class


def read_caltech101(place: Path) -> RawItems:
    """Read Caltech-101: a folder or zip file of class folders; images of no class are left out.

    The first half of the classes by name, 51 of 101, are the training classes.
    """
    read = read_image_folder(place) if place.is_dir() else read_image_zip(place)
    assert read.ids is not None
    rows = np.flatnonzero(read.labels != CLUTTER)
    if not len(rows):
        raise ValueError(
            f"{place}: must hold folders of classes; got {CLUTTER} alone. Download it again."
        )
    names, labels = np.unique(read.labels[rows], return_inverse=True)
    files, test = ImageFiles(place, read.ids[rows]), labels >= (len(names) + 1) // 2
    return RawItems(files, labels, test, class_names=tuple(names.tolist()))


def second_half(classes: Ints) -> npt.NDArray[np.bool_]:
    """Return the mask of the second half of the classes by number.

    Examples
    --------
    >>> second_half(np.array([4, 1, 2, 3, 4, 0]))
    array([ True, False,  True,  True,  True, False])
    """
    present = np.unique(classes)
    return classes >= present[len(present) // 2]


def _files(folder: Path, names: Sequence[str]) -> ImageFiles:
    check_inside(folder, names)
    files = ImageFiles(folder, names)
    missing = files.missing()
    if missing:
        others = f", with {len(missing) - 1} other images" if len(missing) > 1 else ""
        raise FileNotFoundError(f"{folder / missing[0]} is missing{others} of {len(files)}.")
    return files


def _first_of(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder / names[0]} is missing.")


def _numbered(path: Path) -> dict[int, str]:
    """Read lines ``number text``."""
    numbers, texts = zip(*_table(path, 2), strict=True)
    return dict(zip(_integers(path, numbers), texts, strict=True))


def _integers(path: Path, texts: Sequence[str]) -> list[int]:
    try:
        return np.array([int(text) for text in texts], dtype=np.int64).tolist()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path}: classes and images must be numbers ({error}).") from error


def _table(path: Path, n_columns: int, skipped: int = 0) -> Iterator[list[str]]:
    """Yield the rows of a text file with blank-separated columns, after a header."""
    lines = read_text(path, "Download it again.").splitlines()
    if not any(line.strip() for line in lines[skipped:]):
        raise ValueError(f"{path}: must contain rows; got none.")
    for number, line in enumerate(lines[skipped:], skipped + 1):
        row = line.split(maxsplit=n_columns - 1)
        if len(row) != n_columns:
            if not row:
                continue
            raise ValueError(f"{path}, line {number}: must have {n_columns} columns; got {line!r}.")
        yield [row[0], *row[1:-1], row[-1].strip()]


def _check_classes(path: Path, labels: Ints, n_classes: int) -> None:
    if labels.min() < 1 or labels.max() > n_classes:
        raise ValueError(
            f"{path}: classes must be from 1 to {n_classes}, the number of class names; got "
            f"{labels.min()} to {labels.max()}."
        )
