"""Load data sets from published layouts or from a user's files, offline."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import Dataset, RawItems
from ssdml.datasets.cifar import read_cifar_batches
from ssdml.datasets.fine_grained import (
    read_caltech101,
    read_cars,
    read_cub,
    read_inshop,
    read_sop,
)
from ssdml.datasets.idx import read_idx_folder
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.reading.arrays import read_npy_folder, read_npy_pair
from ssdml.datasets.reading.columns import Choice
from ssdml.datasets.reading.delimited import COMPRESSED
from ssdml.datasets.reading.image_folders import read_image_zip
from ssdml.datasets.reading.paths import read_path
from ssdml.datasets.reading.summary import Summary, counted, listed
from ssdml.datasets.texts import WORDS, embed_texts
from ssdml.utils.files import open_regular, read_regular
from ssdml.utils.labels import NO_LABEL, encode_column, encode_partial_labels
from ssdml.utils.typing import Array, Ints

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
# Labels that may say that there is none.
MAY_BE_MARKS = {"missing", "blank", "empty", "tbd", "todo", "to do", "to be done", "pending"}
MAY_BE_MARKS |= {"n.a.", "n.a", "na.", "n. a.", "n/k", "not available", "not applicable"}
MAY_BE_MARKS |= {"not labeled", "not labelled", "no label", "unassigned", "undefined", "unsorted"}
MAY_BE_MARKS |= {"unspecified", "unclassified", "not set", "not sure", "unsure", "skip", "skipped"}
MAY_BE_MARKS |= {"unlabeled", "unlabelled", "unknown"}  # in brackets, for instance
INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")  # as copies of web pages hold
CLASS_NAMES = {"fashion_mnist": tuple(FASHION.split(","))}


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
) -> Dataset:
    """Load a known data set or a user's files. Nothing is downloaded.

    Parameters
    ----------
    name_or_path : str or Path
        ``digits`` (scikit-learn's), ``mnist``, ``fashion_mnist``, ``cifar10``, ``banking77``;
        ``caltech101`` (its features); ``caltech101_images``, ``cub`` (CUB-200-2011), ``cars``
        (Cars-196), ``sop`` (Stanford Online Products) and ``inshop``, whose images stay in their
        files and whose test classes differ; or

        - a table: ``.csv``, ``.tsv`` and other text with separators, ``.parquet``, ``.feather``,
          ``.arrow``, ``.jsonl``, ``.json``, ``.xlsx``; text may be compressed (``.gz``,
          ``.bz2``, ``.xz``, ``.zst``);
        - ``data.npz`` with arrays ``X`` (n, d) or (n, height, width, ...), ``y`` (n,) and, for a
          standard split, a boolean ``test`` (n,);
        - ``X.npy`` with ``y.npy``, ``name_X.npy`` with ``name_y.npy``, or ``name.npy`` with
          ``name_y.npy``;
        - a folder (or .zip) of class folders of images, those without a label in ``unlabeled`` or
          beside these folders, optionally below ``train`` and ``test``;
        - a folder that Hugging Face's datasets saved, or of tables called train and test; one with
          ``{train,test}_{X,y}.npy`` and, for samples computed from texts,
          ``{train,test}_text.txt``, one per line.
    data_dir : str or Path, optional
        First folder to search for known data sets, before ``$SSDML_DATA`` and
        ``$XDG_CACHE_HOME/ssdml`` (``~/.cache/ssdml``).
    text_model : str, optional
        For texts: "words", the default, or the name or folder of a sentence-transformers model,
        whose embeddings are cached in the last of these folders. If given, texts are learned from
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

    Returns
    -------
    dataset : Dataset
        ``dataset.summary`` tells what became features, labels, ids and texts.

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
    The labels are the column called label, labels, target, class, y, category, intent or species;
    else, with a warning, the only column of short texts, or of integers, that occur again. A column
    of distinct values called id or the like gives the ids. The samples are a column of vectors; or
    images whose files a column names; or the texts in a column called text or the like, unless more
    than three columns of numbers are beside it; or all columns of numbers that do not number the
    rows.

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
    choice = Choice(label, text, id, features, ignore, text_model is not None)
    dataset = read_dataset(
        name_or_path,
        choice,
        data_dir=data_dir,
        text_model=text_model,
        no_label=names_of(no_label),
        encoding=encoding,
    )
    if dataset.summary is not None:
        dataset.summary.warn(stacklevel=2)
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
    path = Path(name_or_path).expanduser()
    if raw.items is not None and text_model is not None:
        raise ValueError(
            f"load_dataset: text_model must be None unless the samples are texts; got "
            f"{text_model!r} and {path}. Omit it."
        )
    if raw.items is None:
        assert raw.texts is not None
        raw = with_features(raw, text_features(raw.texts, text_model or WORDS), text_model)
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
        chosen = [k for k in ("label", "text", "id", "features", "ignore") if getattr(choice, k)]
        if chosen:
            _refuse_for_known(chosen[0], name)
        return _known(name, data_dir)
    _check_path(name_or_path)
    path = Path(name_or_path).expanduser()
    if not path.exists():
        message = (
            f"{str(path)!r} is neither a data set ({', '.join(LAYOUTS)}) nor an existing path."
        )
        nearest = difflib.get_close_matches(str(path).lower(), LAYOUTS, n=1)
        raise FileNotFoundError(message + "".join(f" Did you mean {n!r}?" for n in nearest))
    return read_path(path, choice, encoding=encoding)


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
                "the features are the words of the texts (TF-IDF), which tell topics apart but "
                "little else; name an encoder of sentences by --text-model MODEL "
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


def _known(name: str, data_dir: str | Path | None) -> RawItems:
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


def encoded_labels(raw: RawItems, no_label: Sequence[str] = ()) -> tuple[Ints, Array]:
    """Encode the labels of what a reader returned, and tell of them in its summary.

    Parameters
    ----------
    raw : RawItems
    no_label : sequence of str
        More marks of a missing label.

    Returns
    -------
    codes : ndarray of shape (n,), int64
        -1 where unlabeled.
    classes : ndarray of shape (n_classes,)
        Texts of whole numbers, such as "9" and "10", are sorted as numbers.
    """
    where = "labels" if raw.summary is None else f"{raw.summary.title}, labels"
    codes, classes = encode_column(raw.labels, where, (*NO_LABEL, *no_label))
    if classes.dtype.kind == "U" and all(re.fullmatch(r"-?\d+", c) for c in classes.tolist()):
        order = np.argsort([int(c) for c in classes.tolist()], kind="stable")
        ranks = np.append(np.argsort(order), -1)  # the last for no label
        codes, classes = ranks[codes], classes[order]
    if raw.summary is not None:
        _summarize(raw.summary, raw.labels, codes, [class_name(c) for c in classes])
    return codes, classes


def class_name(label: Any) -> str:
    """Return a label as text; 7.0 is "7", and bytes are in UTF-8.

    Examples
    --------
    >>> class_name(7.0), class_name("cat"), class_name(b"dog")
    ('7', 'cat', 'dog')
    """
    if (
        isinstance(label, float | np.floating)
        and float(label).is_integer()
        and abs(float(label)) < 2**53
    ):
        return str(int(label))
    return label.decode(errors="replace") if isinstance(label, bytes) else str(label)


def _summarize(summary: Summary, labels: Array, codes: Ints, names: Sequence[str]) -> None:
    """Complete the summary by the numbers of samples, labels and classes."""
    n_without = int((codes < 0).sum())
    without = labels[codes < 0].tolist()
    marks = ", ".join(sorted({repr(mark) for mark in without}))
    place = summary.facts.pop("labels", "")
    fact = f"{counted(len(names), 'class', 'classes')} ({listed(names)})" if names else "none"
    if n_without and names:
        fact += f"; {n_without:,} of {len(codes):,} samples have none"
        fact += f", marked {marks}" * (marks != "''")
    summary.facts["labels"] = f"{place}: {fact}" if place else fact
    summary.title = f"{summary.title}: {counted(len(codes), 'sample')}"
    if len(names) == 1 and {"-1", "-1.0"} & {str(mark).strip() for mark in without}:
        summary.doubts.append(
            f"the only class is {names[0]!r}, as -1 means no label; if -1 is a class, rename it"
        )
    summary.doubts += _doubts_of_labels(names, without)


def _doubts_of_labels(names: Sequence[str], without: Sequence[Any]) -> list[str]:
    """Doubt classes that may be marks, marks that may be classes, and names that are alike."""
    doubts = []
    marks = [
        name
        for name in names
        if _as_mark(name) in MAY_BE_MARKS or (name.isascii() and not any(map(str.isalnum, name)))
    ]
    if marks:
        doubts.append(
            f"{', '.join(map(repr, marks))} counts as a class; if it means no label, pass "
            f"--no-label {marks[0]!r} (no_label={marks[0]!r})"
        )
    texts = {mark.strip() for mark in without if isinstance(mark, str)}
    words = sorted(text for text in texts if any(map(str.isalpha, text)))
    if words and any(mark is None or mark != mark or mark == "" for mark in without):
        doubts.append(
            f"{', '.join(map(repr, words))} means no label, as empty cells do; if it is a class, "
            "rename it"
        )
    alike: dict[Any, list[str]] = {}
    for name in names:
        is_number = re.fullmatch(r"[+-]?\d+(\.\d*)?", name)
        alike_name = unicodedata.normalize("NFKC", INVISIBLE.sub("", name)).casefold()
        key = float(name) if is_number else " ".join(alike_name.split())
        alike.setdefault(key, []).append(name)
    pairs = [" and ".join(map(repr, group)) for group in alike.values() if len(group) > 1]
    if pairs:
        doubts.append(
            f"classes {listed(pairs)} differ in writing only, and are kept apart; if they are one, "
            "write them alike"
        )
    return doubts


def _as_mark(name: str) -> str:
    """Return a name of a class for comparison with marks: "_No-Label" is "no label"."""
    return re.sub(r"[-_\s]+", " ", name).strip("()[]<> ").casefold()


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


# As sha256sum writes them: two spaces, or with -b a space and a star; a backslash escapes names.
SUM = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>.+)")


def _verify_checksums(root: Path, place: Path) -> None:
    """Compare the files of a data set with ``SHA256SUMS``, if there is one."""
    sums = root / "SHA256SUMS"
    if not sums.exists():
        return
    try:
        lines = read_regular(sums).decode().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{sums}: must be text in UTF-8 ({error}). {_SUMS}") from error
    for number, line in enumerate(lines, 1):
        match = SUM.fullmatch(line)
        if match is None or match["escaped"]:
            if not line.strip() or line.startswith("#"):
                continue
            raise ValueError(
                f"{sums}, line {number}: must be a SHA-256 and a name; got {line[:99]!r}. {_SUMS}"
            )
        path = root / match["name"]
        if path.is_file() and (path == place or place in path.parents):
            with open_regular(path) as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != match["digest"].lower():
                raise ValueError(
                    f"{path}: damaged; its SHA-256 is {found}, {sums} says {match['digest']}."
                )


_SUMS = "Write it by `sha256sum FILE...`, or remove it."
