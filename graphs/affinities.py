"""One-sided affinities, made a block of columns at a time, and where their entries go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse

from ssdml.graphs._checks import UNLABELED, Floats, Integers
from ssdml.graphs.masses import one_hot
from ssdml.graphs.neighbors import KNNGraph, directed_csr
from ssdml.graphs.solvers import Propagator

BLOCK_ENTRIES = 2**21  # entries of one block of right-hand sides

Columns = Iterable[tuple[Integers, Floats]]  # indices of columns, and these columns of W*


def one_sided_columns(
    labels: Integers, propagate: Propagator, propagate_masses: Propagator
) -> Iterator[tuple[Integers, Floats]]:
    """Columns of ``P W0``: C solves serve the labelled ones, each other one is a solve."""
    labelled = np.flatnonzero(labels != UNLABELED)
    if labelled.size:
        # For a column l of class c, W*_il = Σ_l' ±P_il' = 2 F_ic - F_i 1.
        masses = propagate_masses(one_hot(labels))
        codes = np.unique(labels[labelled], return_inverse=True)[1]
        signed = 2 * masses - masses.sum(axis=1, keepdims=True)
        for block in _blocks(labelled.size, len(labels)):
            yield labelled[block], signed[:, codes[block]]
    unlabelled = np.flatnonzero(labels == UNLABELED)
    for block in _blocks(unlabelled.size, len(labels)):
        columns = unlabelled[block]
        identity = np.zeros((len(labels), columns.size))
        identity[columns, np.arange(columns.size)] = 1
        yield columns, propagate(identity)


def symmetric_edges(graph: KNNGraph) -> sparse.csr_array:
    """Ones on the edges of the graph and their reverses; columns sorted."""
    directed = directed_csr(graph, np.ones(graph.indices.shape))
    edges = sparse.csr_array(directed.maximum(directed.T))
    edges.sort_indices()
    return edges


def symmetrize_on_edges(edges: sparse.csr_array, columns: Columns) -> sparse.csr_array:
    """Entries ``(W*_ij + W*_ji) / 2`` on the edges."""
    transposed = np.empty(edges.nnz)  # row j of the pattern receives column j of W*
    for indices, values in columns:
        counts = np.diff(edges.indptr)[indices]
        local = np.repeat(np.arange(indices.size), counts)
        starts = np.repeat(edges.indptr[indices] - np.cumsum(counts) + counts, counts)
        positions = starts + np.arange(counts.sum())
        transposed[positions] = values[edges.indices[positions], local]
    result = sparse.csr_array((transposed, edges.indices, edges.indptr), shape=edges.shape)
    # The pattern is its own transpose, so the data of the transpose line up with it.
    direct = sparse.csr_array(result.T)
    direct.sort_indices()
    result.data = (result.data + direct.data) / 2
    return result


def symmetrize_everywhere(n_samples: int, columns: Columns) -> Floats:
    """All entries ``(W*_ij + W*_ji) / 2``; O(n²) memory."""
    full = np.empty((n_samples, n_samples))
    for indices, values in columns:
        full[:, indices] = values
    return (full + full.T) / 2


def _blocks(n_columns: int, n_rows: int) -> list[slice]:
    step = max(1, BLOCK_ENTRIES // n_rows)
    return [slice(start, start + step) for start in range(0, n_columns, step)]
