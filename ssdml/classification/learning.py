r"""Classes of all rows from a few labels, by classifiers and a graph together.

1. A pool of classifiers, stacked on held-out labels, gives calibrated evidence Q.
2. The class prior is that of the labels, or estimated from Q where labels were drawn by other
   shares.
3. :math:`(I - \gamma S) F = Y + \mu Q` joins labels Y and evidence on the graph. The reach γ grows
   with the weight of the members of the pool that say what the graph says.
4. Columns are balanced to the prior, and confidences sharpened to the mean of those of Q.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from sklearn.metrics import d2_log_loss_score

from ssdml.classification.confidence import FAINT, confidence_power
from ssdml.classification.forms import Form
from ssdml.classification.new_rows import DirectScores
from ssdml.classification.pool import (
    SHARPNESS,
    Classifier,
    Linear,
    Member,
    pool_members,
    pool_weights,
    stratified_folds,
)
from ssdml.classification.softmax import softmax
from ssdml.classification.trees import TreeClassifier, Trees
from ssdml.graphs.neighbors.copies import first_at_no_distance
from ssdml.graphs.propagation.class_prior import (
    ClassPrior,
    balance_factors,
    estimate_prior,
    reweighted,
    sample_rows,
    shrunken_shares,
)
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.labels import class_codes
from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED

MAX_LABELED = 5000  # rows that the classifiers learn from
MAX_PRODUCTS = 2**28  # of rows, columns and classes in a step of a regression
MAX_FOLD_PRODUCTS = 2**26  # the same, beyond which fewer than five folds are held out
TINY = np.finfo(np.float32).tiny
DOUBT = 3.0  # held-out labels that count as much as the constants for few labels
TRUST_POWER = 1.5
MAX_REACH, FEW_REACH = 0.8, 0.97
FARTHER = 0.3  # share of the rest of the way that labels reach farther on a second graph
FEW_HELD_OUT = 10  # held-out labels that halve what they confirm
BIAS_RIDGE = 5.0  # of the logarithms of factors that correct class probabilities
MOST_SKEW = 0.5  # that one label per class can show
OFTEN = 2.0  # ratio from which labels repeat more often than rows
FEW_TO_CORRECT = 20  # labels per class at which the overlap of class shares is squared


class HeldOut(NamedTuple):
    """Labeled rows with the class probabilities that the other labels give them."""

    rows: Indices  # (h,)
    codes: Ints  # (h,) their classes, as columns of the distributions
    distributions: Floats  # (h, C)

    @property
    def explained(self) -> float:
        """Share of the entropy of the classes that the probabilities explain, shrunk toward 0.

        This is McFadden's R², at least 0, times h / (h + 10); 1 unless two classes are held out.

        Examples
        --------
        >>> rows = np.arange(10)
        >>> round(HeldOut(rows, rows % 2, np.eye(2)[rows % 2]).explained, 6)
        0.5
        >>> HeldOut(rows, rows % 2, np.full((10, 2), 0.5)).explained
        0.0
        """
        if len(np.unique(self.codes)) < 2:
            return 1.0
        classes = np.arange(self.distributions.shape[1])
        explained = d2_log_loss_score(self.codes, self.distributions, labels=classes)
        h = len(self.codes)
        return max(float(explained), 0.0) * h / (h + FEW_HELD_OUT)

    @property
    def factors(self) -> Floats:
        """Factors of the classes, (C,), by which they are more frequent than the probabilities say.

        One Newton step from 1 to those of greatest likelihood; logarithms have a Gaussian prior of
        variance 1/5.

        Examples
        --------
        >>> rows = np.arange(10)
        >>> HeldOut(rows, np.repeat([0, 1], [7, 3]), np.full((10, 2), 0.5)).factors.round(2)
        array([1.31, 0.77])
        """
        p = self.distributions
        expected, variance = p.sum(axis=0), (p * (1 - p)).sum(axis=0)
        found = np.bincount(self.codes, minlength=len(expected))
        return np.exp((found - expected) / (variance + BIAS_RIDGE))


class Voter(NamedTuple):
    """A classifier of the pool, with the weight of its logits."""

    classifier: Classifier
    form: int  # on which it learned
    weight: float
    share: float  # of the weights of all, of logits of equal spread


class DirectMembers(NamedTuple):
    """Classifiers of a pool that take rows as they are given, and n such rows."""

    regressions: tuple[tuple[np.float32, Linear], ...]  # with their weights
    offset: Floats  # (C,), for the class prior
    trees: Trees | None
    of_trees: Array | None  # (n, C), their scores
    share: float  # of what neighbors add to them

    def of(self, X: Array) -> DirectMembers:
        """The same classifiers, of other rows X (n, d)."""
        moved = tuple((weight, part.of(X)) for weight, part in self.regressions)
        of_trees = None if self.trees is None else self.trees.scores(X)
        return self._replace(regressions=moved, of_trees=of_trees)

    def scores(self, n: int) -> DirectScores:
        """Scores of their n rows."""
        of_regressions = np.tile(self.offset.astype(np.float32), (n, 1))
        for weight, part in self.regressions:
            for block in row_blocks(n, BLOCK_ROWS):
                of_regressions[block] += weight * part.logits(block)
        return DirectScores(of_regressions, self.trees, self.of_trees, self.share)


@dataclass(eq=False)
class Evidence:
    """Class probabilities of the rows by the pool, and its trust in the graph."""

    labels: Array  # Y, (m, C), one-hot
    labeled: Indices  # (m,)
    copies: Indices  # labeled rows that do not count, see `without_copies`
    pooled: Array  # Q, (n, C), with the class prior
    prior: Floats  # (C,)
    drawn: Floats  # (C,), shares of the classes in the labels that the pool learned from
    skew: float  # whether the labels were drawn by other shares than the classes'
    trust: float  # from 0 to 1, in the graph
    reach: float  # γ
    held_out: HeldOut  # by the pool, from the other folds
    form: int  # whose graph the pool trusts most
    voters: tuple[Voter, ...] = ()  # what the pool consists of

    def on(self, diffusion: Diffusion, *, beside: Array | None = None) -> Array:
        """Spread labels and evidence over a graph; return distributions (n, C).

        Parameters
        ----------
        diffusion : Diffusion
        beside : array of shape (n, C) or None
            Distributions of an earlier round, averaged with the evidence in logarithms. Labels then
            reach farther: γ grows by 30% of 1 - γ, unless it is 0.
        """
        reach, sources = self.reach, self.pooled
        if beside is not None:
            sources = _geometric_mean(self.pooled, beside)
            reach += FARTHER * (1 - reach) if reach > 0 else 0.0
        sources = np.float32(min(1.0, 3 * (1 - reach))) * sources
        sources[self.labeled] = self.labels
        shares = diffusion.spread(sources, reach, overwrite=True)
        del sources
        np.maximum(shares, 0, out=shares)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), TINY)
        free, counted = (other_rows(rows, len(shares)) for rows in (self.labeled, self.copies))
        factors = balance_factors(shares[counted], self.prior) ** ((1 - self.skew) * self.trust)
        power = confidence_power(reweighted(shares[free], factors), self.confidence)
        for rows in row_blocks(len(shares), BLOCK_ROWS):
            balanced = reweighted(shares[rows], factors)
            shares[rows] = softmax(np.log(balanced + FAINT) * np.float32(power))
        shares[self.labeled] = self.labels
        return shares

    @property
    def direct(self) -> DirectMembers:
        """Members of the pool that take rows as they are given, without the graph, and the rows.

        The less the labels reach on the graph, the more regressions count, and the less neighbors
        add. Regressions are corrected to the class prior by their share of the pool. They also
        count by the overlap of the prior with the shares of the labels, to the power 1 + 20 C/m
        for m labels: of classes that labels hardly represent, they know little.
        """
        raw = [
            (voter, voter.classifier)
            for voter in self.voters
            if isinstance(voter.classifier, Linear) and voter.classifier.linear is not None
        ]
        overlap = np.minimum(self.prior, self.drawn).sum()
        n_labels = len(self.labeled) / len(self.prior)
        weight = (1 - self.reach) * overlap ** (1 + FEW_TO_CORRECT / n_labels) if raw else 0.0
        regressions = tuple((np.float32(weight * voter.weight), linear) for voter, linear in raw)
        share = weight * sum(voter.share for voter, _ in raw)
        offset = share * np.log((self.prior + FAINT) / self.drawn)
        trees = of_trees = None
        for voter in self.voters:
            if isinstance(voter.classifier, TreeClassifier):
                trees = voter.classifier.weighted(voter.weight)
                of_trees = np.float32(voter.weight) * voter.classifier.scores
        return DirectMembers(regressions, offset, trees, of_trees, float(1 - weight / 2))

    @property
    def confidence(self) -> float:
        """Mean confidence of the pool in unlabeled rows."""
        return float(self.pooled[other_rows(self.labeled, len(self.pooled))].max(axis=1).mean())


def _geometric_mean(first: Array, second: Array) -> Array:
    """Geometric mean of distributions (n, C), scaled to sum to 1 in each row."""
    mean: Array = np.sqrt((first + np.float32(FAINT)) * (second + np.float32(FAINT)))
    mean /= mean.sum(axis=1, keepdims=True)
    return mean


def learn_evidence(forms: list[Form], labels: Ints, diffusions: list[Diffusion]) -> Evidence:
    """Train the pool on the labeled rows and weigh its members on held-out labels.

    Parameters
    ----------
    forms : list of Form
    labels : array of shape (n,), int
        At least two classes; -1 where unlabeled.
    diffusions : list of Diffusion
        Of the forms' graphs.
    """
    codes, n_classes = class_codes(labels)
    n, labeled = len(codes), np.flatnonzero(codes != UNLABELED)
    apart = without_copies(labeled, codes, first_at_no_distance(forms[0].graph))
    judged, folds = _judged(apart, codes, _products(forms, n_classes))
    places: list[int] = []
    members: list[Member] = []
    for place, (form, diffusion) in enumerate(zip(forms, diffusions, strict=True)):
        has_trees = place == 0  # they standardize the columns of every form
        members += pool_members(
            form, judged, codes[judged], n_classes, folds, diffusion, trees=has_trees
        )
        places += [place] * (len(members) - len(places))
    free = other_rows(labeled, n)
    scales = 1 / np.array([_spread(member.classifier.logits(free)) for member in members])
    held = folds >= 0
    weights, distributions, doubt = _weights(members, scales, codes[judged], held)

    def voting(weights: Floats) -> tuple[Voter, ...]:
        return tuple(
            Voter(member.classifier, place, float(weight * scale), float(weight / weights.sum()))
            for member, place, weight, scale in zip(members, places, weights, scales, strict=True)
            if weight > 0  # none, if held-out labels contradict them all
        )

    shares, n_labels = shrunken_shares(np.bincount(codes[apart])), len(judged) / n_classes
    drawn = np.bincount(codes[judged]) / len(judged)  # what the classifiers saw
    pooled = _pooled(voting(weights), shares / drawn, n)
    held_out = HeldOut(judged[held], codes[judged[held]], distributions)
    prior = estimate_prior(pooled[free], shares, n_labels, held_out.factors)
    if not held.any():  # no label can confirm the estimate
        prior = ClassPrior(shares, min(2 * prior.skew, MOST_SKEW))
    trust = _trust(members, weights)
    return Evidence(
        labels=np.eye(n_classes, dtype=np.float32)[codes[labeled]],
        labeled=labeled,
        copies=np.setdiff1d(labeled, apart),
        pooled=reweighted(pooled, prior.shares / shares),
        prior=prior.shares,
        drawn=drawn,
        skew=prior.skew,
        trust=doubt + (1 - doubt) * trust,
        reach=doubt * FEW_REACH + (1 - doubt) * min(trust, MAX_REACH),
        held_out=held_out,
        form=int(np.bincount(places, weights * [m.of_form for m in members]).argmax()),
        voters=voting(weights),
    )


def update_evidence(
    evidence: Evidence,
    forms: list[Form],
    labels: Ints,
    diffusions: list[Diffusion],
    before: Array,
) -> Evidence:
    """Learn from other labels of the same classes with the weights of an earlier pool.

    Classifiers learn again with warm starts; their weights, the class prior and the trust in the
    graph are kept. Rows with a new label, but for copies, count as held out: the distributions
    ``before``, (n, C), did not know it.

    Parameters
    ----------
    evidence : Evidence
    forms : list of Form
    labels : array of shape (n,), int
        -1 where unlabeled.
    diffusions : list of Diffusion
        Of the forms' graphs.
    before : array of shape (n, C)
        Distributions that were learned from the earlier labels.
    """
    codes, n_classes = class_codes(labels)
    labeled = np.flatnonzero(codes != UNLABELED)
    new = np.setdiff1d(labeled, evidence.labeled)
    known_first = np.concatenate([np.setdiff1d(labeled, new), new])
    apart = np.sort(without_copies(known_first, codes, first_at_no_distance(forms[0].graph)))
    judged, _ = _judged(apart, codes, _products(forms, n_classes))
    voters = tuple(
        voter._replace(
            classifier=voter.classifier.again(judged, codes[judged], diffusions[voter.form])
        )
        for voter in evidence.voters
    )
    drawn = np.bincount(codes[judged]) / len(judged)
    held = evidence.held_out
    still = codes[held.rows] != UNLABELED
    new = np.intersect1d(new, apart)
    rows = np.concatenate([held.rows[still], new])
    distributions = np.concatenate([held.distributions[still], before[new]])
    return replace(
        evidence,
        labels=np.eye(n_classes, dtype=np.float32)[codes[labeled]],
        labeled=labeled,
        copies=np.setdiff1d(labeled, apart),
        pooled=_pooled(voters, evidence.prior / drawn, len(codes)),
        drawn=drawn,
        held_out=HeldOut(rows, codes[rows], distributions),
        voters=voters,
    )


def other_rows(rows: Indices, n: int) -> Indices:
    """At most 50,000 of n rows other than the given ones; of all rows if there are no others."""
    others = np.ones(n, bool)
    others[rows] = len(rows) == n
    return sample_rows(np.flatnonzero(others))


def _products(forms: list[Form], n_classes: int) -> int:
    """Products in a step of a regression on one row."""
    return n_classes * max(form.rows.shape[1] for form in forms)


def _judged(labeled: Indices, codes: Ints, n_products: int) -> tuple[Indices, Ints]:
    """Labeled rows that the classifiers learn from, and their folds; -1 if not held out.

    ``n_products`` are those of a step of a regression on one row.
    """
    rng = np.random.default_rng(0)
    judged = _some(labeled, codes, min(MAX_LABELED, MAX_PRODUCTS // n_products), rng)
    folds = stratified_folds(codes[judged], rng)
    folds[folds >= max(1, MAX_FOLD_PRODUCTS // (n_products * len(judged)))] = -1
    return judged, folds


def without_copies(labeled: Indices, codes: Ints, first: Ints) -> Indices:
    """Labeled rows without copies, if labels are of copies more often than the other rows are.

    Then labels were repeated, as by oversampling of rare classes, and predict each other better
    than other rows. In a table of a few categories, all rows repeat: labels stay. So do those of
    equal rows whose classes differ.

    Parameters
    ----------
    labeled : array of shape (m,), int
    codes : array of shape (n,), int
        Classes of the labeled rows; -1 where unlabeled.
    first : array of shape (n,), int
        Number of the first row that equals each row.

    Examples
    --------
    >>> codes, first = np.array([0, 0, 1, 1, 0, 0, -1]), np.array([0, 0, 2, 3, 3, 3, 6])
    >>> without_copies(np.arange(6), codes, first).tolist()
    [0, 2, 3, 4, 5]
    >>> without_copies(np.arange(6), codes, np.array([0, 0, 2, 3, 3, 3, 0])).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    pairs = np.stack([first[labeled], codes[labeled]])
    counts = np.bincount(pairs[0], minlength=len(codes))  # of labels
    free = counts[first[codes == UNLABELED]]
    if not len(free) or (counts[pairs[0]] > 1).mean() <= OFTEN * (free > 0).mean():
        return labeled
    (numbers, _), places = np.unique(pairs, axis=1, return_index=True)
    kept = np.isin(pairs[0], numbers[1:][numbers[1:] == numbers[:-1]])
    kept[places] = True
    return labeled[kept]


def _some(labeled: Indices, codes: Ints, most: int, rng: np.random.Generator) -> Indices:
    """At most ``most`` labeled rows, evenly from the classes, at least one of each."""
    if len(labeled) <= most:
        return labeled
    shuffled = rng.permutation(labeled)
    order = np.argsort(codes[shuffled], kind="stable")
    starts = np.unique(codes[shuffled][order], return_index=True)[1]
    ranks = np.empty(len(order), np.int64)  # among the shuffled rows of the class
    ranks[order] = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    kept = np.argsort(ranks, kind="stable")[: max(most, len(starts))]
    return np.sort(shuffled[kept])


def _weights(
    members: list[Member], scales: Floats, codes: Ints, held: Array
) -> tuple[Floats, Floats, float]:
    """Weights of the scaled logits, distributions (h, C) of the rows held out, and the doubt.

    The doubt is the share of the constants for few labels in what the weights are drawn to.
    """
    few = np.array([member.few_weight for member in members])
    few /= few.sum()
    logits = np.stack([scale * m.held_out[held] for m, scale in zip(members, scales, strict=True)])
    doubt, weights = DOUBT / (DOUBT + held.sum()), SHARPNESS * few
    if held.any():
        weights = pool_weights(logits, codes[held], doubt * few + (1 - doubt) / len(few))
    return weights, softmax(np.tensordot(weights, logits, 1)), doubt


def _trust(members: list[Member], weights: Floats) -> float:
    """Share of the weights of members that say what the graph says, to the power 1.5."""
    on_graph = np.array([member.on_graph for member in members])
    share = float(weights[on_graph].sum()) / max(float(weights.sum()), 1e-12)
    return float(share**TRUST_POWER)


def _spread(logits: Array) -> float:
    return max(float((logits - logits.mean(axis=1, keepdims=True)).std()), 1e-3)


def _pooled(voters: tuple[Voter, ...], factors: Floats, n: int) -> Array:
    """Distributions (n, C) of the weighted logits, with the class prior changed by ``factors``."""
    pooled = np.zeros((n, len(factors)), np.float32)
    for rows in row_blocks(n, BLOCK_ROWS):
        for voter in voters:
            pooled[rows] += np.float32(voter.weight) * voter.classifier.logits(rows)
        pooled[rows] = softmax(pooled[rows])
    return reweighted(pooled, factors)
