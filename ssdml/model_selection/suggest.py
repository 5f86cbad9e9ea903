"""Choose the parameters of a fit from the given labels alone."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from ssdml.classification.forms import Form, forms_with_graphs
from ssdml.classification.learning import learn_evidence
from ssdml.metric.alternation import diffusions_of
from ssdml.metric.estimator import SSDML, check_is_ssdml, validate_fit
from ssdml.metric.selection import (
    nearest_mean_correct,
    nearest_neighbor_correct,
    significantly_lower,
)
from ssdml.utils.dask_arrays import is_dask
from ssdml.utils.linalg import best_factor, covariance
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED, as_list, check_count, choose, warn

SUGGESTED = ("n_neighbors", "n_components")
N_NEIGHBORS = (10, 5, 7, 15)  # the default first: it wins a tie
COLUMNS = (8, 4, 2)  # divisors of n_features to try as n_components
GAIN = 0.5  # standard errors by which fewer columns may be worse
VALIDATION_ROWS, MIN_VALIDATION_ROWS = 5000, 50  # rows whose nearest neighbors compare columns


class GraphTrial(NamedTuple):
    """Scores of one graph on held-out labels, or NaN."""

    n_neighbors: int
    held_out: float  # accuracy
    likelihood: float  # mean logarithm of the probability of the label


class ColumnsTrial(NamedTuple):
    """Scores of the metric of the best graph, cut to fewer columns."""

    n_components: int | None
    agreement: float  # share of rows whose nearest neighbor has their class
    labeled: float  # share of held-out labeled rows nearest to their class mean, or NaN


class Suggestion(NamedTuple):
    """An estimator to fit, and the trials that chose its parameters.

    Examples
    --------
    >>> graphs = GraphTrial(10, 0.9, -0.41), GraphTrial(5, 0.94, -0.38)
    >>> columns = ColumnsTrial(None, 0.97, 0.92), ColumnsTrial(16, 0.95, 0.9)
    >>> Suggestion(SSDML(n_neighbors=5), graphs, columns)
    SSDML(n_neighbors=5)
    n_neighbors  held out  likelihood
             10     90.0%      -0.410
              5     94.0%      -0.380  <
    n_components  labeled  agreement
             all     92.0%      97.0%  <
              16     90.0%      95.0%
    """

    estimator: Any
    graphs: tuple[GraphTrial, ...]
    columns: tuple[ColumnsTrial, ...]

    def __repr__(self) -> str:
        chosen = self.estimator.get_params()
        lines = [repr(self.estimator), "n_neighbors  held out  likelihood"]
        for k, share, likelihood in self.graphs:
            mark = "  <" * (k == chosen["n_neighbors"])
            shown = "-" if np.isnan(likelihood) else f"{likelihood:.3f}"
            lines.append(f"{k:11}  {_percent(share):>8}  {shown:>10}{mark}")
        if self.columns:
            lines.append("n_components  labeled  agreement")
        for count, *shares in self.columns:
            agreement, labeled = map(_percent, shares)
            mark = "  <" * (count == chosen["n_components"])
            lines.append(f"{count or 'all':>12}  {labeled:>8}  {agreement:>9}{mark}")
        return "\n".join(lines)


def suggest_parameters(
    estimator: SSDML, X: Any, y: Any, *, kept: Collection[str] = (), max_rows: int = 10_000
) -> Suggestion:
    """Choose ``n_neighbors`` and ``n_components`` from the given labels alone.

    Parameters
    ----------
    estimator : SSDML
        Its other parameters are used as they are; ``random_state`` also samples the rows.
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,), int
        -1 where unlabeled.
    kept : collection of str
        Which of the two parameters to leave as they are.
    max_rows : int
        Rows to compare settings on: the labeled ones and a random sample of the others.

    Returns
    -------
    suggestion : Suggestion
        ``estimator``, not fitted, and the settings tried: ``graphs`` and ``columns``, tuples of
        named tuples for ``pandas.DataFrame``. Print it to see them.

    Warns
    -----
    UserWarning
        If no class has two labels: nothing can be held out, and ``n_neighbors`` stays.

    Notes
    -----
    With each of four numbers of neighbors, classifiers and graph predict held-out labels, as they
    do in a fit. The best accuracy wins; ties go to the higher likelihood, then to the default. One
    metric is then learned and cut to an eighth, a quarter and half of ``n_features``. The smallest
    number is chosen whose agreement with nearest neighbors and with class means is within half a
    standard error of the full metric's.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) < 50, y, -1)
    >>> suggestion = suggest_parameters(SSDML(random_state=0), X / 16, labels)
    >>> best = max(trial.held_out for trial in suggestion.graphs)
    >>> best >= suggestion.graphs[0].held_out  # the default
    True
    >>> model = suggestion.estimator.fit(X / 16, labels)
    """
    X, labels = _checked(estimator, X, y, kept, max_rows)
    seed = check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max)
    rng = np.random.default_rng(seed)
    rows = _sample(labels, max_rows, rng)
    X, labels = X[rows], labels[rows]
    graphs = _try_graphs(estimator, X, labels, kept, rng)
    if np.isnan(graphs[0].held_out):
        warn(
            "suggest_parameters: y must label two rows of a class to hold one out; got one per "
            "class. n_neighbors stays as it is."
        )
        chosen = clone(estimator)
    else:
        best = max(graphs, key=lambda trial: trial[1:])
        chosen = clone(estimator).set_params(n_neighbors=best.n_neighbors)
    if "n_components" in kept or chosen.partition_size is not None:
        return Suggestion(chosen, graphs, ())
    columns, n_components = _try_columns(chosen, X, labels, rng)
    return Suggestion(chosen.set_params(n_components=n_components), graphs, columns)


def _checked(
    estimator: SSDML, X: Any, y: Any, kept: Collection[str], max_rows: int
) -> tuple[Array, Ints]:
    who = "suggest_parameters"
    check_is_ssdml(estimator, who)
    check_count(max_rows, "max_rows", who)
    for name in as_list(kept, "kept", who, "names of parameters"):
        choose(dict.fromkeys(SUGGESTED), name, f"{who}: kept")
    if is_dask(X):
        raise ValueError(
            f"{who}: X must be an array in memory; got a dask array. Pass a sample with all "
            "labeled rows: X[rows].compute()."
        )
    X, labels = validate_fit(clone(estimator), X, y)
    least = min(max(*N_NEIGHBORS, estimator.n_neighbors) + 1, len(X))
    if max_rows < least:
        raise ValueError(
            f"{who}: max_rows must be at least {least}, to build the graphs; got {max_rows}."
        )
    return X, labels


def _sample(labels: Ints, max_rows: int, rng: np.random.Generator) -> Ints:
    """Labeled rows first, then random others, at most ``max_rows`` together."""
    labeled = rng.permutation(np.flatnonzero(labels != UNLABELED))[:max_rows]
    others = rng.permutation(np.flatnonzero(labels == UNLABELED))[: max_rows - len(labeled)]
    return np.sort(np.concatenate([labeled, others]))


def _try_graphs(
    estimator: SSDML, X: Array, labels: Ints, kept: Collection[str], rng: np.random.Generator
) -> tuple[GraphTrial, ...]:
    """Score every graph; all of them share one neighbor search."""
    numbers = dict.fromkeys(min(k, len(X) - 1) for k in N_NEIGHBORS)
    if "n_neighbors" in kept:
        numbers = {estimator.n_neighbors: None}
    most, n_jobs = min(max(numbers), len(X) - 1), estimator.n_jobs
    forms = forms_with_graphs(X, most, labels=labels, rng=rng, n_jobs=n_jobs)
    return tuple(_try_graph(forms, k, labels, n_jobs) for k in numbers)


def _try_graph(forms: list[Form], k: int, labels: Ints, n_jobs: int | None) -> GraphTrial:
    nearer = [form.nearer(k) for form in forms]
    with diffusions_of(nearer, n_jobs) as diffusions:
        held_out = learn_evidence(nearer, labels, diffusions).held_out
    if not len(held_out.rows):
        return GraphTrial(k, np.nan, np.nan)
    right = held_out.distributions[np.arange(len(held_out.codes)), held_out.codes]
    found = held_out.distributions.argmax(axis=1)
    likelihood = np.log(np.maximum(right, np.finfo(float).tiny)).mean()
    return GraphTrial(k, _share(found == held_out.codes), float(likelihood))


def _try_columns(
    estimator: SSDML, X: Array, labels: Ints, rng: np.random.Generator
) -> tuple[tuple[ColumnsTrial, ...], int | None]:
    """Score the metric with all and with fewer columns; return the fewest that suffice."""
    scored = rng.permutation(_scored_rows(labels))[:VALIDATION_ROWS]
    if len(scored) < MIN_VALIDATION_ROWS:
        return (), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the final fit repeats them
        model = clone(estimator).set_params(n_components=None, verbose=0).fit(X, labels)
    represented = X if model.representation_ is None else model.representation_(X)
    spread, codes = covariance(represented), model.label_distributions_.argmax(axis=1)
    labeled, known = _held_out_rows(model, X, labels)

    def correct(components: Floats) -> tuple[Array, Array]:
        by_neighbor = nearest_neighbor_correct(represented @ components.T, codes, scored)
        if not len(known):
            return by_neighbor, np.empty(0, bool)
        return by_neighbor, nearest_mean_correct(labeled @ components.T, known)

    full = correct(model.components_)
    tried, chosen = [ColumnsTrial(None, *map(_share, full))], None
    for count in sorted({X.shape[1] // part for part in COLUMNS}, reverse=True):
        if not 0 < count < len(model.components_):
            continue
        fewer = correct(best_factor(model.components_, spread, count))
        tried.append(ColumnsTrial(count, *map(_share, fewer)))
        pairs = zip(fewer, full, strict=True)
        if not any(len(few) and significantly_lower(few, all_, errors=GAIN) for few, all_ in pairs):
            chosen = count
    return tuple(tried), chosen


def _held_out_rows(model: SSDML, X: Array, labels: Ints) -> tuple[Array, Ints]:
    """Representation and class of labeled rows, with the class probabilities by other labels."""
    held_out = model.held_out_
    if held_out is None:
        return X[labels != UNLABELED], labels[labels != UNLABELED]
    rows = X[held_out.rows]
    if model.representation_ is not None:
        rows = np.hstack([np.sqrt(held_out.distributions), rows])
    return rows, held_out.codes


def _scored_rows(labels: Ints) -> Ints:
    """Unlabeled rows, or all rows if every row is labeled."""
    unlabeled = np.flatnonzero(labels == UNLABELED)
    return unlabeled if len(unlabeled) else np.arange(len(labels))


def _share(correct: Array) -> float:
    return float(correct.mean()) if len(correct) else np.nan


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{share:.1%}"
