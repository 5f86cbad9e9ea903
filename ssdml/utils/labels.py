"""Partial labels: encoding, reading, classes and confidences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.utils.linalg import unit_rows
from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import (
    UNLABELED,
    as_array,
    check_labeled,
    is_table,
    warn,
    warn_of_wrapped,
    whole_labels,
    without_tensor,
)

NO_LABEL: tuple[Any, ...] = (None, float("nan"), -1, "", "na", "n/a", "#n/a", "<na>", "null", "?")
NO_LABEL += ("unlabeled", "unlabelled", "unknown", r"\N")  # the last as databases write NULL
# Marks of other libraries, and -2, beside which -1 may be a class.
OTHER_MARKS = (-2, -100, *(1 - 10**k for k in range(2, 7)))
WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.?0*(?:e[+-]?0+)?")  # a whole number, but not 007
LEAST_ROWS = 20  # in which a feature is not equal to the labels by chance
SEVERAL = (list, tuple, set, frozenset, dict, np.ndarray)


def encode_partial_labels(
    y: npt.ArrayLike, *, unlabeled: Iterable[Any] | str | float = NO_LABEL
) -> tuple[Ints, Array]:
    r"""Encode labels as 0, 1, ... and missing labels as -1.

    Parameters
    ----------
    y : array-like of shape (n,)
        Strings, integers or booleans, with None and NaN among them. Bytes are decoded as UTF-8.
    unlabeled : iterable, str or number
        Values that mean "no label", or a single one. They are compared as text, in any case and
        without the spaces around them: None is also "none" and pandas' NA, NaN is also "nan", and
        -1 is also -1.0 and "-1". By default None, NaN, -1 and the strings "", "NA", "N/A", "#N/A",
        "<NA>", "null", "\N", "?", "unlabeled", "unlabelled" and "unknown". Masked entries have no
        label.

    Returns
    -------
    codes : ndarray of shape (n,), int64
        ``classes[codes]`` returns the labels if ``codes != -1``.
    classes : ndarray of shape (n_classes,)
        Sorted distinct labels. Strings are never merged: "7" and "007" are two classes.

    Raises
    ------
    TypeError
        If y mixes strings, numbers and booleans, or holds several labels per row.
    ValueError
        If y is not one-dimensional.

    Examples
    --------
    >>> encode_partial_labels(["cat", None, "dog", "N/A", "cat"])
    (array([ 0, -1,  1, -1,  0]), array(['cat', 'dog'], dtype='<U3'))
    >>> encode_partial_labels([7, -1, 3])
    (array([ 1, -1,  0]), array([3, 7]))
    >>> encode_partial_labels(["to do", "cat"], unlabeled="to do")[0]
    array([-1,  0])
    """
    return encode_labels(y, "encode_partial_labels", unlabeled=unlabeled)


def encode_labels(
    y: Any, who: str, name: str = "y", unlabeled: Iterable[Any] | str | float = NO_LABEL
) -> tuple[Ints, Array]:
    """Encode labels as :func:`encode_partial_labels` does; ``who`` and ``name`` begin the errors.

    Examples
    --------
    >>> encode_labels(["b", None, "a"], "who")[0]
    array([ 1, -1,  0])
    """
    return encode_column(as_labels(y, who, name), who, unlabeled, name)


def encode_column(
    values: Array,
    who: str,
    unlabeled: Iterable[Any] | str | float = NO_LABEL,
    name: str = "y",
) -> tuple[Ints, Array]:
    """Encode a column as :func:`encode_partial_labels` does; ``who`` and ``name`` begin the errors.

    Examples
    --------
    >>> encode_column(np.array(["b", "?", "a"]), "who")[0]
    array([ 1, -1,  0])
    """
    if values.dtype == object:
        missing = is_unlabeled(values, unlabeled)
        codes = np.full(len(values), UNLABELED, dtype=np.int64)
        known = _of_one_kind(values[~missing], who, name)
        try:
            classes, codes[~missing] = np.unique(known, return_inverse=True)
        except TypeError as error:  # no order
            raise TypeError(not_names(known[0], who, name)) from error
        return codes, classes
    distinct, places = np.unique(values, return_inverse=True)
    known = ~is_unlabeled(distinct, unlabeled)
    codes = np.where(known, np.cumsum(known) - 1, UNLABELED)[places].astype(np.int64)
    return codes, distinct[known]


def is_unlabeled(
    values: Array, unlabeled: Iterable[Any] | str | float = NO_LABEL
) -> npt.NDArray[np.bool_]:
    """Return which entries of a column mean "no label".

    Examples
    --------
    >>> is_unlabeled(np.array(["a", " N/A", "7"]))
    array([False,  True, False])
    """
    if isinstance(unlabeled, str | bytes) or not isinstance(unlabeled, Iterable):
        unlabeled = (unlabeled,)
    marks = {_as_text(mark) for mark in unlabeled}
    return np.array([_as_text(label) in marks for label in values.tolist()], dtype=bool)


def _as_text(label: Any) -> str:
    """Return a label for comparisons; -1.00 and -1.0e+00 are -1."""
    if isinstance(label, bytes):
        label = label.decode()
    if type(label).__name__ in ("NAType", "NaTType"):
        return "none"
    text = str(label).strip().casefold()
    whole = WHOLE.fullmatch(text)
    return whole[1] if whole else text


def as_column(y: Any, who: str, name: str = "y") -> Array:
    """Return labels in an array that keeps their types; masked entries become None.

    ``who`` begins the error for several labels per row.

    Examples
    --------
    >>> as_column(["a", None], "who")
    array(['a', None], dtype=object)
    """
    # NumPy would turn integers with nulls of pandas, polars and pyarrow into floats.
    if type(y).__module__.partition(".")[0] in ("polars", "pyarrow"):
        table = "to_numpy" if hasattr(y, "to_dicts") else "to_list"  # a DataFrame has no list
        y = getattr(y, "to_pylist" if hasattr(y, "to_pylist") else table, lambda: y)()
    elif hasattr(getattr(y, "dtype", None), "construct_array_type"):  # of pandas, not of NumPy
        y = np.asarray(y, dtype=object)
    if isinstance(y, np.ma.MaskedArray):
        values = np.ma.filled(y.astype(object), None) if np.ma.is_masked(y) else y.data
    elif isinstance(y, list | tuple):
        values = _of_list(y)
    else:
        values = as_array(y, who, name)
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{who}: {name} must hold text in UTF-8 where it holds bytes; got "
                f"{error.object!r}. Decode them: numpy.char.decode({name}, 'cp1252')."
            ) from error
    elif values.dtype.kind == "T":
        values = values.astype(object)
    if values.dtype == object and values.ndim == 1:
        row = next((i for i, label in enumerate(values) if isinstance(label, SEVERAL)), None)
        if row is not None:
            raise TypeError(
                f"{who}: {name} must hold one label per row; got {values[row]!r} in row {row}. "
                "Keep one label of each row, or fit a model for each label."
            )
        values = np.fromiter(map(_plain, values), dtype=object, count=len(values))
    return values


def as_labels(y: Any, who: str, name: str = "y", *, may_be_column: bool = False) -> Array:
    """Return labels as `as_column` does; raise ValueError unless there is one per row.

    With ``may_be_column``, shape (n, 1) stays.

    Examples
    --------
    >>> as_labels(["a", "b"], "who")
    array(['a', 'b'], dtype='<U1')
    """
    column = as_column(y, who, name)
    if column.ndim == 0:
        raise TypeError(
            f"{who}: {name} must be a list or an array of labels, one per row; got "
            f"{type(y).__name__}. Pass a list, in the order of the rows."
        )
    if column.dtype.kind == "c" and column.size:
        raise TypeError(not_names(column.flat[0], who, name))
    is_column = column.ndim == 2 and column.shape[1] == 1
    if column.ndim != 1 and not (may_be_column and is_column):
        of_indicators = f"Keep one label of each row; of indicators, numpy.argmax({name}, axis=1)."
        is_vector = column.ndim == 2 and 1 in column.shape
        raise ValueError(
            f"{who}: {name} must have one dimension, one label per row; got shape {column.shape}. "
            f"{f'Pass numpy.ravel({name}).' if is_vector else of_indicators}"
        )
    warn_of_wrapped(column, who, name)
    return column


def index_of(table: Any) -> Array | None:
    """Index of a table or a column of pandas; None of other data.

    Examples
    --------
    >>> index_of([1, 2])
    """
    index: Any = getattr(table, "index", None)
    return np.asarray(index) if hasattr(index, "equals") else None


def check_order(X: Any, y: Any, who: str, names: tuple[str, str] = ("X", "y")) -> None:
    """Warn if y, of pandas, has the index of X in another order; ``names`` are theirs.

    Examples
    --------
    >>> check_order([[1], [2]], ["a", "b"], "who")
    """
    warn_of_order(index_of(X), y, who, names)


def warn_of_order(
    rows: Array | None, y: Any, who: str, names: tuple[str, str] = ("X", "y")
) -> None:
    """Warn if y has the index ``rows`` in another order."""
    labels = index_of(y)
    if rows is None or labels is None or np.array_equal(rows, labels):
        return
    known = set(rows.tolist())
    if len(known) == len(rows) == len(labels) and known == set(labels.tolist()):
        given, own = names
        warn(
            f"{who}: {own} must be in the order of {given}; got the index of {given} in another "
            f"order, which is not read. Pass {own}.loc[{given}.index]; if the rows belong "
            f"together, {own}.to_numpy()."
        )


def column_names(table: Any) -> list[str] | None:
    """Return the names of the columns of pandas, polars or pyarrow, or None without such names.

    Examples
    --------
    >>> column_names([[1, 2]])
    """
    if not is_table(table):
        return None
    names = table.column_names if hasattr(table, "column_names") else getattr(table, "columns", ())
    names = list(names)
    return names if names and all(isinstance(name, str) for name in names) else None


def check_columns(
    columns: list[str] | None, others: list[str] | None, who: str, names: tuple[str, str]
) -> None:
    """Raise if two tables have as many columns, but of other names or in another order.

    ``names`` are those of the tables.

    Examples
    --------
    >>> check_columns(["a", "b"], ["a", "b"], "who", ("X", "queries"))
    """
    if columns is None or others is None or len(columns) != len(others) or columns == others:
        return
    given, own = names
    wanted, found = next(pair for pair in zip(columns, others, strict=True) if len({*pair}) == 2)
    way_out = f"{own}.to_numpy(), if its columns are those of {given}"
    if sorted(columns) == sorted(others):
        way_out = f"them in the order of {given}"
    raise ValueError(
        f"{who}: {own} must have the columns of {given}, in their order; got {found!r} where "
        f"{given} has {wanted!r}. Pass {way_out}."
    )


def warn_of_labels_in(X: Array, labels: Ints, who: str, names: Any = None) -> None:
    """Warn if a column of X holds the labels, -1 where missing, as of a whole table.

    Examples
    --------
    >>> warn_of_labels_in(np.eye(2), np.array([0, -1]), "who")
    """
    if len(X) < LEAST_ROWS:
        return
    columns = np.arange(X.shape[1])
    for rows in (slice(LEAST_ROWS), slice(None)):  # hardly any column is left after the first rows
        columns = columns[(X[rows, columns] == labels[rows, None]).all(axis=0)]
    if len(columns):
        name = columns[0] if names is None else repr(names[columns[0]])
        warn(
            f"{who}: X must not hold the labels; column {name} equals y in all rows. Leave it out."
        )


def check_codes(codes: Any, n: int | None, who: str, name: str, least: int = 0) -> Ints:
    """Return class numbers of n rows; raise unless they are whole numbers from ``least`` on.

    Examples
    --------
    >>> check_codes([0, 2], 2, "who", "codes")
    array([0, 2])
    """
    found = as_array(codes, who, name)
    length = f"({'n' if n is None else n},)"
    is_whole = found.dtype.kind in "iu" or not found.size
    if found.ndim != 1 or (n is not None and len(found) != n) or not is_whole:
        raise ValueError(
            f"{who}: {name} must be whole numbers of shape {length}; got {found.dtype} of shape "
            f"{found.shape}. encode_partial_labels numbers the classes of other labels."
        )
    if len(found) and found.min() < least:
        raise ValueError(
            f"{who}: {name} must be at least {least}; got {found.min()}. Leave out rows without a "
            "label, as ssdml.evaluation.evaluate does."
        )
    return found.astype(np.int64)


def check_weights(weights: Any, n: int, who: str, name: str) -> Floats:
    """Return weights of n rows; raise unless they are finite and at least 0.

    Examples
    --------
    >>> check_weights([1, 0], 2, "who", "weights")
    array([1., 0.])
    """
    if isinstance(weights, np.ma.MaskedArray):
        weights = np.ma.filled(weights.astype(np.float64), np.nan)
    try:
        found = np.asarray(without_tensor(weights, who, name), np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{who}: {name} must hold numbers; got {type(weights).__name__}: {error}. "
            "Pass one number per row."
        ) from error
    if found.shape != (n,):
        raise ValueError(
            f"{who}: {name} must have shape ({n},), one per row; got shape {found.shape}."
        )
    wrong = ~((found >= 0) & (found < np.inf))  # NaN, too
    if wrong.any():
        raise ValueError(
            f"{who}: {name} must be finite and at least 0; got {found[wrong][0]} in row "
            f"{wrong.argmax()}. Pass 0 for rows that shall not count."
        )
    return found


def _plain(label: Any) -> Any:
    """Return the text of a member of an enumeration of strings, other labels unchanged."""
    return str.__str__(label) if isinstance(label, str) else label


def _of_list(y: list[Any] | tuple[Any, ...]) -> Array:
    y = [*map(_plain, y)]
    if len({type(label) for label in y}) < 2:
        try:
            return np.asarray(y)
        except ValueError:  # lists of several lengths
            pass
    # np.asarray would turn None or numbers among strings into text.
    return np.fromiter(y, dtype=object, count=len(y))


def _of_one_kind(known: Array, who: str, name: str) -> Array:
    kinds = {_kind(label) for label in known}
    if len(kinds) > 1:
        found = ", ".join(sorted({type(label).__name__ for label in known}))
        raise TypeError(
            f"{who}: {name} must hold labels of one kind, all strings, all numbers or all "
            f"booleans; got {found}. Convert the labels, such as by str(label)."
        )
    labels = [label.decode() if isinstance(label, bytes) else label for label in known.tolist()]
    if kinds == {float} and all(map(_is_whole, labels)):
        labels = [label if isinstance(label, float) else int(label) for label in labels]
    return np.asarray(labels)


def _is_whole(label: Any) -> bool:
    """Whether a number, of any size and kind, is whole; infinite ones count."""
    if isinstance(label, float) and not math.isfinite(label):
        return True
    return bool(label == int(label))


def not_names(label: Any, who: str, name: str = "y") -> str:
    """Say that a label of another type is none."""
    return (
        f"{who}: {name} must hold names, whole numbers or booleans; got {label!r}, a "
        f"{type(label).__name__}. Pass text for it, such as str(label)."
    )


def _kind(label: Any) -> type:
    if isinstance(label, str | bytes):
        return str
    if isinstance(label, bool | np.bool_):
        return bool
    return float if isinstance(label, Real) else type(label)


def likeliest(distributions: Array) -> Ints:
    """Return the column of the largest entry in each row; -1 if there are no columns.

    Examples
    --------
    >>> likeliest(np.array([[0.2, 0.8], [0.6, 0.4]]))
    array([1, 0])
    >>> likeliest(np.empty((2, 0)))
    array([-1, -1])
    """
    if not distributions.shape[1]:
        return np.full(len(distributions), UNLABELED, dtype=np.int64)
    return distributions.argmax(axis=1)


def in_precision(distributions: Array, dtype: Any) -> Array:
    """Convert distributions to another precision, in which they sum to 1 as well.

    Examples
    --------
    >>> thirds = np.full((1, 3), 1 / 3, np.float32)
    >>> in_precision(thirds, np.float64).sum() == 1 != thirds.astype(np.float64).sum()
    np.True_
    """
    if distributions.dtype == dtype:
        return distributions
    converted: Array = distributions.astype(dtype)
    return converted / converted.sum(axis=1, keepdims=True)


def confidences(distributions: Array) -> Array:
    """Compute the confidence of each row, ``(1 - entropy / log C)²``; 0 for rows of zeros.

    Examples
    --------
    >>> confidences(np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]]))
    array([1., 0., 0.])
    """
    distributions = without_tensor(distributions, "confidences", "distributions")
    n_classes = distributions.shape[1]
    known = distributions.sum(axis=1) > 0
    if n_classes == 1:
        return known.astype(float)
    entropies = np.empty(len(distributions))
    for rows in row_blocks(len(distributions), BLOCK_ROWS):
        block = distributions[rows]
        entropies[rows] = -(block * np.log(np.where(block > 0, block, 1))).sum(axis=1)
    return np.where(known, np.clip(1 - entropies / np.log(n_classes), 0, 1) ** 2, 0)


def proxy_accuracy(classes: Ints, embedding: Array, proxies: Array) -> float:
    """Compute the share of rows whose class has the proxy with the largest cosine.

    Examples
    --------
    >>> rows, proxies = np.array([[1.0, 0.0], [1.0, 0.1]]), np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> proxy_accuracy(np.array([0, 1]), rows, proxies)
    0.5
    """
    return float((likeliest(embedding @ unit_rows(proxies).T) == classes).mean())


def _raveled(column: Array, who: str) -> Array:
    """Return labels of shape (n,) or (n, 1) as (n,), with scikit-learn's warning."""
    from sklearn.exceptions import DataConversionWarning

    if column.ndim == 2:
        warn(
            f"A column-vector y was passed when a 1d array was expected by {who}. Pass "
            "numpy.ravel(y).",
            DataConversionWarning,
        )
    return column.ravel()


def read_labels(
    y: Any, n_samples: int, who: str, way_out: str | None = None
) -> tuple[Ints, Array | None]:
    """Read the labels passed to an estimator: integers, -1 where missing, and the class names.

    Whole numbers of any dtype stay as they are, and the names are None. Strings and booleans become
    codes, as by :func:`encode_partial_labels`, and the names are the classes. A column vector
    raises scikit-learn's warning. With ``way_out``, at least one label is required, and the error
    ends with that advice.

    Examples
    --------
    >>> read_labels(np.array([3.0, -1.0]), 2, "SSDML", "Label some rows.")
    (array([ 3, -1]), None)
    >>> read_labels(["cat", None, "ant"], 3, "SSDML")
    (array([ 1, -1,  0]), array(['ant', 'cat'], dtype='<U3'))
    """
    if y is None:
        raise ValueError(
            f"{who} requires y to be passed, but the target y is None. Pass a label per sample, -1 "
            "where it is unknown; labels inside a Dataset are not read."
        )
    column, names = _raveled(as_labels(y, who, may_be_column=True), who), None
    if column.dtype.kind not in "iu":
        column, classes = encode_column(column, who)
        if classes.dtype.kind in "Ub" and len(classes):
            names = classes
        elif len(classes) and isinstance(classes[0], int):  # an array of Python's: some are large
            raise ValueError(
                f"{who}: y must fit into int64; got {max(classes, key=abs)}. "
                "ssdml.datasets.encode_partial_labels converts it to codes."
            )
        elif classes.dtype.kind not in "iuf" and len(classes):
            raise TypeError(not_names(classes[0], who))
        elif len(classes):
            column = np.append(classes, UNLABELED)[column]  # the code -1 is the last
    if column.dtype.kind == "f" and not (whole := column == np.rint(column)).all():
        row = int(np.flatnonzero(~whole)[0])
        raise ValueError(
            f"{who}: y must hold integers or names of classes, {UNLABELED} for unlabeled rows; got "
            f"continuous values, {column[row]} in row {row}. Bin them into classes."
        )
    labels = whole_labels(column, n_samples, who)
    marks = [] if names is not None else [mark for mark in OTHER_MARKS if mark in labels]
    if marks:
        warn(
            f"{who}: y must mark unlabeled rows by {UNLABELED}; got {marks[0]}, which counts as a "
            f"class. If it is a mark, too, pass np.where(y == {marks[0]}, {UNLABELED}, y); if "
            f"classes are negative numbers, shift them, since {UNLABELED} is none."
        )
    if way_out is not None:
        check_labeled(labels, who, way_out)
    return labels, names


def check_same_kind(labels: Array, others: Array, who: str, names: tuple[str, str]) -> None:
    """Raise unless both arrays hold strings, both booleans or both numbers; empty ones pass.

    Examples
    --------
    >>> check_same_kind(np.array([1.0]), np.array([2]), "who", ("y", "labels"))
    """
    given = labels.tolist()[:1] + others.tolist()[:1]
    if len({_kind(label) for label in given}) > 1:
        raise TypeError(
            f"{who}: {names[0]} and {names[1]} must hold labels of one kind; got {given[0]!r} and "
            f"{given[1]!r}. Convert one of them."
        )


def class_codes(labels: Ints) -> tuple[Ints, int]:
    """Return each row's class as an index into ``np.unique``, or -1, and the number of classes."""
    codes, labeled = np.full(len(labels), UNLABELED), labels != UNLABELED
    classes, codes[labeled] = np.unique(labels[labeled], return_inverse=True)
    return codes, len(classes)


def one_hot(labels: Ints) -> Array:
    """Encode classes as indicator columns, in the order of ``np.unique``; unlabeled rows are 0."""
    codes, n_classes = class_codes(labels)
    indicator = np.zeros((len(labels), n_classes))
    labeled = np.flatnonzero(codes != UNLABELED)
    indicator[labeled, codes[labeled]] = 1
    return indicator
