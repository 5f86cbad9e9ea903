"""Dense linear algebra in float64: small matrices, sums over rows, projections."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import polar, qr

from ssdml.utils.parallel import row_blocks
from ssdml.utils.typing import Array, Floats
from ssdml.utils.validation import warn

SHORT = 1e-18  # squares of shorter rows lose precision in float32
BLOCK_ENTRIES = 2**20  # of a tall matrix, converted to float64 at a time: 8 MB
MOST_OF_ONE = 0.95  # of the variance: a row with more, among 20 or more, hides the others
GRAPH_VARIANCE = 0.95  # share of the variance in which neighbors are searched
ABSENT = re.compile(  # written for a missing value: nines, or the limit of a type or format
    r"-?9{2,6}(\.9+)?|-32768|-2\.14748e\+09|-?1e\+(20|30|34)|9\.96921e\+36|-3\.40282e\+38"
)
INDEX = re.compile(r"unnamed: 0(\.\d+)?|__index_level_\d+__|level_\d+")  # as pandas names an index
LEAST_GAP = 10  # between such a mark and other values


def symmetrize(matrix: npt.ArrayLike) -> Floats:
    """Average a square matrix and its transpose.

    Examples
    --------
    >>> symmetrize([[0.0, 2.0], [0.0, 0.0]])
    array([[0., 1.],
           [1., 0.]])
    """
    square = np.asarray(matrix, dtype=np.float64)
    return (square + square.T) / 2


def shrink(scatter: npt.ArrayLike, shrinkage: float, n_features: int | None = None) -> Floats:
    """Shrink a scatter toward the multiple of the identity with the same trace.

    ``n_features`` is the dimension in which the traces are equal, if ``scatter`` is the part of a
    larger one that is not zero.

    Zeros shrink toward the identity: the result is positive definite if ``shrinkage > 0`` and
    ``scatter`` is positive semidefinite.

    Examples
    --------
    >>> shrink([[4.0, 0.0], [0.0, 0.0]], 0.5)
    array([[3., 0.],
           [0., 1.]])
    """
    symmetric = symmetrize(scatter)
    level = np.trace(symmetric) / (n_features or len(symmetric)) or 1.0
    return (1 - shrinkage) * symmetric + shrinkage * level * np.eye(len(symmetric))


def inverse_sqrt(matrix: npt.ArrayLike) -> Floats:
    """Compute the symmetric S with ``S @ matrix @ S = I``, for a positive definite ``matrix``.

    Eigenvalues below the rounding error of the largest are raised to it. O(d³).

    Examples
    --------
    >>> inverse_sqrt([[4.0, 0.0], [0.0, 1.0]])
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    values, vectors = np.linalg.eigh(symmetrize(matrix))
    floor = max(values[-1], np.finfo(float).tiny) * len(values) * np.finfo(float).eps
    scaled: Floats = vectors / np.sqrt(np.maximum(values, floor))
    return scaled @ vectors.T


def top_eigenvectors(matrix: npt.ArrayLike, count: int) -> Floats:
    """Compute eigenvectors (d, count) of the largest eigenvalues, largest first.

    The entry of largest magnitude in each column is positive.

    Examples
    --------
    >>> top_eigenvectors([[1.0, 0.0], [0.0, 2.0]], 1)
    array([[0.],
           [1.]])
    """
    return fix_signs(_largest(symmetrize(matrix), count)[1])


def _largest(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """Eigenvalues and eigenvectors of a symmetric matrix, the largest first."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:count], vectors[:, ::-1][:, :count]


def fix_signs(vectors: Floats) -> Floats:
    """Make the entry of largest magnitude in each column positive."""
    peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.sign(peaks) + 0.0  # + 0.0 turns -0 into 0


def nearest_orthonormal(matrix: npt.ArrayLike) -> Floats:
    """Compute the nearest matrix (d, l) with orthonormal columns, l <= d: the polar factor.

    Examples
    --------
    >>> nearest_orthonormal([[2.0], [0.0]])
    array([[1.],
           [0.]])
    """
    return polar(np.asarray(matrix, dtype=np.float64))[0]


def unit_rows(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Scale rows to Euclidean length 1; rows of zeros stay zero.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if rows.dtype == np.float32 and not ((lengths > SHORT) & np.isfinite(lengths)).all():
        lengths = row_lengths(rows)[:, None].astype(rows.dtype)
    return rows / np.where(lengths > 0, lengths, 1)


def row_lengths(rows: npt.NDArray[Any]) -> Floats:
    """Compute the Euclidean lengths of rows in float64, in which float32 does not overflow.

    Examples
    --------
    >>> row_lengths(np.array([[3e30, 4e30]], dtype=np.float32)).round(-25)
    array([5.e+30])
    """
    return np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))


def float64_blocks(rows: npt.NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of rows in float64 with their slices, without a copy of the whole.

    Examples
    --------
    >>> rows = np.ones((3, BLOCK_ENTRIES // 2), dtype=np.float32)
    >>> [(place.start, block.shape[0], block.dtype.name) for place, block in float64_blocks(rows)]
    [(0, 2, 'float64'), (2, 1, 'float64')]
    """
    for place in row_blocks(len(rows), BLOCK_ENTRIES // max(1, rows.shape[1])):
        yield place, np.asarray(rows[place], dtype=np.float64)


def covariance(rows: npt.NDArray[Any]) -> Floats:
    """Compute the covariance (d, d) of the rows (n, d), with n - 1 degrees of freedom. O(n d²).

    Examples
    --------
    >>> covariance(np.array([[0.0, 1.0], [2.0, 1.0]], dtype=np.float32))
    array([[2., 0.],
           [0., 0.]])
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for _, block in float64_blocks(rows):
        centered = block - mean
        total += centered.T @ centered
    return total / max(len(rows) - 1, 1)


def scale_exactly(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int]:
    """Divide by a power of two, exactly, so that squares neither overflow nor underflow.

    Examples
    --------
    >>> scale_exactly(np.array([[3e200, -6e200]]))
    (array([[ 0.48990757, -0.97981513]]), 667)
    """
    exponent = int(np.frexp(np.abs(rows).max())[1])
    return np.asarray(np.ldexp(rows, -exponent)), exponent


def total_variance(
    rows: npt.NDArray[Any], *, ddof: int = 0, components: Floats | None = None
) -> float:
    """Compute the mean squared distance of the rows (n, d) to their mean.

    The sum is divided by n - ``ddof``; 1 gives the trace of :func:`covariance`. With ``components``
    (l, d), it is that of their images ``rows @ components.T``, without an array of these.

    Examples
    --------
    >>> total_variance(np.array([[0.0, 1.0], [2.0, 1.0]]))
    1.0
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    total = 0.0
    for _, block in float64_blocks(rows):
        offsets = block - mean if components is None else (block - mean) @ components.T
        offsets *= offsets
        total += float(offsets.sum())
    return total / max(len(rows) - ddof, 1)


def check_spread(
    X: npt.NDArray[Any], who: str, name: str = "X", *, may_underflow: bool = False
) -> Floats:
    """Return the squared distances of the rows to their mean.

    Raise if the variance overflows, or underflows though the rows differ.
    """
    mean = X.mean(axis=0, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.concatenate(
            [np.square(block - mean).sum(axis=1) for _, block in float64_blocks(X)]
        )
        spread = squares.mean()
    if not np.isfinite(spread * X.shape[1]):
        raise ValueError(
            f"{who}: {name} must have a finite variance; it overflows. Scale {name} down."
        )
    underflows = not may_underflow and spread < np.finfo(np.float64).tiny
    if underflows and (X != X[0]).any():
        raise ValueError(
            f"{who}: {name} must have a variance above 0; it underflows. Scale {name} up."
        )
    return squares


def warn_of_far_row(
    X: npt.NDArray[Any], squares: Floats, total: float, who: str, name: str = "X"
) -> None:
    """Warn if one of the rows holds nearly all of the variance, and hides the others from axes.

    ``squares`` are theirs from :func:`check_spread`, and ``total`` is the sum over all rows.

    Examples
    --------
    >>> squares = check_spread(np.eye(20), "who")
    >>> warn_of_far_row(np.eye(20), squares, squares.sum(), "who")
    """
    row = int(squares.argmax())
    if squares[row] > MOST_OF_ONE * total:
        column = int(np.abs(X[row] - np.median(X, axis=0)).argmax())
        warn(
            f"{who}: {name} must not have a row far from all others; row {row}, with "
            f"{X[row, column]:g} in column {column}, holds {squares[row] / total:.1%} of the "
            "variance. Correct it, drop the row, or pass logarithms."
        )


def absent_marks(rows: npt.NDArray[Any]) -> dict[int, float]:
    """Find the columns of rows (n, d) with a number that may mean a missing value, and the number.

    It is the least or greatest of its column, such as -999, and far from the others.

    Examples
    --------
    >>> absent_marks(np.array([[0.1, 20.0], [-999.0, 99.0], [0.3, 80.0]]))
    {0: -999.0}
    """
    found = {}
    for extremes in (rows.min(axis=0), rows.max(axis=0)):
        for column in np.flatnonzero(np.abs(extremes) >= LEAST_GAP):
            extreme, values = float(extremes[column]), rows[:, column]
            others = values[values != extremes[column]]
            if not len(others) or not ABSENT.fullmatch(f"{extreme:g}"):
                continue
            gap = np.abs(others - extreme).min()
            if extreme < 0 <= others.min() or gap > max(np.abs(others).max(), LEAST_GAP):
                found[int(column)] = extreme
    return found


def warn_of_absent_marks(X: npt.NDArray[Any], who: str, names: Any = None) -> None:
    """Warn of a number in two or more cells that may mean a missing value; not of 99, as in counts.

    ``names`` are those of the columns, if any.

    Examples
    --------
    >>> warn_of_absent_marks(np.eye(20), "who")
    """
    cells = {
        column: (mark, int((X[:, column] == X.dtype.type(mark)).sum()))
        for column, mark in absent_marks(X).items()
        if mark != 99
    }
    total = sum(count for _, count in cells.values())
    if total > 1:
        column, (mark, _) = next(iter(cells.items()))
        named = repr(str(names[column])) if names is not None else column
        others = ", ..." * (len(cells) > 1)
        warn(
            f"{who}: X must not mark missing values by numbers; got {mark:g}, far from other "
            f"values (in all, {total} such cells, in columns {named}{others}). If it means a "
            f"missing value, impute it: SimpleImputer(missing_values={mark:g})."
        )


def warn_of_index(X: npt.NDArray[Any], who: str, names: Any = None) -> None:
    """Warn of a column of distinct integers with a name that pandas gives to an index in a file.

    Examples
    --------
    >>> warn_of_index(np.eye(2), "who", ["a", "b"])
    """
    for column, name in enumerate(() if names is None else names):
        if INDEX.fullmatch(str(name).lower()) is None:
            continue
        cells = X[:, column]
        if (cells == np.rint(cells)).all() and len(np.unique(cells)) == len(cells):
            warn(
                f"{who}: X must not hold the numbers of rows; column {str(name)!r} is named as "
                "pandas names an index in a file, and differs in all rows. Leave it out."
            )


def product(rows: npt.NDArray[Any], matrix: Floats) -> Floats:
    """Compute ``rows @ matrix`` in float64, for rows (n, d) of any precision.

    Examples
    --------
    >>> product(np.array([[1, 2], [3, 4]], dtype=np.float32), np.array([[1.0], [1.0]]))
    array([[3.],
           [7.]])
    """
    result = np.empty((len(rows), matrix.shape[1]))
    for place, block in float64_blocks(rows):
        np.matmul(block, matrix, out=result[place])
    return result


def angular_factor(angle: float) -> float:
    """Compute ``4 tan² angle``, the weight of the distance to the negative; ``angle`` in degrees.

    Examples
    --------
    >>> round(angular_factor(45.0), 12)
    4.0
    """
    if not 0 < angle < 90:
        raise ValueError(f"angular_factor: angle must lie between 0 and 90 degrees; got {angle}.")
    return 4 * math.tan(math.radians(angle)) ** 2


def graph_rows(X: Array) -> Array:
    """Project onto principal components with 95% of the variance, for a faster neighbor search.

    Rows with at most 32 features are returned unchanged.
    """
    if X.shape[1] <= 32:
        return X
    if not total_variance(X) > 0:
        return X
    return (X - X.mean(axis=0)) @ leading_axes(X).astype(X.dtype)


def leading_axes(
    rows: npt.NDArray[Any], share: float = GRAPH_VARIANCE, most: int | None = None
) -> Floats:
    """Compute the principal axes (d, m) of a share of the variance of rows (n, d), at least one.

    At most ``most``. O(n d m + m³) for m = min(n, d): of fewer rows than columns, inner products
    are decomposed.

    Examples
    --------
    >>> leading_axes(np.array([[3.0, 0.1, 0.0], [-3.0, 0.1, 0.0], [0.0, -0.2, 0.0]]))
    array([[1.],
           [0.],
           [0.]])
    """
    if len(rows) < rows.shape[1]:
        values, axes = axes_of_few(rows, most)
    else:
        values, axes = _largest(symmetrize(covariance(rows)), most or rows.shape[1])
        axes = fix_signs(axes)
    wanted = share * total_variance(rows, ddof=1)
    return axes[:, : 1 + int(np.searchsorted(np.cumsum(values), wanted))]


def axes_of_few(rows: npt.NDArray[Any], most: int | None = None) -> tuple[Floats, Floats]:
    """Compute variances (m,), largest first, and axes (d, m) of fewer rows than columns. O(n² d).

    At most ``most`` of them; axes without variance are left out, but for one if all rows are equal.

    Examples
    --------
    >>> values, axes = axes_of_few(np.array([[3.0, 1.0, 0.0], [-3.0, 1.0, 0.0]]))
    >>> values.round(9), axes.round(9)
    (array([18.]), array([[1.],
           [0.],
           [0.]]))
    """
    n = len(rows)
    centered = rows - rows.mean(axis=0, dtype=np.float64)
    values, vectors = _largest(symmetrize(centered @ centered.T), most or n)
    count = int((values > values[0] * n * np.finfo(float).eps).sum())
    if not count:
        return np.zeros(1), np.eye(rows.shape[1], 1)
    axes = centered.T @ vectors[:, :count]
    return values[:count] / (n - 1), fix_signs(axes / np.linalg.norm(axes, axis=0))


def best_factor(blocks: Floats, covariance: Floats, n_components: int) -> Floats:
    """Reduce the map ``blocks`` to ``n_components`` rows that best preserve distances.

    The mean squared error over rows of this covariance is minimal; 0 if ``n_components`` is the
    rank of ``blocks``.

    Examples
    --------
    >>> best_factor(np.diag([3.0, 1.0]), np.eye(2), 1)
    array([[3., 0.]])
    """
    if n_components <= blocks.shape[1]:
        blocks = square_factor(blocks)
    # The identity keeps directions in which the rows happen not to vary.
    level = np.trace(covariance) / len(covariance) or 1.0
    spread, _ = scale_exactly(covariance + 1e-9 * level * np.eye(len(covariance)))
    scaled, _ = scale_exactly(blocks)  # products of large numbers would overflow
    spread = scaled @ spread @ scaled.T
    return top_eigenvectors(spread, n_components).T @ blocks


def square_factor(blocks: Floats) -> Floats:
    """Return a map of the same distances with no more rows than columns."""
    m, d = blocks.shape
    return blocks if m <= d else qr(blocks, mode="r")[0][:d]


def span(rows: npt.NDArray[Any]) -> Floats:
    """Compute orthonormal columns (d, n) that span the rows (n, d), n <= d. O(n² d).

    Examples
    --------
    >>> np.abs(span(np.array([[0.0, 2.0, 0.0]])))
    array([[0.],
           [1.],
           [0.]])
    """
    axes: Floats = np.linalg.qr(np.asarray(rows, dtype=np.float64).T)[0]
    return axes


def block_reflector(axes: Floats) -> tuple[Floats, Floats]:
    """Compute Y and Z (d, n) such that ``I - Z @ Y.T`` is orthogonal and symmetric.

    Its first n columns span the same space as ``axes`` (d, n), so the others span the complement.

    References
    ----------
    .. [1] Schreiber, Parlett, "Block reflectors: theory and computation", SIAM Journal on Numerical
       Analysis 25, 1988.

    Examples
    --------
    >>> Y, Z = block_reflector(np.array([[0.0], [1.0]]))
    >>> np.abs(np.eye(2) - Z @ Y.T)
    array([[0., 1.],
           [1., 0.]])
    """
    n = axes.shape[1]
    turned = -axes @ polar(axes[:n])[0].T  # the first n rows are negative semidefinite
    Y = turned - np.eye(*axes.shape)
    return Y, Y @ np.linalg.inv(np.eye(n) - symmetrize(turned[:n]))


def random_orthonormal(d: int, n_components: int, rng: np.random.Generator) -> Floats:
    """Draw a matrix (d, n_components) with orthonormal columns, uniformly on the manifold.

    Examples
    --------
    >>> L = random_orthonormal(3, 2, np.random.default_rng(0))
    >>> bool(np.allclose(L.T @ L, np.eye(2)))
    True
    """
    return nearest_orthonormal(rng.standard_normal((d, n_components)))
