"""Combine the learned metric with class probabilities and input, or fall back to the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag
from scipy.spatial.distance import cdist

from ssdml.classification.learning import HeldOut
from ssdml.metric.state import Learned
from ssdml.utils.linalg import (
    best_factor,
    block_reflector,
    covariance,
    product,
    span,
    square_factor,
    total_variance,
)
from ssdml.utils.parallel import row_blocks
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED

WEIGHTS = 0.8, 1.2  # least and largest weight of the input if classes can be trusted
EXPLAINED, LEAST_TRUST = 0.2, 0.1  # share from which they can; least share of it that counts
FEWEST_COLUMNS = 64  # of the embedding, by default: more than the features of a small table
BLOCK_ENTRIES = 2**21  # distances held at once: 16 MB


def combined_components(
    metric: Floats, input_weight: float, n_classes: int, spreads: tuple[float, float, float]
) -> Floats:
    """Map ``[sqrt(r p), x]`` to classes, learned metric and weighted input, side by side.

    Parameters
    ----------
    metric : array of shape (l, d)
    input_weight : float
        Positive.
    n_classes : int
        Columns of p; 0 if there are no class probabilities.
    spreads : tuple of three floats
        Root mean squared distances to the mean of sqrt(r p), of the rows under the metric, and of
        the rows. Each part is scaled to the spread of the rows, so that weights compare.

    Returns
    -------
    components : ndarray of shape (n_classes + l + d, n_classes + d)

    Examples
    --------
    >>> combined_components(np.array([[2.0, 0.0]]), 0.5, 1, (1.0, 4.0, 2.0))
    array([[2. , 0. , 0. ],
           [0. , 1. , 0. ],
           [0. , 0.5, 0. ],
           [0. , 0. , 0.5]])
    """
    of_classes, of_metric, of_input = spreads
    blocks = (
        np.eye(n_classes) * _ratio(of_input, of_classes),
        np.vstack([metric * _ratio(of_input, of_metric), input_weight * np.eye(metric.shape[1])]),
    )
    return block_diag(*blocks)


def combined_on_span(
    metric: Floats,
    input_weight: float,
    spreads: tuple[float, float, float],
    roots: Array,
    X: Array,
    most: int,
) -> Floats:
    """Reduce :func:`combined_components` to ``most`` rows, for fewer training rows than columns.

    If ``most`` is at least n, distances of the training rows are kept: class probabilities and
    metric take the place of directions of the input in which none of them varies. O(n d most).

    Parameters
    ----------
    metric : array of shape (l, d)
        In the span of X.
    input_weight, spreads
        See :func:`combined_components`.
    roots : array of shape (n, n_classes)
        Roots of the class probabilities, sqrt(r p).
    X : array of shape (n, d)
        n < d.
    most : int
        At most d.

    Returns
    -------
    components : ndarray of shape (most, n_classes + d)

    Examples
    --------
    >>> metric, roots, X = np.empty((0, 2)), np.array([[1.0]]), np.array([[0.0, 1.0]])
    >>> components = combined_on_span(metric, 1.0, (1.0, 0.0, 1.0), roots, X, 2)
    >>> round(float(np.linalg.norm(components @ [1.0, 0.0, 1.0]) ** 2), 9)
    2.0
    """
    n_classes = roots.shape[1]
    axes = span(X)
    inner = square_factor(combined_components(metric @ axes, input_weight, n_classes, spreads))
    coordinates = np.hstack([roots, product(X, axes)])
    inner = fewer_columns(inner, most, lambda: covariance(coordinates))
    components = np.zeros((most, n_classes + X.shape[1]))
    seen, unseen = components[: len(inner)], components[len(inner) :, n_classes:]
    seen[:, :n_classes] = inner[:, :n_classes]
    np.matmul(inner[:, n_classes:], axes.T, out=seen[:, n_classes:])
    Y, Z = block_reflector(axes)
    places = np.arange(len(unseen))
    np.matmul(-input_weight * Z[len(X) + places], Y.T, out=unseen)
    unseen[places, len(X) + places] += input_weight
    return components


def balanced_weight(confidence: float, explained: float) -> float:
    """Weight of the input beside class probabilities and learned metric.

    Parameters
    ----------
    confidence : float
        Mean confidence of the unlabeled rows. The weight is 0.8, and 0.01 more for each percent of
        errors to expect of the classes, at most 1.2.
    explained : float
        Share of the entropy of held-out labels that class probabilities explain. The weight is
        divided by five times this share if that is less than 1, by at least 0.1.

    Examples
    --------
    >>> [balanced_weight(confidence, 0.5) for confidence in (1.0, 0.9, 0.5)]
    [0.8, 0.9, 1.2]
    >>> [balanced_weight(1.0, explained) for explained in (0.2, 0.1, 0.0)]
    [0.8, 1.6, 8.0]
    """
    least, largest = WEIGHTS
    weight = min(least + 1 - confidence, largest)
    return round(weight / min(max(explained / EXPLAINED, LEAST_TRUST), 1), 4)


def spread(rows: Array, components: Floats | None = None) -> float:
    """Root mean squared distance to their mean of the rows, or of their images."""
    return float(np.sqrt(total_variance(rows, components=components)))


def _ratio(wanted: float, given: float) -> float:
    return wanted / given if wanted > 0 and given > 0 else 1.0


def fewer_columns(blocks: Floats, most: int, spread: Callable[[], Floats]) -> Floats:
    """Reduce the map to at most ``most`` columns; ``spread()`` is the covariance of the rows."""
    return blocks if len(blocks) <= most else best_factor(blocks, spread(), most)


def input_alone(X: Array, distributions: Array, n_components: int | None) -> Learned:
    """The identity, or the leading principal components."""
    n, d = X.shape
    if n < d and n_components:
        components = combined_on_span(
            np.empty((0, d)), 1.0, (1.0,) * 3, np.empty((n, 0)), X, n_components
        )
    else:
        components = fewer_columns(np.eye(d), n_components or d, lambda: covariance(X))
    return Learned(components, np.inf, distributions)


def labeled_rows(labels: Ints) -> HeldOut:
    """The labeled rows, where no classifier held any out; they have no class probabilities."""
    rows = np.flatnonzero(labels != UNLABELED)
    return HeldOut(rows, labels[rows], np.empty((len(rows), 0)))


def fall_back(
    learned: Learned, alone: Learned, held_out: HeldOut, X: Callable[[Indices], Array]
) -> Learned:
    """Return the learned metric, or the input alone if it is better on held-out labels.

    The criterion is whether labeled rows are nearest to the mean of the others of their class, by
    two standard errors of the difference. Their class probabilities are the held-out ones.
    ``X(rows)`` returns the rows of given numbers.
    """
    if np.unique(held_out.codes, return_counts=True)[1].max(initial=0) < 2:
        return learned
    rows = X(held_out.rows)
    represented = rows
    if learned.represented is not None:
        represented = np.hstack([np.sqrt(held_out.distributions), rows])
    by_learned = nearest_mean_correct(represented @ learned.components.T, held_out.codes)
    by_input = nearest_mean_correct(rows @ alone.components.T, held_out.codes)
    if not significantly_lower(by_learned, by_input):
        return learned
    return learned._replace(
        components=alone.components,
        represented=None,
        input_weight=np.inf,
        fallback_reason=(
            f"the learned metric is worse: {by_learned.mean():.1%} of the labeled rows are nearest "
            f"to their class mean, {by_input.mean():.1%} with the input. Label more rows, or pass "
            "guard=False."
        ),
    )


def squared_distances(rows: npt.ArrayLike, queries: npt.ArrayLike) -> Iterator[Floats]:
    """Yield blocks of squared distances from the query rows to all rows, infinite to themselves.

    Examples
    --------
    >>> np.vstack(list(squared_distances([[0.0], [2.0], [5.0]], [0, 2])))
    array([[inf,  4., 25.],
           [25.,  9., inf]])
    """
    X, places = np.asarray(rows, dtype=np.float64), np.asarray(queries)
    X = X - X.mean(axis=0)
    norms, columns = (X**2).sum(axis=1), -2 * X.T
    for place in row_blocks(len(places), BLOCK_ENTRIES // len(X)):
        block = places[place]
        squares: Floats = X[block] @ columns
        squares += norms
        squares += norms[block, None]
        np.maximum(squares, 0, out=squares)
        squares[np.arange(len(block)), block] = np.inf
        yield squares


def significantly_lower(
    correct: npt.NDArray[np.bool_], reference: npt.NDArray[np.bool_], *, errors: float = 2
) -> bool:
    """Whether ``correct`` has a lower mean, by ``errors`` standard errors of the paired difference.

    Examples
    --------
    >>> significantly_lower(np.array([False] * 9), np.array([True] * 8 + [False]))
    True
    """
    gaps = reference.astype(float) - correct
    return bool(gaps.mean() > errors * gaps.std() / np.sqrt(len(gaps)))


def nearest_neighbor_correct(
    rows: npt.ArrayLike, classes: npt.ArrayLike, queries: npt.ArrayLike
) -> npt.NDArray[np.bool_]:
    """Whether the nearest other row of each query row has its class.

    Examples
    --------
    >>> nearest_neighbor_correct([[0.0], [1.0], [3.0]], [0, 0, 1], [0, 2])
    array([ True, False])
    """
    codes = np.asarray(classes)
    nearest = [squares.argmin(axis=1) for squares in squared_distances(rows, queries)]
    return codes[np.hstack(nearest)] == codes[np.asarray(queries)]


def nearest_mean_correct(rows: npt.ArrayLike, classes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether each row is nearest to the mean of the other rows of its class.

    Rows that are alone in their class are omitted from the result.

    Examples
    --------
    >>> nearest_mean_correct([[0.0], [1.0], [4.0], [9.0], [2.0]], [0, 0, 1, 1, 2])
    array([ True,  True, False,  True])
    """
    X = np.asarray(rows)
    codes = np.unique(classes, return_inverse=True)[1]
    squares = cdist(X, class_means(X, codes), "sqeuclidean")
    own = np.bincount(codes)[codes]
    # Without x itself the mean of its class moves away: x - m' = (x - m) n / (n - 1).
    squares[np.arange(len(X)), codes] *= (own / np.maximum(own - 1, 1)) ** 2
    return (squares.argmin(axis=1) == codes)[own > 1]
