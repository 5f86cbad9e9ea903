"""Affinity propagation on one side or two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ssdml.graphs.neighbors.knn import KNNGraph, check_graph, directed_csr
from ssdml.graphs.propagation.class_masses import ClassMasses, transition_matrix
from ssdml.graphs.propagation.solvers import SOLVERS, Certified, certified
from ssdml.utils.labels import class_codes
from ssdml.utils.parallel import count_threads, row_blocks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, check_labeled, check_labels, check_number, choose

__all__ = ["propagate_affinities"]

MAX_DENSE_ROWS = 20_000  # an n x n array of float64 takes 3.2 GB here
MASS_TOL = 1e-6  # signs depend on small differences of masses, and solves per class are cheap
AUTO_DENSE_ROWS = 2_000  # "auto" factorizes up to here: some tenths of a second
AUTO_WALK_TOL = 1e-3  # and walks beyond, unless the tolerance is smaller than this
DENSE_PACE = 50  # products of a factorization in the time of one along an edge
KRYLOV_STEPS = 200  # of a walk, beyond which a solve per column is faster
TIGHT_DENSE_ROWS = 12_000  # where "auto" factorizes up to here: 1.2 GB, under a minute on two cores
BLOCK_ENTRIES = 2**21  # entries of a block of right-hand sides
CLASS_ENTRIES = 2**24  # of a block of classes: solvers hold ten such, 1.3 GB

# Indices of columns, these columns of W*, and the largest error of each.
Columns = Iterable[tuple[Ints, Array, Array]]
Affinities = tuple[Any, Any]  # with their bounds: sparse arrays on the edges, or full arrays


def propagate_affinities(
    graph: KNNGraph,
    y: Any,
    *,
    decay: float = 0.99,
    sides: str = "one",
    pairs: str = "edges",
    solver: str = "auto",
    device: str = "auto",
    tol: float = 1e-2,
    return_bound: bool = False,
    n_jobs: int | None = None,
) -> Any:
    r"""Propagate affinities from labeled pairs over the graph.

    .. math:: W^* = P W_0 \;\text{(one side)}, \qquad W^* = P W_0 P^\top \;\text{(two sides)},
        \qquad P = (1 - \gamma) (I - \gamma Q)^{-1}

    with :math:`Q_{ij} = 1/k` for neighbors j of i. :math:`W_0` is 1 for labeled pairs of one
    class (a row with itself included), -1 for labeled pairs of two classes, and 0 elsewhere; on
    one side the diagonal is 1 for unlabeled rows as well. Returned is
    :math:`(W^*_{ij} + W^*_{ji}) / 2`.

    Parameters
    ----------
    graph : KNNGraph
    y : array of shape (n_samples,), int
        -1 where unlabeled.
    decay : float
        γ, between 0 and 1.
    sides : {"one", "two"}
    pairs : {"edges", "all"}
        Edges of the graph and their reverses, or all pairs: O(n²) memory.
    solver : {"auto", "dense", "walk", "krylov", "torch"}
        "dense" factorizes an n x n array, "torch" does so on ``device`` in refined single
        precision, "krylov" solves for blocks of columns, and "walk" (one side, on edges) takes a
        few steps from each row or column, at a cost that hardly grows with n. "auto" takes
        "dense" for few rows and "walk" for many, unless many steps are needed, as for embeddings
        of texts. On two sides it is "krylov".
    device : str
        Device for "torch": "auto" is CUDA if available, else the CPU. Must have room for two
        n x n arrays, of float32 unless ``decay`` is above 0.99998.
    tol : float
        Largest error of an affinity, in units of ``1 - decay``.
    return_bound : bool
        Whether to return error bounds as well.
    n_jobs : int or None
        Threads of "walk" and "krylov", as joblib counts them: None is 1, -1 all. Never changes the
        result.

    Returns
    -------
    affinities : csr_array of shape (n_samples, n_samples), or ndarray for ``pairs="all"``
        Symmetric. The sparse array has zero diagonal and stores every edge, even if 0.
    bounds : csr_array or ndarray like affinities
        Bounds of the absolute errors; only with ``return_bound``.

    Notes
    -----
    One side is [1]_ as quoted in [2]_. Labels reach only pairs with a labeled row; the block of
    unlabeled pairs is plain diffusion P, never negative. It takes a solve per unlabeled row.

    Two sides are ours and carry labels to every pair. In terms of :func:`class_masses`,
    :math:`W^*_{ij} = 2 F_i \cdot F_j - (F_i 1)(F_j 1)`, with a solve per class. Unlabeled rows have
    no 1 on the diagonal of :math:`W_0`: it would add :math:`(P_U P_U^\top)_{ij} \ge 0`, diffusion
    without labels, which outweighs the labeled masses near the diagonal and hides their sign.

    References
    ----------
    .. [1] Liu, Ma, Tao, Liu, Liu, "Semi-supervised sparse metric learning using alternating
       linearization optimization", KDD 2010.
    .. [2] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021.

    Examples
    --------
    >>> graph = KNNGraph(np.array([[2], [3], [0], [1]]), np.ones((4, 1)))
    >>> propagate_affinities(graph, [0, 1, -1, -1], decay=0.5, pairs="all").round(3)
    array([[ 0.667, -0.667,  0.333, -0.167],
           [-0.667,  0.667, -0.167,  0.333],
           [ 0.333, -0.167,  0.667,  0.   ],
           [-0.167,  0.333,  0.   ,  0.667]])
    """
    who = "propagate_affinities"
    decay = check_number(decay, "decay", who, above=0, below=1)
    tol = check_number(tol, "tol", who, above=0)
    labels = check_labels(y, check_graph(graph, who).n_samples, who)
    spread = choose({"one": _one_sided, "two": _two_sided}, sides, f"{who}: sides")
    choose({"edges": None, "all": None}, pairs, f"{who}: pairs")
    choose({"auto": None, "walk": None, "torch": None, **SOLVERS}, solver, f"{who}: solver")
    if graph.n_samples > MAX_DENSE_ROWS and (solver == "dense" or pairs == "all"):
        raise ValueError(
            f"{who}: n must be at most {MAX_DENSE_ROWS} for solver='dense' or pairs='all', which "
            f"fill n x n arrays; got {graph.n_samples}. Use pairs='edges' with solver='auto', or "
            "class_masses."
        )
    if device != "auto" and solver != "torch":
        raise ValueError(
            f"{who}: device must be 'auto' unless solver is 'torch'; got {device!r} with "
            f"{solver!r}. Pass solver='torch' to factorize there."
        )
    if solver == "walk" and (sides, pairs) != ("one", "edges"):
        raise ValueError(
            f"{who}: solver='walk' must come with sides='one' and pairs='edges'; got {sides!r} "
            f"and {pairs!r}. Use solver='auto'."
        )
    if sides == "two":
        check_labeled(labels, f"{who}(sides='two')", "Label some rows, or use 'one'.")
    edges = None if pairs == "all" else symmetric_edges(graph)
    n_threads, error = count_threads(n_jobs, who), tol * (1 - decay)
    affinities, bounds = spread(
        Problem(transition_matrix(graph), edges, labels, decay, error, solver, device, n_threads)
    )
    return (affinities, bounds) if return_bound else affinities


class Problem(NamedTuple):
    """Affinities to compute, and how."""

    transition: sparse.csr_array
    edges: sparse.csr_array | None  # None: all pairs
    labels: Ints
    decay: float
    error: float  # the largest allowed
    solver: str
    device: str
    n_threads: int

    @property
    def mass_error(self) -> float:
        """Error of a mass that keeps every affinity within ``error``, and small masses right."""
        n_classes = np.unique(self.labels[self.labels != UNLABELED]).size
        return min(MASS_TOL * (1 - self.decay), self.error / (3 * max(n_classes, 1)))

    def solvers(self, name: str, *tols: float) -> list[Certified]:
        """Prepare a solver for each tolerance."""
        if name == "torch":
            from ssdml.graphs.propagation.dense_torch import TorchInverse  # loads torch

            inverse = TorchInverse(self.transition, self.decay, self.device)
            return [partial(inverse.solve, tol=tol) for tol in tols]

        def make(tol: float) -> Certified:
            arguments = self.transition, self.decay
            solve = SOLVERS[name](*arguments, tol=tol, n_threads=self.n_threads)
            return certified(solve, *arguments)

        # One factorization is exact for all tolerances.
        return [make(tols[0])] * len(tols) if name == "dense" else [make(tol) for tol in tols]


def _one_sided(problem: Problem) -> Affinities:
    """Compute affinities ``P W0``, symmetrized, and bounds of their errors."""
    edges, labels, solver, walked = problem.edges, problem.labels, problem.solver, None
    exact = "dense" if labels.size <= TIGHT_DENSE_ROWS else "krylov"
    if solver == "auto":
        loose = problem.error >= AUTO_WALK_TOL * (1 - problem.decay)
        solver = "walk" if edges is not None and loose else exact
        solver = "dense" if labels.size <= AUTO_DENSE_ROWS else solver
    if solver == "walk" and edges is not None:
        from ssdml.graphs.propagation.walks import walk_entries  # loads numba

        # Products of walks that take as long as the other solver.
        most = KRYLOV_STEPS * labels.size * problem.transition.nnz
        most = labels.size**3 / DENSE_PACE if exact == "dense" else most
        walked = walk_entries(
            problem.transition,
            problem.decay,
            edges,
            tol=problem.error,
            n_threads=problem.n_threads,
            max_products=np.inf if problem.solver == "walk" else most,
        )
        solver = exact if walked is None else "krylov"
    propagate, propagate_masses = problem.solvers(solver, problem.error, problem.mass_error)
    known = _labeled_columns(labels, propagate_masses)
    if edges is None:
        return _symmetrize_everywhere(labels.size, _one_sided_columns(known, propagate))
    if walked is not None:
        parts = _with_labeled_columns(edges, walked.values, walked.bounds, known)
    else:
        parts = _columns_on_edges(edges, _one_sided_columns(known, propagate))
    values, errors = (_symmetrize_on_edges(edges, part) for part in parts)
    return values, errors


def _two_sided(problem: Problem) -> Affinities:
    """Compute affinities ``P W0 Pᵀ``, and bounds of their errors."""
    solver = "krylov" if problem.solver == "auto" else problem.solver
    [propagate] = problem.solvers(solver, problem.mass_error)
    values, errors = _solve_classes(*class_codes(problem.labels), propagate)
    masses = ClassMasses(np.maximum(values, 0, out=values))
    # |δ(2 F_i·F_j - F_i1 F_j1)| <= |δ_i|₁ + |δ_j|₁ and a term of second order.
    bound = 2 * float(errors.sum()) * (1 + float(errors.sum()))
    edges = problem.edges
    if edges is None:
        totals = masses.masses.sum(axis=1)
        full: Array = 2 * masses.masses @ masses.masses.T - np.outer(totals, totals)
        return full, np.full(full.shape, bound)
    rows = np.repeat(np.arange(edges.shape[0]), np.diff(edges.indptr))
    edges.data = masses.affinities(rows, edges.indices)
    bounds = (np.full(edges.nnz, bound), edges.indices, edges.indptr)
    return edges, sparse.csr_array(bounds, shape=edges.shape)


class LabeledColumns(NamedTuple):
    """Columns of ``P W0`` of labeled rows: those of a class are all the same."""

    values: Array  # (n, n_classes)
    error: float  # of every entry
    codes: Ints  # (n,), column of ``values`` for each row; -1 where unlabeled


def _labeled_columns(labels: Ints, propagate: Certified) -> LabeledColumns:
    """Solve per class: for l of class c, ``W*_il = Σ_l' ±P_il' = 2 F_ic - F_i 1``."""
    codes, n_classes = class_codes(labels)
    if not n_classes:
        return LabeledColumns(np.empty((len(labels), 0)), 0.0, codes)
    values, errors = _solve_classes(codes, n_classes, propagate)
    totals = values.sum(axis=1, keepdims=True)
    values *= 2
    values -= totals
    return LabeledColumns(values, float(errors.sum()), codes)


def _solve_classes(codes: Ints, n_classes: int, propagate: Certified) -> tuple[Array, Array]:
    """Compute masses of all classes, and the largest error of each, in blocks of classes."""
    masses, errors = np.empty((len(codes), n_classes)), np.empty(n_classes)
    for block in row_blocks(n_classes, CLASS_ENTRIES // len(codes)):
        classes = np.arange(n_classes)[block]
        masses[:, block], errors[block] = propagate(np.asarray(codes[:, None] == classes, float))
    return masses, errors


def _one_sided_columns(
    known: LabeledColumns, propagate: Certified
) -> Iterator[tuple[Ints, Array, Array]]:
    """Yield columns of ``P W0``: those of unlabeled rows are columns of P, each a solve."""
    n = len(known.codes)
    labeled, unlabeled = (np.flatnonzero((known.codes == UNLABELED) == is_un) for is_un in (0, 1))
    for block in row_blocks(labeled.size, BLOCK_ENTRIES // n):
        columns = labeled[block]
        yield columns, known.values[:, known.codes[columns]], np.full(columns.size, known.error)
    for block in row_blocks(unlabeled.size, BLOCK_ENTRIES // n):
        columns = unlabeled[block]
        identity = np.zeros((n, columns.size))
        identity[columns, np.arange(columns.size)] = 1
        values, errors = propagate(identity)
        yield columns, values, errors


def symmetric_edges(graph: KNNGraph) -> sparse.csr_array:
    """Put ones on the edges of the graph and their reverses; columns sorted."""
    directed = directed_csr(graph, np.ones(graph.indices.shape, bool))
    edges = sparse.csr_array(directed.maximum(directed.T))
    edges.sort_indices()
    return edges


def _columns_on_edges(edges: sparse.csr_array, columns: Columns) -> tuple[Array, Array]:
    """Gather entries of columns on the edges, and their errors; row j of the edges is column j."""
    values, errors = np.empty(edges.nnz), np.empty(edges.nnz)
    for indices, entries, largest in columns:
        counts = np.diff(edges.indptr)[indices]
        local = np.repeat(np.arange(indices.size), counts)
        starts = np.repeat(edges.indptr[indices] - np.cumsum(counts) + counts, counts)
        positions = starts + np.arange(counts.sum())
        values[positions] = entries[edges.indices[positions], local]
        errors[positions] = largest[local]
    return values, errors


def _with_labeled_columns(
    edges: sparse.csr_array, values: Array, errors: Array, known: LabeledColumns
) -> tuple[Array, Array]:
    """Turn entries of P on the edges (row i holds row i of P) into entries of ``P W0``."""
    codes = known.codes[edges.indices]
    labeled = np.flatnonzero(codes != UNLABELED)
    rows = np.searchsorted(edges.indptr, labeled, side="right") - 1
    values[labeled], errors[labeled] = known.values[rows, codes[labeled]], known.error
    return values, errors


def _symmetrize_on_edges(edges: sparse.csr_array, values: Array) -> sparse.csr_array:
    """Compute ``(M + Mᵀ) / 2`` for values on the edges."""
    given = sparse.csr_array((values, edges.indices, edges.indptr), shape=edges.shape)
    # The pattern is its own transpose, so the data of the transpose match.
    turned = sparse.csr_array(given.T)
    turned.sort_indices()
    mean = (values + turned.data) / 2
    return sparse.csr_array((mean, edges.indices, edges.indptr), shape=edges.shape)


def _symmetrize_everywhere(n_samples: int, columns: Columns) -> tuple[Array, Array]:
    """Compute all entries ``(W*_ij + W*_ji) / 2`` and their errors; O(n²) memory."""
    full, errors = np.empty((n_samples, n_samples)), np.empty(n_samples)
    for indices, entries, largest in columns:
        full[:, indices], errors[indices] = entries, largest
    return (full + full.T) / 2, (errors[:, None] + errors) / 2
