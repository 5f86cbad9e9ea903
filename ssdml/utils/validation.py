"""Validation of arguments: choices, arrays, labels, numbers, seeds, image shapes.

Messages read ``{who}: {argument} must {condition}; got {value}.``, followed by the fix.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from difflib import get_close_matches
from numbers import Integral, Real
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ssdml.utils.typing import Array, Ints

UNLABELED = -1
# Modules on the way from a caller to a warning.
PASSED = ("ssdml.", "sklearn.", "torch.", "pytorch_metric_learning.", "joblib.", "contextlib")
VECTORS = (np.ndarray, list, tuple)  # a cell of a column of vectors
CONVERSIONS = ("to_pandas", "toPandas", "to_df", "to_numpy", "copy_to_host", "get")  # last: CuPy

T = TypeVar("T")


def choose(table: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry of ``table`` called ``name``; the error suggests the nearest name.

    Examples
    --------
    >>> choose({"exact": 1, "ivf": 2}, "exact", "method")
    1
    """
    if isinstance(name, str) and name in table:
        return table[name]
    message = f"{what} must be one of {', '.join(map(repr, table))}; got {name!r}."
    nearest = get_close_matches(str(name), table, n=1)
    if nearest:
        message += f" Did you mean {nearest[0]!r}?"
    raise ValueError(message)


def check_rows(X: Any, who: str, name: str = "X") -> Array:
    """Return a finite, nonempty, C-ordered matrix in float32 or float64."""
    table = check_table(X, who, name)
    try:
        rows: Array = np.ascontiguousarray(table, working_dtype(table.dtype))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{who}: {name} must be numeric; got dtype {table.dtype}.") from error
    check_finite(rows, who, name)
    return rows


def check_table(X: Any, who: str, name: str = "X") -> npt.NDArray[Any]:
    """Return a nonempty matrix of numbers in its own dtype; text of numbers becomes float64."""
    cells = check_cells(X, who, name)
    table = np.asarray(cells)
    if table.dtype == object and hasattr(cells, "iloc"):  # columns of several types, or nullable
        table = cells.to_numpy(np.float64, na_value=np.nan)
    if table.dtype.kind in "SUT":
        table = table.astype(np.float64)
    check_dimensions(table, who, name)
    if 0 in table.shape:
        raise ValueError(f"{who}: {name} must not be empty; got shape {table.shape}.")
    return table


def check_dimensions(X: Any, who: str, name: str = "X") -> None:
    """Raise unless X is a matrix; arrays of pyarrow have no shape."""
    shape = getattr(X, "shape", None) or np.shape(X)
    sizes = f"(len({name}), -1)" if len(shape) > 2 else "(-1, 1)"
    if len(shape) != 2:
        raise ValueError(
            f"{who}: {name} must have two dimensions (rows are samples); got shape {shape}. "
            f"Reshape your data: numpy.reshape({name}, {sizes})"
            f"{'.' if len(shape) > 2 else ' for one feature, (1, -1) for one sample.'}"
        )


def check_cells(X: Any, who: str, name: str = "X") -> Any:
    """Return data whose cells are numbers or, as scikit-learn takes them, text of numbers.

    Tables of pandas, polars and pyarrow stay tables, other data become an array.

    Examples
    --------
    >>> check_cells([[1, 2]], "who")
    array([[1, 2]])
    """
    X = without_container(X, who, name)
    if is_table(X):
        return X
    table = as_array(X, who, name)
    kind = table.dtype.kind
    if kind == "c":
        raise ValueError(
            f"{who}: {name} must hold real numbers; got dtype {table.dtype}. Complex data not "
            f"supported: pass {name}.real, or both parts side by side."
        )
    if kind == "V" or (kind == "O" and table.ndim == 0):
        raise TypeError(
            f"{who}: {name} must be an array or a table of numbers; got {type(X).__name__}, dtype "
            f"{table.dtype}. {_conversion(X, name)}"
        )
    wrong = _first_no_number(table.flat) if kind in "OSUT" else None
    if isinstance(wrong, Mapping):
        raise TypeError(
            f"{who}: {name} must hold numbers; it holds {wrong!r}, where the argument must be a "
            f"string or a real number. {_conversion(X, name, f'pandas.DataFrame({name})')}"
        )
    _check_column(wrong, None, kind, who, name)
    return table


def is_table(X: Any) -> bool:
    """Whether these are columns of pandas, polars or pyarrow.

    Examples
    --------
    >>> is_table([[1, 2]])
    False
    """
    return hasattr(X, "iloc") or type(X).__module__.partition(".")[0] in ("polars", "pyarrow")


def as_array(X: Any, who: str, name: str) -> npt.NDArray[Any]:
    """Convert lists, tensors and arrays of other libraries, by ``__array__`` or else by DLPack.

    Shorter numbers that NumPy lacks, such as bfloat16 of JAX, become float32; masked entries raise
    ValueError.
    """
    if isinstance(X, np.ma.MaskedArray):
        return _without_mask(X, who, name)
    X = without_tensor(X, who, name)
    try:
        by_dlpack = hasattr(X, "__dlpack__") and not hasattr(X, "__array__")
        table = np.from_dlpack(X) if by_dlpack else np.asarray(X)
        is_short = table.dtype.kind == "V" and np.can_cast(table.dtype, np.float32)
        return table.astype(np.float32) if is_short else table
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        if isinstance(X, Sequence):
            raise ValueError(
                f"{who}: {name} must have rows of one length; {error} Pad or drop others."
            ) from error
        raise TypeError(
            f"{who}: {name} must be an array in main memory; got {type(X).__name__}. "
            f"{_conversion(X, name, 'a NumPy array')}"
        ) from error


def _conversion(X: Any, name: str, otherwise: str = "an array (n_samples, n_features)") -> str:
    """Name the method that makes an array or a table of foreign data."""
    method = next((method for method in CONVERSIONS if hasattr(X, method)), None)
    return f"Pass {f'{name}.{method}()' if method else otherwise}."


def without_container(X: Any, who: str = "", name: str = "X") -> Any:
    """Return the array of a tensor, a column of vectors as a matrix, other data unchanged.

    Masked entries, vectors of several lengths, and columns of a DataFrame without numbers raise
    ValueError, sparse matrices TypeError.

    Examples
    --------
    >>> column = np.array([None, None])
    >>> column[:] = [[1, 2], [3, 4]]
    >>> without_container(column)
    array([[1, 2],
           [3, 4]])
    """
    if isinstance(X, np.ma.MaskedArray):
        return _without_mask(X, who, name)
    kind = type(X)  # a column of pandas is an attribute of its table, whatever its name
    if hasattr(kind, "toarray"):
        raise TypeError(
            f"{who}: {name} must be dense; got a sparse {kind.__name__}. Pass {name}.toarray(), "
            "or its leading components (TruncatedSVD); encoders take sparse_output=False."
        )
    _check_container(X, who, name)
    X = without_tensor(X, who, name)
    if hasattr(kind, "get_columns") or hasattr(kind, "column_names"):  # of polars or pyarrow
        X = _without_frame(X, who, name)
    if _is_column(X):
        X = _of_column(X, who, name)
    if hasattr(X, "iloc") and X.ndim == 2:
        _check_pandas(X, who, name)
    elif getattr(getattr(X, "dtype", None), "names", None):
        raise TypeError(
            f"{who}: {name} must be a plain array; got one of records with the fields "
            f"{', '.join(X.dtype.names)}. Pass pandas.DataFrame({name})."
        )
    return X


def _without_mask(X: Any, who: str, name: str) -> Array:
    """Return the array below a mask without entries; else raise ValueError."""
    if np.ma.is_masked(X):
        row, *column = np.argwhere(np.ma.getmaskarray(X))[0].tolist()
        place = f"row {row}" + "".join(f", column {number}" for number in column[:1])
        raise ValueError(
            f"{who}: {name} must not have masked entries; got one at {place}. Impute them, or "
            "drop such rows first."
        )
    return X.data


def _without_frame(X: Any, who: str, name: str) -> Any:
    """Return the only column of vectors of a table of polars or pyarrow, or the table."""
    columns = _first_cells(X)
    if len(columns) == 1 and isinstance(columns[0][1], VECTORS):
        return X.get_columns()[0] if hasattr(type(X), "get_columns") else X.column(0)
    for label, cell in columns:
        _check_column(cell, label, "O", who, name)
    return X


def _of_column(X: Any, who: str, name: str) -> Any:
    """Return a column of vectors as a matrix; raise ValueError if cells are no numbers."""
    column = np.asarray(X)
    if column.ndim == 2 and len(getattr(X, "shape", ())) == 1:  # vectors of polars
        return column
    if column.dtype == object and column.size:
        if any(map(_is_vector, column.flat)):
            return _stacked(column.ravel(), who, name)
        if not hasattr(X, "iloc") or X.ndim == 1:
            label = getattr(X, "name", None)
            _check_column(_first_no_number(column.flat), label, "O", who, name)
    return X


def _check_pandas(X: Any, who: str, name: str) -> None:
    """Raise TypeError for sparse columns of a table of pandas, ValueError for other cells."""
    _check_names(X.columns, who, name)
    for number, (label, dtype) in enumerate(X.dtypes.items()):
        if hasattr(dtype, "fill_value"):  # sparse
            raise TypeError(
                f"{who}: {name} must be dense; column {label!r} is sparse. Pass "
                f"{name}.sparse.to_dense()."
            )
        if dtype.kind in "OmMc" and len(X):
            first = _first_no_number(X.iloc[:, number])
            _check_column(first, label, dtype.kind, who, name)


def _first_cells(table: Any) -> list[tuple[Any, Any]]:
    """Return name and first cell, or None, of each column of polars or pyarrow without nulls."""
    if hasattr(type(table), "get_columns"):
        names = table.columns
        cells = [column.drop_nulls()[:1].to_list() for column in table.get_columns()]
    else:
        names = table.column_names
        cells = [column.drop_null()[:1].to_pylist() for column in table.columns]
    return [(name, cell[0] if cell else None) for name, cell in zip(names, cells, strict=True)]


def _first_no_number(column: Iterable[Any]) -> Any:
    """Return the first cell that is neither a number nor None, or None."""
    for cell in column:
        try:
            float(cell if cell is not None else 0)
        except (TypeError, ValueError):
            return cell
    return None


def _check_container(X: Any, who: str, name: str) -> None:
    """Raise TypeError for what holds no rows: None, paths, dictionaries, iterators."""
    way_out = None
    if isinstance(X, str | bytes | PathLike):
        way_out = "Pass ssdml.datasets.load_dataset(path).X."
    elif isinstance(X, Mapping):
        arrays = [key for key in X if getattr(X[key], "ndim", 0) > 1]
        way_out = f"Pass pandas.DataFrame({name})."
        if hasattr(X, "to_dataframe"):  # xarray
            way_out = f"Pass {name}.to_dataframe()."
        elif arrays:
            way_out = f"Pass one of its arrays, such as {name}[{arrays[0]!r}]."
    elif hasattr(X, "X") and hasattr(X, "y") and not is_table(X):  # a data set
        way_out = f"Pass {name}.X, and its labels {name}.y."
    elif hasattr(type(X), "collect") and hasattr(type(X), "lazy"):
        way_out = f"Pass {name}.collect()."
    elif (X is None and name == "X") or isinstance(X, Iterator):
        way_out = "Pass an array of shape (n_samples, n_features)."
    if way_out is not None:
        raise TypeError(
            f"{who}: {name} must be an array or a table of numbers; got {type(X).__name__}. "
            f"{way_out}"
        )


def _check_names(columns: Any, who: str, name: str) -> None:
    """Raise ValueError if two columns of a DataFrame have one name."""
    if not columns.is_unique:
        twice = columns[columns.duplicated()][0]
        raise ValueError(
            f"{who}: {name} must have columns of different names; got {twice!r} twice. Rename or "
            f"drop one, or pass {name}.to_numpy()."
        )


def _check_column(wrong: Any, label: Any, kind: str, who: str, name: str) -> None:
    """Raise ValueError for a column with a vector, text, a date or another cell that is no number.

    A column of the ``kind`` "m" or "M" holds dates; one whose label is None is all of X.
    """
    place, column = (name, "it") if label is None else (f"{name}[{label!r}]", f"column {label!r}")
    problem = f"{who}: {name} must hold numbers; {column} holds"
    if isinstance(wrong, VECTORS):
        raise ValueError(
            f"{problem} vectors. Pass np.stack({place}) alone, or with the other columns beside it."
        )
    if kind in "mM" or isinstance(wrong, date | timedelta):
        raise ValueError(f"{problem} dates. Drop it, or pass numbers, such as days.")
    if wrong is None or _first_no_number([wrong]) is None:
        return
    if type(wrong).__name__ in ("NAType", "NaTType"):
        raise ValueError(f"{problem} missing values, {wrong!r}. Impute them, or drop such rows.")
    if not isinstance(wrong, str):
        what = type(wrong).__name__
        raise ValueError(f"{problem} {wrong!r}, of type {what}. Drop it, or pass numbers.")
    if wrong.lstrip().startswith(("[", "(")):
        read = "json.loads(cell)" if "," in wrong else "np.fromstring(cell[1:-1], sep=' ')"
        raise ValueError(
            f"{problem} vectors as text, such as {wrong[:40]!r}. Pass "
            f"np.stack([{read} for cell in {place}])."
        )
    raise ValueError(
        f"{problem} text, such as {wrong[:40]!r}. Drop it, or encode it (OneHotEncoder)."
    )


def without_tensor(X: Any, who: str = "", name: str = "X") -> Any:
    """Return the array of a torch tensor, float32 for bfloat16; other data unchanged.

    Tensors that require gradients or lie on another device are copied; sparse ones, and those
    without data, raise TypeError.

    Examples
    --------
    >>> without_tensor([1, 2])
    [1, 2]
    """
    if not (hasattr(type(X), "detach") and hasattr(type(X), "numpy")):
        return X
    check_tensor(X, who, name)
    try:
        return X.numpy(force=True)
    except TypeError:  # NumPy has no bfloat16
        return X.float().numpy(force=True)


def check_tensor(X: Any, who: str, name: str) -> None:
    """Raise TypeError unless a torch tensor is dense and holds data."""
    if getattr(X, "is_nested", False):
        raise TypeError(
            f"{who}: {name} must be dense; got a nested tensor. Pass "
            f"torch.nested.to_padded_tensor({name}, 0.0), or torch.cat({name}.unbind())."
        )
    if str(getattr(X, "layout", "torch.strided")) != "torch.strided":
        raise TypeError(
            f"{who}: {name} must be dense; got a tensor of layout {X.layout}. Pass "
            f"{name}.to_dense()."
        )
    if getattr(X, "is_meta", False):
        raise TypeError(
            f"{who}: {name} must hold data; got a tensor on the device 'meta'. Load or compute its "
            "values first."
        )


def _is_column(X: Any) -> bool:
    if isinstance(X, np.ndarray):
        return X.dtype == object and (X.ndim == 1 or X.shape[1:] == (1,))
    shape = getattr(X, "shape", ())
    kind = type(X)
    is_arrow = hasattr(kind, "to_pylist") and not hasattr(kind, "column_names")  # has no shape
    return len(shape) == 1 or shape[1:] == (1,) or is_arrow


def _is_vector(cell: Any) -> bool:
    return isinstance(cell, VECTORS) or hasattr(type(cell), "detach")


def _stacked(column: Array, who: str, name: str) -> Array:
    shapes = [np.shape(cell) if _is_vector(cell) else () for cell in column]
    usual = Counter(shape for shape in shapes if shape).most_common(1)[0][0]
    wrong = next((row for row, shape in enumerate(shapes) if shape != usual), None)
    if wrong is not None:
        raise ValueError(
            f"{who}: {name} must hold vectors of one length, {usual[0]} in most rows; got "
            f"{column[wrong]!r} in row {wrong}. Drop or repair such rows, then np.stack them."
        )
    return np.stack([np.asarray(without_tensor(cell, who, name)) for cell in column])


def working_dtype(dtype: npt.DTypeLike) -> npt.DTypeLike:
    """Return the dtype to compute in: float32 for half and single precision, else float64."""
    kind = np.dtype(dtype)
    return np.float32 if kind.kind == "f" and kind.itemsize <= 4 else np.float64


def check_finite(rows: Array, who: str, name: str, first_row: int = 0) -> None:
    """Raise on the first entry that is NaN or infinite, naming its row and column."""
    # A finite sum of squares (fast, by BLAS) or of entries (if squares overflow) proves that all
    # entries are finite.
    entries = rows.ravel(order="K")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if np.isfinite(entries @ entries) or np.isfinite(entries.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(rows)
    if bad.any():
        row, column = (int(index) for index in np.argwhere(bad)[0])
        raise ValueError(
            f"{who}: {name} must be finite; got {rows[row, column]} at row {first_row + row}, "
            f"column {column}. Impute NaN and infinities, or drop such rows first."
        )


def has_wrapped(values: npt.NDArray[Any]) -> bool:
    """Whether the largest of some labels of an unsigned type looks like -1.

    Examples
    --------
    >>> has_wrapped(np.uint8([0, 255, 1])), has_wrapped(np.uint8([254, 255]))
    (True, False)
    >>> has_wrapped(np.array([0, -1]))
    False
    """
    if values.dtype.kind != "u":
        return False
    distinct, largest = np.unique(values), np.iinfo(values.dtype).max
    return bool(len(distinct) > 1 and distinct[-1] == largest and distinct[-2] < largest - 1)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line that called ssdml, also through other libraries."""
    frame, level = inspect.currentframe(), 1  # level 1 is this function
    while frame is not None and frame.f_globals.get("__name__", "").startswith(PASSED):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_of_wrapped(values: npt.NDArray[Any], who: str, name: str) -> None:
    """Warn if unsigned labels hold what -1 becomes in their type."""
    if has_wrapped(values):
        warn(
            f"{who}: {name} must be signed for -1 to mark unlabeled rows; got {values.max()} in "
            f"{values.dtype}, which -1 becomes there. Pass signed integers."
        )


def check_labels(y: Any, n_samples: int, who: str) -> Ints:
    """Return int64 labels, one per row, ``UNLABELED`` where missing; warn if -1 has wrapped."""
    labels = whole_labels(y, n_samples, who)
    warn_of_wrapped(np.asarray(y), who, "y")
    return labels


def whole_labels(y: Any, n_samples: int, who: str) -> Ints:
    """Return int64 labels, one per row, ``UNLABELED`` where missing."""
    labels = y.filled(UNLABELED) if isinstance(y, np.ma.MaskedArray) else np.asarray(y)
    if labels.shape != (n_samples,):
        raise ValueError(
            f"{who}: y must have shape ({n_samples},), one label per row; got shape {labels.shape}."
        )
    if labels.dtype == object and all(type(c) is int or isinstance(c, np.integer) for c in labels):
        labels = np.array(labels.tolist())  # as of rows of a table with other types
    kind = labels.dtype.kind
    if kind not in "iuf" or (kind == "f" and not (labels == np.rint(labels)).all()):
        raise TypeError(
            f"{who}: y must hold integers, {UNLABELED} for unlabeled rows; got "
            f"{_first_no_integer(y)}, dtype {labels.dtype}. "
            "ssdml.datasets.encode_partial_labels converts names, True and False to codes, and "
            f"None, NaN and '' to {UNLABELED}."
        )
    # Larger unsigned integers would wrap around, 2^64 - 1 to "unlabeled".
    large = np.abs(labels.astype(np.longdouble)) >= 2**63 if kind != "i" else np.zeros(1, bool)
    if large.any():
        raise ValueError(
            f"{who}: y must fit into int64; got {labels[large][0]}. "
            "ssdml.datasets.encode_partial_labels converts it to codes."
        )
    return labels.astype(np.int64)


def _first_no_integer(y: Any) -> str:
    # As given: an array may turn them into text.
    entries = y.tolist() if hasattr(y, "tolist") else [*y]
    wrong = (
        row
        for row, entry in enumerate(entries)
        if isinstance(entry, bool) or not isinstance(entry, Real) or entry % 1 != 0
    )
    row = next(wrong, 0)
    return f"{entries[row]!r} in row {row}"


def check_labeled(labels: Ints, who: str, way_out: str) -> None:
    """Raise unless at least one row is labeled."""
    if not (labels != UNLABELED).any():
        raise ValueError(
            f"{who}: y must contain labels beside {UNLABELED} (unlabeled); "
            f"all {labels.size} entries are {UNLABELED}. {way_out}"
        )


def check_number(
    value: Any,
    name: str,
    who: str,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> float:
    """Check for a finite number within these bounds; ``least`` and ``most`` are inside."""
    if not isinstance(value, Real):
        raise TypeError(f"{who}: {name} must be a number; got {value!r}.")
    number = float(value)
    if above is not None and below is not None and not above < number < below:
        raise ValueError(
            f"{who}: {name} must lie strictly between {above} and {below}; got {value}."
        )
    if not math.isfinite(number):
        raise ValueError(f"{who}: {name} must be finite; got {value}.")
    if above is not None and number <= above:
        raise ValueError(f"{who}: {name} must be above {above:g}; got {value}.")
    if least is not None and most is not None and not least <= number <= most:
        raise ValueError(f"{who}: {name} must be from {least:g} to {most:g}; got {value}.")
    if least is not None and number < least:
        raise ValueError(f"{who}: {name} must be at least {least:g}; got {value}.")
    if most is not None and number > most:
        raise ValueError(f"{who}: {name} must be at most {most:g}; got {value}.")
    return number


def check_count(value: Any, name: str, who: str, *, least: int = 1) -> None:
    """Raise unless ``value`` is a whole number, at least ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        is_one = getattr(value, "ndim", None) == 0 and "int" in str(value.dtype)  # labels.max() + 1
        way_out = f" Pass {int(value)}." if is_one else ""
        raise TypeError(f"{who}: {name} must be a whole number; got {value!r}.{way_out}")
    if value < least:
        raise ValueError(f"{who}: {name} must be at least {least}; got {value}.")


def as_list(values: Any, name: str, who: str, what: str, *, in_order: bool = False) -> list[Any]:
    """Return the entries of a sequence; raise TypeError for a number, one text or a mapping.

    With ``in_order``, for a set, too.

    Examples
    --------
    >>> as_list(3, "seeds", "compare", "numbers")
    Traceback (most recent call last):
    TypeError: compare: seeds must be a sequence of numbers; got 3. Pass [3].
    """
    is_set = in_order and isinstance(values, set | frozenset)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable) or is_set:
        is_several = values is None or isinstance(values, Mapping) or is_set
        raise TypeError(
            f"{who}: {name} must be a sequence of {what}; got {values!r}. Pass "
            f"{'a list' if is_several else [values]}."
        )
    return list(values)


def check_seed(random_state: Any, who: str) -> None:
    """Raise unless this is a seed of scikit-learn: a number of 32 bits, a RandomState or None."""
    if isinstance(random_state, np.random.RandomState | None):
        return
    check_count(random_state, "random_state", who, least=0)
    if random_state >= 2**32:
        raise ValueError(
            f"{who}: random_state must be below 2**32; got {random_state}. Pass a smaller seed."
        )


def as_generator(random_state: Any, name: str, who: str) -> np.random.Generator:
    """Return a Generator from a seed, a Generator, a RandomState, or None for fresh entropy."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(np.iinfo(np.int32).max)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{who}: {name} must be a seed from 0, a Generator, a RandomState or None; got "
            f"{random_state!r}. Pass 0."
        ) from error
