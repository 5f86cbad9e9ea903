"""Embeddings and class probabilities of new rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ssdml.classification.new_rows import ClassInterpolator
from ssdml.graphs.laplacian import neighbor_weights
from ssdml.graphs.neighbors.knn import nearest_rows
from ssdml.graphs.neighbors.rows import Rows
from ssdml.metric.features import ClassRepresentation
from ssdml.utils.labels import in_precision
from ssdml.utils.parallel import row_blocks
from ssdml.utils.typing import Array
from ssdml.utils.validation import check_finite

BLOCK_ENTRIES = 2**18  # of the rows that are checked and multiplied at once
SEARCHED_AT_ONCE = 2**12  # new rows, at least, where the representation searches neighbors


def embed(
    X: Array, components: Array, representation: ClassRepresentation | None, *, who: str = ""
) -> Array:
    """Compute ``R(X) @ components.T`` in the dtype of X, with R the identity for None.

    With ``who``, entries must be finite. They are checked block by block, while in the cache.

    Examples
    --------
    >>> embed(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0]]), None)
    array([[3.]])
    """
    embedding = np.empty((len(X), len(components)), X.dtype)
    columns = components.T.astype(X.dtype, copy=False)
    step = BLOCK_ENTRIES // X.shape[1]
    if representation is not None:
        step = max(step, SEARCHED_AT_ONCE)
    for place in row_blocks(len(X), step):
        rows = X[place]
        if who:
            check_finite(rows, who, "X", first_row=place.start)
        if representation is not None:
            rows = representation(rows)
        with np.errstate(under="ignore"):
            np.matmul(rows, columns, out=embedding[place])
    return embedding


def neighbor_votes(distances: Array, distributions: Array) -> Array:
    """Average the distributions (m, k, n_classes) of neighbors, weighted by their distance.

    Examples
    --------
    >>> neighbor_votes(np.array([[0.0, 1.0]]), np.array([[[1.0, 0.0], [0.0, 1.0]]])).round(3)
    array([[0.731, 0.269]])
    """
    votes: Array = (neighbor_weights(distances)[:, :, None] * distributions).sum(axis=1)
    votes /= votes.sum(axis=1, keepdims=True)
    return votes


def class_probabilities(
    X: Array,
    *,
    embedder: Callable[..., Array],
    references: Array,
    distributions: Array,
    n_neighbors: int,
    n_jobs: int | None,
    who: str = "",
) -> Array:
    """Average the distributions of the nearest references in the embedding."""
    k = min(n_neighbors, len(references))
    indices, distances = nearest_rows(Rows.of(references), embedder(X, who=who), k, n_jobs=n_jobs)
    return neighbor_votes(distances, distributions[indices])


def interpolated_probabilities(
    X: Array, *, classifier: ClassInterpolator, n_jobs: int | None, who: str = ""
) -> Array:
    """Apply the classifier to rows whose entries must be finite, in their dtype."""
    check_finite(X, who, "X")
    return in_precision(classifier(X, n_jobs=n_jobs), X.dtype)


def most_probable(distributions: Array, classes: Array) -> Array:
    """Name the class of the largest probability in each row."""
    return classes[distributions.argmax(axis=1)]
