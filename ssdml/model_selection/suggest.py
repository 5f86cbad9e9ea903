"""Parameters for a fit, chosen by the given labels alone: by leave-one-out, and by agreement."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.metric.selection import (
    GAIN,
    JUDGED_ROWS,
    MIN_JUDGED_ROWS,
    falls_short,
    nearest_agrees,
    nearest_mean_agrees,
)
from ssdml.model_selection.leave_one_out import judged_rows, leave_one_out
from ssdml.utils.dask_arrays import of_dask
from ssdml.utils.labels import class_codes
from ssdml.utils.linalg import best_factor, covariance, graph_rows
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

# The defaults first: they win a tie.
N_NEIGHBORS, DECAYS = (10, 5, 7, 15), (0.99, 0.95, 0.9)
COLUMNS = (8, 4, 2)  # parts of the features that n_components may be
JUDGED_LABELS = 200  # labeled rows that are left out, at most
TOL = 1e-4  # of the solver: the classes of rows left out were those of 1e-6


class GraphTrial(NamedTuple):
    """What the labels say of one graph."""

    n_neighbors: int
    decay: float
    left_out: float  # share of labeled rows that the others' labels classify right; or NaN
    agreement: float  # share of rows that a label reaches, and that have their nearest row's class


class ColumnsTrial(NamedTuple):
    """How the metric that was learned on the best graph does with fewer columns."""

    n_components: int | None
    agreement: float  # share of rows whose nearest row by the metric has their class
    labeled: float  # share of labeled rows nearest to the mean of their class; or NaN


class Suggestion(NamedTuple):
    """An estimator to fit, and what was tried to choose its parameters.

    Examples
    --------
    >>> from ssdml import SSDML
    >>> graphs = GraphTrial(10, 0.99, 0.9, 0.97), GraphTrial(5, 0.99, 0.94, 0.98)
    >>> columns = ColumnsTrial(None, 0.97, 0.92), ColumnsTrial(16, 0.95, 0.9)
    >>> Suggestion(SSDML(n_neighbors=5), graphs, columns)
    SSDML(n_neighbors=5)
    n_neighbors  decay  left out  agreement
             10   0.99     90.0%      97.0%
              5   0.99     94.0%      98.0%  <
    n_components  labeled  agreement
             all     92.0%      97.0%  <
              16     90.0%      95.0%
    """

    estimator: Any
    graphs: tuple[GraphTrial, ...]
    columns: tuple[ColumnsTrial, ...]

    def __repr__(self) -> str:
        chosen = self.estimator.get_params()
        lines = [repr(self.estimator), "n_neighbors  decay  left out  agreement"]
        for trial in self.graphs:
            is_chosen = all(
                chosen[name] == getattr(trial, name) for name in ("n_neighbors", "decay")
            )
            lines.append(
                f"{trial.n_neighbors:11}  {trial.decay:5.4g}  {_percent(trial.left_out):>8}  "
                f"{_percent(trial.agreement):>9}{'  <' * is_chosen}"
            )
        if self.columns:
            lines.append("n_components  labeled  agreement")
        for columns in self.columns:
            number = "all" if columns.n_components is None else columns.n_components
            lines.append(
                f"{number:>12}  {_percent(columns.labeled):>8}  {_percent(columns.agreement):>9}"
                f"{'  <' * (columns.n_components == chosen['n_components'])}"
            )
        return "\n".join(lines)


class SuggestedSettings:
    """Mixin of estimators that choose their parameters by the labels that are given."""

    @classmethod
    def suggest(cls, X: Any, y: Any, *, max_rows: int = 10_000, **params: Any) -> Suggestion:
        """Choose ``n_neighbors``, ``decay`` and ``n_components`` by the given labels alone.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), int
            -1 where unlabeled.
        max_rows : int
            Rows that settings are compared on: the labeled ones, and random others.
        **params
            Of the estimator. One of the three that is given is kept; ``random_state`` draws the
            rows too.

        Returns
        -------
        suggestion : Suggestion
            ``estimator``, not fitted; ``graphs`` and ``columns`` that were tried, as
            tuples with names, which ``pandas.DataFrame`` takes. Print it.

        Raises
        ------
        ValueError
            Where no row is labeled, or the parameters do not suit the rows.

        Warns
        -----
        UserWarning
            Where no class has two labels: no row can be left out, and agreement alone decides.

        Notes
        -----
        At most 12 graphs are compared, each by a propagation from which every label is left out in
        turn (:func:`ssdml.model_selection.leave_one_out.leave_one_out`), at most 200 of them. The graph by which
        most are classified right is chosen; of several, the one in which rows agree most with
        their nearest row in the class that was propagated; of several, the default. Agreement
        comes second because it favors few neighbors. Then one metric is learned, and cut to an
        eighth, a quarter and half of the columns: the fewest with which neither rows agree less
        with their nearest row, nor labeled rows with the mean of their class (as the guard of a
        fit has it), by more than half a standard error.

        The defaults are near the best of these. On digits, MNIST, Fashion-MNIST and Banking77, 2 to
        10 labels a class, the graph that true labels would choose gives 0.5 to 2 points more of
        the unlabeled rows their class than the default does (3 to 10 seeds).

        Work is bounded by the number of settings and of rows, not by a clock: the same data and
        seed give the same choice on any machine.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from ssdml import SSDML
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where(np.arange(len(y)) < 50, y, -1)
        >>> suggestion = SSDML.suggest(X / 16, labels, random_state=0)
        >>> best = max(trial.left_out for trial in suggestion.graphs)
        >>> best >= suggestion.graphs[0].left_out  # that of the default
        True
        >>> model = suggestion.estimator.fit(X / 16, labels)
        """
        return suggest_settings(cls(**params), X, y, max_rows=max_rows, kept=frozenset(params))


def suggest_settings(
    estimator: Any, X: Any, y: Any, *, max_rows: int, kept: frozenset[str]
) -> Suggestion:
    """:meth:`SuggestedSettings.suggest` of an estimator, some of whose parameters are kept."""
    X, labels = _checked(estimator, X, y, max_rows)
    seed = check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max)
    rng = np.random.default_rng(seed)
    rows = _drawn(labels, max_rows, rng)
    X, labels = X[rows], labels[rows]
    judged = np.sort(rng.permutation(judged_rows(labels))[:JUDGED_LABELS])
    if not len(judged):
        warnings.warn(
            f"{type(estimator).__name__}.suggest: y must label two rows of a class, so that one "
            "can be left out; got one a class. Agreement with the graph decides alone.",
            stacklevel=3,
        )
    table = _graphs_tried(estimator, X, labels, judged, kept, rng)
    # NaN beside NaN would hide what comes after it.
    best = max(table, key=lambda trial: (np.nan_to_num(trial.left_out), trial.agreement))
    chosen = clone(estimator).set_params(n_neighbors=best.n_neighbors, decay=best.decay)
    if "n_components" in kept or chosen.partition_size is not None:
        return Suggestion(chosen, table, ())
    columns, n_components = _columns_tried(chosen, X, labels, rng)
    return Suggestion(chosen.set_params(n_components=n_components), table, columns)


def _checked(estimator: Any, X: Any, y: Any, max_rows: int) -> tuple[Array, Ints]:
    """Rows and labels that are fit for the estimator."""
    who = f"{type(estimator).__name__}.suggest"
    if of_dask(X):
        raise ValueError(
            f"{who}: X must be rows in memory; got a dask array. Pass some of them, with all that "
            "are labeled: X[rows].compute()."
        )
    estimator._validate_params()
    X, labels, _ = clone(estimator)._validated(X, y)
    least = max(*N_NEIGHBORS, estimator.n_neighbors) + 1
    if max_rows < min(least, len(X)):
        raise ValueError(
            f"{who}: max_rows must be at least {min(least, len(X))}, for graphs of so many rows; "
            f"got {max_rows}."
        )
    return X, labels


def _drawn(labels: Ints, max_rows: int, rng: np.random.Generator) -> Ints:
    """Labeled rows, and so many of the others that together they are at most ``max_rows``."""
    labeled = rng.permutation(np.flatnonzero(labels != UNLABELED))[:max_rows]
    others = rng.permutation(np.flatnonzero(labels == UNLABELED))[: max_rows - len(labeled)]
    return np.sort(np.concatenate([labeled, others]))


def _graphs_tried(
    estimator: Any,
    X: Array,
    labels: Ints,
    judged: Ints,
    kept: frozenset[str],
    rng: np.random.Generator,
) -> tuple[GraphTrial, ...]:
    """Leave-one-out and agreement by each graph; the neighbors are searched once for all."""
    numbers = dict.fromkeys(min(k, len(X) - 1) for k in N_NEIGHBORS)
    if "n_neighbors" in kept:
        numbers = {estimator.n_neighbors: None}
    decays = (estimator.decay,) if "decay" in kept else DECAYS
    n_jobs, most = estimator.n_jobs, min(max(numbers), len(X) - 1)
    graph = knn_graph(graph_rows(X), most, n_jobs=n_jobs, random_state=rng)
    return tuple(
        _graph_tried(graph, k, decay, labels, judged, n_jobs)
        for k, decay in product(numbers, decays)
    )


def _graph_tried(
    graph: KNNGraph, k: int, decay: float, labels: Ints, judged: Ints, n_jobs: int | None
) -> GraphTrial:
    nearer = KNNGraph(graph.indices[:, :k], graph.distances[:, :k])
    codes, _ = class_codes(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that no label reaches: they count as wrong
        distributions, solution = propagate_labels(
            nearer, labels, decay=decay, tol=TOL, return_solution=True, n_jobs=n_jobs
        )
    found, others = distributions.argmax(axis=1), _rows_that_agree(labels)
    agree = (found == found[graph.indices[:, 0]]) & solution.values.any(axis=1)
    agreement = _share(agree[others])
    if not len(judged):
        return GraphTrial(k, decay, np.nan, agreement)
    said = leave_one_out(nearer, labels, judged, decay=decay, tol=TOL, n_jobs=n_jobs)
    return GraphTrial(k, decay, float((said.argmax(axis=1) == codes[judged]).mean()), agreement)


def _columns_tried(
    estimator: Any, X: Array, labels: Ints, rng: np.random.Generator
) -> tuple[tuple[ColumnsTrial, ...], int | None]:
    """Agreement by the metric with few columns and with all, and the fewest that are enough."""
    judged = rng.permutation(_rows_that_agree(labels))[:JUDGED_ROWS]
    if len(judged) < MIN_JUDGED_ROWS:
        return (), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told again by the fit that counts
        model = clone(estimator).set_params(n_components=None, verbose=0).fit(X, labels)
    represented = X if model.representation_ is None else model.representation_(X)
    spread, known = covariance(represented), labels != UNLABELED
    codes = model.label_distributions_.argmax(axis=1)

    def verdicts(embedding: Array) -> tuple[Array, Array]:
        by_rows = nearest_agrees(embedding, codes, judged)
        return by_rows, nearest_mean_agrees(embedding[known], labels[known])

    full = verdicts(model.embedding_)
    tried, chosen = [ColumnsTrial(None, *map(_share, full))], None
    for count in sorted({X.shape[1] // part for part in COLUMNS}, reverse=True):
        if not 0 < count < len(model.components_):
            continue
        cut = best_factor(model.components_, spread, count)
        fewer = verdicts(represented @ cut.T)
        tried.append(ColumnsTrial(count, *map(_share, fewer)))
        pairs = zip(fewer, full, strict=True)
        if not any(len(trial) and falls_short(trial, all_, errors=GAIN) for trial, all_ in pairs):
            chosen = count
    return tuple(tried), chosen


def _rows_that_agree(labels: Ints) -> Ints:
    """Rows that are asked whether their nearest one is of their class: those without a label."""
    others = np.flatnonzero(labels == UNLABELED)
    return others if len(others) else np.arange(len(labels))


def _share(agree: Array) -> float:
    return float(agree.mean()) if len(agree) else np.nan


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{share:.1%}"
