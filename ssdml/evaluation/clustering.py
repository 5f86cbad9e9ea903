"""K-means clusters of an embedding, and their agreement with the classes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ssdml.utils.labels import check_codes
from ssdml.utils.linalg import scale_exactly
from ssdml.utils.parallel import one_blas_thread
from ssdml.utils.typing import Array, Ints

KMEANS_RESTARTS = 5


def kmeans_clusters(embeddings: Array, n_clusters: int, *, random_state: int) -> Ints:
    """Cluster the rows by k-means, keeping the best of several starts.

    There are never more clusters than distinct rows. Runs on one thread: with several, sums are
    added in any order, and the clusters would not follow from `random_state` alone.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    embeddings, _ = scale_exactly(embeddings)
    n_distinct = len({row.tobytes() for row in embeddings + 0.0})  # -0.0 becomes 0.0
    kmeans = KMeans(min(n_clusters, n_distinct), n_init=KMEANS_RESTARTS, random_state=random_state)
    with one_blas_thread(), threadpool_limits(1, "openmp"):
        return np.asarray(kmeans.fit_predict(embeddings), dtype=np.int64)


def normalized_mutual_information(codes: Ints, clusters: Ints) -> float:
    """Compute the NMI, normalized by the mean of the two entropies, in percent."""
    from sklearn.metrics import normalized_mutual_info_score

    return 100 * float(normalized_mutual_info_score(codes, clusters))


def pairwise_f1(codes: npt.ArrayLike, clusters: npt.ArrayLike) -> float:
    """Compute the F1 score of pairs in one cluster as predictions of pairs in one class.

    .. math:: F_1 = 2 TP / (2 TP + FP + FN)

    over the n(n - 1)/2 pairs of rows: TP share class and cluster, FP the cluster only, FN the class
    only [1]_ [2]_.

    Parameters
    ----------
    codes : array-like of shape (n,), int
        Classes from 0; every row has one.
    clusters : array-like of shape (n,), int
        From -1 on: noise of DBSCAN is one cluster, as in scikit-learn's scores. To leave it out,
        pass the rows with ``clusters >= 0``; to pair it with nothing, give each a number of its
        own.

    Returns
    -------
    f1 : float
        In percent. NaN if no pair shares class or cluster.

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
    from sklearn.metrics.cluster import pair_confusion_matrix

    who = "pairwise_f1"
    codes = check_codes(codes, None, who, "codes")
    clusters = check_codes(clusters, len(codes), who, "clusters", least=-1)
    (_, only_cluster), (only_class, both) = pair_confusion_matrix(codes, clusters).tolist()
    either = 2 * both + only_cluster + only_class
    return 100 * 2 * both / either if either else float("nan")
