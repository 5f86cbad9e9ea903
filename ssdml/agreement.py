"""How much of the input to keep beside what was learned, judged without test labels.

The yardstick is agreement with the graph: how many of a row's nearest neighbours carry the class
that propagation gave the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from ssdml.graphs._blocks import row_blocks
from ssdml.linalg import Matrix
from ssdml.scatter import class_means

INPUT_WEIGHTS = (0.7, 1.0, 1.4)
GAIN = 0.5  # standard errors by which a weight has to beat the input alone
NEIGHBORS = 3  # that are asked: one alone is so noisy that the choice is left to chance
BLOCK_ENTRIES = 2**21  # of the distances that are held at once: 16 MB


class InputWeight(NamedTuple):
    """A weight of the input, and the shares of neighbours that agree in class with their row."""

    weight: float
    agreement: float  # by the learned metric with the input beside it
    input_agreement: float
    is_worse: bool  # than the input, by more than two standard errors of the difference


def squared_distances(rows: npt.ArrayLike, judged: npt.ArrayLike) -> Iterator[Matrix]:
    """Squared distances from the judged rows to all rows, infinite to themselves.

    Yields them for some of the judged rows at a time: blocks of 2 million entries or fewer.

    Examples
    --------
    >>> np.vstack(list(squared_distances([[0.0], [2.0], [5.0]], [0, 2])))
    array([[inf,  4., 25.],
           [25.,  9., inf]])
    """
    X = np.asarray(rows, dtype=np.float64)
    queries = np.asarray(judged)
    X = X - X.mean(axis=0)
    norms, columns = (X**2).sum(axis=1), -2 * X.T
    for place in row_blocks(len(queries), BLOCK_ENTRIES // len(X)):
        block = queries[place]
        squares: Matrix = X[block] @ columns
        squares += norms
        squares += norms[block, None]
        np.maximum(squares, 0, out=squares)
        squares[np.arange(len(block)), block] = np.inf
        yield squares


def choose_input_weight(
    learned: npt.ArrayLike,
    inputs: npt.ArrayLike,
    classes: npt.ArrayLike,
    judged: npt.ArrayLike,
    *,
    weights: Sequence[float] = INPUT_WEIGHTS,
) -> InputWeight:
    """Least weight of the input with which rows agree more with their neighbours than by it alone.

    Asked are the three nearest. More means by half a standard error of the difference; if no
    weight does so, the one with which most agree is taken, and of several the largest. Distances
    are ``learned² + weight² · input²``; the caller scales both to the same spread.

    Parameters
    ----------
    learned : array of shape (n, l)
    inputs : array of shape (n, d)
        The same rows before learning.
    classes : array of shape (n,)
        Class that the graph gave each row.
    judged : array of shape (m,), int
        Rows that are asked for their neighbours among all rows; better such as the learner did not
        see.
    weights : sequence of float
        Weights to choose from, in ascending order.

    Returns
    -------
    choice : InputWeight

    Notes
    -----
    A small weight separates classes, a large one keeps near neighbours: agreement grows with the
    weight, levels off, and falls towards the input's. O(m n (d + l)) time, O(n (d + l)) memory.

    Examples
    --------
    >>> classes = np.repeat([0, 1], 4)
    >>> learned, inputs = 9.0 * classes[:, None], [[1.0], [2.0], [4.0], [7.0]] * 2
    >>> choose_input_weight(learned, inputs, classes, np.arange(8))
    InputWeight(weight=0.7, agreement=1.0, input_agreement=0.3333333333333333, is_worse=False)
    """
    codes, queries = np.asarray(classes), np.asarray(judged)
    blocks = zip(
        squared_distances(learned, queries), squared_distances(inputs, queries), strict=True
    )
    nearest = np.concatenate([_nearest(*squares, weights) for squares in blocks], axis=1)
    by_input, *trials = (codes[nearest] == codes[queries][:, None]).mean(axis=2)
    gains = [falls_short(by_input, trial, errors=GAIN) for trial in trials]
    best = max(range(len(trials)), key=lambda i: (trials[i].mean(), i))
    chosen = gains.index(True) if any(gains) else best
    return InputWeight(
        weights[chosen],
        float(trials[chosen].mean()),
        float(by_input.mean()),
        falls_short(trials[chosen], by_input),
    )


def _nearest(
    of_learned: Matrix, of_inputs: Matrix, weights: Sequence[float]
) -> npt.NDArray[np.intp]:
    """Nearest rows by the input alone, then with each weight beside what is learned: (1 + w, m, k).

    From squared distances of m rows, infinite to themselves.
    """
    by_input = _lowest(of_inputs.copy())
    of_inputs[np.isinf(of_inputs)] = 0  # 0 times infinity is NaN; of_learned has the infinity
    blends = (of_learned + weight**2 * of_inputs for weight in weights)
    return np.stack([by_input, *map(_lowest, blends)])


def _lowest(squares: Matrix) -> npt.NDArray[np.intp]:
    """Columns of the lowest entries of each row, which are overwritten."""
    rows = np.arange(len(squares))
    columns = np.empty((min(NEIGHBORS, squares.shape[1] - 1), len(rows)), np.intp)
    for column in columns:  # a few passes are faster than to sort
        squares.argmin(axis=1, out=column)
        squares[rows, column] = np.inf
    return columns.T


def falls_short(agree: npt.NDArray[Any], reference: npt.NDArray[Any], *, errors: float = 2) -> bool:
    """Whether rows agree less than in ``reference``, by more than so many standard errors.

    For each row whether it agrees, or the share of its neighbours that do; the error is that of the
    mean of the paired differences.

    Examples
    --------
    >>> falls_short(np.array([False] * 9), np.array([True] * 8 + [False]))
    True
    """
    gaps = reference.astype(float) - agree
    return bool(gaps.mean() > errors * gaps.std() / np.sqrt(len(gaps)))


def nearest_mean_agrees(rows: npt.ArrayLike, classes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether each row is nearest to the mean of its own class, itself left out of that mean.

    Rows that are alone in their class are left out of the result.

    Examples
    --------
    >>> nearest_mean_agrees([[0.0], [1.0], [4.0], [9.0], [2.0]], [0, 0, 1, 1, 2])
    array([ True,  True, False,  True])
    """
    X = np.asarray(rows)
    codes = np.unique(classes, return_inverse=True)[1]
    squares = cdist(X, class_means(X, codes), "sqeuclidean")
    own = np.bincount(codes)[codes]
    # Without x itself the mean of its class moves away: x - m' = (x - m) n / (n - 1).
    squares[np.arange(len(X)), codes] *= (own / np.maximum(own - 1, 1)) ** 2
    agrees: npt.NDArray[np.bool_] = (squares.argmin(axis=1) == codes)[own > 1]
    return agrees
