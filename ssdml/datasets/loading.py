"""Load data sets from published layouts or from a user's files, offline."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import Dataset, RawItems
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.known.layouts import CLASS_NAMES, LAYOUTS, Layout, data_folders, read_known
from ssdml.datasets.labels import class_name, encoded_labels
from ssdml.datasets.reading.formats.delimited import COMPRESSED
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.paths import read_path
from ssdml.datasets.reading.summary import listed
from ssdml.datasets.texts import WORDS, embed_texts
from ssdml.utils.files import as_path
from ssdml.utils.labels import encode_partial_labels
from ssdml.utils.typing import Array

__all__ = ["LAYOUTS", "Layout", "encode_partial_labels", "load_dataset"]


def load_dataset(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    text_model: str | None = None,
    label: str | None = None,
    text: str | None = None,
    id: str | None = None,
    features: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    no_label: str | float | Sequence[str | float] = (),
    encoding: str | None = None,
    needs_label: bool = True,
) -> Dataset:
    """Load a known data set or a user's files. Nothing is downloaded.

    Parameters
    ----------
    name_or_path : str or Path
        ``digits`` (scikit-learn's), ``mnist``, ``fashion_mnist``, ``kmnist``, ``cifar10``,
        ``cifar100``, ``svhn``, ``banking77``; ``caltech101`` (its features); ``caltech101_images``,
        ``cub`` (CUB-200-2011), ``cars`` (Cars-196), ``sop`` (Stanford Online Products) and
        ``inshop``, whose images stay in their files and whose test classes differ; or

        - a table: ``.csv``, ``.tsv`` and other text with separators, ``.arff``, ``.parquet``,
          ``.feather``, ``.arrow``, ``.jsonl``, ``.json``, ``.xlsx``; text may be compressed
          (``.gz``, ``.bz2``, ``.xz``, ``.zst``);
        - ``name_TRAIN.ts`` of the UCR archive, whose time series have one length;
        - ``data.npz`` with arrays ``X`` (n, d) or (n, height, width, ...), ``y`` (n,) and, for a
          standard split, a boolean ``test`` (n,); ``data.mat`` of MATLAB with the same, also in a
          structure, and with samples along the last axis;
        - ``X.npy`` with ``y.npy``, ``name_X.npy`` with ``name_y.npy``, or ``name.npy`` with
          ``name_y.npy``;
        - a folder (or .zip) of class folders of images, those without a label in ``unlabeled`` or
          beside these folders, optionally below ``train`` and ``test``;
        - a folder of files in the format of MNIST (``train-images-idx3-ubyte.gz``, ...) or of
          CIFAR in Python, or such a file of images with its labels beside it;
        - a folder of ``.npy`` and ``.npz`` files, such as ``X_train.npy``, ``y_train.npy`` and so
          on; beside ``{train,test}_{X,y}.npy``, ``{train,test}_text.txt`` may hold the texts from
          which samples were computed, one per line;
        - a folder that Hugging Face's datasets saved, or of tables called train and test.
    data_dir : str or Path, optional
        First folder to search for known data sets, before ``$SSDML_DATA`` and
        ``$XDG_CACHE_HOME/ssdml`` (``~/.cache/ssdml``).
    text_model : str, optional
        For texts: "words", the default, or the name or folder of a sentence-transformers model,
        whose embeddings are cached in the last of these folders. If given, texts are the features
        even if the table has numbers.
    label, text, id : str, optional
        Columns of a table; by default found by their names and contents, see Notes.
    features, ignore : str or sequence of str
        Columns that are the features, or that are left out; a pattern such as ``"f*"`` names all
        that match.
    no_label : str, number, or sequence of these
        Values that mean "no label", besides those of :func:`encode_partial_labels`.
    encoding : str, optional
        Of a table in text; by default UTF-8.
    needs_label : bool
        False: the samples may have no labels, such as new samples to predict.

    Returns
    -------
    dataset : Dataset
        ``dataset.summary`` shows which columns hold features, labels, ids and texts.

    Raises
    ------
    FileNotFoundError
        If the data set is not found; the message says what to put where.
    NotADirectoryError
        If ``data_dir`` is not a folder.
    TypeError
        If ``name_or_path`` is not a path, or the name of a column is not text.
    ValueError
        If a file is damaged or of another kind than its name says, a feature is not a number, or it
        is not clear which column is the label. Files of a known data set are compared with
        ``SHA256SUMS`` in the data folder, if there is one.

    Warns
    -----
    ReadingWarning
        If a column was left out that may be a feature, or the label was guessed.

    Notes
    -----
    Labels: the column called label, labels, target, class, y (unless it holds places beside x),
    category, intent or species; else, with a warning, the only one with such a name in another
    language, or else the only column of short texts or integers in which values repeat. Ids: a
    column of distinct values called id or the like. Samples: a column of vectors; or the images
    that a column names; or the texts in a column called text or the like, unless the table has more
    than three columns of numbers; or all columns of numbers, except those that number the rows.

    The 60,000 images of a CIFAR-10 zip take about 8 seconds to decode; nothing is cached.

    Examples
    --------
    >>> digits = load_dataset("digits")
    >>> digits.X.shape, digits.item_shape, digits.class_names[:3]
    ((1797, 64), (8, 8), ('0', '1', '2'))
    """
    features, ignore = names_of(features), names_of(ignore)
    named = {"label": (label,), "text": (text,), "id": (id,)}
    for role, columns in {**named, "features": features, "ignore": ignore}.items():
        _check_columns(columns, role)
    choice = Choice(label, text, id, features, ignore, text_model is not None, needs_label)
    dataset = read_dataset(
        name_or_path,
        choice,
        data_dir=data_dir,
        text_model=text_model,
        no_label=names_of(no_label),
        encoding=encoding,
    )
    if dataset.summary is not None:
        dataset.summary.warn()
    return dataset


def names_of(names: Any) -> tuple[Any, ...]:
    """Return one or several names as a tuple.

    Examples
    --------
    >>> names_of("a"), names_of(["a", "b"])
    (('a',), ('a', 'b'))
    """
    is_one = isinstance(names, str) or not isinstance(names, Iterable)
    return (names,) if is_one else tuple(names)


def _check_path(name_or_path: Any) -> None:
    """Raise TypeError for data in memory, ValueError for an address."""
    problem = "load_dataset: name_or_path must be a path or the name of a data set; got"
    if not isinstance(name_or_path, str | os.PathLike):
        raise TypeError(
            f"{problem} {type(name_or_path).__name__}. Pass data in memory to an estimator: "
            "SSDML().fit(X, y)."
        )
    if name_or_path == "":
        raise ValueError(f"{problem} ''. Name one; '.' is the current folder.")
    if str(name_or_path) == "-":
        raise ValueError(f"{problem} '-'. Write standard input to a file first.")
    if re.match(r"[a-z][a-z0-9+.-]+://", str(name_or_path), re.IGNORECASE):
        raise ValueError(f"{problem} {str(name_or_path)!r}. Download the file first.")


def _check_columns(names: Iterable[Any], role: str) -> None:
    """Raise TypeError unless all are texts or None."""
    for name in names:
        if name is not None and not isinstance(name, str):
            raise TypeError(
                f"load_dataset: {role} must be names of columns, which are text; got {name!r}. "
                f"Pass {str(name)!r}; the columns of a table without a header are '1', '2', ..."
            )


def read_dataset(
    name_or_path: str | Path,
    choice: Choice,
    *,
    data_dir: str | Path | None = None,
    text_model: str | None = None,
    no_label: Sequence[str] = (),
    encoding: str | None = None,
) -> Dataset:
    """Load a data set as :func:`load_dataset` does, without warnings."""
    name = str(name_or_path)
    if name in LAYOUTS and text_model is not None:
        _refuse_for_known("text_model", name)
    raw = read_items(name_or_path, choice, data_dir=data_dir, encoding=encoding)
    if name in LAYOUTS:
        return assembled(name, raw, CLASS_NAMES.get(name))
    path = as_path(name_or_path)
    if raw.items is not None and text_model is not None:
        raise ValueError(
            f"load_dataset: text_model must be None unless the samples are texts; got "
            f"{text_model!r} and {path}. Omit it."
        )
    if raw.items is None:
        assert raw.texts is not None
        try:
            features = text_features(raw.texts, text_model or WORDS)
        except ValueError as error:  # of texts without words
            raise ValueError(f"{path}: {error}") from error
        raw = with_features(raw, features, text_model)
    unpacked = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return assembled(unpacked.stem, raw, no_label=no_label)


def read_items(
    name_or_path: str | Path,
    choice: Choice,
    *,
    data_dir: str | Path | None = None,
    encoding: str | None = None,
) -> RawItems:
    """Read the samples and labels of a known data set or a user's files, as they are in the files.

    ``items`` is None if the samples are texts.
    """
    name = str(name_or_path)
    if name in LAYOUTS:
        if chosen := choice.roles():
            _refuse_for_known(chosen[0], name)
        return read_known(name, data_dir)
    _check_path(name_or_path)
    path = as_path(name_or_path)
    if not path.exists():
        message = (
            f"{str(path)!r} is neither a data set ({', '.join(LAYOUTS)}) nor an existing path."
        )
        nearest = difflib.get_close_matches(str(path).lower(), LAYOUTS, n=1)
        raise FileNotFoundError(message + "".join(f" Did you mean {n!r}?" for n in nearest))
    check_is_data(path)
    raw = read_path(path, choice, encoding=encoding)
    unused = choice.roles() if raw.table is None else []
    if raw.has_names:
        unused = [role for role in unused if role == "ignore"]
    if unused:
        raise ValueError(
            f"{path}: {unused[0]} must name a column of a table; got "
            f"{getattr(choice, unused[0])!r}, and there is no table. Omit it."
        )
    return raw


def check_is_data(path: Path) -> None:
    """Raise ValueError for the folder of a saved model."""
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        raise ValueError(
            f"{path} must hold data; got a saved model. Pass the samples: `ssdml predict {path} "
            "DATA --out labels.csv` labels them, and tells how many labels of DATA it agrees with."
        )


def _refuse_for_known(argument: str, name: str) -> NoReturn:
    raise ValueError(
        f"load_dataset: {argument} is for files of your own; got the data set {name!r}. Omit it, "
        f"or name a path: ./{name}."
    )


def text_features(texts: npt.NDArray[np.object_], model: str) -> npt.NDArray[np.float32]:
    """Embed texts by a model; embeddings by an encoder are cached in the last data folder."""
    return embed_texts(texts, model, cache=data_folders(None)[-1] / "embeddings")


def with_features(raw: RawItems, features: Array, text_model: str | None) -> RawItems:
    """Return samples that are texts with their features, and tell it in the summary."""
    if raw.summary is not None:
        raw.summary.facts["features"] = described_model(text_model or WORDS)
        if text_model is None:
            raw.summary.doubts.append(
                "the features are the words of the texts (TF-IDF), which separate topics but "
                "little else; name a sentence encoder with --text-model MODEL "
                "(text_model='all-MiniLM-L6-v2'), or choose 'words'"
            )
    return raw._replace(items=features)


def described_model(model: str) -> str:
    """Describe a text model.

    Examples
    --------
    >>> described_model("words")
    'words of the texts (TF-IDF)'
    """
    if model == WORDS:
        return "words of the texts (TF-IDF)"
    return f"embeddings of the texts by {model}"


def assembled(
    name: str,
    raw: RawItems,
    class_names: tuple[str, ...] | None = None,
    *,
    no_label: Sequence[str] = (),
) -> Dataset:
    """Encode the labels and flatten the samples of what a reader returned."""
    where = name if raw.summary is None else raw.summary.title
    codes, classes = encoded_labels(raw, no_label)
    class_names = class_names or raw.class_names
    rows, item_shape = _as_rows(raw.items, where)
    if raw.summary is not None and not isinstance(rows, ImageFiles):
        raw.summary.doubts += _doubts_of_zeros(raw.items, rows, raw.columns)
    return Dataset(
        name=name,
        X=rows,
        y=codes,
        class_names=tuple(class_names[c] if class_names else class_name(c) for c in classes),
        test=raw.test,
        item_shape=item_shape,
        gallery=raw.gallery,
        texts=raw.texts,
        ids=raw.ids,
        columns=raw.columns,
        summary=raw.summary,
    )


def _as_rows(items: Any, where: str) -> tuple[Any, tuple[int, ...] | None]:
    """Flatten samples to float32 rows; return their shape if they are images."""
    if isinstance(items, ImageFiles):
        return items, None
    with np.errstate(over="ignore"):
        X = np.ascontiguousarray(items.reshape(len(items), -1), dtype=np.float32)
    if items.dtype.kind in "fiu" and items.dtype.itemsize > 4 and not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        raise ValueError(
            f"{where}: features must be within ±3.4e38, the range of float32; got "
            f"{items.reshape(X.shape)[row, column]:g} at row {row}, column {column}. Scale them, "
            "or correct the file."
        )
    if items.dtype == np.uint8:
        X /= 255
    return X, tuple(items.shape[1:]) if items.ndim > 2 else None


def _doubts_of_zeros(items: Array, X: Array, names: Sequence[str] | None) -> list[str]:
    """Doubt features so small that all are zeros in float32."""
    zeros = np.flatnonzero(~X.any(axis=0))
    lost = zeros[items.reshape(X.shape)[:, zeros].any(axis=0)].tolist()
    if not lost:
        return []
    shown = [repr(names[j]) if names and len(names) == X.shape[1] else str(j) for j in lost]
    return [f"numbers below 1e-45 are zeros in float32; scale column {listed(shown)}"]
