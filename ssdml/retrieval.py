"""Retrieval scores: what stands among the nearest rows of a query, all other rows or a gallery."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ssdml.graphs._checks import UNLABELED
from ssdml.ranking import ranked_neighbors
from ssdml.utils.typing import Array, Ints


def retrieval_scores(
    embeddings: Array,
    codes: Ints,
    ks: Sequence[int],
    *,
    gallery: tuple[Array, Ints] | None = None,
) -> dict[str, float]:
    """R@K, MAP@R and R-precision in percent; :func:`ssdml.evaluation.evaluate` defines them.

    Parameters
    ----------
    embeddings : ndarray of shape (n, d)
    codes : ndarray of shape (n,)
        Classes from 0; every row has one.
    ks : sequence of int
        The K of R@K.
    gallery : tuple of ndarrays of shapes (m, d) and (m,), optional
        Rows that are searched in the place of the others of `embeddings`, and their classes; -1 is
        one that no query has.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [3.0], [3.5]])
    >>> retrieval_scores(rows, np.array([0, 1, 1, 1]), [1])
    {'R@1': 66.66666666666667, 'MAP@R': 75.0, 'RP': 83.33333333333334}
    """
    n, among = len(codes), None
    n_matches = np.bincount(codes)[codes] - 1  # R of each row
    if gallery is not None:
        known = gallery[1][gallery[1] != UNLABELED]
        n_matches = np.bincount(known, minlength=int(codes.max()) + 1)[codes]
        embeddings, codes = np.concatenate([embeddings, gallery[0]]), np.append(codes, gallery[1])
        among = np.arange(n, len(codes))
    queries = np.flatnonzero(n_matches > 0)
    if len(queries) == 0:
        return dict.fromkeys([*(f"R@{k}" for k in ks), "MAP@R", "RP"], float("nan"))
    depth = min(max([*ks, int(n_matches.max())]), n - 1 if among is None else len(among))
    hits = np.zeros(len(ks))
    average_precision = precision = 0.0
    for rows, neighbors in ranked_neighbors(embeddings, queries, depth, among):
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
