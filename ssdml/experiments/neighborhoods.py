"""What was mined around one labelled row, as a run keeps it for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from ssdml.graphs._checks import UNLABELED
from ssdml.graphs._lookup import Lookup, affinity_lookup
from ssdml.graphs._neighborhood import Neighborhood, neighborhood
from ssdml.graphs._search import without_self
from ssdml.graphs.masses import ClassMasses
from ssdml.graphs.neighbors import nearest_rows
from ssdml.graphs.triplets import Triplets
from ssdml.projections import graph_rows
from ssdml.utils.typing import Array

N_NEIGHBORS = 10  # whatever a method takes, so that all methods show one neighbourhood
SHOWN_TRIPLETS = 8  # of the anchor: more would hide each other
MOST_ANCHORS = 500  # labelled rows that the anchor is chosen from
PREFIX = "mined_"


@dataclass(frozen=True)
class MinedSample:
    """One labelled row, the rows around it and some of its triplets."""

    around: Neighborhood
    y: Array  # (m,), the true classes of its rows, -1 where nobody knows
    n_triplets: int  # of the anchor, shown or not

    def to_arrays(self) -> dict[str, Array]:
        """The sample as named arrays for a file."""
        fields = {**self.around._asdict(), "y": self.y, "n_triplets": self.n_triplets}
        return {PREFIX + name: np.asarray(value) for name, value in fields.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self | None:
        """What `to_arrays` gave; None where it is not there."""
        if f"{PREFIX}rows" not in arrays:
            return None
        fields: Any = {name: arrays[PREFIX + name] for name in Neighborhood._fields}
        fields["n_neighbors"] = int(fields["n_neighbors"])
        n_triplets = int(arrays[f"{PREFIX}n_triplets"])
        return cls(Neighborhood(**fields), arrays[f"{PREFIX}y"], n_triplets)


def mined_sample(model: Any, X: Array, labels: Array, y: Array) -> MinedSample | None:
    """The neighbourhood of one labelled row in the input, and what the model mined for it.

    The row is the hardest one: with the most neighbours of another true class, the first of those
    with as many. So it is the same for all methods on a split that mine for every row.

    Parameters
    ----------
    model : estimator
        Fitted: ``triplets_`` and, for the affinities, ``label_distributions_`` of its training
        rows, where it has them.
    X : array of shape (n, d)
        The training rows.
    labels, y : arrays of shape (n,)
        Labels that were learned from, -1 where there is none, and true classes.

    Returns
    -------
    mined : MinedSample or None
        None where no triplets of a labelled row were kept.
    """
    triplets = getattr(model, "triplets_", None)
    if triplets is None:
        return None
    is_anchor = np.bincount(triplets.anchor, minlength=len(X)) > 0
    anchors = np.flatnonzero((labels != UNLABELED) & is_anchor)[:MOST_ANCHORS]
    if not len(anchors):
        return None
    points = graph_rows(X)
    k = min(N_NEIGHBORS, len(X) - 1)

    def neighbors(rows: Array) -> Array:
        return without_self(nearest_rows(points, points[rows], k + 1), rows)[0]

    near = y[neighbors(anchors)]
    n_others = ((near != y[anchors][:, None]) & (near != UNLABELED)).sum(axis=1)
    anchor = int(anchors[n_others.argmax()])
    mine = np.flatnonzero(triplets.anchor == anchor)
    around = neighborhood(
        anchor,
        neighbors,
        affinity=_affinity(model, len(X)),
        y=labels,
        triplets=Triplets(*(np.asarray(part)[mine[:SHOWN_TRIPLETS]] for part in triplets)),
    )
    return MinedSample(around, y[around.rows], len(mine))


def _affinity(model: Any, n_samples: int) -> Callable[[Array, Array], Array] | None:
    distributions = getattr(model, "label_distributions_", None)
    if distributions is None:
        return None
    return partial(
        _signed_trust, affinity_lookup(ClassMasses(distributions), n_samples, "mined_sample")
    )


def _signed_trust(lookup: Lookup, i: Array, j: Array) -> Array:
    """What the miner goes by: are two rows alike, and how far is that to be trusted.

    The trust is the root of the miner's, as in the weights of :class:`ssdml.SSDML`, relative to
    the largest: 1 for the surest pair.
    """
    evidence = lookup.evidence(i, j)
    trust = np.sqrt(lookup.weights((i, j), (evidence, evidence)))
    signed: Array = np.sign(evidence) * trust / (trust.max() or 1.0)
    return signed
