"""A pool of classifiers whose logits are added, with weights learned on held-out labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from ssdml.classification.clusters import Clusters, moved_means
from ssdml.classification.forms import TABLE_COLUMNS, Form, LinearForm
from ssdml.classification.softmax import TOL, SoftmaxRegression, softmax
from ssdml.classification.trees import (
    TreeClassifier,
    Trees,
    fill_trees,
    grow_trees,
    join_trees,
    standardized_columns,
)
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.parallel import Threads
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED

# Reach of the low-pass filter (0: the rows as they are) and ridge of each softmax regression.
REGRESSIONS = ((0.0, 0.1), (0.0, 0.002), (0.8, 0.002), (0.95, 0.1))
PROPAGATIONS = (0.97,)  # reach of the propagated labels
FEW_LABELS = {(0.0, 0.1): 0.5, (0.8, 0.002): 0.5, (0.95, 0.1): 2.0, 0.97: 6.0}  # weights then
NEAR = 0.9  # reach from which smoothed rows say what the graph says
MAX_PROPAGATED = 2**27  # entries of all propagations of held-out labels
N_TREES = 50  # of all folds; twice as many gain 0.2 points of accuracy
FEWEST_GROWING = 4  # labels per class from which trees gain anything
SHARPNESS = 2.0  # a priori, of logits of unit spread
PULL = 0.5  # of the weights toward their center, in labeled rows
TEMPER = 0.3  # of the held-out likelihoods in that center
N_FOLDS = 5
UPDATE_TOL = 1e-3  # of regressions that learn again, relative


class Classifier(Protocol):
    """A classifier of all rows that can learn again from other labels."""

    def logits(self, rows: slice | Indices) -> Array:
        """Scores of some of the n rows, (q, C)."""

    def again(self, labeled: Indices, codes: Ints, diffusion: Diffusion) -> Classifier:
        """Learn from other labels of the same classes, on the graph of its form."""


class Member(NamedTuple):
    """A classifier of the pool."""

    on_graph: bool  # whether it says what the graph says
    few_weight: float  # where no label can be held out
    held_out: Floats  # (m, C), logits of the labeled rows from the other folds
    classifier: Classifier
    of_form: bool = True  # whether it says which form is better


@dataclass(frozen=True, eq=False)
class Linear:
    """A softmax regression of the labeled rows in one view of all."""

    view: Array  # (n, r)
    linear: LinearForm | None  # from rows as they are given to the view; None if it is smoothed
    center: Array  # (r,)
    length: float  # root mean squared, of the centered rows
    ridge: float
    W: Floats  # (r, C), on the centered rows of unit length
    b: Floats  # (C,)

    def logits(self, rows: slice | Indices) -> Array:
        """Scores of some of the n rows, (q, C)."""
        linear = LinearForm(self.center, self.W / self.length)
        return linear(self.view[rows]) + self.b.astype(np.float32)

    def of(self, X: Array) -> Linear:
        """The same regression, of other rows X (n, d) as they are given."""
        assert self.linear is not None
        return replace(self, view=self.linear(X))

    def again(self, labeled: Indices, codes: Ints, diffusion: Diffusion) -> Linear:
        """Learn from other labels, with a warm start."""
        targets = np.eye(len(self.b))[codes]
        regression = SoftmaxRegression(
            (self.view[labeled] - self.center) / self.length, len(self.b), self.ridge
        )
        start = regression.coefficients(self.W, self.b)
        W, b = regression.weights(regression.fit(targets, start=start, tol=UPDATE_TOL))
        return replace(self, W=W, b=b)


@dataclass(frozen=True, eq=False)
class Propagated:
    """Labels propagated over the graph of a form."""

    scores: Array  # (n, C)
    labeled: Indices
    codes: Ints
    reach: float

    def logits(self, rows: slice | Indices) -> Array:
        """Logarithms of the shares of the classes, (q, C)."""
        return _log_shares(self.scores[rows])

    def again(self, labeled: Indices, codes: Ints, diffusion: Diffusion) -> Propagated:
        """Add what changed labels propagate: scores are linear in the labels."""
        n_classes = self.scores.shape[1]
        before, after = np.full((2, len(self.scores)), UNLABELED)
        before[self.labeled], after[labeled] = self.codes, codes
        changed = np.flatnonzero(before != after)
        signs = np.zeros((len(changed), n_classes + 1), np.float32)  # -1 is the last column
        np.add.at(signs, (np.arange(len(changed)), after[changed]), 1)
        np.add.at(signs, (np.arange(len(changed)), before[changed]), -1)
        signs = signs[:, :n_classes]
        columns = np.zeros((len(self.scores), min(len(changed), n_classes)), np.float32)
        if len(changed) < n_classes:
            columns[changed, np.arange(len(changed))] = 1
            difference = diffusion.spread(columns, self.reach) @ signs
        else:
            columns[changed] = signs
            difference = diffusion.spread(columns, self.reach)
        return Propagated(self.scores + difference, labeled, codes, self.reach)


def stratified_folds(codes: Ints, rng: np.random.Generator) -> Ints:
    """Fold of each labeled row; -1 if it is alone in its class.

    No class has all its rows in one fold.

    Examples
    --------
    >>> stratified_folds(np.array([0, 1, 0]), np.random.default_rng(0)).tolist()
    [0, -1, 1]
    """
    folds = np.full(len(codes), -1)
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        if len(members) > 1:
            folds[members] = np.arange(len(members)) % N_FOLDS
    return folds


def pool_members(
    form: Form,
    labeled: Indices,
    codes: Ints,
    n_classes: int,
    folds: Ints,
    diffusion: Diffusion,
    *,
    trees: bool = True,
) -> Iterator[Member]:
    """Classifiers on one form of the rows.

    Softmax regressions of the labeled rows, as they are and smoothed over the graph (which takes no
    label), for up to 100 columns the nearest of the means of clusters, ``trees`` on up to 100
    columns of X from four labels per class on, and propagations of the labels alone. The last two
    are left out if n · C is so large that scores of all rows by five folds would take longest.
    """
    affordable = len(form.rows) * n_classes * (N_FOLDS + 1) <= MAX_PROPAGATED
    targets = np.eye(n_classes)[codes]
    for reach, ridge in REGRESSIONS:
        view, few = form.view(reach, diffusion), FEW_LABELS.get((reach, ridge), 0.0)
        center = view.mean(axis=0)
        length = float(np.sqrt(((view - center) ** 2).sum(axis=1, dtype=np.float64).mean())) or 1.0
        regression = SoftmaxRegression((view[labeled] - center) / length, n_classes, ridge)
        whole, held_out = _with_held_out(regression, targets, folds, diffusion.threads)
        given = form.linear if reach == 0 else None
        linear = Linear(view, given, center, length, ridge, *regression.weights(whole))
        yield Member(reach > NEAR, few, held_out, linear)
    if form.rows.shape[1] <= TABLE_COLUMNS:
        yield _clusters(form.rows, labeled, codes, n_classes, folds)
    can_grow = affordable and len(labeled) >= FEWEST_GROWING * n_classes and folds.max() >= 0
    if trees and can_grow and form.linear.matrix.shape[0] <= TABLE_COLUMNS:
        yield _trees(form, labeled, codes, n_classes, folds, diffusion.threads)
    if affordable:
        for reach in PROPAGATIONS:
            yield _propagation(diffusion, labeled, targets, folds, reach, len(form.rows))


def _with_held_out(
    regression: SoftmaxRegression, targets: Floats, folds: Ints, threads: Threads
) -> tuple[Floats, Floats]:
    """Coefficients for all rows, and logits (m, C) of each fold from the other folds."""

    def fit(fold: int) -> Floats:
        others = np.flatnonzero((folds != fold) | (fold == -1))
        # No warm start: it would carry the labels that are held out.
        return regression.fit(targets[others], others, tol=TOL)

    whole, *parts = threads.each(fit, range(-1, folds.max() + 1))
    held_out = np.zeros_like(targets)
    for fold, coefficients in enumerate(parts):
        held_out[folds == fold] = regression.logits(coefficients, folds == fold)
    return whole, held_out


def _clusters(rows: Array, labeled: Indices, codes: Ints, n_classes: int, folds: Ints) -> Member:
    held_out = np.zeros((len(codes), n_classes))
    for fold in range(folds.max() + 1):
        inside = folds == fold
        means = moved_means(rows, labeled[~inside], codes[~inside], n_classes)
        held_out[inside] = Clusters(rows, means).logits(labeled[inside])
    whole = Clusters(rows, moved_means(rows, labeled, codes, n_classes))
    return Member(False, 0.0, held_out, whole)


def _trees(
    form: Form, labeled: Indices, codes: Ints, n_classes: int, folds: Ints, threads: Threads
) -> Member:
    columns, given = standardized_columns(form)
    known = form.rows[labeled]

    def grow(fold: int) -> Trees:
        """Trees of the labels that are not in the fold."""
        rows, others = known[folds != fold], codes[folds != fold]
        nodes = grow_trees(columns(rows), others, N_TREES // (1 + folds.max()))
        return fill_trees(columns, nodes, rows, others, n_classes)

    parts = threads.each(grow, range(folds.max() + 1))
    held_out = np.zeros((len(codes), n_classes))
    for fold, part in enumerate(parts):
        held_out[folds == fold] = part.scores(known[folds == fold])
    nodes = join_trees([part.nodes for part in parts])
    trees = fill_trees(columns, nodes, known, codes, n_classes)
    classifier = TreeClassifier(form.rows, given, trees, trees.scores(form.rows))
    return Member(False, 0.0, held_out, classifier, of_form=False)  # every form is standardized


def _propagation(
    diffusion: Diffusion, labeled: Indices, targets: Floats, folds: Ints, reach: float, n: int
) -> Member:
    scores, held_out = np.zeros((n, targets.shape[1]), np.float32), np.zeros_like(targets)
    for fold in np.unique(folds):  # linear in the labels: what the folds spread adds up
        inside, sources = folds == fold, np.zeros_like(scores)
        sources[labeled[inside]] = targets[inside]
        part = diffusion.spread(sources, reach)
        held_out[~inside] += part[labeled[~inside]]
        scores += part
    propagated = Propagated(scores, labeled, targets.argmax(axis=1), reach)
    return Member(True, FEW_LABELS.get(reach, 0.0), _log_shares(held_out), propagated)


def _log_shares(scores: Array) -> Array:
    scores = np.maximum(scores, 0)
    totals = np.maximum(scores.sum(axis=1, keepdims=True), np.finfo(scores.dtype).tiny)
    return np.log(scores / totals + 1e-4)


def pool_weights(held_out: Floats, codes: Ints, prior: Floats) -> Floats:
    r"""Weights at least 0 of the members' logits, by penalized likelihood of held-out labels.

    .. math:: \sum_i \log \mathrm{softmax}\Big(\sum_k a_k L_{ki}\Big)_{y_i}
        - \tfrac14 \sum_k \Big(\frac{a_k - c_k}{c_k}\Big)^2

    Every member first finds its own temperature. The center c is half the average of these, shared
    out by ``prior``, and half proportional to ``exp(0.3 · log-likelihood)``: with few labels the
    average counts, with many the likelihood. Sums of logits with such weights are calibrated.

    Parameters
    ----------
    held_out : array of shape (K, m, C)
    codes : array of shape (m,)
    prior : array of shape (K,)
        Shares of the members where labels are few.

    Returns
    -------
    weights : ndarray of shape (K,)

    Examples
    --------
    >>> codes = np.arange(100) % 2
    >>> right = np.eye(2)[codes] * 3.0
    >>> noise = np.random.default_rng(0).standard_normal((100, 2))
    >>> weights = pool_weights(np.stack([right, noise]), codes, np.array([0.5, 0.5]))
    >>> bool(weights[0] > 5 * weights[1])
    True
    """
    n_members, rows = len(held_out), np.arange(len(codes))
    sharpness, likelihood = np.empty(n_members), np.empty(n_members)
    for k, logits in enumerate(held_out):
        sharpness[k] = best_sharpness(logits, codes)
        chosen = softmax(sharpness[k] * logits)[rows, codes]
        likelihood[k] = np.log(chosen + 1e-9).sum()
    likely = np.exp(TEMPER * (likelihood - likelihood.max()))
    likely /= likely.sum()
    center = np.maximum((likely * sharpness + sharpness.mean() * prior) / 2, 1e-2)

    def objective(weights: Floats) -> tuple[float, Floats]:
        logits = np.tensordot(weights, held_out, 1)
        logits -= logits.max(axis=1, keepdims=True)
        powers = np.exp(logits)
        totals = powers.sum(axis=1)
        powers /= totals[:, None]
        away = (weights - center) / center
        value = (np.log(totals) - logits[rows, codes]).sum() + PULL / 2 * (away**2).sum()
        slope = np.einsum("mc,kmc->k", powers, held_out) - held_out[:, rows, codes].sum(axis=1)
        return float(value), slope + PULL * away / center

    found = minimize(objective, center, jac=True, bounds=[(0, 60)] * n_members, method="L-BFGS-B")
    weights: Floats = found.x
    return weights


def best_sharpness(logits: Floats, codes: Ints) -> float:
    """Inverse temperature of the logits (m, C) of greatest likelihood.

    Its logarithm has a Gaussian prior around 2, which weighs as much as two rows.
    """
    rows = np.arange(len(codes))

    def loss(exponent: float) -> float:
        scaled = logits * np.exp(exponent)
        scaled -= scaled.max(axis=1, keepdims=True)
        misfit = (np.log(np.exp(scaled).sum(axis=1)) - scaled[rows, codes]).sum()
        return float(misfit + (exponent - np.log(SHARPNESS)) ** 2)

    bounds = tuple(np.log((1 / 30, 20.0)))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
