"""Randomized trees: classes of the labeled rows in the same leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.ensemble import ExtraTreesClassifier

from ssdml.classification.forms import LinearForm
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array, Floats, Indices, Ints

COLUMNS = 0.5  # share of the columns that compete for a split
FLOOR = 0.02  # added to shares before logarithms


class Trees(NamedTuple):
    """Trees as arrays over their t nodes, with labeled rows in the leaves.

    A row goes on to the first child if its entry in the column is at most the threshold, otherwise
    to the second. Children follow their parent; both children of a leaf are the leaf itself.
    """

    columns: Ints  # (t,)
    thresholds: Array  # (t,), float32
    children: Indices  # (t, 2)
    roots: Indices  # (s,)
    leaves: Indices  # (m, s), of the labeled rows
    codes: Ints  # (m,), their classes
    weight: Floats = np.ones(())  # of the scores

    def find_leaves(self, rows: Array) -> Indices:
        """Leaf in each of the s trees, (q, s), of the rows (q, r), float32."""
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
        return found.reshape(len(rows), -1)

    @property
    def depth(self) -> int:
        """Largest number of splits above a leaf."""
        nodes, n_splits = np.unique(self.roots), 0
        while (below := np.unique(self.children[nodes])).tolist() != nodes.tolist():
            nodes, n_splits = below, n_splits + 1
        return n_splits

    def shares(self, n_classes: int) -> csr_array:
        """Shares of the classes among the labeled rows at each node, (t, C)."""
        counts = self._visits(self.leaves).T @ csr_array(np.eye(n_classes)[self.codes])
        totals = np.maximum(counts.sum(axis=1), 1)
        return csr_array(counts.multiply(1 / totals[:, None]))

    def scores(self, rows: Array, n_classes: int) -> Array:
        """Logarithms of the mean shares in the leaves of the rows (q, r), centered, (q, C)."""
        shares, scores = self.shares(n_classes), np.empty((len(rows), n_classes), np.float32)
        for block in row_blocks(len(rows), BLOCK_ROWS):
            sums = (self._visits(self.find_leaves(rows[block])) @ shares).toarray()
            logs = self.weight * np.log(sums / len(self.roots) + FLOOR)
            scores[block] = logs - logs.mean(axis=1, keepdims=True)
        return scores

    def with_labels(self, rows: Array, codes: Ints) -> Trees:
        """Put other labeled rows (m, r) with classes (m,) into the leaves."""
        return self._replace(leaves=self.find_leaves(rows), codes=codes)

    def moved(self, before: LinearForm, after: LinearForm) -> Trees:
        """The same trees for rows of another form, if both only shift and scale the columns."""
        if before is after:
            return self
        old, new = np.diag(before.matrix), np.diag(after.matrix)
        shift = (before.mean - after.mean) * new
        moved = self.thresholds * (new / old)[self.columns] + shift[self.columns]
        return self._replace(thresholds=moved.astype(np.float32))

    def _visits(self, leaves: Indices) -> csr_array:
        """Whether a node is a leaf of a row, (q, t)."""
        q, s = leaves.shape
        parts = np.ones(q * s), leaves.ravel(), np.arange(0, q * s + 1, s)
        return csr_array(parts, shape=(q, len(self.columns)))


@dataclass(frozen=True, eq=False)
class TreeClassifier:
    """Trees with the scores of all rows of a form."""

    linear: LinearForm
    rows: Array  # (n, r), float32
    trees: Trees
    scores: Array  # (n, C)

    def logits(self, rows: slice | Indices) -> Array:
        """Scores of some of the n rows, (q, C)."""
        return self.scores[rows]

    def again(self, labeled: Indices, codes: Ints, diffusion: Diffusion) -> TreeClassifier:
        """Put other labels of the same classes into the leaves; the trees stay."""
        trees = self.trees.with_labels(self.rows[labeled], codes)
        return replace(self, trees=trees, scores=trees.scores(self.rows, self.scores.shape[1]))


def grow_trees(rows: Array, codes: Ints, n_trees: int) -> Trees:
    """Grow extremely randomized trees [1]_ on labeled rows.

    Parameters
    ----------
    rows : array of shape (m, r), float32
    codes : array of shape (m,)
        Classes of the rows.
    n_trees : int

    Returns
    -------
    trees : Trees

    References
    ----------
    .. [1] Geurts, Ernst, Wehenkel, "Extremely randomized trees", Machine Learning 63, 2006.

    Examples
    --------
    >>> rows = np.arange(6, dtype=np.float32)[:, None]
    >>> trees = grow_trees(rows, np.array([0, 0, 0, 1, 1, 1]), 10)
    >>> trees.scores(rows, 2).argmax(axis=1)
    array([0, 0, 0, 1, 1, 1])
    """
    model = ExtraTreesClassifier(n_trees, max_features=COLUMNS, random_state=0).fit(rows, codes)
    return join_trees([_one_tree(tree.tree_) for tree in model]).with_labels(rows, codes)


def join_trees(parts: Sequence[Trees]) -> Trees:
    """All trees of the parts, in order, without labeled rows."""
    starts = np.cumsum([0, *(len(part.columns) for part in parts[:-1])])
    moved = [
        (part.children + start, part.roots + start)
        for part, start in zip(parts, starts, strict=True)
    ]
    children, roots = (np.concatenate(arrays) for arrays in zip(*moved, strict=True))
    columns, thresholds = (
        np.concatenate(arrays) for arrays in zip(*(part[:2] for part in parts), strict=True)
    )
    return Trees(columns, thresholds, children, roots, *_no_labels(len(roots)))


def _one_tree(tree: Any) -> Trees:
    """A ``sklearn.tree.Tree``, without labeled rows."""
    own, leaf = np.arange(tree.node_count), tree.children_left < 0
    children = np.column_stack([tree.children_left, tree.children_right])
    thresholds = tree.threshold.astype(np.float32)
    above = thresholds > tree.threshold  # a row in between would change sides
    thresholds[above] = np.nextafter(thresholds[above], np.float32(-np.inf))
    return Trees(
        np.where(leaf, 0, tree.feature),
        np.where(leaf, np.float32(0), thresholds),
        np.where(leaf[:, None], own[:, None], children),
        own[:1],
        *_no_labels(1),
    )


def _no_labels(n_trees: int) -> tuple[Indices, Ints]:
    return np.empty((0, n_trees), np.intp), np.empty(0, np.intp)
