"""Scores of an embedding and of mined triplets against the true labels, in percent.

Rows without a label (-1) never count: neither as queries, nor as neighbors, nor in clusters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.evaluation.clustering import kmeans_clusters, normalized_mutual_information, pairwise_f1
from ssdml.evaluation.retrieval import BLOCK_ENTRIES, checked_ks, retrieval_scores
from ssdml.utils.labels import (
    check_columns,
    check_order,
    check_same_kind,
    column_names,
    encode_labels,
)
from ssdml.utils.linalg import scale_exactly
from ssdml.utils.parallel import row_blocks
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED, as_list, check_rows, check_seed, warn


def evaluate(
    Z: npt.ArrayLike,
    y: npt.ArrayLike,
    ks: Sequence[int] | int = (1, 2, 4, 8),
    random_state: int = 0,
    *,
    scores: Sequence[str] | str | None = None,
    gallery: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> dict[str, float]:
    """Score an embedding against the true labels, in percent.

    Parameters
    ----------
    Z : array-like of shape (n, d)
    y : array-like of shape (n,)
        Labels of any kind; rows with -1 (or None, NaN, "") are left out.
    ks : int or sequence of int
        The K of R@K. Ignored if `scores` is given.
    random_state : int
        Seed of the k-means for NMI and F1.
    scores : str or sequence of str, optional
        Scores to compute, such as ``["R@1", "MAP@R"]``; None: all. Without ``"NMI"`` and ``"F1"``,
        which need k-means, most of the time is saved if there are many classes.
    gallery : tuple (Zg, yg), optional
        Rows (m, d) and labels (m,) to search in place of Z. Rows without a label are left out.

    Returns
    -------
    scores : dict
        By default ``NMI``, ``F1``, ``R@K`` for each K, ``MAP@R``, ``RP``. The retrieval scores are
        NaN if no query has a row of its class to find.

    Warns
    -----
    UserWarning
        If no class of `y` is in the gallery or, without one, has two rows; if the gallery holds
        all rows of `Z`.

    Notes
    -----
    With R the number of other rows of the query's class, and neighbors ranked by Euclidean
    distance, the query excluded:

    - NMI: 2 I(classes; clusters) / (H(classes) + H(clusters)), k-means with as many clusters as
      classes, the best of 5 starts.
    - F1 of the same clusters: see `pairwise_f1`.
    - R@K: share of queries with a row of their class among the K nearest.
    - RP: share of the query's class among its R nearest. MAP@R [1]_: the mean over the R nearest
      of (rank i holds the class) * (precision among the first i).

    Ties are broken by a fixed random order of the rows, so that an embedding gains nothing from
    ties in data sorted by class; two runs agree. Only exact ties and differences below the
    precision of float64 scores are affected.

    A query whose class has no other row is left out but stays a neighbor of others, as in
    pytorch-metric-learning. With a gallery, R counts the gallery's rows of the query's class, and
    rows of classes missing from `y` are neighbors like any. NMI and F1 are those of Z alone.

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

    Search a gallery: one of two queries finds its class first.

    >>> gallery = [[0.1], [5.1], [4.8]], [0, 0, 1]
    >>> evaluate([[0.0], [5.0]], [0, 1], scores=["R@1"], gallery=gallery)
    {'R@1': 50.0}
    """
    if scores is None:
        scores = ["NMI", "F1", *(f"R@{k}" for k in checked_ks(ks, "evaluate")), "MAP@R", "RP"]
    scores = [scores] if isinstance(scores, str) else as_list(scores, "scores", "evaluate", "names")
    unknown = [n for n in scores if not isinstance(n, str) or not is_embedding_score(n)]
    if unknown:
        raise ValueError(
            f"evaluate: scores must be among 'NMI', 'F1', 'R@K', 'MAP@R' and 'RP'; got "
            f"{unknown[0]!r}. Write an integer from 1 for K."
        )
    check_seed(random_state, "evaluate")
    embeddings, codes, classes = _labeled_rows(Z, y, "evaluate")
    among = None
    if gallery is not None:
        among = _searched(gallery, embeddings, classes)
        check_columns(column_names(Z), column_names(gallery[0]), "evaluate", ("Z", "gallery[0]"))
    computed: dict[str, float] = {}
    if {"NMI", "F1"}.intersection(scores):
        clusters = kmeans_clusters(embeddings, int(codes.max()) + 1, random_state=random_state)
        computed["NMI"] = normalized_mutual_information(codes, clusters)
        computed["F1"] = pairwise_f1(codes, clusters)
    if not {"NMI", "F1"}.issuperset(scores):
        ks = [int(name.removeprefix("R@")) for name in scores if name.startswith("R@")]
        if among is None and np.bincount(codes).max() < 2:
            warn(
                "evaluate: y must have a class with two rows, or retrieval scores are NaN; got "
                f"{len(codes)} rows of {len(codes)} classes. Label more rows or pass a gallery."
            )
        computed |= retrieval_scores(embeddings, codes, ks, gallery=among)
    return {name: computed[name] for name in scores}


def is_embedding_score(name: str) -> bool:
    """Return whether `evaluate` has a score of this name.

    Examples
    --------
    >>> is_embedding_score("R@3"), is_embedding_score("accuracy")
    (True, False)
    """
    return name in ("NMI", "F1", "MAP@R", "RP") or re.fullmatch(r"R@[1-9]\d*", name) is not None


def few_label_accuracy(
    Z_labeled: npt.ArrayLike, y_labeled: npt.ArrayLike, Z: npt.ArrayLike, y: npt.ArrayLike
) -> float:
    """Compute the accuracy of the nearest class mean of the labeled rows, in percent.

    Parameters
    ----------
    Z_labeled : array-like of shape (n_labeled, d)
    y_labeled : array-like of shape (n_labeled,)
        Rows with -1 are left out.
    Z : array-like of shape (n, d)
    y : array-like of shape (n,)
        True labels. Rows with -1 are left out; a row whose class has no labeled row counts as
        wrong.

    Returns
    -------
    accuracy : float
        By Euclidean distance; ties go to the class that sorts first.

    Warns
    -----
    UserWarning
        If no class of `y` has a labeled row.

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
    check_columns(column_names(Z_labeled), column_names(Z), who, ("Z_labeled", "Z"))
    check_same_kind(classes, true_classes, who, ("y_labeled", "y"))
    truth = _codes_among(classes, true_classes, who, ("y_labeled", "y"))[codes]
    exponent = max(scale_exactly(few)[1], scale_exactly(rows)[1])  # distances must not overflow
    few, rows = (np.ldexp(part.astype(np.float64), -exponent) for part in (few, rows))
    nearest = nearest_mean(class_means(few, few_codes), rows)
    return 100 * float(np.mean(nearest == truth))


def triplet_purity(triplets: Any, y: npt.ArrayLike) -> dict[str, float] | None:
    """Compute the share of triplets with a right positive, a right negative, or both, in percent.

    Parameters
    ----------
    triplets : Triplets
    y : array-like of shape (n,)
        True labels; triplets with an unlabeled end (-1, None, NaN) are left out.

    Returns
    -------
    purity : dict or None
        ``positive``, ``negative``, ``both``, ``weighted`` (``both``, weighted by the triplets'
        weights) and ``n``, the number of triplets that count. None if there is none.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> mined = SimpleNamespace(
    ...     anchor=[0, 0], positive=[1, 2], negative=[2, 3], weight=[3.0, 1.0])
    >>> triplet_purity(mined, [7, 7, 8, 8])
    {'positive': 50.0, 'negative': 100.0, 'both': 50.0, 'weighted': 75.0, 'n': 2}
    """
    codes, _ = encode_labels(y, "triplet_purity")
    if not all(hasattr(triplets, name) for name in ("anchor", "positive", "negative", "weight")):
        raise TypeError(
            f"triplet_purity: triplets must be Triplets; got {type(triplets).__name__}. Pass what "
            "mine_triplets returns."
        )
    rows = np.stack([triplets.anchor, triplets.positive, triplets.negative])
    if rows.size and not 0 <= rows.min() <= rows.max() < len(codes):
        raise ValueError(
            f"triplet_purity: triplets must be of the rows of y, from 0 to {len(codes) - 1}; got "
            f"rows from {rows.min()} to {rows.max()}. Pass the labels of all rows of the graph."
        )
    ends = codes[rows]
    anchor, positive, negative = ends
    known = (ends != UNLABELED).all(axis=0)
    weight = np.asarray(triplets.weight, dtype=float) * known
    if not known.any() or weight.sum() == 0:
        return None
    right = {"positive": anchor == positive, "negative": anchor != negative}
    right["both"] = right["positive"] & right["negative"]
    purity = {name: 100 * float(is_right[known].mean()) for name, is_right in right.items()}
    purity["weighted"] = 100 * float(weight @ right["both"] / weight.sum())
    return purity | {"n": int(known.sum())}


def nearest_mean(means: Floats, rows: Floats) -> Ints:
    """Find the nearest mean of each row; ties go to the first."""
    from scipy.spatial.distance import cdist

    blocks = row_blocks(len(rows), BLOCK_ENTRIES // len(means))
    return np.concatenate([cdist(rows[block], means).argmin(axis=1) for block in blocks])


def _labeled_rows(
    Z: npt.ArrayLike, y: npt.ArrayLike, who: str, names: tuple[str, str] = ("Z", "y")
) -> tuple[Array, Ints, npt.NDArray[Any]]:
    """Return the labeled rows, their codes, and the classes that the codes name."""
    check_order(Z, y, who, names)
    rows = check_rows(Z, who, names[0])
    codes, classes = codes_of_rows(y, len(rows), who, names)
    labeled = codes != UNLABELED
    return rows[labeled], codes[labeled], classes


def codes_of_rows(
    y: npt.ArrayLike, n_rows: int, who: str, names: tuple[str, str]
) -> tuple[Ints, npt.NDArray[Any]]:
    """Encode the labels of rows; raise if their numbers differ, or if no row has one.

    ``names`` are those of the rows and of y.
    """
    codes, classes = encode_labels(y, who, names[1])
    if len(codes) != n_rows:
        raise ValueError(
            f"{who}: {names[1]} must have a label for each of the {n_rows} rows of {names[0]}; "
            f"got {len(codes)}."
        )
    if (codes == UNLABELED).all():
        raise ValueError(
            f"{who}: {names[1]} must contain labels; all {len(codes)} entries are unlabeled."
        )
    return codes, classes


def _searched(
    gallery: tuple[npt.ArrayLike, npt.ArrayLike], embeddings: Array, classes: npt.NDArray[Any]
) -> tuple[Array, Ints]:
    """Return the rows of a gallery and their codes among the classes; -1 for other classes."""
    if not isinstance(gallery, tuple | list) or len(gallery) != 2:
        found = type(gallery).__name__
        length = f" of {len(gallery)}" if isinstance(gallery, tuple | list) else ""
        raise ValueError(f"evaluate: gallery must be a pair (rows, labels); got {found}{length}.")
    rows, codes, others = _labeled_rows(*gallery, "evaluate", ("gallery[0]", "gallery[1]"))
    if rows.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"evaluate: gallery must have the {embeddings.shape[1]} columns of Z; got "
            f"{rows.shape[1]}."
        )
    if _holds_all(rows, embeddings):
        warn(
            "evaluate: gallery must hold other rows than Z, or each is its own nearest neighbor; "
            f"got all {len(embeddings)} rows of Z in it. Leave them out of the gallery; to compare "
            "each row with the others of Z, omit it."
        )
    check_same_kind(classes, others, "evaluate", ("y", "gallery[1]"))
    return rows, _codes_among(classes, others, "evaluate", ("y", "gallery[1]"))[codes]


def _holds_all(rows: Array, queries: Array) -> bool:
    """Whether rows hold all queries, which differ; queries of few values repeat by chance."""
    if not (rows == queries[0]).all(axis=1).any():  # saves the search for the others
        return False
    own, others = (
        ((row.astype(np.float64) + 0.0).tobytes() for row in matrix) for matrix in (queries, rows)
    )
    distinct = set(own)
    return len(distinct) == len(queries) and not distinct.difference(others)


def _codes_among(
    classes: npt.NDArray[Any], others: npt.NDArray[Any], who: str, names: tuple[str, str]
) -> Ints:
    """Return the code of each of the other classes among ``classes``; -1 if it is missing."""
    numbers = {label: code for code, label in enumerate(classes.tolist())}
    codes = np.array([numbers.get(label, UNLABELED) for label in others.tolist()])
    if (codes == UNLABELED).all():
        warn(
            f"{who}: {names[0]} and {names[1]} must share a class; got {classes.tolist()[:3]} and "
            f"{others.tolist()[:3]}. Write the labels of both alike."
        )
    return codes
