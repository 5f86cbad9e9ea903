"""What the stages of a fit cost: memory counted array by array, work in rough units of time."""

from __future__ import annotations

from typing import NamedTuple

from ssdml.alternation import N_TRIPLETS
from ssdml.conclusion import REFERENCE_ROWS, n_held_out
from ssdml.features import RESIDUAL_COMPONENTS
from ssdml.graphs._methods import EXACT_WORK, exact_work
from ssdml.graphs.deflation import N_MODES
from ssdml.graphs.spreading import BLOCK_ENTRIES

INDEX, FLOAT, SINGLE = 8, 8, 4  # bytes of a row number, of a double, of a float32
SYMMETRIC = 1.7  # edges of a symmetric graph for one of the directed graph; at most 2
# Of conjugate gradients: steps, residual, direction, its image and seeds; what steps add up to.
BLOCK_ENTRY = 5 * SINGLE + FLOAT


class FitShape(NamedTuple):
    """The numbers that decide what a fit costs."""

    n_samples: int
    n_features: int
    n_classes: int
    n_searched: int  # columns that the neighbours are searched in
    n_neighbors: int
    itemsize: int  # bytes of an entry of X
    residual: bool = False
    partition_size: int | None = None
    one_sided: bool = False  # affinities, from a walk from each row

    @property
    def n_learned(self) -> int:
        """Columns of L."""
        if self.residual:
            return min(self.n_features, RESIDUAL_COMPONENTS)
        return max(1, min(self.n_features, self.n_classes - 1))

    @property
    def searches_by_index(self) -> bool:
        """Whether the neighbours of all rows are too many to be searched exactly."""
        return exact_work(self.n_samples, self.n_searched) > EXACT_WORK


def stage_bytes(shape: FitShape) -> dict[str, float]:
    """Bytes at the peak of each kind of stage, X itself and what earlier stages leave included.

    Examples
    --------
    >>> held = stage_bytes(FitShape(10**6, 64, 100, 60, 10, 4))
    >>> {stage: round(number / 1e9, 1) for stage, number in held.items()}
    {'neighbours': 0.9, 'labels': 3.1, 'round': 2.2, 'partition': 2.6}
    """
    n, d, n_classes, searched, k, itemsize, residual, partition_size, one_sided = shape
    rows = n * d * itemsize
    projected = n * searched * itemsize if searched < d else 0
    graph = n * k * (INDEX + itemsize) + projected
    distributions = n * n_classes * itemsize

    found = 3 * n * (k + 1) * (INDEX + itemsize)  # in parts, as a whole, without the row itself
    coded = n * (searched / 2 + INDEX)
    neighbours = projected + max(rows if projected else 0, found + coded)

    edge = 4 * (INDEX / 2 + FLOAT) - SINGLE  # plain, scaled, in parts by rows, the latter rounded
    block = BLOCK_ENTRY * min(n * n_classes, max(n, BLOCK_ENTRIES))
    labels = SYMMETRIC * n * k * edge + block + 2 * distributions  # scores are as large

    triplets = 6 * N_TRIPLETS * d * FLOAT
    turn: float = n * (d + shape.n_learned) * FLOAT + triplets
    if residual:  # the rows standardised; the embedding's graph beside that of the input
        turn = n * d * FLOAT + max(turn, graph + labels)
    if one_sided:
        turn = max(turn, 4 * n * N_MODES * itemsize)
    part = min(1.0, (partition_size or n) / n)
    return {
        "neighbours": rows + neighbours,
        "labels": rows + graph + labels,
        "round": rows + graph + distributions + turn,
        "partition": rows + graph + distributions + part * (turn + graph),
    }


def stage_work(shape: FitShape, *, by_index: bool) -> dict[str, float]:
    """Work of each kind of stage, roughly in nanoseconds of one core.

    Only its growth matters: what a stage takes is measured on few rows. The coefficients are of a
    machine of 2025; they say how the parts of a stage stand to each other.

    Examples
    --------
    >>> shapes = [FitShape(n, 64, 10, 64, 10, 4) for n in (20_000, 100_000)]
    >>> few, many = (stage_work(shape, by_index=False) for shape in shapes)
    >>> {stage: round(many[stage] / few[stage], 1) for stage in many}
    {'neighbours': 18.1, 'labels': 5.9, 'round': 1.4, 'partition': 5.0}
    """
    n, d, n_classes, searched, k, _, residual, partition_size, one_sided = shape
    # Of an approximate search the exponent was measured, from 50,000 to 1,000,000 rows.
    neighbours = 2e4 * n**1.15 if by_index else 0.02 * exact_work(n, searched) + 2e4 * n
    # Neighbours lie far apart in memory: the more rows, the farther.
    labels = 50 * n**1.1 * n_classes * k
    judged = n_held_out(n)
    turn = 2e8 + 6 * judged * min(n, judged + REFERENCE_ROWS)
    turn += 20 * n * (d + shape.n_learned + n_classes)
    if residual:  # steps of training, the head on all rows, and a graph of their embedding
        from ssdml.residual_training import schedule_for

        turn += 4e4 * schedule_for(n).n_steps * (d + 100)
        turn += 200 * n * d + neighbours + labels
    if one_sided:
        turn += 1e6 * n
    partition = min(n, partition_size or n)
    return {"neighbours": neighbours, "labels": labels, "round": turn, "partition": partition}
