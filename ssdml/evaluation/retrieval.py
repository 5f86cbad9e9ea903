"""Retrieval scores: R@K, R-precision and MAP@R."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.graphs.neighbors.exact import smallest
from ssdml.graphs.neighbors.metrics import Euclidean
from ssdml.graphs.neighbors.rows import Part, Rows
from ssdml.utils.labels import check_codes, check_columns, column_names
from ssdml.utils.parallel import row_blocks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, as_list, check_rows

BLOCK_ENTRIES = 2**22  # distances held at a time: 32 MB


def retrieval_scores(
    embeddings: npt.ArrayLike,
    codes: npt.ArrayLike,
    ks: Sequence[int] | int,
    *,
    gallery: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> dict[str, float]:
    """Compute R@K, MAP@R and R-precision in percent, as :func:`ssdml.evaluation.evaluate` does.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
    codes : array-like of shape (n,), int
        Classes from 0; every row has one.
    ks : int or sequence of int
        The K of R@K.
    gallery : tuple of arrays of shapes (m, d) and (m,), optional
        Rows to search in place of the others of `embeddings`, and their classes; -1 for a class
        that no query has.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [3.0], [3.5]])
    >>> retrieval_scores(rows, np.array([0, 1, 1, 1]), [1])
    {'R@1': 66.66666666666667, 'MAP@R': 75.0, 'RP': 83.33333333333334}
    """
    who = "retrieval_scores"
    ks = checked_ks(ks, who)
    embeddings, names = check_rows(embeddings, who, "embeddings"), column_names(embeddings)
    codes = check_codes(codes, len(embeddings), who, "codes")
    if gallery is not None:
        if not isinstance(gallery, Sequence) or len(gallery) != 2:
            raise TypeError(
                f"{who}: gallery must be a pair of rows and codes; got {type(gallery).__name__}. "
                "Pass (rows, codes)."
            )
        rows = check_rows(gallery[0], who, "gallery[0]")
        if rows.shape[1] != embeddings.shape[1]:
            raise ValueError(
                f"{who}: gallery must have the {embeddings.shape[1]} columns of embeddings; got "
                f"{rows.shape[1]}."
            )
        check_columns(names, column_names(gallery[0]), who, ("embeddings", "gallery[0]"))
        gallery = rows, check_codes(gallery[1], len(rows), who, "gallery[1]", least=UNLABELED)
    searched, classes = (embeddings, codes) if gallery is None else gallery
    # Codes may be ids of any size; here they index counts.
    found, codes = np.unique(codes, return_inverse=True)
    places = np.searchsorted(found, classes).clip(max=len(found) - 1)
    classes = np.where(found[places] == classes, places, UNLABELED)
    # Ties fall in this order, and not in that of the rows, which are often sorted by class.
    order = np.random.default_rng(0).permutation(len(classes))
    searched, classes = searched[order], classes[order]
    own = np.argsort(order) if gallery is None else None  # where each query is itself searched
    known = classes[classes != UNLABELED]
    n_matches = np.bincount(known, minlength=len(found))[codes]  # R of each row
    if own is not None:
        n_matches -= 1
    queries = np.flatnonzero(n_matches > 0)
    if len(queries) == 0:
        return dict.fromkeys([*(f"R@{k}" for k in ks), "MAP@R", "RP"], float("nan"))
    depth = min(max([*ks, int(n_matches.max())]), len(classes) - (own is not None))
    hits = np.zeros(len(ks))
    average_precision = precision = 0.0
    rank = np.arange(1, depth + 1)
    for rows, neighbors in _ranked_neighbors(embeddings, searched, queries, depth, own):
        same = classes[neighbors] == codes[rows, None]  # (b, depth)
        hits += [same[:, :k].any(axis=1).sum() for k in ks]
        R = n_matches[rows]
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


def checked_ks(ks: Sequence[int] | int, who: str) -> list[int]:
    """Return the K of R@K as a list; raise ValueError unless they are integers from 1.

    Examples
    --------
    >>> checked_ks(1, "who"), checked_ks((1, 5), "who")
    ([1], [1, 5])
    """
    numbers: list[Any] = [ks] if np.ndim(ks) == 0 else as_list(ks, "ks", who, "integers")
    bad = [k for k in numbers if not isinstance(k, Real) or not _is_count(k)]
    if bad:
        raise ValueError(f"{who}: ks must be integers from 1; got {bad[0]!r}.")
    return [int(k) for k in numbers]


def _is_count(number: Any) -> bool:
    return bool(number >= 1 and number % 1 == 0)  # not NaN, nor infinity


def _ranked_neighbors(
    embeddings: Array, searched: Array, queries: Ints, depth: int, own: Ints | None
) -> Iterator[tuple[Ints, Ints]]:
    """Yield blocks of the queries with the places of their nearest rows, nearest first."""
    tables = [searched] if own is not None else [searched, embeddings]
    space = Euclidean(Rows([Part(table) for table in tables], np.float64))
    points = space.searchable(searched, np.float64)
    for block in row_blocks(len(queries), BLOCK_ENTRIES // len(points)):
        rows = queries[block]
        scores = space.scores(space.searchable(embeddings[rows], np.float64), points)
        if own is not None:
            scores[np.arange(len(rows)), own[rows]] = np.inf
        nearest, places = smallest(scores, depth)
        yield rows, np.take_along_axis(places, nearest.argsort(axis=1), axis=1)
