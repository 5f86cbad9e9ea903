"""New rows for a graph: only distances to the new rows are computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssdml.graphs._rows import Rows
from ssdml.graphs._search import Progress, Ranking, Searcher, part_of, without_self
from ssdml.graphs._spaces import SPACES


def extended_ranking(
    ranking: Ranking,
    metric: str,
    old: Rows,
    new: Rows,
    n_jobs: int,
    progress: Progress | None = None,
) -> Ranking:
    """Ranking of the old rows with the new ones below, from the ranking of the old ones.

    A new row is searched among all, an old row among the new; whichever of these is nearer than
    the neighbours that the old row has takes its place among them.
    """
    n, k = ranking[0].shape
    space = SPACES[metric](old + new)
    old, new = space.prepare(old), space.prepare(new)
    among_all = Searcher(space, old + new, n_jobs)
    added = without_self(
        among_all.rank_exactly(new, k + 1, part_of(progress, 0.0, 0.5)), n + np.arange(len(new))
    )
    among_new = Searcher(space, new, n_jobs)
    nearer = among_new.rank_exactly(old, min(k, len(new)), part_of(progress, 0.5, 1.0))
    indices = np.hstack([ranking[0], nearer[0] + n])
    distances = np.hstack([ranking[1], nearer[1]])
    order = np.lexsort((indices, distances), axis=-1)[:, :k]
    return (
        np.vstack([np.take_along_axis(indices, order, axis=1), added[0]]),
        np.vstack([np.take_along_axis(distances, order, axis=1), added[1]]),
    )


def check_extension(n_samples: int, dtype: np.dtype[Any], old: Rows, new: Rows) -> None:
    """Raise unless the old rows are those of the graph, and the new ones like them."""
    if len(old) != n_samples:
        raise ValueError(
            f"extend: X must be the {n_samples} rows of the graph; got {len(old)} rows."
        )
    if new.n_features != old.n_features:
        raise ValueError(
            f"extend: X_new must have as many columns as the rows of the graph, "
            f"{old.n_features}; got {new.n_features}."
        )
    for rows, name in ((old, "X"), (new, "X_new")):
        if rows.dtype != dtype:
            raise TypeError(
                f"extend: {name} must have the precision of the graph's distances, {dtype}; "
                f"got {rows.dtype}. Use {name}.astype({str(dtype)!r})."
            )
