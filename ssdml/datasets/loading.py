"""Load data sets from published layouts or from a user's files, offline."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssdml.datasets.base import Dataset, RawItems
from ssdml.datasets.cifar import read_cifar_batches
from ssdml.datasets.fine_grained import read_cars, read_cub, read_inshop, read_sop
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.images import read_idx_folder, read_image_folder, read_image_zip
from ssdml.datasets.tables import read_csv, read_npy_folder, read_npy_pair, read_npz, read_parquet
from ssdml.datasets.texts import embed_texts
from ssdml.utils.labels import encode_partial_labels

__all__ = ["DatasetStatus", "dataset_status", "encode_partial_labels", "load_dataset"]

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
        Layout("cifar-10-batches-py", read_cifar_batches, "batches.meta, data_batch_1, ..."),
        Layout("cifar10/cifar10-images.zip", read_image_zip, "{train,test}/class/image inside"),
    ),
    "banking77": (Layout("banking77", read_npy_folder, "{train,test}_{X,y}.npy"),),
    "caltech101": (Layout("caltech101/X.npy", read_npy_pair, "features, with y.npy"),),
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

FILE_READERS: dict[str, Reader] = {
    ".npz": read_npz,
    ".npy": read_npy_pair,
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".zip": read_image_zip,
}


def load_dataset(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    text_model: str | None = None,
) -> Dataset:
    """Load a known data set or a user's files. Nothing is downloaded.

    Parameters
    ----------
    name_or_path : str or Path
        ``digits`` (scikit-learn's), ``mnist``, ``fashion_mnist``, ``cifar10``, ``banking77``,
        ``caltech101`` (features of its photographs); ``cub`` (CUB-200-2011), ``cars`` (Cars-196),
        ``sop`` (Stanford Online Products), ``inshop``, whose images stay in their files and whose
        test classes differ; or

        - ``data.npz`` with arrays ``X`` (n, d) or (n, height, width, ...), ``y`` (n,) and, for a
          standard split, a boolean ``test`` (n,);
        - ``X.npy`` with ``y.npy``, ``name_X.npy`` with ``name_y.npy``, or ``name.npy`` with
          ``name_y.npy``;
        - ``data.csv`` or ``data.parquet``: numbers, and a label in column ``label`` or ``y``, or
          the last; in Parquet the numbers may be one column of lists; both may have texts in column
          ``text`` instead of numbers;
        - a folder (or .zip) of class folders of images of one size, those without a label in
          ``unlabeled``, optionally below ``train`` and ``test``; a folder with
          ``{train,test}_{X,y}.npy`` and, for samples computed from texts,
          ``{train,test}_text.txt``, one per line.
    data_dir : str or Path, optional
        First folder to search for known data sets, before ``$SSDML_DATA`` and
        ``$XDG_CACHE_HOME/ssdml`` (``~/.cache/ssdml``).
    text_model : str, optional
        For a column of texts: "words", or the name or folder of a sentence-transformers model,
        whose embeddings are cached in the last of these folders.

    Returns
    -------
    dataset : Dataset

    Raises
    ------
    FileNotFoundError
        If the data set is not found; the message says what to put where.
    NotADirectoryError
        If ``data_dir`` is not a folder.
    ValueError
        If a file is damaged. Files of a known data set are compared with ``SHA256SUMS`` in the data
        folder, if there is one.

    Notes
    -----
    The 60,000 images of a CIFAR-10 zip take about 8 seconds to decode; nothing is cached.

    Examples
    --------
    >>> digits = load_dataset("digits")
    >>> digits.X.shape, digits.item_shape, digits.class_names[:3]
    ((1797, 64), (8, 8), ('0', '1', '2'))
    """
    name = str(name_or_path)
    if name == "digits":
        return _digits()
    if name in LAYOUTS:
        root, layout = _find(name, data_dir)
        place = root / layout.place
        _verify_checksums(root, place)
        try:
            raw = layout.read(place)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} {place} must hold {layout.holds}.") from error
        return _assemble(name, raw, CLASS_NAMES.get(name))
    path = Path(name_or_path).expanduser()
    reader = _path_reader(path)
    if text_model is None:
        return _assemble(path.stem, reader(path))
    if reader not in (read_csv, read_parquet):
        raise ValueError(
            "load_dataset: text_model must be None unless the file is a .csv or .parquet; got "
            f"{text_model!r} and {path}."
        )
    raw = read_csv(path, texts=True) if reader is read_csv else read_parquet(path, texts=True)
    cache = data_folders(None)[-1] / "embeddings"
    raw = raw._replace(items=embed_texts(raw.items, text_model, cache=cache), texts=raw.items)
    return _assemble(path.stem, raw)


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
    if data_dir is not None and not Path(data_dir).is_dir():
        raise NotADirectoryError(
            f"data_dir must be a folder; got {str(data_dir)!r}. Omit it to search $SSDML_DATA and "
            "the cache folder."
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ssdml"
    named = [data_dir, os.environ.get("SSDML_DATA")]
    return [*(Path(folder) for folder in named if folder), cache]


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


def _path_reader(path: Path) -> Reader:
    if path.is_dir():
        return read_npy_folder if (path / "train_X.npy").exists() else read_image_folder
    if not path.exists():
        message = (
            f"{str(path)!r} is neither a data set ({', '.join(LAYOUTS)}) nor an existing path."
        )
        nearest = difflib.get_close_matches(str(path).lower(), LAYOUTS, n=1)
        raise FileNotFoundError(message + "".join(f" Did you mean {n!r}?" for n in nearest))
    if path.suffix.lower() not in FILE_READERS:
        raise ValueError(
            f"{path}: must be a folder of class folders of images or a file that ends in "
            f"{', '.join(FILE_READERS)}; got {path.suffix!r}."
        )
    return FILE_READERS[path.suffix.lower()]


def _assemble(name: str, raw: RawItems, class_names: tuple[str, ...] | None = None) -> Dataset:
    codes, classes = encode_partial_labels(raw.labels)
    class_names = class_names or raw.class_names
    rows, item_shape = _as_rows(raw.items)
    return Dataset(
        name=name,
        X=rows,
        y=codes,
        class_names=tuple(class_names[c] if class_names else str(c) for c in classes),
        test=raw.test,
        item_shape=item_shape,
        gallery=raw.gallery,
        texts=raw.texts,
    )


def _as_rows(items: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Flatten samples to float32 rows; return their shape if they are images."""
    if isinstance(items, ImageFiles):
        return items, None
    X = np.ascontiguousarray(items.reshape(len(items), -1), dtype=np.float32)
    if items.dtype == np.uint8:
        X /= 255
    return X, tuple(items.shape[1:]) if items.ndim > 2 else None


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    X = (digits.data / 16).astype(np.float32)
    return Dataset("digits", X, digits.target.astype(np.int64), tuple("0123456789"), None, (8, 8))


def _verify_checksums(root: Path, place: Path) -> None:
    """Compare the files of a data set with ``SHA256SUMS``, if there is one."""
    sums = root / "SHA256SUMS"
    if not sums.is_file():
        return
    for line in sums.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        path = root / name
        if path.is_file() and (path == place or place in path.parents):
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != digest:
                raise ValueError(f"{path}: damaged; its SHA-256 is {found}, {sums} says {digest}.")
