"""How well an embedding separates the classes: clustering, retrieval and few-label accuracy.

Every score is in percent, and a row without a label (``y == -1``) never counts: not as a query,
not as a neighbor, not in a cluster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.evaluation.retrieval import first_copies
from ssdml.utils.linalg import in_range
from ssdml.utils.typing import Array, Ints

KMEANS_RESTARTS = 5


def kmeans_clusters(embeddings: Array, n_clusters: int, *, random_state: int) -> Ints:
    """Cluster of every row by k-means, the best of several starts.

    Never more clusters than there are distinct rows. One thread: the sums of several would come
    together in any order, and the clusters would not follow from `random_state` alone.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    embeddings, _ = in_range(embeddings)
    n_clusters = min(n_clusters, len(np.unique(first_copies(embeddings))))
    kmeans = KMeans(n_clusters, n_init=KMEANS_RESTARTS, random_state=random_state)
    with threadpool_limits(limits=1):
        return np.asarray(kmeans.fit_predict(embeddings), dtype=np.int64)


def normalized_mutual_information(codes: Ints, clusters: Ints) -> float:
    """NMI in percent, normalized by the mean of the two entropies."""
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
