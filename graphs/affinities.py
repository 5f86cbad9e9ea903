"""Affinities on one side or two: where the entries come from, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from ssdml.graphs._blocks import count_threads, row_blocks
from ssdml.graphs._checks import UNLABELED, check_labelled
from ssdml.graphs.masses import ClassMasses, class_codes, transition_matrix
from ssdml.graphs.neighbors import KNNGraph, directed_csr
from ssdml.graphs.solvers import SOLVERS, Certified, certified
from ssdml.utils.typing import Array, Ints

if TYPE_CHECKING:
    from ssdml.graphs._torch_dense import TorchInverse

MASS_TOL = 1e-6  # a sign hangs on small differences of masses, and C solves are cheap
AUTO_DENSE_ROWS = 2_000  # "auto" factorises up to here: some tenths of a second
AUTO_WALK_TOL = 1e-3  # and walks beyond, unless the tolerance is smaller than this
DENSE_PACE = 50  # products of a factorisation in the time of one along an edge
KRYLOV_STEPS = 200  # of a walk, beyond which a solve for each column is quicker
TIGHT_DENSE_ROWS = 12_000  # where it factorises up to here: 1.2 GB, under a minute on two cores
BLOCK_ENTRIES = 2**21  # entries of one block of right-hand sides
CLASS_ENTRIES = 2**24  # of a block of classes: solvers hold ten such, 1.3 GB

# Indices of columns, these columns of W*, and the largest error of each.
Columns = Iterable[tuple[Ints, Array, Array]]
# Entries of columns of P, and their errors: a row of the pattern says where in a column.
Entries = Callable[[Ints, sparse.csr_array], tuple[Array, Array]]

Affinities = tuple[Any, Any]  # and their bounds: sparse arrays on the edges, or full arrays


class Problem(NamedTuple):
    """Which affinities are wanted, how, and how exact."""

    decay: float
    sides: str
    pairs: str
    solver: str
    error: float
    n_jobs: int | None
    device: str


def one_sided(graph: KNNGraph, labels: Ints, problem: Problem) -> Affinities:
    """Affinities ``P W0``, symmetrised, and bounds of their errors."""
    decay, error = problem.decay, problem.error
    transition, n_threads = transition_matrix(graph), count_threads(problem.n_jobs)
    edges = None if problem.pairs == "all" else symmetric_edges(graph)
    solver, n, walked = problem.solver, graph.n_samples, None
    if solver == "auto":
        solver = _one_sided_solver(n, problem)
    if solver == "walk" and edges is not None:
        from ssdml.graphs.walks import walk_entries  # loads numba

        most = np.inf if problem.solver == "walk" else _worth_walking(n, transition.nnz)
        walked = walk_entries(
            transition, decay, edges, tol=error, n_threads=n_threads, max_products=most
        )
        if walked is None:
            solver = _exact_solver(n)

    def propagator(name: str, tol: float) -> Certified:
        made = SOLVERS[name](transition, decay, tol=tol, n_threads=n_threads)
        return certified(made, transition, decay)

    mass_error = _mass_error(labels, decay, error)
    propagate: Certified
    propagate_masses: Certified
    if solver == "dense":
        propagate = propagate_masses = propagator("dense", error)
    elif solver == "torch":
        inverse = _torch_inverse(transition, problem)
        propagate = partial(inverse.solve, tol=error)
        propagate_masses = partial(inverse.solve, tol=mass_error)
    else:
        propagate, propagate_masses = (propagator("krylov", e) for e in (error, mass_error))
    if edges is None:
        known = labelled_columns(labels, propagate_masses)
        return symmetrize_everywhere(n, one_sided_columns(known, propagate))
    if walked is not None:
        known = labelled_columns(labels, propagate_masses)  # not before: a walk takes memory too
        parts = with_labelled_columns(edges, walked.values, walked.bounds, known)
    elif solver == "torch":
        known = labelled_columns(labels, propagate_masses)
        parts = with_unlabelled_columns(edges, known, partial(inverse.entries, tol=error))
    else:
        known = labelled_columns(labels, propagate_masses)
        parts = columns_on_edges(edges, one_sided_columns(known, propagate))
    values, errors = (symmetrize_on_edges(edges, part) for part in parts)
    return values, errors


def _one_sided_solver(n_samples: int, problem: Problem) -> str:
    if n_samples <= AUTO_DENSE_ROWS:
        return "dense"
    if problem.pairs == "edges" and problem.error >= AUTO_WALK_TOL * (1 - problem.decay):
        return "walk"
    return _exact_solver(n_samples)


def _exact_solver(n_samples: int) -> str:
    return "dense" if n_samples <= TIGHT_DENSE_ROWS else "krylov"


def _worth_walking(n_samples: int, n_edges: int) -> float:
    """Products of walks that take as long as the other solver."""
    if _exact_solver(n_samples) == "dense":
        return n_samples**3 / DENSE_PACE
    return KRYLOV_STEPS * n_samples * n_edges


def _torch_inverse(transition: sparse.csr_array, problem: Problem) -> TorchInverse:
    from ssdml.graphs._torch_dense import TorchInverse  # loads torch

    return TorchInverse(transition, problem.decay, problem.device)


def two_sided(graph: KNNGraph, labels: Ints, problem: Problem) -> Affinities:
    """Affinities ``P W0 Pᵀ``, and bounds of their errors."""
    check_labelled(labels, "propagate_affinities(sides='two')", "Label some rows, or use 'one'.")
    transition, decay = transition_matrix(graph), problem.decay
    tol = _mass_error(labels, decay, problem.error)
    propagate: Certified
    if problem.solver == "torch":
        propagate = partial(_torch_inverse(transition, problem).solve, tol=tol)
    else:
        make = SOLVERS["krylov" if problem.solver == "auto" else problem.solver]
        made = make(transition, decay, tol=tol, n_threads=count_threads(problem.n_jobs))
        propagate = certified(made, transition, decay)
    values, errors = solve_classes(*class_codes(labels), propagate)
    masses = ClassMasses(np.maximum(values, 0, out=values))
    # |δ(2 F_i·F_j - F_i1 F_j1)| <= |δ_i|₁ + |δ_j|₁ and a term of second order.
    bound = 2 * float(errors.sum()) * (1 + float(errors.sum()))
    if problem.pairs == "all":
        totals = masses.masses.sum(axis=1)
        full: Array = 2 * masses.masses @ masses.masses.T - np.outer(totals, totals)
        return full, np.full(full.shape, bound)
    edges = symmetric_edges(graph)
    rows = np.repeat(np.arange(graph.n_samples), np.diff(edges.indptr))
    edges.data = masses.affinities(rows, edges.indices)
    bounds = (np.full(edges.nnz, bound), edges.indices, edges.indptr)
    return edges, sparse.csr_array(bounds, shape=edges.shape)


def _mass_error(labels: Ints, decay: float, error: float) -> float:
    """Error of a mass that keeps every affinity within ``error``, and small masses right."""
    n_classes = np.unique(labels[labels != UNLABELED]).size
    return min(MASS_TOL * (1 - decay), error / (3 * max(n_classes, 1)))


class LabelledColumns(NamedTuple):
    """Columns of ``P W0`` that belong to labelled rows: all of a class are the same."""

    values: Array  # (n, n_classes)
    error: float  # of every entry
    codes: Ints  # (n,), a row's class as a column of ``values``; -1 where unlabelled


def labelled_columns(labels: Ints, propagate: Certified) -> LabelledColumns:
    """As many solves as classes: for l of class c, ``W*_il = Σ_l' ±P_il' = 2 F_ic - F_i 1``."""
    codes, n_classes = class_codes(labels)
    if not n_classes:
        return LabelledColumns(np.empty((len(labels), 0)), 0.0, codes)
    values, errors = solve_classes(codes, n_classes, propagate)
    totals = values.sum(axis=1, keepdims=True)
    values *= 2
    values -= totals
    return LabelledColumns(values, float(errors.sum()), codes)


def solve_classes(codes: Ints, n_classes: int, propagate: Certified) -> tuple[Array, Array]:
    """Masses of all classes, and the largest error of each; some at a time: solvers hold copies."""
    masses, errors = np.empty((len(codes), n_classes)), np.empty(n_classes)
    for block in row_blocks(n_classes, CLASS_ENTRIES // len(codes)):
        classes = np.arange(n_classes)[block]
        masses[:, block], errors[block] = propagate(np.asarray(codes[:, None] == classes, float))
    return masses, errors


def known_columns(known: LabelledColumns) -> Iterator[tuple[Ints, Array, Array]]:
    """Columns of ``P W0`` that belong to labelled rows."""
    labelled = np.flatnonzero(known.codes != UNLABELED)
    for block in row_blocks(labelled.size, BLOCK_ENTRIES // len(known.codes)):
        columns = labelled[block]
        yield columns, known.values[:, known.codes[columns]], np.full(columns.size, known.error)


def one_sided_columns(
    known: LabelledColumns, propagate: Certified
) -> Iterator[tuple[Ints, Array, Array]]:
    """Columns of ``P W0``: those of unlabelled rows are columns of P, and a solve each."""
    yield from known_columns(known)
    unlabelled = np.flatnonzero(known.codes == UNLABELED)
    for block in row_blocks(unlabelled.size, BLOCK_ENTRIES // len(known.codes)):
        columns = unlabelled[block]
        identity = np.zeros((len(known.codes), columns.size))
        identity[columns, np.arange(columns.size)] = 1
        values, errors = propagate(identity)
        yield columns, values, errors


def symmetric_edges(graph: KNNGraph) -> sparse.csr_array:
    """Ones on the edges of the graph and their reverses; columns sorted."""
    directed = directed_csr(graph, np.ones(graph.indices.shape, bool))
    edges = sparse.csr_array(directed.maximum(directed.T))
    edges.sort_indices()
    return edges


def columns_on_edges(edges: sparse.csr_array, columns: Columns) -> tuple[Array, Array]:
    """Entries of columns on the edges, and their errors: row j of the pattern gets column j."""
    values, errors = np.empty(edges.nnz), np.empty(edges.nnz)
    for indices, entries, largest in columns:
        counts = np.diff(edges.indptr)[indices]
        local = np.repeat(np.arange(indices.size), counts)
        starts = np.repeat(edges.indptr[indices] - np.cumsum(counts) + counts, counts)
        positions = starts + np.arange(counts.sum())
        values[positions] = entries[edges.indices[positions], local]
        errors[positions] = largest[local]
    return values, errors


def with_unlabelled_columns(
    edges: sparse.csr_array, known: LabelledColumns, entries: Entries
) -> tuple[Array, Array]:
    """Known columns on the edges, and beside them entries of P: row j gets column j."""
    values, errors = columns_on_edges(edges, known_columns(known))
    unlabelled = known.codes == UNLABELED
    wanted = np.repeat(unlabelled, np.diff(edges.indptr))
    columns = np.flatnonzero(unlabelled)
    values[wanted], errors[wanted] = entries(columns, edges[columns])
    return values, errors


def with_labelled_columns(
    edges: sparse.csr_array, values: Array, errors: Array, known: LabelledColumns
) -> tuple[Array, Array]:
    """Entries of P on the edges (row i holds row i of P) as entries of ``P W0``."""
    codes = known.codes[edges.indices]
    labelled = np.flatnonzero(codes != UNLABELED)
    rows = np.searchsorted(edges.indptr, labelled, side="right") - 1
    values[labelled], errors[labelled] = known.values[rows, codes[labelled]], known.error
    return values, errors


def symmetrize_on_edges(edges: sparse.csr_array, values: Array) -> sparse.csr_array:
    """``(M + Mᵀ) / 2`` for values on the edges."""
    given = sparse.csr_array((values, edges.indices, edges.indptr), shape=edges.shape)
    # The pattern is its own transpose, so the data of the transpose line up with it.
    turned = sparse.csr_array(given.T)
    turned.sort_indices()
    mean = (values + turned.data) / 2
    return sparse.csr_array((mean, edges.indices, edges.indptr), shape=edges.shape)


def symmetrize_everywhere(n_samples: int, columns: Columns) -> tuple[Array, Array]:
    """All entries ``(W*_ij + W*_ji) / 2`` and their errors; O(n²) memory."""
    full, errors = np.empty((n_samples, n_samples)), np.empty(n_samples)
    for indices, entries, largest in columns:
        full[:, indices], errors[indices] = entries, largest
    return (full + full.T) / 2, (errors[:, None] + errors) / 2
