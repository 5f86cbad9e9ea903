"""How well an embedding separates the classes: clustering, retrieval and few-label accuracy.

Every score is in percent, and a row without a label (``y == -1``) never counts: not as a query,
not as a neighbor, not in a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.evaluation.clustering import kmeans_clusters, normalized_mutual_information, pairwise_f1
from ssdml.evaluation.retrieval import BLOCK_ENTRIES, retrieval_scores
from ssdml.utils.labels import encode_partial_labels
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED, check_rows


def evaluate(
    Z: npt.ArrayLike,
    y: npt.ArrayLike,
    ks: Sequence[int] = (1, 2, 4, 8),
    random_state: int = 0,
    *,
    gallery: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
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
    gallery : tuple (Zg, yg), optional
        Rows (m, d) and labels (m,) that are searched in the place of Z: every row of Z is a query,
        and is not among them. Labels are compared with those of `y`; rows without one are left
        out.

    Returns
    -------
    scores : dict
        ``NMI``, ``F1``, ``R@K`` for every K, ``MAP@R``, ``RP``, in this order. A score that no row
        can count for is NaN: the retrieval scores where no class has two rows.

    Notes
    -----
    With R the number of other rows of the query's class, and neighbors ranked by Euclidean
    distance, the query removed, ties to the smaller index:

    - NMI: 2 I(classes; clusters) / (H(classes) + H(clusters)), k-means with as many clusters as
      classes, the best of 5 starts.
    - F1 of the same clusters: see `pairwise_f1`.
    - R@K: share of queries with a row of their class among the K nearest.
    - RP: share of the query's class among its R nearest. MAP@R [1]_: the mean over the R nearest
      of (rank i holds the class) * (precision among the first i).

    A query whose class has no other row cannot be answered and is no query (it stays a neighbor
    of others), as in pytorch-metric-learning.

    With a gallery, R is the number of its rows in the query's class, a query whose class it lacks
    is none, and a row of another class than all of `y` is a neighbor like any. NMI and F1 remain
    those of Z alone, whose rows are what is scored: papers that search a gallery print neither.

    O(n² d) time, O(n d + n k) memory with k the largest class; with a gallery, O(n m d) and
    O((n + m) d + n k).

    References
    ----------
    .. [1] Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, Section 2.2.

    Examples
    --------
    >>> Z = [[0.0], [0.1], [5.0], [5.1], [2.4]]
    >>> {name: round(score, 1) for name, score in evaluate(Z, [0, 0, 1, 1, -1], ks=(1,)).items()}
    {'NMI': 100.0, 'F1': 100.0, 'R@1': 100.0, 'MAP@R': 100.0, 'RP': 100.0}

    The same rows, searching three others: one of two finds its class first.

    >>> evaluate([[0.0], [5.0]], [0, 1], ks=(1,), gallery=([[0.1], [5.1], [4.8]], [0, 0, 1]))["R@1"]
    50.0
    """
    ks = _check_ks(ks)
    embeddings, codes, classes = _labeled_rows(Z, y, "evaluate")
    among = None if gallery is None else _searched(gallery, embeddings, classes)
    clusters = kmeans_clusters(embeddings, int(codes.max()) + 1, random_state=random_state)
    return {
        "NMI": normalized_mutual_information(codes, clusters),
        "F1": pairwise_f1(codes, clusters),
        **retrieval_scores(embeddings, codes, ks, gallery=among),
    }


def is_embedding_score(name: str) -> bool:
    """Whether `evaluate` has a score of this name.

    Examples
    --------
    >>> is_embedding_score("R@3"), is_embedding_score("accuracy")
    (True, False)
    """
    return name in ("NMI", "F1", "MAP@R", "RP") or re.fullmatch(r"R@[1-9]\d*", name) is not None


def embedding_score(Z: npt.ArrayLike, y: npt.ArrayLike, name: str, random_state: int = 0) -> float:
    """The one score of `evaluate` called `name`, without the work for the others.

    Examples
    --------
    >>> embedding_score([[0.0], [1.0], [3.0], [3.5]], [0, 0, 1, 1], "R@1")
    100.0
    """
    embeddings, codes, _ = _labeled_rows(Z, y, name)
    if name in ("NMI", "F1"):
        clusters = kmeans_clusters(embeddings, int(codes.max()) + 1, random_state=random_state)
        score = pairwise_f1 if name == "F1" else normalized_mutual_information
        return score(codes, clusters)
    ks = [int(name.removeprefix("R@"))] if name.startswith("R@") else []
    return retrieval_scores(embeddings, codes, ks)[name]


def few_label_accuracy(
    Z_labeled: npt.ArrayLike, y_labeled: npt.ArrayLike, Z: npt.ArrayLike, y: npt.ArrayLike
) -> float:
    """Share of the rows of Z nearest to the mean of their own class's labeled rows, in percent.

    Parameters
    ----------
    Z_labeled : array-like of shape (n_labeled, d)
    y_labeled : array-like of shape (n_labeled,)
        Rows with -1 are left out.
    Z : array-like of shape (n, d)
    y : array-like of shape (n,)
        The truth. Rows with -1 are left out; a row whose class has no labeled row counts as wrong.

    Returns
    -------
    accuracy : float
        In percent. Euclidean distance; ties go to the class that sorts first.

    Examples
    --------
    >>> few_label_accuracy([[0.0], [4.0]], ["a", "b"], [[1.0], [3.0], [1.5], [9.0]], list("abbb"))
    75.0
    """
    who, names = "few_label_accuracy", ("Z_labeled", "y_labeled")
    few, few_codes, classes = _labeled_rows(Z_labeled, y_labeled, who, names)
    rows, codes, true_classes = _labeled_rows(Z, y, who)
    if few.shape[1] != rows.shape[1]:
        raise ValueError(
            f"{who}: Z must have the {few.shape[1]} columns of Z_labeled; got {rows.shape[1]}."
        )
    truth = _numbers_among(classes, true_classes)[codes]
    nearest = nearest_mean(class_means(few, few_codes), rows.astype(np.float64))
    return 100 * float(np.mean(nearest == truth))


def triplet_purity(triplets: Any, y: npt.ArrayLike) -> dict[str, float] | None:
    """Share of triplets whose positive, whose negative, and where both are right, in percent.

    Parameters
    ----------
    triplets : Triplets
        ``anchor``, ``positive``, ``negative``: rows of ``y``; ``weight``: what each counts.
    y : array-like of shape (n,)
        True labels; a triplet with an end at -1 cannot be judged and is left out.

    Returns
    -------
    purity : dict or None
        ``positive``, ``negative``, ``both``, and ``weighted``, which is ``both`` with each triplet
        counted by its weight; ``n`` is how many were judged. None where none could be.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> mined = SimpleNamespace(
    ...     anchor=[0, 0], positive=[1, 2], negative=[2, 3], weight=[3.0, 1.0])
    >>> triplet_purity(mined, [7, 7, 8, 8])
    {'positive': 50.0, 'negative': 100.0, 'both': 50.0, 'weighted': 75.0, 'n': 2}
    """
    y = np.asarray(y)
    ends = np.stack([triplets.anchor, triplets.positive, triplets.negative])
    anchor, positive, negative = y[ends]
    known = (y[ends] != UNLABELED).all(axis=0)
    weight = np.asarray(triplets.weight, dtype=float) * known
    if not known.any() or weight.sum() == 0:
        return None
    right = {"positive": anchor == positive, "negative": anchor != negative}
    right["both"] = right["positive"] & right["negative"]
    purity = {name: 100 * float(is_right[known].mean()) for name, is_right in right.items()}
    purity["weighted"] = 100 * float(weight @ right["both"] / weight.sum())
    return purity | {"n": int(known.sum())}


def nearest_mean(means: Floats, rows: Floats) -> Ints:
    """Index of the nearest mean of every row, ties to the first."""
    from scipy.spatial.distance import cdist

    step = max(1, BLOCK_ENTRIES // len(means))
    blocks = [cdist(rows[i : i + step], means) for i in range(0, len(rows), step)]
    return np.concatenate([block.argmin(axis=1) for block in blocks])


def _labeled_rows(
    Z: npt.ArrayLike, y: npt.ArrayLike, who: str, names: tuple[str, str] = ("Z", "y")
) -> tuple[Array, Ints, npt.NDArray[Any]]:
    """Rows that have a label, their codes, and the classes that the codes name."""
    rows = check_rows(Z, who, names[0])
    codes, classes = encode_partial_labels(y)
    if len(codes) != len(rows):
        raise ValueError(
            f"{who}: {names[1]} must have a label for each of the {len(rows)} rows of {names[0]}; "
            f"got {len(codes)}."
        )
    labeled = codes != UNLABELED
    if not labeled.any():
        raise ValueError(
            f"{who}: {names[1]} must contain labels; all {len(codes)} entries are unlabeled."
        )
    return rows[labeled], codes[labeled], classes


def _searched(
    gallery: tuple[npt.ArrayLike, npt.ArrayLike], embeddings: Array, classes: npt.NDArray[Any]
) -> tuple[Array, Ints]:
    """Rows of a gallery, and their codes among those of the queries' classes; -1 for others."""
    if len(gallery) != 2:
        raise ValueError(
            "evaluate: gallery must be rows and their labels, (Zg, yg); got a tuple of "
            f"{len(gallery)}."
        )
    rows, codes, others = _labeled_rows(*gallery, "evaluate", ("gallery[0]", "gallery[1]"))
    if rows.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"evaluate: gallery must have the {embeddings.shape[1]} columns of Z; got "
            f"{rows.shape[1]}."
        )
    return rows, _numbers_among(classes, others)[codes]


def _numbers_among(classes: npt.NDArray[Any], others: npt.NDArray[Any]) -> Ints:
    """Where each of the others stands among the classes; -1 where it does not."""
    number = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([number.get(label, UNLABELED) for label in others.tolist()])


def _check_ks(ks: Sequence[int]) -> list[int]:
    ks = list(ks)
    bad = [k for k in ks if int(k) != k or k < 1]
    if bad:
        raise ValueError(f"evaluate: ks must be integers from 1; got {bad[0]}.")
    return [int(k) for k in ks]
