r"""Classes of all rows from a few labels, by classifiers and a graph together.

1. A pool of classifiers, stacked on held-out labels, gives calibrated evidence Q.
2. The class prior is that of the labels, or estimated from Q where labels were drawn by other
   shares.
3. :math:`(I - \gamma S) F = Y + \mu Q` joins labels Y and evidence on the graph. The reach γ grows
   with the weight of the members of the pool that say what the graph says.
4. Columns are balanced to the prior, and confidences sharpened to the mean of those of Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ssdml.classification.forms import Form
from ssdml.classification.pool import Member, pool_members, pool_weights, stratified_folds
from ssdml.classification.softmax import softmax
from ssdml.graphs.propagation.class_prior import (
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
MAX_PRODUCTS = 2**26  # of rows, columns and classes in a step of a regression
DOUBT = 3.0  # held-out labels that count as much as the constants for few labels
SHARPNESS = 2.0  # of the pool where no label can be held out
TRUST_POWER = 1.5
MAX_REACH, FEW_REACH = 0.8, 0.99
FAINT = 1e-9  # added to probabilities before logarithms
CONFIDENCE_ROWS = 5000


class HeldOut(NamedTuple):
    """Labeled rows with the class probabilities that the other labels give them."""

    rows: Indices  # (h,)
    codes: Ints  # (h,) their classes, as columns of the distributions
    distributions: Floats  # (h, C)


@dataclass(eq=False)
class Evidence:
    """What the pool says of each row, and how far it trusts the graph."""

    labels: Array  # Y, (m, C), one-hot
    labeled: Indices  # (m,)
    pooled: Array  # Q, (n, C), with the class prior
    prior: Floats  # (C,)
    skew: float  # whether the labels were drawn by other shares than the classes'
    trust: float  # from 0 to 1, in the graph
    reach: float  # γ
    held_out: HeldOut  # by the pool, from the other folds
    form: int  # whose graph the pool trusts most

    def on(
        self, diffusion: Diffusion, *, beside: Array | None = None, farther: float = 0.0
    ) -> Array:
        """Spread labels and evidence over a graph; return distributions (n, C).

        Parameters
        ----------
        diffusion : Diffusion
        beside : array of shape (n, C) or None
            Distributions of an earlier round, averaged with the evidence in logarithms.
        farther : float
            Share of the way from the reach to 1 that labels reach farther.
        """
        reach = self.reach + farther * (1 - self.reach)
        sources = self.pooled
        if beside is not None:
            sources = np.sqrt(sources * beside)
            sources /= sources.sum(axis=1, keepdims=True)
        sources = np.float32(min(1.0, 3 * (1 - reach))) * sources
        sources[self.labeled] = self.labels
        scores = np.maximum(diffusion.spread(sources, reach), 0)
        shares = reweighted(scores, np.ones(scores.shape[1]))
        amount = (1 - self.skew) * self.trust
        shares = reweighted(shares, balance_factors(shares, self.prior) ** amount)
        power = confidence_power(shares[self._unlabeled()], self.confidence)
        for rows in row_blocks(len(shares), BLOCK_ROWS):
            shares[rows] = softmax(np.log(shares[rows] + FAINT) * np.float32(power))
        shares[self.labeled] = self.labels
        return shares

    @property
    def confidence(self) -> float:
        """Mean confidence of the pool in unlabeled rows."""
        return float(self.pooled[self._unlabeled()].max(axis=1).mean())

    def _unlabeled(self) -> Indices:
        """At most 50,000 rows whose class is not known; labeled ones if all are."""
        free = np.ones(len(self.pooled), bool)
        free[self.labeled] = len(self.labeled) == len(self.pooled)
        return sample_rows(np.flatnonzero(free))


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
    rng, labeled = np.random.default_rng(0), np.flatnonzero(codes != UNLABELED)
    products = n_classes * max(form.rows.shape[1] for form in forms)
    judged = _some(labeled, codes, min(MAX_LABELED, MAX_PRODUCTS // products), rng)
    known, counts = codes[judged], np.bincount(codes[labeled])
    folds = stratified_folds(known, rng)
    folds[folds >= max(1, MAX_PRODUCTS // (products * len(judged)))] = -1  # trained on, not judged
    shares, drawn = shrunken_shares(counts), counts / counts.sum()
    members = [
        member
        for form, diffusion in zip(forms, diffusions, strict=True)
        for member in pool_members(form, judged, known, n_classes, folds, diffusion)
    ]
    targets = np.eye(n_classes, dtype=np.float32)[codes[labeled]]
    everywhere = np.ones(len(codes), bool)
    everywhere[labeled] = len(labeled) == len(codes)
    free = sample_rows(np.flatnonzero(everywhere))
    spreads = np.array([_spread(member.logits(free)) for member in members])
    few = np.array([member.few_weight for member in members])
    few /= few.sum()
    held = folds >= 0
    doubt = DOUBT / (DOUBT + held.sum())
    if held.any():
        logits = np.stack([m.held_out[held] / s for m, s in zip(members, spreads, strict=True)])
        center = doubt * few + (1 - doubt) / len(few)
        weights = pool_weights(logits, known[held], center)
        held_out = softmax(np.tensordot(weights, logits, 1))
    else:
        weights, held_out = SHARPNESS * few, np.empty((0, n_classes))
    pooled = _pooled(members, weights / spreads, shares / drawn, len(codes))
    prior = estimate_prior(pooled[free], shares, len(labeled) / n_classes)
    alone = prior.skew > 0 and not held.any()
    if alone:  # neither the graph nor the estimate can be checked: the labeled rows alone
        weights = np.zeros_like(weights)
        weights[0] = SHARPNESS
        pooled = _pooled(members, weights / spreads, shares / drawn, len(codes))
        prior = prior._replace(shares=shares)
    pooled = reweighted(pooled, prior.shares / shares)
    on_graph = np.array([member.on_graph for member in members])
    trust = (float(weights[on_graph].sum()) / max(float(weights.sum()), 1e-12)) ** TRUST_POWER
    reach = 0.0 if alone else doubt * FEW_REACH + (1 - doubt) * min(trust, MAX_REACH)
    return Evidence(
        targets,
        labeled,
        pooled,
        prior.shares,
        prior.skew,
        doubt + (1 - doubt) * trust,
        reach,
        HeldOut(judged[held], known[held], held_out),
        int(weights.reshape(len(forms), -1).sum(axis=1).argmax()),
    )


def _some(labeled: Indices, codes: Ints, most: int, rng: np.random.Generator) -> Indices:
    """At most ``most`` labeled rows, at least one of each class."""
    if len(labeled) <= most:
        return labeled
    shuffled = rng.permutation(labeled)
    firsts = np.unique(codes[shuffled], return_index=True)[1]
    others = np.delete(shuffled, firsts)[: max(0, most - len(firsts))]
    return np.sort(np.concatenate([shuffled[firsts], others]))


def _spread(logits: Array) -> float:
    return max(float((logits - logits.mean(axis=1, keepdims=True)).std()), 1e-3)


def _pooled(members: list[Member], weights: Floats, factors: Floats, n: int) -> Array:
    """Distributions (n, C) of the weighted logits, with the class prior changed by ``factors``."""
    pooled = np.zeros((n, len(factors)), np.float32)
    used = [(m, np.float32(w)) for m, w in zip(members, weights, strict=True) if w > 0]
    for rows in row_blocks(n, BLOCK_ROWS):
        for member, weight in used:  # none, if held-out labels contradict them all
            pooled[rows] += weight * member.logits(rows)
        pooled[rows] = softmax(pooled[rows])
    return reweighted(pooled, factors)


def confidence_power(distributions: Array, confidence: float) -> float:
    """Power of distributions (n, C) under which their largest entries have the given mean.

    Examples
    --------
    >>> round(confidence_power(np.array([[0.6, 0.4]]), 0.692), 2)
    2.0
    """
    logs = np.log(distributions[:: max(1, len(distributions) // CONFIDENCE_ROWS)] + FAINT)
    low, high = np.log(0.05), np.log(50.0)
    for _ in range(20):
        middle = (low + high) / 2
        if softmax(logs * np.exp(middle)).max(axis=1).mean() < confidence:
            low = middle
        else:
            high = middle
    return float(np.exp((low + high) / 2))
