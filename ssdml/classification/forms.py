"""The rows as graph and classifiers see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ssdml.graphs.neighbors.copies import first_equal_rows, graph_of_distinct
from ssdml.graphs.neighbors.exact import Progress, part_of
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.linalg import (
    MOST_OF_ONE,
    covariance,
    float64_blocks,
    leading_axes,
    row_lengths,
    total_variance,
    unit_rows,
)
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED, warn

TABLE_COLUMNS = 100  # with more, a principal component analysis replaces scaling
MAX_COLUMNS = 256  # principal components
VARIANCE = 0.99  # in them; 95% cost 1 point of accuracy on texts
CORRELATED = 1.6  # mean magnitude of correlations in a table, times sqrt(n); chance gives 0.8
EQUAL_LENGTHS = 0.01  # relative deviation up to which rows count as normalized
TELLING = 0.7  # share of the variance of lengths between classes; 0.1 to 0.35 in pictures
CENTERING = 0.6  # share of the mean direction that is subtracted
MAX_ROWS = 50_000  # that principal components of directions are learned from
FARTHEST = 1e12  # entries of far rows: squares of distances must not overflow
ROUNDING = 1e-6  # standard deviation of a constant column, relative to its entries
MAX_KEPT = 2**26  # entries of rows whose smoothed forms are kept for other labels
FEW_DIRECTIONS = 0.5  # share of the columns that the variance amounts to in a table


class LinearForm(NamedTuple):
    """An affine map of the rows or, with a center, of their directions."""

    mean: Floats  # (d,)
    matrix: Floats  # (d, r)
    center: Floats | None = None  # (d,)

    def __call__(self, X: Array) -> Array:
        """Map the rows (n, d) to (n, r), float32."""
        rows = np.empty((len(X), self.matrix.shape[1]), np.float32)
        for place, block in float64_blocks(X):
            seen = block if self.center is None else directions(block, self.center)
            mapped = (seen - self.mean) @ self.matrix
            rows[place] = np.clip(mapped, -FARTHEST, FARTHEST, out=mapped)
        return rows

    @property
    def column_scale(self) -> Floats | None:
        """Scales of the columns, (d,); None if they are equal or columns are combined."""
        scales = np.diag(self.matrix)
        if self.matrix.shape[0] > TABLE_COLUMNS or (scales == scales[0]).all():
            return None
        return scales


class Form(NamedTuple):
    """Rows in one form, with their graph."""

    linear: LinearForm
    rows: Array  # (n, r), float32
    graph: KNNGraph
    smoothed: dict[float, Array] | None = None  # rows by reach, filled on first use; None: not kept

    def view(self, reach: float, diffusion: Diffusion) -> Array:
        """The rows smoothed over the graph; they are kept if the form has a place for them."""
        kept = {} if self.smoothed is None else self.smoothed
        if reach == 0:
            return self.rows
        if reach not in kept:
            kept[reach] = diffusion.smooth(self.rows, reach)
        return kept[reach]

    def nearer(self, k: int) -> Form:
        """The form with the k nearest neighbors alone; its rows are to be smoothed anew."""
        graph = KNNGraph(self.graph.indices[:, :k], self.graph.distances[:, :k])
        return self._replace(graph=graph, smoothed=None)


def linear_forms(X: Array, *, few: bool, by_direction: bool = True) -> list[LinearForm]:
    """Forms of the rows: one scale for all columns and, for tables, one for each column.

    Columns are scaled one by one where a few of them hold the variance and columns correlate: a
    table of measurements, not principal components. With more than 100 columns, the principal
    components of 99% of the variance replace them, at most 256. They are those of the directions
    of the rows if lengths differ: lengths of embeddings and contrasts of pictures say little of the
    class and make some rows neighbors of many [1]_. A sample of 50,000 rows is enough for them.

    Parameters
    ----------
    X : array of shape (n, d)
    few : bool
        Whether there are no labels to hold out: a table is then only scaled by column.
    by_direction : bool
        Whether more than 100 columns of rows of different lengths are compared by direction.

    References
    ----------
    .. [1] Radovanović, Nanopoulos, Ivanović, "Hubs in space: popular nearest neighbors in
       high-dimensional data", JMLR 11, 2010.
    """
    d = X.shape[1]
    if by_direction and d > TABLE_COLUMNS and _lengths_vary(some := X[:: 1 + len(X) // MAX_ROWS]):
        return [_form_of_directions(some)]
    if d > TABLE_COLUMNS:
        form, total = principal_form(X), total_variance(X, ddof=1)
        return [form._replace(matrix=1 / np.sqrt(total or 1.0) * form.matrix)]
    spread, mean = covariance(X), X.mean(axis=0, dtype=np.float64)
    variance = np.diag(spread)
    total = float(variance.sum())
    whole = LinearForm(mean, np.eye(d) / np.sqrt(total or 1.0))
    effective = 1 / float(((variance / total) ** 2).sum()) if total > 0 else d
    if d == 1 or effective > FEW_DIRECTIONS * d:
        return [whole]
    varies = np.sqrt(variance) > ROUNDING * np.abs(X).max(axis=0)
    deviations = np.where(varies, np.sqrt(variance), np.inf)  # constant columns are left out
    correlations = np.abs(spread / np.outer(deviations, deviations))
    mean_correlation = (correlations.sum() - np.trace(correlations)) / (d * (d - 1))
    if mean_correlation < CORRELATED / np.sqrt(len(X)):
        return [whole]
    each = LinearForm(mean, np.diag(1 / (deviations * np.sqrt(varies.sum()))))
    return [each] if few else [whole, each]


def warn_of_hidden_columns(X: Array, form: LinearForm, who: str, name: str = "X") -> None:
    """Warn if a twentieth of the columns, or one, hides the others from a form with one scale.

    Examples
    --------
    >>> X = np.array([[0.1, 5e3], [0.3, 7e3], [0.2, 4e3]])
    >>> warn_of_hidden_columns(X, LinearForm(np.zeros(2), np.diag([9.0, 1e-3])), "who")
    """
    if form.column_scale is not None:
        return
    mean, squares, most = X.mean(axis=0, dtype=np.float64), np.zeros(X.shape[1]), 0.0
    for _, block in float64_blocks(X):
        offsets = np.square(block - mean)
        squares += offsets.sum(axis=0)
        most = max(most, float(offsets.max()))
    if most > MOST_OF_ONE * squares.sum():  # a row is far from all others
        return
    order, varying = np.argsort(-squares), int((squares > 0).sum())
    held = 1 + int(np.searchsorted(np.cumsum(squares[order]), VARIANCE * squares.sum()))
    if varying > 1 and held <= max(1, varying // 20):
        columns = ", ".join(map(str, order[:held][:3])) + ", ..." * (held > 3)
        warn(
            f"{who}: {name} must have columns of similar scales; {held} of {varying} ({columns}) "
            f"hold {VARIANCE:.0%} of the variance and hide the others. Leave out ids and times; "
            "scale others by StandardScaler, unless they are principal components."
        )


def share_between(labels: Ints, read: Callable[[Indices], Array]) -> float:
    """Share of the variance of a number that lies between classes; 0 if it cannot be estimated.

    Parameters
    ----------
    labels : array of shape (n,), int
        -1 where missing.
    read : callable
        The number in given rows.

    Examples
    --------
    >>> numbers = np.array([1.0, 2.0, 8.0, 9.0, 5.0])
    >>> round(share_between(np.array([0, 0, 1, 1, -1]), numbers.__getitem__), 2)
    0.97
    """
    labeled = np.flatnonzero(labels != UNLABELED)
    _, codes, counts = np.unique(labels[labeled], return_inverse=True, return_counts=True)
    numbers = read(labeled).astype(np.float64)
    total = numbers.var(ddof=1) if len(numbers) > len(counts) else 0.0
    if total == 0:
        return 0.0
    gaps = numbers - (np.bincount(codes, numbers) / counts)[codes]
    return float(1 - (gaps**2).sum() / (len(numbers) - len(counts)) / total)


def directions(X: Array, center: Floats) -> Array:
    """Directions of the rows, seen from a point among them: at unit length both times.

    Examples
    --------
    >>> directions(np.array([[2.0, 0.0], [0.0, 7.0]]), np.array([1.0, 0.0]))
    array([[ 0.        ,  0.        ],
           [-0.70710678,  0.70710678]])
    """
    return unit_rows(unit_rows(X) - center)


def _lengths_vary(X: Array) -> bool:
    lengths = row_lengths(X)
    return bool(lengths.std() > EQUAL_LENGTHS * lengths.mean())


def _form_of_directions(X: Array) -> LinearForm:
    center = CENTERING * unit_rows(X).mean(axis=0, dtype=np.float64)
    return principal_form(directions(X, center))._replace(center=center)


def principal_axes(X: Array) -> Floats:
    """Axes (d, r) of 99% of the variance of rows, at most 256; all of up to 100 columns."""
    d = X.shape[1]
    return np.eye(d) if d <= TABLE_COLUMNS else leading_axes(X, VARIANCE, MAX_COLUMNS)


def principal_form(X: Array) -> LinearForm:
    """The rows less their mean, on their principal axes."""
    return LinearForm(X.mean(axis=0, dtype=np.float64), principal_axes(X))


def forms_with_graphs(
    X: Array,
    n_neighbors: int,
    *,
    labels: Ints,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Form]:
    """Forms of the rows with graphs of their distinct rows; ``labels`` are -1 where missing."""
    few = np.unique(labels[labels != UNLABELED], return_counts=True)[1].max() < 2
    by_direction = share_between(labels, lambda rows: row_lengths(X[rows])) < TELLING
    forms, found = linear_forms(X, few=bool(few), by_direction=by_direction), []
    if len(forms) == 1:
        warn_of_hidden_columns(X, forms[0], "SSDML")
    first, search = first_equal_rows(X), {"n_jobs": n_jobs, "random_state": rng}
    for i, form in enumerate(forms):
        show = part_of(progress, i / len(forms), (i + 1) / len(forms))
        rows = form(X)
        graph = graph_of_distinct(rows, n_neighbors, first, **search, progress=show)
        found.append(Form(form, rows, graph, {} if rows.size <= MAX_KEPT else None))
    return found
