"""The rows as graph and classifiers see them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ssdml.graphs.neighbors.exact import Progress, part_of
from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.linalg import covariance, float64_blocks, top_eigenvectors
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED

TABLE_COLUMNS = 100  # with more, a principal component analysis replaces scaling
MAX_COLUMNS = 256  # principal components
VARIANCE = 0.99  # in them; 95 % cost 1 point of accuracy on texts
CORRELATED = 1.6  # mean magnitude of correlations in a table, times sqrt(n); chance gives 0.8
FARTHEST = 1e12  # entries of far rows: squares of distances must not overflow
ROUNDING = 1e-6  # standard deviation of a constant column, relative to its entries
MAX_KEPT = 2**26  # entries of rows whose smoothed forms are kept for other labels
FEW_DIRECTIONS = 0.5  # share of the columns that the variance amounts to in a table


class LinearForm(NamedTuple):
    """An affine map of the rows."""

    mean: Floats  # (d,)
    matrix: Floats  # (d, r)

    def __call__(self, X: Array) -> Array:
        """Map the rows (n, d) to (n, r), float32."""
        rows = np.empty((len(X), self.matrix.shape[1]), np.float32)
        for place, block in float64_blocks(X):
            mapped = (block - self.mean) @ self.matrix
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


def linear_forms(X: Array, *, few: bool) -> list[LinearForm]:
    """Forms of the rows: one scale for all columns and, for tables, one for each column.

    Columns are scaled one by one where a few of them hold the variance and columns correlate: a
    table of measurements, not principal components. With more than 100 columns, the principal
    components of 99 % of the variance replace them, at most 256.

    Parameters
    ----------
    X : array of shape (n, d)
    few : bool
        Whether there are no labels to hold out: a table is then only scaled by column.
    """
    spread, d = covariance(X), X.shape[1]
    mean, variance = X.mean(axis=0, dtype=np.float64), np.diag(spread)
    total = float(variance.sum())
    scale = 1 / np.sqrt(total) if total > 0 else 1.0
    whole = LinearForm(mean, scale * principal_axes(spread))
    directions = 1 / float(((variance / total) ** 2).sum()) if total > 0 else d
    if not 1 < d <= TABLE_COLUMNS or directions > FEW_DIRECTIONS * d:
        return [whole]
    varies = np.sqrt(variance) > ROUNDING * np.abs(X).max(axis=0)
    deviations = np.where(varies, np.sqrt(variance), np.inf)  # constant columns are left out
    correlations = np.abs(spread / np.outer(deviations, deviations))
    mean_correlation = (correlations.sum() - np.trace(correlations)) / (d * (d - 1))
    if mean_correlation < CORRELATED / np.sqrt(len(X)):
        return [whole]
    each = LinearForm(mean, np.diag(1 / (deviations * np.sqrt(varies.sum()))))
    return [each] if few else [whole, each]


def principal_axes(spread: Floats) -> Floats:
    """Axes (d, r) of 99 % of a variance, at most 256; all of up to 100 columns."""
    d, total = len(spread), float(np.trace(spread))
    if d <= TABLE_COLUMNS:
        return np.eye(d)
    axes = top_eigenvectors(spread, min(d, MAX_COLUMNS))
    held = np.cumsum(np.einsum("ij,ij->j", axes, spread @ axes))
    return axes[:, : 1 + int(np.searchsorted(held, VARIANCE * total))]


def principal_form(X: Array) -> LinearForm:
    """The rows less their mean, on their principal axes."""
    return LinearForm(X.mean(axis=0, dtype=np.float64), principal_axes(covariance(X)))


def forms_with_graphs(
    X: Array,
    n_neighbors: int,
    *,
    labels: Ints,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Form]:
    """Forms of the rows with their neighbor graphs; ``labels`` are -1 where missing."""
    few = np.unique(labels[labels != UNLABELED], return_counts=True)[1].max() < 2
    forms, found = linear_forms(X, few=bool(few)), []
    for i, form in enumerate(forms):
        show = part_of(progress, i / len(forms), (i + 1) / len(forms))
        rows = form(X)
        graph = knn_graph(rows, n_neighbors, n_jobs=n_jobs, random_state=rng, progress=show)
        found.append(Form(form, rows, graph, {} if rows.size <= MAX_KEPT else None))
    return found
