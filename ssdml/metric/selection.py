"""What a fit ends with: the input beside what was learned, or the input alone if that is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from ssdml.graphs.triplets import Triplets
from ssdml.metric.features import Backbone
from ssdml.metric.state import Learned, Settings, State
from ssdml.utils.linalg import best_factor, covariance, total_variance
from ssdml.utils.parallel import row_blocks
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED

VALIDATION_ROWS = 5000  # rows that compare metrics by their nearest neighbors
REFERENCE_ROWS = 10_000  # rows that those are searched among
HELD_OUT = 0.2  # share of the unlabeled rows that judge the first round, and do not train it
MIN_VALIDATION_ROWS = 50  # fewer say nothing


def n_held_out(n_unlabeled: int) -> int:
    """How many of the unlabeled rows judge the first round; 0 if they were too few to."""
    count = min(VALIDATION_ROWS, int(HELD_OUT * n_unlabeled))
    return count if count >= MIN_VALIDATION_ROWS else 0


def split_rows(state: State, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Rows that train the features in the first round, and rows that judge the metric after it.

    The two are apart, so that no class learned by heart is judged; where few rows are unlabeled,
    rows that train judge as well.
    """
    everything = np.arange(len(state.X))
    unlabeled = rng.permutation(np.flatnonzero(state.labels == UNLABELED))
    judged = unlabeled[: n_held_out(len(unlabeled))]
    if not len(judged):
        return everything, np.sort(rng.permutation(everything)[:VALIDATION_ROWS])
    return np.setdiff1d(everything, judged), judged


def judge(
    state: State,
    embedding: Array,
    judged: Indices,
    input_weight: float | str,
    rng: np.random.Generator,
) -> InputWeight:
    """How much of the input to keep, judged by the classes that the graph gave the rows."""
    rows = np.union1d(judged, rng.permutation(len(state.X))[:REFERENCE_ROWS])
    return verdict(
        embedding[rows] / _spread_of(embedding, state.X),
        state.X[rows],
        state.classes[rows],
        np.searchsorted(rows, judged),
        input_weight,
    )


def verdict(
    learned: Array, inputs: Array, classes: Ints, judged: Indices, input_weight: float | str
) -> InputWeight:
    """The weight of the input, given or chosen, and how rows agree with their neighbors then."""
    weights = INPUT_WEIGHTS if input_weight == "auto" else (float(input_weight),)
    return choose_input_weight(learned, inputs, classes, judged, weights=weights)


def finished(
    first: State,
    state: State,
    backbone: Backbone,
    embedding: Array,
    verdicts: tuple[InputWeight, ...],
    settings: Settings,
    triplets: Triplets,
    history: list[dict[str, Any]],
) -> Learned:
    """The metric with the input beside it, or the input alone if that is better.

    The first verdict chose the weight, after the first round; the last judges the embedding by
    the same classes, so that a drift in later rounds does not pass unseen.
    """
    learned = _blended(state, backbone, embedding, verdicts[0].weight, settings)
    if settings.guard:
        labeled = state.labels != UNLABELED
        alone = input_alone(first, settings)
        learned = guarded(learned, alone, state.X[labeled], state.labels[labeled], verdicts)
    history[0] |= verdicts[0]._asdict()
    history[-1] |= {"agreement": verdicts[-1].agreement}
    return learned._replace(triplets=triplets, history=tuple(history))


def _blended(
    state: State, backbone: Backbone, embedding: Array, weight: float, settings: Settings
) -> Learned:
    """M = A + weight² I, with A scaled to the spread of the input, as one map of few columns."""
    d = state.X.shape[1]
    scale = _spread_of(embedding, state.X) if weight > 0 else 1.0
    representation = backbone.representation
    if representation is None:
        blocks = beside_input(backbone.components / scale, weight)
        rows = state.X
    else:
        n_learned = embedding.shape[1]
        blocks = np.diag(np.repeat([1 / scale, weight], [n_learned, d]))
        blocks = blocks[: n_learned if weight == 0 else None]
        rows = np.hstack([embedding, state.X])
    components = fewer_columns(blocks, settings.n_components or d, lambda: covariance(rows))
    return Learned(
        components, representation, weight, state.distributions, edges=state.spread_along
    )


def beside_input(components: Floats, weight: float) -> Floats:
    """The map that is learned, and below it the weighted input; nothing below for a weight of 0."""
    if weight == 0:
        return components
    return np.vstack([components, weight * np.eye(components.shape[1])])


def fewer_columns(blocks: Floats, most: int, spread: Callable[[], Floats]) -> Floats:
    """The map, or one to at most so many columns; the covariance is asked for where it is used."""
    return blocks if len(blocks) <= most else best_factor(blocks, spread(), most)


def input_alone(state: State, settings: Settings, complaint: str = "") -> Learned:
    """The identity, or as many principal components as are asked for."""
    d = state.X.shape[1]
    components = fewer_columns(np.eye(d), settings.n_components or d, lambda: covariance(state.X))
    return Learned(
        components,
        None,
        np.inf,
        state.distributions,
        complaint=complaint,
        edges=state.spread_along,
    )


def guarded(
    learned: Learned,
    alone: Learned,
    rows: Array,
    labels: Ints,
    verdicts: tuple[InputWeight, ...],
) -> Learned:
    """What was learned, or the input alone where that is better; given the labeled rows."""
    complaint = _complaint(learned, alone, rows, labels, verdicts)
    if not complaint:
        return learned
    worse = f"what was learned is worse: {complaint}"
    return alone._replace(complaint=f"{worse}. Label more rows, or pass guard=False.")


def _complaint(
    learned: Learned,
    alone: Learned,
    rows: Array,
    labels: Ints,
    verdicts: tuple[InputWeight, ...],
) -> str:
    """In what the learned metric is worse than the input; empty if in nothing."""
    for verdict in verdicts:
        if verdict.is_worse:
            return (
                f"nearest neighbors agree in class on {verdict.agreement:.1%} of the rows, "
                f"{verdict.input_agreement:.1%} with the input"
            )
    by_input = nearest_mean_correct(rows @ alone.components.T, labels)
    represented = rows if learned.representation is None else learned.representation(rows)
    by_learned = nearest_mean_correct(represented @ learned.components.T, labels)
    if len(by_input) and significantly_lower(by_learned, by_input):
        return (
            f"{by_learned.mean():.1%} of the labeled rows are nearest to their class's mean, "
            f"{by_input.mean():.1%} with the input"
        )
    return ""


def _spread_of(embedding: Array, X: Array) -> float:
    return relative_spread(total_variance(embedding), total_variance(X))


def relative_spread(of_embedding: float, of_input: float) -> float:
    """Root of the ratio of two total variances; 1 where either does not vary."""
    ratio = of_embedding / max(of_input, np.finfo(float).tiny)
    return float(np.sqrt(ratio)) if 0 < ratio < np.inf else 1.0


# How much of the input to keep beside what was learned, judged without test labels.
#
# The yardstick is agreement with the graph: how often a row's nearest neighbor carries the class
# that propagation gave the row.

INPUT_WEIGHTS = (0.7, 1.0, 1.4)
GAIN = 0.5  # standard errors by which a weight has to beat the input alone
BLOCK_ENTRIES = 2**21  # of the distances that are held at once: 16 MB


class InputWeight(NamedTuple):
    """A weight of the input, and the shares of rows that agree with their nearest neighbor."""

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
    """Least weight of the input with which rows agree more with their neighbors than by it alone.

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
        Rows that are asked for their neighbors among all rows; better such as the learner did not
        see.
    weights : sequence of float
        Weights to choose from, in ascending order.

    Returns
    -------
    choice : InputWeight

    Notes
    -----
    A small weight separates classes, a large one keeps near neighbors: agreement grows with the
    weight, levels off, and falls toward the input's. O(m n (d + l)) time, O(n (d + l)) memory.

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
    """Nearest row by the input, then by what is learned with the input beside it, a weight a row.

    From squared distances; none of the learned ones to a row itself may be finite.
    """
    by_input = of_inputs.argmin(axis=1)
    of_inputs[np.isinf(of_inputs)] = 0  # to a row itself: 0 times infinity is NaN
    nearest = [(of_learned + weight**2 * of_inputs).argmin(axis=1) for weight in weights]
    return np.stack([by_input, *nearest])


def significantly_lower(
    agree: npt.NDArray[np.bool_], reference: npt.NDArray[np.bool_], *, errors: float = 2
) -> bool:
    """Whether ``agree`` is less often true than ``reference``, by so many errors.

    They are standard errors of the mean of the paired differences.

    Examples
    --------
    >>> significantly_lower(np.array([False] * 9), np.array([True] * 8 + [False]))
    True
    """
    gaps = reference.astype(float) - agree
    return bool(gaps.mean() > errors * gaps.std() / np.sqrt(len(gaps)))


def nearest_neighbor_correct(
    rows: npt.ArrayLike, classes: npt.ArrayLike, judged: npt.ArrayLike
) -> npt.NDArray[np.bool_]:
    """Whether the nearest other row of each judged row has its class.

    Examples
    --------
    >>> nearest_neighbor_correct([[0.0], [1.0], [3.0]], [0, 0, 1], [0, 2])
    array([ True, False])
    """
    codes = np.asarray(classes)
    nearest = [squares.argmin(axis=1) for squares in squared_distances(rows, judged)]
    agrees: npt.NDArray[np.bool_] = codes[np.hstack(nearest)] == codes[np.asarray(judged)]
    return agrees


def nearest_mean_correct(rows: npt.ArrayLike, classes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether each row is nearest to the mean of its own class, itself left out of that mean.

    Rows that are alone in their class are left out of the result.

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
    agrees: npt.NDArray[np.bool_] = (squares.argmin(axis=1) == codes)[own > 1]
    return agrees
