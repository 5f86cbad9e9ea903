"""Select the weight of the input beside the learned metric, or fall back to the input alone.

The criterion needs no test labels: how often the nearest neighbor of a row has the class that
propagation gave the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from ssdml.graphs.triplets import Triplets
from ssdml.metric.features import FeatureMap
from ssdml.metric.state import Learned, State
from ssdml.utils.linalg import best_factor, covariance, total_variance
from ssdml.utils.parallel import row_blocks
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED

if TYPE_CHECKING:
    from ssdml.metric.estimator import SSDML

VALIDATION_ROWS = 5000  # rows whose nearest neighbors compare metrics
REFERENCE_ROWS = 10_000  # rows among which those neighbors are searched
HELD_OUT = 0.2  # share of the unlabeled rows for validation, left out of the first round
MIN_VALIDATION_ROWS = 50
INPUT_WEIGHTS = (0.7, 1.0, 1.4)
GAIN = 0.5  # standard errors by which a weight must beat the input alone
BLOCK_ENTRIES = 2**21  # distances held at once: 16 MB


class InputWeight(NamedTuple):
    """A weight of the input, and the 1-NN agreement with and without the learned metric."""

    weight: float
    agreement: float  # learned metric with the weighted input
    input_agreement: float
    is_worse: bool  # than the input, by more than two standard errors of the difference


def n_held_out(n_unlabeled: int) -> int:
    """Count the unlabeled rows to hold out for validation; 0 if there are too few."""
    count = min(VALIDATION_ROWS, int(HELD_OUT * n_unlabeled))
    return count if count >= MIN_VALIDATION_ROWS else 0


def split_rows(state: State, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Split off validation rows; return the rows of the first round and the validation rows.

    The two are disjoint, so that memorized classes do not count. With few unlabeled rows, the
    validation rows are training rows.
    """
    everything = np.arange(len(state.X))
    unlabeled = rng.permutation(np.flatnonzero(state.labels == UNLABELED))
    held_out = unlabeled[: n_held_out(len(unlabeled))]
    if not len(held_out):
        return everything, np.sort(rng.permutation(everything)[:VALIDATION_ROWS])
    return np.setdiff1d(everything, held_out), held_out


def validate(
    state: State,
    embedding: Array,
    validation: Indices,
    weights: Sequence[float],
    rng: np.random.Generator,
) -> InputWeight:
    """Choose the weight of the input on the validation rows, by the propagated classes."""
    rows = np.union1d(validation, rng.permutation(len(state.X))[:REFERENCE_ROWS])
    return choose_input_weight(
        embedding[rows] / _relative_spread(embedding, state.X),
        state.X[rows],
        state.classes[rows],
        np.searchsorted(rows, validation),
        weights=weights,
    )


def candidate_weights(input_weight: float | str) -> tuple[float, ...]:
    """Weights to choose from for the parameter ``input_weight``."""
    return INPUT_WEIGHTS if input_weight == "auto" else (float(input_weight),)


def choose_input_weight(
    learned: npt.ArrayLike,
    inputs: npt.ArrayLike,
    classes: npt.ArrayLike,
    validation: npt.ArrayLike,
    *,
    weights: Sequence[float] = INPUT_WEIGHTS,
) -> InputWeight:
    """Smallest input weight that improves 1-NN agreement.

    It must improve on the input alone by half a standard error of the difference. If none does,
    the weight of the highest agreement, and the largest of equal ones. Distances are ``learned² +
    weight² · input²``; the caller scales both to the same spread.

    Parameters
    ----------
    learned : array of shape (n, l)
    inputs : array of shape (n, d)
        The same rows before learning.
    classes : array of shape (n,)
        Propagated class of each row.
    validation : array of shape (m,), int
        Rows to score, best held out of the learning.
    weights : sequence of float
        Candidates, ascending.

    Returns
    -------
    choice : InputWeight

    Notes
    -----
    A small weight separates classes, a large one keeps near neighbors: agreement rises with the
    weight, levels off, and falls toward that of the input. O(m n (d + l)) time, O(n (d + l))
    memory.

    Examples
    --------
    >>> learned, inputs = [[0.0], [0.1], [5.0], [5.1]], [[0.0], [3.0], [1.0], [4.0]]
    >>> choose_input_weight(learned, inputs, [0, 0, 1, 1], [0, 1, 2, 3])
    InputWeight(weight=0.7, agreement=1.0, input_agreement=0.0, is_worse=False)
    """
    codes, queries = np.asarray(classes), np.asarray(validation)
    blocks = zip(
        squared_distances(learned, queries), squared_distances(inputs, queries), strict=True
    )
    nearest = np.hstack([_nearest(*squares, weights) for squares in blocks])
    by_input, *trials = codes[nearest] == codes[queries]
    gains = [significantly_lower(by_input, trial, errors=GAIN) for trial in trials]
    best = max(range(len(trials)), key=lambda i: (trials[i].mean(), i))
    chosen = gains.index(True) if any(gains) else best
    return InputWeight(
        weights[chosen],
        float(trials[chosen].mean()),
        float(by_input.mean()),
        significantly_lower(trials[chosen], by_input),
    )


def _nearest(
    of_learned: Floats, of_inputs: Floats, weights: Sequence[float]
) -> npt.NDArray[np.intp]:
    """Nearest row by the input, then by the learned metric with each input weight.

    The learned squared distance of a row to itself must be infinite.
    """
    by_input = of_inputs.argmin(axis=1)
    of_inputs[np.isinf(of_inputs)] = 0  # to itself: 0 times infinity is NaN
    nearest = [(of_learned + weight**2 * of_inputs).argmin(axis=1) for weight in weights]
    return np.stack([by_input, *nearest])


def combine(
    first: State,
    state: State,
    feature_map: FeatureMap,
    embedding: Array,
    choices: tuple[InputWeight, ...],
    model: SSDML,
    triplets: Triplets,
    history: list[dict[str, Any]],
) -> Learned:
    """Combine learned metric and input; fall back to the input if it is better.

    The first choice sets the weight, after the first round. The last scores the final embedding
    by the same classes, so that a drift in later rounds does not pass unnoticed.
    """
    d, weight = state.X.shape[1], choices[0].weight
    scale = _relative_spread(embedding, state.X) if weight > 0 else 1.0
    representation = feature_map.representation
    if representation is None:
        blocks, rows = beside_input(feature_map.components / scale, weight), state.X
    else:
        n_learned = embedding.shape[1]
        blocks = np.diag(np.repeat([1 / scale, weight], [n_learned, d]))
        blocks = blocks[: n_learned if weight == 0 else None]
        rows = np.hstack([embedding, state.X])
    components = fewer_columns(blocks, model.n_components or d, lambda: covariance(rows))
    learned = Learned(components, representation, weight, state.distributions, edges=state.edges)
    if model.guard:
        labeled = state.labels != UNLABELED
        alone = input_alone(first, model.n_components)
        learned = fall_back(learned, alone, state.X[labeled], state.labels[labeled], choices)
    history[0] |= choices[0]._asdict()
    history[-1] |= {"agreement": choices[-1].agreement}
    return learned._replace(triplets=triplets, history=tuple(history))


def beside_input(components: Floats, weight: float) -> Floats:
    """Stack the weighted input below the learned map, unless the weight is 0."""
    if weight == 0:
        return components
    return np.vstack([components, weight * np.eye(components.shape[1])])


def fewer_columns(blocks: Floats, most: int, spread: Callable[[], Floats]) -> Floats:
    """Reduce the map to at most ``most`` columns; ``spread()`` is the covariance of the rows."""
    return blocks if len(blocks) <= most else best_factor(blocks, spread(), most)


def input_alone(state: State, n_components: int | None, fallback_reason: str = "") -> Learned:
    """The identity, or the leading principal components."""
    d = state.X.shape[1]
    components = fewer_columns(np.eye(d), n_components or d, lambda: covariance(state.X))
    return Learned(
        components,
        None,
        np.inf,
        state.distributions,
        fallback_reason=fallback_reason,
        edges=state.edges,
    )


def fall_back(
    learned: Learned, alone: Learned, X: Array, labels: Ints, choices: tuple[InputWeight, ...]
) -> Learned:
    """Return the learned metric, or the input alone if that is better on any criterion.

    These are the agreement on the validation rows after the first and the last round (``choices``),
    and the distances of the labeled rows X to their class means.
    """
    for choice in choices:
        if choice.is_worse:
            reason = (
                f"the nearest neighbors of {choice.agreement:.1%} of the validation rows have "
                f"their class, {choice.input_agreement:.1%} with the input"
            )
            break
    else:
        by_input = nearest_mean_correct(X @ alone.components.T, labels)
        represented = X if learned.representation is None else learned.representation(X)
        by_learned = nearest_mean_correct(represented @ learned.components.T, labels)
        if not len(by_input) or not significantly_lower(by_learned, by_input):
            return learned
        reason = (
            f"{by_learned.mean():.1%} of the labeled rows are nearest to their class mean, "
            f"{by_input.mean():.1%} with the input"
        )
    return alone._replace(
        fallback_reason=f"the learned metric is worse: {reason}. Label more rows, or pass "
        "guard=False."
    )


def _relative_spread(embedding: Array, X: Array) -> float:
    return relative_spread(total_variance(embedding), total_variance(X))


def relative_spread(of_embedding: float, of_input: float) -> float:
    """Square root of the ratio of two total variances; 1 if either is 0."""
    ratio = of_embedding / max(of_input, np.finfo(float).tiny)
    return float(np.sqrt(ratio)) if 0 < ratio < np.inf else 1.0


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
    correct: npt.NDArray[np.bool_] = codes[np.hstack(nearest)] == codes[np.asarray(queries)]
    return correct


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
    correct: npt.NDArray[np.bool_] = (squares.argmin(axis=1) == codes)[own > 1]
    return correct
