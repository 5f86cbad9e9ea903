"""Locations of the known data sets below a data folder, and their readers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ssdml.datasets.base import RawItems
from ssdml.datasets.known.cifar import read_cifar10, read_cifar100
from ssdml.datasets.known.fine_grained import (
    read_caltech101,
    read_cars,
    read_cub,
    read_inshop,
    read_sop,
)
from ssdml.datasets.known.idx import read_idx_folder
from ssdml.datasets.known.svhn import read_svhn
from ssdml.datasets.reading.arrays import read_npy_folder, read_npy_pair
from ssdml.datasets.reading.image_folders import read_image_zip
from ssdml.utils.files import as_path, open_regular, read_text

__all__ = ["DatasetStatus", "dataset_status"]

Reader = Callable[[Path], RawItems]


class Layout(NamedTuple):
    """Location of a data set below a data folder, and its reader."""

    place: str
    read: Reader
    holds: str


_IDX = "{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]"
LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "digits": (),
    "mnist": (Layout("MNIST/raw", read_idx_folder, _IDX),),
    "fashion_mnist": (Layout("FashionMNIST/raw", read_idx_folder, _IDX),),
    "cifar10": (
        Layout("cifar-10-batches-py", read_cifar10, "batches.meta, data_batch_1, ..."),
        Layout("cifar10/cifar10-images.zip", read_image_zip, "{train,test}/class/image inside"),
    ),
    "kmnist": (Layout("KMNIST/raw", read_idx_folder, _IDX),),
    "cifar100": (Layout("cifar-100-python", read_cifar100, "meta, train and test"),),
    "svhn": (Layout("svhn", read_svhn, "{train,test}_32x32.mat"),),
    "banking77": (Layout("banking77", read_npy_folder, "{train,test}_{X,y}.npy"),),
    "caltech101": (Layout("caltech101/X.npy", read_npy_pair, "features, with y.npy"),),
    "caltech101_images": tuple(
        Layout(f"caltech101/{place}", read_caltech101, "class folders of images")
        for place in ("caltech101-images.zip", "101_ObjectCategories")
    ),
    "cub": (Layout("CUB_200_2011", read_cub, "images/, images.txt, image_class_labels.txt, ..."),),
    "cars": tuple(
        Layout(place, read_cars, "cars_annos.mat and car_ims/, or devkit/ and cars_{train,test}/")
        for place in ("cars196", "stanford_cars")
    ),
    "sop": (
        Layout("Stanford_Online_Products", read_sop, "Ebay_{train,test}.txt, bicycle_final/, ..."),
    ),
    "inshop": tuple(
        Layout(place, read_inshop, "[Eval/]list_eval_partition.txt and [Img/]img/")
        for place in ("In-shop Clothes Retrieval Benchmark", "inshop")
    ),
}

FASHION = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
CLASS_NAMES = {"fashion_mnist": tuple(FASHION.split(","))}
# As sha256sum writes them: two spaces, or with -b a space and a star; a backslash escapes names.
SUM = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>.+)")
REWRITE = "Write it by `sha256sum FILE...`, or remove it."


def read_known(name: str, data_dir: str | Path | None) -> RawItems:
    """Read a known data set, whose files are compared with ``SHA256SUMS``, if there is one."""
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return RawItems(digits.images / 16, digits.target.astype(np.int64), None)
    root, layout = _find(name, data_dir)
    place = root / layout.place
    _verify_checksums(root, place)
    try:
        return layout.read(place)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} {place} must hold {layout.holds}.") from error


class DatasetStatus(NamedTuple):
    """Location of a known data set, or what is missing."""

    name: str
    path: Path | None  # None: not found, or part of scikit-learn
    available: bool
    note: str


def dataset_status(*, data_dir: str | Path | None = None) -> list[DatasetStatus]:
    """List the known data sets, where they are, and what to put where for those not found.

    Parameters
    ----------
    data_dir : str or Path, optional
        As in `load_dataset`.

    Returns
    -------
    statuses : list of DatasetStatus
        ``note`` says what is there, or what is missing.

    Raises
    ------
    NotADirectoryError
        If ``data_dir`` is not a folder.

    Examples
    --------
    >>> dataset_status()[0]
    DatasetStatus(name='digits', path=None, available=True, note='comes with scikit-learn')
    """
    statuses = [DatasetStatus("digits", None, True, "comes with scikit-learn")]
    for name, layouts in LAYOUTS.items():
        if not layouts:
            continue
        try:
            root, layout = _find(name, data_dir)
        except FileNotFoundError as error:
            statuses.append(DatasetStatus(name, None, False, str(error)))
        else:
            statuses.append(DatasetStatus(name, root / layout.place, True, layout.holds))
    return statuses


def data_folders(data_dir: str | Path | None) -> list[Path]:
    """Return the folders to search, in order."""
    if not isinstance(data_dir, str | os.PathLike | None):
        raise TypeError(f"data_dir must be a path; got {data_dir!r}. Omit it, or pass a folder.")
    if data_dir is not None and not as_path(data_dir).is_dir():
        raise NotADirectoryError(
            f"data_dir must be a folder; got {str(data_dir)!r}. Omit it to search $SSDML_DATA and "
            "the cache folder."
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ssdml"
    named = [data_dir, os.environ.get("SSDML_DATA")]
    return [*(as_path(folder) for folder in named if folder), cache]


def _find(name: str, data_dir: str | Path | None) -> tuple[Path, Layout]:
    folders = data_folders(data_dir)
    for folder in folders:
        for layout in LAYOUTS[name]:
            if (folder / layout.place).exists():
                return folder, layout
    raise FileNotFoundError(
        f"Data set {name!r} not found. Searched for {expected_files(name)} in "
        f"{describe_folders(folders)}. Put it into one of these folders, or name another with "
        "data_dir or the environment variable SSDML_DATA; nothing is downloaded."
    )


def expected_files(name: str) -> str:
    """Describe what to put below a data folder.

    Examples
    --------
    >>> expected_files("banking77")
    'banking77 ({train,test}_{X,y}.npy)'
    """
    places: dict[str, list[str]] = {}
    for layout in LAYOUTS[name]:
        places.setdefault(layout.holds, []).append(layout.place)
    return " or ".join(f"{' or '.join(found)} ({holds})" for holds, found in places.items())


def describe_folders(folders: list[Path]) -> str:
    """List the folders, and which of them do not exist."""
    return ", ".join(f"{f}" if f.is_dir() else f"{f} (no such folder)" for f in folders)


def _verify_checksums(root: Path, place: Path) -> None:
    """Compare the files of a data set with ``SHA256SUMS``, if there is one."""
    sums = root / "SHA256SUMS"
    if not sums.exists():
        return
    for number, line in enumerate(read_text(sums, REWRITE).splitlines(), 1):
        match = SUM.fullmatch(line)
        if match is None or match["escaped"]:
            if not line.strip() or line.startswith("#"):
                continue
            raise ValueError(
                f"{sums}, line {number}: must be a SHA-256 and a name; got {line[:99]!r}. {REWRITE}"
            )
        path = root / match["name"]
        if path.is_file() and (path == place or place in path.parents):
            with open_regular(path) as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != match["digest"].lower():
                raise ValueError(
                    f"{path}: damaged; its SHA-256 is {found}, {sums} says {match['digest']}."
                )
