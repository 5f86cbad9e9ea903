"""Randomized trees: classes of the labeled rows in the same leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.ensemble import ExtraTreesClassifier

from ssdml.classification.forms import FARTHEST, ROUNDING, Form
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array, Floats, Indices, Ints

COLUMNS = 0.5  # share of the columns that compete for a split
FLOOR = 0.02  # added to shares before logarithms


class Columns(NamedTuple):
    """Columns to mean 0 and variance 1, of which trees see differences of any size."""

    mean: Floats  # (d,)
    scale: Floats  # (d,), 0 for constant columns

    def __call__(self, X: Array) -> Array:
        """Standardize the rows (n, d), float32."""
        with np.errstate(over="ignore"):  # clipped
            rows = (X - self.mean) * self.scale
        return np.clip(rows, -FARTHEST, FARTHEST, out=rows).astype(np.float32)


class Nodes(NamedTuple):
    """Trees as arrays over their t nodes.

    A row goes on to the first child if its entry in the column is at most the threshold, otherwise
    to the second. Children follow their parent; both children of a leaf are the leaf itself.
    """

    columns: Indices  # (t,)
    thresholds: Array  # (t,), float32
    children: Indices  # (t, 2)
    roots: Indices  # (s,)

    def find_leaves(self, rows: Array) -> Indices:
        """Leaf in each of the s trees, (q, s), of the rows (q, d), float32."""
        entries, children = rows.ravel(), self.children.ravel()
        starts = np.repeat(np.arange(len(rows)) * rows.shape[1], len(self.roots))
        found = np.tile(self.roots, len(rows))
        moving = np.arange(len(found))
        while len(moving):
            nodes = found.take(moving)
            split = entries.take(starts.take(moving) + self.columns.take(nodes))
            below = children.take(2 * nodes + (split > self.thresholds.take(nodes)))
            found[moving] = below
            moving = moving[below != nodes]
        return found.reshape(len(rows), len(self.roots))

    @property
    def are_leaves(self) -> Array:
        """Which of the nodes are leaves, (t,)."""
        return self.children[:, 0] == np.arange(len(self.children))

    @property
    def depth(self) -> int:
        """Largest number of splits above a leaf."""
        nodes, n_splits = np.unique(self.roots), 0
        while (below := np.unique(self.children[nodes])).tolist() != nodes.tolist():
            nodes, n_splits = below, n_splits + 1
        return n_splits


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees with labeled rows in their leaves, as a classifier of any rows."""

    standardized: Columns
    nodes: Nodes
    leaves: Indices  # (m, s), of the labeled rows
    codes: Ints  # (m,), their classes
    n_classes: int
    weight: float = 1.0  # of the scores

    def find_leaves(self, X: Array) -> Indices:
        """Leaf in each of the s trees, (q, s), of the rows (q, d)."""
        return self.nodes.find_leaves(self.standardized(X))

    def with_labels(self, X: Array, codes: Ints) -> Trees:
        """Put other labeled rows (m, d) with classes (m,) into the leaves."""
        return replace(self, leaves=self.find_leaves(X), codes=codes)

    @cached_property
    def shares(self) -> csr_array:
        """Shares of the classes among the labeled rows at each node, (t, C)."""
        counts = self._visits(self.leaves).T @ csr_array(np.eye(self.n_classes)[self.codes])
        totals = np.maximum(counts.sum(axis=1), 1)
        return csr_array(counts.multiply(1 / totals[:, None]))

    def scores(self, X: Array) -> Array:
        r"""Centered logarithms of the mean shares in the leaves of rows (q, d), weighted, (q, C).

        With the mean share :math:`h_c(x)` of class c over the trees:
        :math:`w (\log(h_c(x) + 0.02) - \frac1C \sum_b \log(h_b(x) + 0.02))`.
        """
        scores = np.empty((len(X), self.n_classes), np.float32)
        for block in row_blocks(len(X), BLOCK_ROWS):
            leaves = self.find_leaves(X[block])
            sums = (self._visits(leaves) @ self.shares).toarray()
            logs = self.weight * np.log(sums / leaves.shape[1] + FLOOR)
            scores[block] = logs - logs.mean(axis=1, keepdims=True)
        return scores

    def _visits(self, leaves: Indices) -> csr_array:
        """Whether a node is a leaf of a row, (q, t)."""
        q, s = leaves.shape
        parts = np.ones(q * s), leaves.ravel(), np.arange(0, q * s + 1, s)
        return csr_array(parts, shape=(q, len(self.nodes.columns)))


@dataclass(frozen=True, eq=False)
class TreeClassifier:
    """Trees on the rows of a form, with the scores of all rows."""

    rows: Array  # (n, d), float32
    given: Columns  # the same of the rows as they were given
    trees: Trees
    scores: Array  # (n, C)

    def logits(self, rows: slice | Indices) -> Array:
        """Scores of some of the n rows, (q, C)."""
        return self.scores[rows]

    def again(self, labeled: Indices, codes: Ints, diffusion: Diffusion) -> TreeClassifier:
        """Put other labels of the same classes into the leaves; the trees stay."""
        trees = self.trees.with_labels(self.rows[labeled], codes)
        return replace(self, trees=trees, scores=trees.scores(self.rows))

    def weighted(self, weight: float) -> Trees:
        """Trees for rows as they are given, with a weight."""
        return replace(self.trees, standardized=self.given, weight=weight)


def standardized_columns(form: Form) -> tuple[Columns, Columns]:
    """Standardize the rows of a form of separate columns, and the rows as they are given."""
    mean, scales = form.linear.mean, np.diag(form.linear.matrix)
    deviations = form.rows.std(axis=0, dtype=np.float64)
    varies = deviations > ROUNDING * np.abs(scales * mean)
    factors = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=varies)
    return Columns(np.zeros_like(mean), factors), Columns(mean, scales * factors)


def grow_trees(rows: Array, codes: Ints, n_trees: int) -> Nodes:
    """Grow extremely randomized trees [1]_ on labeled rows.

    Parameters
    ----------
    rows : array of shape (m, d), float32
        Differences of at most 1e-7 count as none.
    codes : array of shape (m,)
        Classes of the rows.
    n_trees : int

    Returns
    -------
    nodes : Nodes

    References
    ----------
    .. [1] Geurts, Ernst, Wehenkel, "Extremely randomized trees", Machine Learning 63, 2006.

    Examples
    --------
    >>> rows = np.arange(6, dtype=np.float32)[:, None]
    >>> nodes = grow_trees(rows, np.array([0, 0, 0, 1, 1, 1]), 10)
    >>> nodes.find_leaves(rows).shape
    (6, 10)
    """
    model = ExtraTreesClassifier(n_trees, max_features=COLUMNS, n_jobs=1, random_state=0)
    return join_trees([_nodes(tree.tree_) for tree in model.fit(rows, codes)])


def fill_trees(columns: Columns, nodes: Nodes, rows: Array, codes: Ints, n_classes: int) -> Trees:
    """Put labeled rows (m, d) with classes (m,) into the leaves of trees on such columns."""
    return Trees(columns, nodes, nodes.find_leaves(columns(rows)), codes, n_classes)


def join_trees(parts: Sequence[Nodes]) -> Nodes:
    """All trees of the parts, in order."""
    columns, thresholds, children, roots = zip(*parts, strict=True)
    starts = np.cumsum([0, *map(len, columns[:-1])])
    moved = [(c + start, r + start) for c, r, start in zip(children, roots, starts, strict=True)]
    children, roots = zip(*moved, strict=True)
    return Nodes(*map(np.concatenate, (columns, thresholds, children, roots)))


def _nodes(tree: Any) -> Nodes:
    """The nodes of a ``sklearn.tree.Tree``."""
    own, leaf = np.arange(tree.node_count), tree.children_left < 0
    children = np.column_stack([tree.children_left, tree.children_right])
    thresholds = tree.threshold.astype(np.float32)
    above = thresholds > tree.threshold  # a row in between would change sides
    thresholds[above] = np.nextafter(thresholds[above], np.float32(-np.inf))
    return Nodes(
        np.where(leaf, 0, tree.feature),
        np.where(leaf, np.float32(0), thresholds),
        np.where(leaf[:, None], own[:, None], children),
        own[:1],
    )
