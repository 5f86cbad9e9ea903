"""The data set record, and what readers return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.datasets.reading.summary import Summary, counted
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import (
    UNLABELED,
    as_array,
    as_list,
    check_cells,
    check_table,
    is_table,
    without_tensor,
)

if TYPE_CHECKING:
    from ssdml.datasets.reading.table import Table

__all__ = ["Dataset"]

MASKS = ("test", "gallery")
PARTS = (*MASKS, "texts", "ids")  # one entry per sample, or None


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Samples with their labels.

    Attributes
    ----------
    name : str
    X : ndarray of shape (n, d), float32, or ImageFiles of n images
        Images are flattened (rows, columns, channels) and their bytes divided by 255; large data
        sets stay in their files, as bytes (3, size, size).
    y : ndarray of shape (n,), int64
        Indices into `class_names`; -1 where unlabeled.
    class_names : tuple of str
    test : ndarray of shape (n,), bool, or None
        Standard test rows; None without a standard split.
    item_shape : tuple of int or None
        Shape of an image before flattening.
    gallery : ndarray of shape (n,), bool, or None
        Test rows that form the gallery, the others being queries; None: each test row is a query to
        all others.
    texts : ndarray of shape (n,), str, or None
        Texts from which the samples were computed, for display.
    ids : ndarray of shape (n,), or None
        Names or numbers of the samples in their file; of images, the names of their files.
    columns : tuple of str, or None
        Names of the features, or of the column of vectors or texts.
    summary : Summary or None
        What the file became; ``print(dataset.summary)``.

    Raises
    ------
    ValueError
        If y are not whole numbers, one per sample, below the number of `class_names`; if `test` or
        `gallery` is no mask; if a part has another length than X; or if the name or a class name
        is not text in UTF-8, as file names may be: results could not be written.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> load_dataset("digits")
    <Dataset 'digits': 1,797 samples in 10 classes, 1,797 labeled>
    """

    name: str
    X: Any  # an array or ImageFiles; both are indexed by integers, masks and slices
    y: Ints
    class_names: tuple[str, ...]
    test: npt.NDArray[np.bool_] | None = None
    item_shape: tuple[int, ...] | None = None
    gallery: npt.NDArray[np.bool_] | None = None
    texts: npt.NDArray[np.object_] | None = None
    ids: npt.NDArray[Any] | None = None
    columns: tuple[str, ...] | None = None
    summary: Summary | None = None

    def __post_init__(self) -> None:
        from ssdml.utils.labels import check_codes, check_order, index_of

        where = "Dataset" if self.summary is None else self.summary.title
        check_order(self.X, self.y, where)
        samples = _as_samples(self.X, where)
        codes = check_codes(self.y, len(samples), where, "y", UNLABELED)
        classes = as_list(self.class_names, "class_names", where, "names", in_order=True)
        if len(codes) and codes.max() >= len(classes):
            raise ValueError(
                f"{where}: y must lie below the number of class_names = {len(classes)}; got "
                f"{codes.max()}. Name all classes."
            )
        (title,) = _as_names((self.name,), where, "name", "file")
        parts: dict[str, Any] = {"name": title, "X": samples, "y": codes}
        parts["class_names"] = _as_names(classes, where, "class_names", "class")
        given = "y" if index_of(self.X) is None else "X"
        for name in PARTS:
            if (part := getattr(self, name)) is not None:
                check_order(getattr(self, given), part, where, (given, name))
                parts[name] = _per_sample(part, len(codes), where, name)
        for name, part in parts.items():
            object.__setattr__(self, name, part)

    def __repr__(self) -> str:
        testing = "" if self.test is None else f", {np.count_nonzero(self.test):,} for testing"
        return (
            f"<Dataset {self.name!r}: {counted(len(self.y), 'sample')} in "
            f"{counted(len(self.class_names), 'class', 'classes')}, "
            f"{np.count_nonzero(self.y != UNLABELED):,} labeled{testing}>"
        )

    def of_rows(self, rows: Any) -> Dataset:
        """Return the data set of these rows: a slice, indices or a mask.

        Examples
        --------
        >>> from ssdml.datasets import load_dataset
        >>> load_dataset("digits").of_rows(slice(3)).y
        array([0, 1, 2])
        """
        parts = {name: v[rows] for name in PARTS if (v := getattr(self, name)) is not None}
        return replace(self, X=self.X[rows], y=self.y[rows], **parts)


def _as_samples(X: Any, where: str) -> Any:
    """Return an array of lists, tables and tensors; other arrays, and ImageFiles, unchanged."""
    samples = without_tensor(X, where)
    is_array = hasattr(samples, "shape") and not hasattr(type(samples), "toarray")  # not sparse
    if not is_array:
        samples = check_cells(samples, where)
    is_flat = not is_array and np.ndim(samples) < 2
    return check_table(samples, where) if is_table(samples) or is_flat else samples


def _per_sample(part: Any, n_samples: int, where: str, name: str) -> npt.NDArray[Any]:
    """Return an array with an entry per sample; raise unless it is one, and a mask if it must be.

    Row numbers, and masks of 0 and 1, would be taken for indices.
    """
    if name not in MASKS and isinstance(part, list | tuple):
        return _per_sample(np.fromiter(part, object, len(part)), n_samples, where, name)
    found = as_array(part, where, name)
    if name in MASKS and found.dtype != bool:
        given = name if hasattr(part, "dtype") else f"numpy.array([*{name}])"
        raise ValueError(
            f"{where}: {name} must be True or False for each sample; got {found.dtype} of shape "
            f"{found.shape}. Pass {_as_mask(found, n_samples, given, name)}."
        )
    if found.shape != (n_samples,):
        raise ValueError(
            f"{where}: {name} must have shape ({n_samples},), an entry per sample; got "
            f"{found.shape}. Select those of the samples."
        )
    return found


def _as_mask(found: npt.NDArray[Any], n_samples: int, given: str, name: str) -> str:
    """Tell how to make a mask of texts, objects, 0 and 1, or the numbers of rows."""
    cells = found.ravel().tolist() if found.shape == (n_samples,) else [n_samples]
    if cells and isinstance(cells[0], str):
        return f"{given} == {name!r} if that is the value of these rows"
    if found.dtype == object and found.ndim:
        return f"{given}.astype(bool)"
    return (
        f"{given} == 1" if {*cells} <= {0, 1} else f"numpy.isin(numpy.arange({n_samples}), {given})"
    )


def _as_names(names: Sequence[Any], where: str, what: str, of: str) -> tuple[str, ...]:
    """Return names as plain text; raise unless they are in UTF-8. ``of`` says what they name."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{where}: {what} must be text; got {name!r}. Convert it by str.")
        if not is_unicode(name):
            raise ValueError(
                f"{where}: {what} must be text in UTF-8; got {name!a}. Rename the {of} or its "
                "folder."
            )
    return tuple(map(str.__str__, names))


def is_unicode(text: str) -> bool:
    r"""Whether a text can be encoded in UTF-8; names of files may have other bytes.

    Examples
    --------
    >>> is_unicode("é"), is_unicode("\udce9")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class RawItems(NamedTuple):
    """Content of a file, before labels are encoded and texts embedded."""

    items: Any  # array (n, ...) or ImageFiles; None if the texts are the samples
    labels: Array  # (n,), of any kind
    test: npt.NDArray[np.bool_] | None  # (n,), standard test rows
    gallery: npt.NDArray[np.bool_] | None = None  # (n,), gallery among them
    class_names: tuple[str, ...] | None = None  # if labels are indices into them
    texts: npt.NDArray[np.object_] | None = None  # (n,)
    ids: npt.NDArray[Any] | None = None  # (n,)
    columns: tuple[str, ...] | None = None  # of the features, vectors or texts
    summary: Summary | None = None
    table: Table | None = None  # all columns as they are in the file
    label_column: str | None = None  # of the table
    has_names: bool = False  # whether the samples and labels were arrays that have names


def stack_splits(train: RawItems, test: RawItems) -> RawItems:
    """Stack training and test rows, with the mask of the latter."""
    n_train, n_test = len(train.labels), len(test.labels)
    mask = np.arange(n_train + n_test) >= n_train
    shapes = [None if part.items is None else part.items.shape[1:] for part in (train, test)]
    where = "stack_splits" if train.summary is None else train.summary.title
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"{where}: training and test samples must have one shape; got {shapes[0]} and "
            f"{shapes[1]}. Save them alike."
        )
    kinds = [str(part.items.dtype) for part in (train, test) if part.items is not None]
    if "uint8" in kinds and any(kind.startswith("float") for kind in kinds):
        raise ValueError(
            f"{where}: training and test samples must have one type; got {' and '.join(kinds)}: "
            "only bytes are divided by 255. Save them alike."
        )
    items = None if train.items is None else np.concatenate([train.items, test.items])
    both_texts = [part.texts for part in (train, test) if part.texts is not None]
    both_ids = [part.ids for part in (train, test) if part.ids is not None]
    labels = [part.labels for part in (train, test)]
    if len({"U" if part.dtype.kind == "U" else "" for part in labels}) > 1:
        labels = [part.astype(object) for part in labels]  # NumPy would make texts of numbers
    return RawItems(
        items,
        np.concatenate(labels),
        mask,
        texts=np.concatenate(both_texts) if len(both_texts) == 2 else None,
        ids=np.concatenate(both_ids) if len(both_ids) == 2 else None,
        summary=train.summary,
        has_names=train.has_names,
    )
