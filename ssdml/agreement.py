"""How much of the input to keep beside what was learned, judged without test labels.

The yardstick is agreement with the graph: how often a row's nearest neighbour carries the class
that propagation gave the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from ssdml.graphs._blocks import row_blocks
from ssdml.scatter import class_means
from ssdml.utils.typing import Floats

INPUT_WEIGHTS = (0.7, 1.0, 1.4)
GAIN = 0.5  # standard errors by which a weight has to beat the input alone
BLOCK_ENTRIES = 2**21  # of the distances that are held at once: 16 MB


class InputWeight(NamedTuple):
    """A weight of the input, and the shares of rows that agree with their nearest neighbour."""

    weight: float
    agreement: float  # of the learned metric with the input beside it
    input_agreement: float
    is_worse: bool  # than the input, by more than two standard errors of the difference


def squared_distances(rows: npt.ArrayLike, judged: npt.ArrayLike) -> Iterator[Floats]:
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
        squares: Floats = X[block] @ columns
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

    More by half a standard error of the difference; if no weight does so, the one with which most
    rows agree, and of several the largest. Distances are ``learned² + weight² · input²``; the
    caller scales both to the same spread.

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
    >>> learned, inputs = [[0.0], [0.1], [5.0], [5.1]], [[0.0], [3.0], [1.0], [4.0]]
    >>> choose_input_weight(learned, inputs, [0, 0, 1, 1], [0, 1, 2, 3])
    InputWeight(weight=0.7, agreement=1.0, input_agreement=0.0, is_worse=False)
    """
    codes, queries = np.asarray(classes), np.asarray(judged)
    blocks = zip(
        squared_distances(learned, queries), squared_distances(inputs, queries), strict=True
    )
    nearest = np.hstack([_nearest(*squares, weights) for squares in blocks])
    by_input, *trials = codes[nearest] == codes[queries]
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
    of_learned: Floats, of_inputs: Floats, weights: Sequence[float]
) -> npt.NDArray[np.intp]:
    """Nearest row by the input, then by what is learned with the input beside it, a weight a row.

    From squared distances; none of the learned ones to a row itself may be finite.
    """
    by_input = of_inputs.argmin(axis=1)
    of_inputs[np.isinf(of_inputs)] = 0  # to a row itself: 0 times infinity is NaN
    nearest = [(of_learned + weight**2 * of_inputs).argmin(axis=1) for weight in weights]
    return np.stack([by_input, *nearest])


def falls_short(
    agree: npt.NDArray[np.bool_], reference: npt.NDArray[np.bool_], *, errors: float = 2
) -> bool:
    """Whether ``agree`` is less often true than ``reference``, by so many errors.

    They are standard errors of the mean of the paired differences.

    Examples
    --------
    >>> falls_short(np.array([False] * 9), np.array([True] * 8 + [False]))
    True
    """
    gaps = reference.astype(float) - agree
    return bool(gaps.mean() > errors * gaps.std() / np.sqrt(len(gaps)))


def nearest_agrees(
    rows: npt.ArrayLike, classes: npt.ArrayLike, judged: npt.ArrayLike
) -> npt.NDArray[np.bool_]:
    """Whether the nearest other row of each judged row has its class.

    Examples
    --------
    >>> nearest_agrees([[0.0], [1.0], [3.0]], [0, 0, 1], [0, 2])
    array([ True, False])
    """
    codes = np.asarray(classes)
    nearest = [squares.argmin(axis=1) for squares in squared_distances(rows, judged)]
    agrees: npt.NDArray[np.bool_] = codes[np.hstack(nearest)] == codes[np.asarray(judged)]
    return agrees


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
