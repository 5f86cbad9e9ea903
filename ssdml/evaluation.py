"""How well an embedding separates the classes: clustering, retrieval and few-label accuracy.

Every score is in percent, and a row without a label (``y == -1``) never counts: not as a query,
not as a neighbour, not in a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.labels import UNLABELED, encode_partial_labels
from ssdml.ranking import ranked_neighbors

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KMEANS_RESTARTS = 5


def evaluate(
    Z: npt.ArrayLike,
    y: npt.ArrayLike,
    ks: Sequence[int] = (1, 2, 4, 8),
    random_state: int = 0,
) -> dict[str, float]:
    """Scores of an embedding against the true labels, in percent.

    Parameters
    ----------
    Z : array-like of shape (n, d)
    y : array-like of shape (n,)
        Labels of any kind; rows with -1 (or None, NaN, "") are left out.
    ks : sequence of int
        The K of R@K.
    random_state : int
        Seed of the k-means behind NMI and F1.

    Returns
    -------
    scores : dict
        ``NMI``, ``F1``, ``R@K`` for every K, ``MAP@R``, ``RP``, in this order. A score that no row
        can count for is NaN: the retrieval scores where no class has two rows.

    Notes
    -----
    With R the number of other rows of the query's class, and neighbours ranked by Euclidean
    distance, the query removed, ties to the smaller index:

    - NMI: 2 I(classes; clusters) / (H(classes) + H(clusters)), k-means with as many clusters as
      classes, the best of 5 starts.
    - F1 of the same clusters: see `pairwise_f1`.
    - R@K: share of queries with a row of their class among the K nearest.
    - RP: share of the query's class among its R nearest. MAP@R [1]_: the mean over the R nearest
      of (rank i holds the class) * (precision among the first i).

    A query whose class has no other row cannot be answered and is no query (it stays a neighbour
    of others), as in pytorch-metric-learning.

    O(n² d) time, O(n d + n k) memory with k the largest class.

    References
    ----------
    .. [1] Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, Section 2.2.

    Examples
    --------
    >>> Z = [[0.0], [0.1], [5.0], [5.1], [2.4]]
    >>> {name: round(score, 1) for name, score in evaluate(Z, [0, 0, 1, 1, -1], ks=(1,)).items()}
    {'NMI': 100.0, 'F1': 100.0, 'R@1': 100.0, 'MAP@R': 100.0, 'RP': 100.0}
    """
    ks = _check_ks(ks)
    embeddings, codes = _labelled_rows(Z, y, "evaluate")
    clusters = kmeans_clusters(embeddings, int(codes.max()) + 1, random_state=random_state)
    return {
        "NMI": normalized_mutual_information(codes, clusters),
        "F1": pairwise_f1(codes, clusters),
        **retrieval_scores(embeddings, codes, ks),
    }


def few_label_accuracy(
    Z_labelled: npt.ArrayLike, y_labelled: npt.ArrayLike, Z: npt.ArrayLike, y: npt.ArrayLike
) -> float:
    """Share of the rows of Z nearest to the mean of their own class's labelled rows, in percent.

    Parameters
    ----------
    Z_labelled : array-like of shape (n_labelled, d)
    y_labelled : array-like of shape (n_labelled,)
        Rows with -1 are left out.
    Z : array-like of shape (n, d)
    y : array-like of shape (n,)
        The truth. Rows with -1 are left out; a row of a class without labelled rows counts as wrong.

    Returns
    -------
    accuracy : float
        In percent. Euclidean distance; ties go to the class that sorts first.

    Examples
    --------
    >>> few_label_accuracy([[0.0], [4.0]], ["a", "b"], [[1.0], [3.0], [1.5], [9.0]], list("abbb"))
    75.0
    """
    labelled, classes = _labelled_rows(Z_labelled, y_labelled, "few_label_accuracy", "Z_labelled")
    rows, truth = _labelled_rows(Z, y, "few_label_accuracy")
    if labelled.shape[1] != rows.shape[1]:
        raise ValueError(
            f"few_label_accuracy: Z must have as many columns as Z_labelled = {labelled.shape[1]}; "
            f"got {rows.shape[1]}."
        )
    names = encode_partial_labels(y_labelled)[1]
    true_names = encode_partial_labels(y)[1][truth]
    means = np.stack([labelled[classes == c].mean(axis=0) for c in range(len(names))])
    return 100 * float(np.mean(names[_nearest(means, rows)] == true_names))


def retrieval_scores(embeddings: Floats, codes: Ints, ks: Sequence[int]) -> dict[str, float]:
    """R@K, MAP@R and R-precision in percent; every row is labelled."""
    n_matches = np.bincount(codes)[codes] - 1  # R of each row
    queries = np.flatnonzero(n_matches > 0)
    if len(queries) == 0:
        return dict.fromkeys([*(f"R@{k}" for k in ks), "MAP@R", "RP"], float("nan"))
    depth = min(max(*ks, int(n_matches.max())), len(codes) - 1)
    hits = np.zeros(len(ks))
    average_precision = precision = 0.0
    for rows, neighbors in ranked_neighbors(embeddings, queries, depth):
        same = codes[neighbors] == codes[rows, None]  # (b, depth)
        hits += [same[:, :k].any(axis=1).sum() for k in ks]
        R = n_matches[rows]
        rank = np.arange(1, depth + 1)
        counted = same & (rank <= R[:, None])
        found = counted.cumsum(axis=1)
        precision += float((found[:, -1] / R).sum())
        average_precision += float(((found / rank * counted).sum(axis=1) / R).sum())
    scale = 100 / len(queries)
    return {
        **{f"R@{k}": float(hit) * scale for k, hit in zip(ks, hits, strict=True)},
        "MAP@R": average_precision * scale,
        "RP": precision * scale,
    }


def kmeans_clusters(embeddings: Floats, n_clusters: int, *, random_state: int) -> Ints:
    """Cluster of every row by k-means, the best of several starts."""
    from sklearn.cluster import KMeans

    distinct = len(np.unique(embeddings, axis=0))
    kmeans = KMeans(min(n_clusters, distinct), n_init=KMEANS_RESTARTS, random_state=random_state)
    return np.asarray(kmeans.fit_predict(embeddings), dtype=np.int64)


def normalized_mutual_information(codes: Ints, clusters: Ints) -> float:
    """NMI in percent, normalised by the mean of the two entropies."""
    from sklearn.metrics import normalized_mutual_info_score

    return 100 * float(normalized_mutual_info_score(codes, clusters))


def pairwise_f1(codes: Ints, clusters: Ints) -> float:
    """F1 of "these two rows share a cluster" as a claim that they share a class, in percent.

    .. math:: F_1 = 2 TP / (2 TP + FP + FN)

    over the n(n - 1)/2 pairs of rows: TP share class and cluster, FP the cluster only, FN the class
    only [1]_ [2]_. NaN where no pair shares either.

    Parameters
    ----------
    codes, clusters : ndarray of shape (n,)
        Integers from 0.

    References
    ----------
    .. [1] Manning, Raghavan, Schütze, "Introduction to Information Retrieval", 2008, Section 16.3.
    .. [2] Oh Song, Xiang, Jegelka, Savarese, "Deep Metric Learning via Lifted Structured Feature
       Embedding", CVPR 2016, Section 5 (evaluation by F1 and NMI).

    Examples
    --------
    One pair shares both, one the cluster, two the class: 2 / (2 + 1 + 2).

    >>> pairwise_f1(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]))
    40.0
    """
    table = sparse.coo_array((np.ones(len(codes), dtype=np.int64), (codes, clusters))).tocsr()
    both = _n_pairs(table.data)
    either = _n_pairs(np.bincount(codes)) + _n_pairs(np.bincount(clusters))
    return 100 * 2 * both / either if either else float("nan")


def _n_pairs(sizes: npt.NDArray[np.integer[Any]]) -> int:
    return int((sizes.astype(np.int64) * (sizes - 1)).sum()) // 2


def _nearest(means: Floats, rows: Floats) -> Ints:
    """Index of the nearest mean of every row, ties to the first."""
    from scipy.spatial.distance import cdist

    step = max(1, 10**6 // len(means))
    blocks = [cdist(rows[i : i + step], means) for i in range(0, len(rows), step)]
    return np.concatenate([block.argmin(axis=1) for block in blocks])


def _labelled_rows(
    Z: npt.ArrayLike, y: npt.ArrayLike, who: str, name: str = "Z"
) -> tuple[Floats, Ints]:
    embeddings = np.asarray(Z)
    if embeddings.ndim != 2:
        raise ValueError(f"{who}: {name} must be 2-D (n, d); got shape {embeddings.shape}.")
    codes, _ = encode_partial_labels(y)
    if len(codes) != len(embeddings):
        raise ValueError(
            f"{who}: {name} and its labels must be of one length; "
            f"got {len(embeddings)} rows and {len(codes)} labels."
        )
    embeddings = embeddings.astype(np.float64)
    if not np.isfinite(embeddings).all():
        row, column = np.argwhere(~np.isfinite(embeddings))[0]
        raise ValueError(
            f"{who}: {name} must be finite; got {embeddings[row, column]} "
            f"in row {row}, column {column}."
        )
    labelled = codes != UNLABELED
    if not labelled.any():
        raise ValueError(f"{who}: y must have labels; all {len(codes)} entries are unlabelled.")
    return embeddings[labelled], codes[labelled]


def _check_ks(ks: Sequence[int]) -> list[int]:
    ks = list(ks)
    bad = [k for k in ks if int(k) != k or k < 1]
    if bad:
        raise ValueError(f"evaluate: ks must be integers from 1; got {bad[0]}.")
    return [int(k) for k in ks]
