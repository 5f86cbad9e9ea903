r"""Probability that a row belongs to no class with a label.

Labels reach rows of their classes over the graph, and hardly those of other classes: the score of a
row is the largest column of :math:`(I - \gamma S)^{-1} Y`. What it is worth is learned from the
labels. Each labeled row is scored twice, without its own label (a row of a known class) and without
all labels of its class (a row of a class without labels); a logistic regression tells the two
apart. The share of such rows among the unlabeled ones is estimated by expectation maximization.

A new row is also novel if it is farther from its neighbors than training rows are from theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from ssdml.classification.forms import Form
from ssdml.classification.new_rows import nearness
from ssdml.classification.softmax import TOL, SoftmaxRegression
from ssdml.graphs.laplacian import adjacency, neighbor_weights
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.parallel import row_blocks
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED

REACH = 0.95
FAINT = 1e-7  # added to scores before logarithms
MAX_HELD_OUT, MAX_ENTRIES = 1000, 2**26  # labeled rows held out, and times all rows
COLUMNS = 64  # solved for at once
RIDGE = 1e-2
LEAST, LEAST_NEW = -50.0, -20.0  # log-odds
SHRINKAGE = 5.0  # labeled rows as which the mean of all classes counts
STEPS = 100
FEWEST_NOVEL = 3  # rows of a group
FEW_MIDDLE, FEW_SLOPE = -3.0, 1.0  # of log scores where no label can be held out


class Novelty(NamedTuple):
    """Log-odds of the training rows, and their distances to their k-th neighbors."""

    log_odds: Array  # (n,), float32: no known class against a known one
    farthest: Array  # (n,), float32

    def probabilities(self, log_odds: Array, farthest: Array) -> Array:
        """Probability of no known class, from log-odds and distances to the k-th neighbor, (q,)."""
        known = (1 - expit(log_odds)) * nearness(farthest, self.farthest)
        return np.asarray(1 - known, dtype=np.float32)

    def of_training_rows(self) -> Array:
        """Probabilities of the training rows, (n,); 0 for labeled ones."""
        probabilities = self.probabilities(self.log_odds, self.farthest)
        probabilities[self.log_odds <= LEAST] = 0
        return probabilities

    def of_new_rows(self, nearest: Indices, lengths: Array) -> Array:
        """Probabilities of rows with these nearest training rows and distances, (q, k)."""
        weights = neighbor_weights(lengths)
        log_odds = (weights * np.maximum(self.log_odds, LEAST_NEW)[nearest]).sum(axis=1)
        return self.probabilities(log_odds / weights.sum(axis=1), lengths[:, -1])


def learn_novelty(form: Form, labels: Ints, diffusion: Diffusion) -> Novelty:
    """Learn how novel each training row is.

    Parameters
    ----------
    form : Form
    labels : array of shape (n,), int
        Codes from 0 on; -1 where unlabeled.
    diffusion : Diffusion
        Of the form's graph.
    """
    labeled = np.flatnonzero(labels != UNLABELED)
    codes, n_classes = labels[labeled], int(labels.max()) + 1
    sources = np.zeros((len(labels), n_classes), np.float32)
    sources[labeled, codes] = 1
    spread = diffusion.spread(sources, REACH)
    held = _held_out(labels, diffusion)
    usual = _usual(held, codes, n_classes)
    np.log(np.maximum(spread, 0) + np.float32(FAINT), out=spread)
    spread -= usual
    scores = spread.max(axis=1).astype(np.float64)
    own = np.log(held.own + FAINT) - usual[codes[held.chosen]]
    others = spread[labeled[held.chosen]]
    others[np.arange(len(own)), codes[held.chosen]] = -np.inf
    novel = others.max(axis=1, initial=-50)
    middle, slope = _boundary(np.maximum(own, novel), novel)
    log_odds = slope * (middle - scores)
    free = labels == UNLABELED
    if free.any():
        log_odds += prior_log_odds(log_odds[free])
    log_odds[labeled] = -np.inf
    farthest = form.graph.distances[:, -1].astype(np.float32)
    return Novelty(np.maximum(log_odds, LEAST).astype(np.float32), farthest)


class _HeldOut(NamedTuple):
    chosen: Indices  # places among the labeled rows
    own: Floats  # score by the other labels of the class


def _held_out(labels: Ints, diffusion: Diffusion) -> _HeldOut:
    """Scores of labeled rows by the other labels of their classes."""
    labeled = np.flatnonzero(labels != UNLABELED)
    codes = labels[labeled]
    several = np.flatnonzero(np.bincount(codes)[codes] > 1)
    most = max(1, min(MAX_HELD_OUT, MAX_ENTRIES // len(labels)))
    chosen = several[:: max(1, -(-len(several) // most))]
    own = np.empty(len(chosen))
    for block in row_blocks(len(chosen), COLUMNS):
        held = labeled[chosen[block]]
        sources = (labels[:, None] == labels[held]).astype(np.float32)
        sources[held, np.arange(len(held))] = 0
        own[block] = diffusion.spread(sources, REACH)[held, np.arange(len(held))]
    return _HeldOut(chosen, np.maximum(own, 0))


def _usual(held: _HeldOut, codes: Ints, n_classes: int) -> Array:
    """Mean log score of the held-out rows of each class, shrunk to that of all; 0 without any.

    A class of many rows and few labels has low scores.
    """
    own = codes[held.chosen]
    counts = np.bincount(own, minlength=n_classes)
    logs = np.log(held.own + FAINT)
    sums = np.bincount(own, logs, minlength=n_classes)
    overall = logs.mean() if len(logs) else 0.0
    return ((sums + SHRINKAGE * overall) / (counts + SHRINKAGE)).astype(np.float32)


def _boundary(known: Floats, novel: Floats) -> tuple[float, float]:
    """Log score at which both are as likely, and the slope of the log-odds."""
    if not len(known):
        return FEW_MIDDLE, FEW_SLOPE
    scores = np.concatenate([known, novel])
    center, scale = scores.mean(), max(float(scores.std()), 1e-6)
    targets = np.repeat(np.eye(2), [len(known), len(novel)], axis=0)
    regression = SoftmaxRegression(((scores - center) / scale)[:, None], 2, RIDGE * len(scores))
    W, b = regression.weights(regression.fit(targets, tol=TOL))
    slope = max(float(W[0, 0] - W[0, 1]) / scale, 1e-3)
    return float(center - (b[0] - b[1]) / slope), slope


def prior_log_odds(log_odds: Array) -> float:
    """Log-odds of the share of novel rows, by expectation maximization; at most even.

    Its prior is that of one known and one novel row.

    Examples
    --------
    >>> round(float(expit(prior_log_odds(np.repeat([6.0, -6.0], [25, 75])))), 2)
    0.25
    """
    share = 0.5
    for _ in range(STEPS):
        posterior = expit(log_odds + np.log(share / (1 - share)))
        share = min((float(posterior.sum()) + 1) / (len(log_odds) + 2), 0.5)
    return float(np.log(share / (1 - share)))


def novel_groups(graph: KNNGraph, rows: Indices) -> list[Indices]:
    """Communities of the rows on the graph among them, the largest first.

    Communities of greatest modularity, by Louvain's method; those of one or two rows are left
    out. The first row of each has the most weight to the others.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> graph = knn_graph([[0.0], [1.0], [2.1], [50.0], [51.0], [52.5], [53.0]], 2)
    >>> [sorted(group.tolist()) for group in novel_groups(graph, np.arange(7))]
    [[3, 4, 5, 6], [0, 1, 2]]
    """
    import networkx as nx

    among = adjacency(graph)[rows][:, rows]
    found = nx.community.louvain_communities(nx.from_scipy_sparse_array(among), seed=0)
    groups = []
    for community in sorted(map(sorted, found), key=lambda members: (-len(members), members)):
        members = np.array(community)
        if len(members) >= FEWEST_NOVEL:
            central = np.asarray(among[members][:, members].sum(axis=1)).ravel().argmax()
            groups.append(rows[np.concatenate([members[[central]], np.delete(members, central)])])
    return groups
