"""Class probabilities of new rows from those of the training rows, and nearness to these."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from ssdml.classification.confidence import CONFIDENCE_ROWS, confidence_power
from ssdml.classification.forms import Form, LinearForm
from ssdml.classification.softmax import softmax
from ssdml.classification.trees import Trees
from ssdml.graphs.laplacian import heat, heat_scales
from ssdml.graphs.neighbors.copies import first_at_no_distance
from ssdml.graphs.neighbors.exact import Ranking
from ssdml.graphs.neighbors.knn import nearest_rows
from ssdml.graphs.neighbors.rows import Rows
from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array, Floats, Indices
from ssdml.utils.validation import warn

TREND = 0.5  # share of the linear trend in the prediction
RIDGE = 1e-3  # of the trend, relative to the mean variance of a column
FAINT = 1e-4  # least probability
MOST_POWER = 2.0  # of interpolated probabilities, which are less sure than known ones
FAR = 0.02  # share of training rows farther from their neighbors where a row is half as near
ROUNDING = 1e-3  # relative, of distances that count as equal
FEWEST_JUDGED = 10  # new rows


class DirectScores(NamedTuple):
    """Weighted scores of rows by the members of a pool that need no graph."""

    of_regressions: Array  # (n, C)
    trees: Trees | None  # for rows as they are given
    of_trees: Array | None  # (n, C)
    share: float  # of what neighbors add to them, from 0 to 1


class ClassInterpolator(NamedTuple):
    r"""Class probabilities at any row, interpolated between rows where they are known.

    With G the centered logarithms of the known probabilities, as in kriging with a trend T:

    .. math:: p(x) = \mathrm{softmax}\Big(T(x)
        + \rho \frac{\sum_j w_{xj} (G_j - T(x_j))}{\sum_j w_{xj}}\Big)

    over the k nearest rows, with the weights of :func:`ssdml.graphs.adjacency`. The share ρ of the
    residuals grows from a half to 1 with the reach of the labels on the graph. The trend is half
    the linear regression of G on the rows, and what the members of the pool that need no graph say:
    regressions and trees. It distinguishes rows with the same neighbors; the residuals carry what
    the graph found. The mean of residuals is less sure than each. Probabilities, but not their
    roots, are raised to a power that makes up for it.
    """

    mean: Floats  # (d,)
    matrix: Floats  # (d, r), of the form of the rows
    rows: Array  # (n, r), float32
    scales: Array  # (n,), of the heat weights
    trend: Array  # (r + 1, C), of regressions, with the intercept
    residuals: Array  # (n, C), their share
    n_neighbors: Array  # (), an integer
    center: Floats | None = None  # (d,), of the form
    trees: Trees | None = None  # of the pool
    distinct: Array | None = None  # numbers of the rows that are no copies; None: all
    power: Array | None = None  # (), of probabilities, but not of their roots; None: 1

    @property
    def form(self) -> LinearForm:
        """Form in which rows are compared."""
        return LinearForm(self.mean, self.matrix, self.center)

    def __call__(self, X: Array, *, n_jobs: int | None = None) -> Array:
        """Class probabilities (q, C) of the rows X (q, d), float32."""
        found = self._at(X, n_jobs)[0]
        if self.power is not None:
            with np.errstate(under="ignore"):
                np.power(found, np.float32(self.power), out=found)
            found /= found.sum(axis=1, keepdims=True)
        return found

    def roots(self, X: Array, *, n_jobs: int | None = None) -> Array:
        """Roots (q, C) of class probabilities times nearness, :func:`nearness`."""
        probabilities, farthest = self._at(X, n_jobs)
        return _damped_roots(probabilities, nearness(farthest, self.scales))

    def roots_at_rows(
        self, form: Form, of_trees: Array | None = None, out: Array | None = None
    ) -> Array:
        """The same (n, C) of the rows of the form, to which trees give scores (n, C).

        Neighbors come from the graph instead of a search. ``out`` is filled, if given.
        """
        k, own = int(self.n_neighbors), np.arange(len(self.rows))[:, None]
        nearest = np.hstack([own, form.graph.indices[:, : k - 1]])
        lengths = np.hstack([np.zeros((len(own), 1), np.float32), form.graph.distances[:, : k - 1]])
        if self.distinct is not None:
            first = first_at_no_distance(form.graph)
            nearest, lengths = nearest[first], lengths[first]
        found = self._interpolate(form.rows, of_trees, nearest, lengths, out)
        return _damped_roots(found, nearness(lengths[:, -1], self.scales))

    def neighbors(self, queries: Array, n_jobs: int | None) -> Ranking:
        """Nearest distinct rows, (q, k), of rows in the form, (q, r), and their distances."""
        k, distinct = int(self.n_neighbors), self.distinct
        points = self.rows if distinct is None else self.rows[distinct]
        nearest, lengths = nearest_rows(Rows.of(points), queries, k, n_jobs=n_jobs)
        return nearest if distinct is None else distinct[nearest], lengths

    def other_rows(self, X: Array) -> Indices:
        """Rows of X that are not those of the fit, nor far nearer to them than their neighbors."""
        gaps = np.linalg.norm(self.form(X) - self.rows, axis=1)
        slack = ROUNDING * self.scales + 1e-5 * np.linalg.norm(self.rows, axis=1)  # of float32
        return np.flatnonzero(~(gaps <= slack))  # NaN is another

    def sharpened(self, form: Form, distributions: Array, of_trees: Array | None = None) -> Self:
        """Find the power, from 1 to 2, with which rows are as sure as they are known to be.

        Rows of the form, with known distributions (n, C), are interpolated from the other rows.
        Those without doubt, such as labeled rows, do not count, nor do copies.
        """
        unsure = distributions.max(axis=1) < 1
        distinct = np.arange(len(unsure)) if self.distinct is None else self.distinct
        rows = distinct[unsure[distinct]]
        rows = rows[:: max(1, len(rows) // CONFIDENCE_ROWS)]
        if not len(rows):
            return self
        k = int(self.n_neighbors)
        of_trees = None if of_trees is None else of_trees[rows]
        nearest, lengths = form.graph.indices[rows, :k], form.graph.distances[rows, :k]
        found = self._interpolate(form.rows[rows], of_trees, nearest, lengths)
        power = confidence_power(found, distributions[rows].max(axis=1).mean())
        return self._replace(power=np.asarray(np.clip(power, 1, MOST_POWER)))

    def _at(self, X: Array, n_jobs: int | None) -> tuple[Array, Array]:
        """Class probabilities (q, C), and distances (q,) to the k-th neighbors."""
        queries = self.form(X)
        nearest, lengths = self.neighbors(queries, n_jobs)
        of_trees = None if self.trees is None else self.trees.scores(X)
        warn_of_far_rows(lengths[:, -1], self.scales)
        return self._interpolate(queries, of_trees, nearest, lengths), lengths[:, -1]

    def _interpolate(
        self,
        rows: Array,
        of_trees: Array | None,
        nearest: Indices,
        lengths: Array,
        out: Array | None = None,
    ) -> Array:
        """Class probabilities (q, C) by the trend at rows in the form and residuals of neighbors.

        Trees add their scores (q, C) to the trend. ``out`` is filled, if given.
        """
        k, n_classes = nearest.shape[1], self.residuals.shape[1]
        found = np.empty((len(rows), n_classes), np.float32) if out is None else out
        floor = self.scales.min()
        for block in row_blocks(len(rows), BLOCK_ROWS):
            logits = rows[block] @ self.trend[:-1] + self.trend[-1]
            if of_trees is not None:
                logits += of_trees[block]
            own = np.maximum(lengths[block, -1], floor)
            weights = heat(lengths[block], own, self.scales[nearest[block]])
            weights /= weights.sum(axis=1, keepdims=True)
            starts = np.arange(0, weights.size + 1, k)
            mean = sparse.csr_array(
                (weights.astype(np.float32).ravel(), nearest[block].ravel(), starts),
                shape=(len(weights), len(self.rows)),
            )
            found[block] = softmax(logits + mean @ self.residuals)
        return found


def _damped_roots(probabilities: Array, near: Array) -> Array:
    """Roots of probabilities (q, C) times nearness (q,), in place."""
    probabilities *= near[:, None]
    return np.sqrt(probabilities, out=probabilities)


def nearness(farthest: Array, reference: Array) -> Array:
    """Nearness of rows to their k-th neighbors, from 1 to 0, compared with training rows.

    It is a half where 2% of the training rows are as far or farther.

    Parameters
    ----------
    farthest : array of shape (q,)
        Distances to the k-th neighbors.
    reference : array of shape (n,)
        The same of the training rows.

    Examples
    --------
    >>> nearness(np.array([0.5, 95.0, 200.0]), np.arange(1, 101)).round(2)
    array([1.  , 0.76, 0.  ], dtype=float32)
    """
    places = np.searchsorted(np.sort(reference), (1 - ROUNDING) * farthest)
    beyond = 1 - places / len(reference)
    return np.asarray((1 + FAR) * beyond / (FAR + beyond), dtype=np.float32)


def warn_of_far_rows(farthest: Array, reference: Array) -> None:
    """Warn if most of ten or more rows are beyond all training rows, of :func:`nearness` 0.

    So they are after a change of units in one column; rows of the same kind hardly ever are.
    """
    # How many is left out: Python shows equal warnings of a line, as of a grid of values, once.
    n = len(farthest)
    n_far = int((nearness(farthest, reference) == 0).sum())
    if n >= FEWEST_JUDGED and n_far > n / 2:
        warn(
            f"most of the {n} rows of X are farther from the training samples than any of these "
            "from its neighbors, so their predictions are guesses. Pass the columns of the fit, in "
            "the same units."
        )


def _centered_logs(distributions: Array) -> Array:
    logs = np.maximum(distributions, FAINT).astype(np.float32, copy=False)
    np.log(logs, out=logs)
    logs -= logs.mean(axis=1, keepdims=True)
    return logs


def interpolator(
    form: Form, distributions: Array, direct: DirectScores | None = None
) -> ClassInterpolator:
    """Fit the interpolator to the distributions (n, C) of the rows of a form.

    ``direct`` are scores of the rows by a pool without a graph, if any.
    """
    logs, rows = _centered_logs(distributions), form.rows
    center = rows.mean(axis=0, dtype=np.float64)
    gram = (rows.T @ rows).astype(np.float64) - len(rows) * np.outer(center, center)
    gram += RIDGE * (float(np.trace(gram)) / len(gram) or 1.0) * np.eye(len(gram))

    def regression(scores: Array) -> Floats:
        target = scores.mean(axis=0, dtype=np.float64)
        moments = (rows.T @ scores).astype(np.float64) - len(rows) * np.outer(center, target)
        slope = np.linalg.solve(gram, moments)
        return np.vstack([slope, target - center @ slope])

    trend = TREND * regression(logs)
    if direct is not None:
        trend += regression(direct.of_regressions)
    trend = trend.astype(np.float32)
    for block in row_blocks(len(rows), BLOCK_ROWS):
        logs[block] -= rows[block] @ trend[:-1] + trend[-1]
    if direct is not None:
        if direct.of_trees is not None:
            logs -= direct.of_trees
        logs *= np.float32(direct.share)
    scales = heat_scales(form.graph.distances[:, -1])
    k, distinct = form.graph.n_neighbors, np.unique(first_at_no_distance(form.graph))
    mean, matrix, center = form.linear
    return ClassInterpolator(
        mean,
        matrix,
        rows,
        scales,
        trend,
        logs,
        np.asarray(k),
        center,
        trees=None if direct is None else direct.trees,
        distinct=distinct if k < len(distinct) < len(rows) else None,  # else all rows are equal
    )
