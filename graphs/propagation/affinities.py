"""Affinities on one side or two: where the entries come from, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from ssdml.graphs.neighbors.knn import KNNGraph, check_graph, directed_csr
from ssdml.graphs.propagation.class_masses import ClassMasses, transition_matrix
from ssdml.graphs.propagation.solvers import SOLVERS, Certified, certified
from ssdml.utils.labels import class_codes
from ssdml.utils.parallel import count_threads, row_blocks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import (
    UNLABELED,
    check_labeled,
    check_labels,
    check_number,
    choose,
)

if TYPE_CHECKING:
    from ssdml.graphs.propagation.dense_torch import TorchInverse

__all__ = ["propagate_affinities"]

MASS_TOL = 1e-6  # a sign hangs on small differences of masses, and C solves are cheap
AUTO_DENSE_ROWS = 2_000  # "auto" factorizes up to here: some tenths of a second
AUTO_WALK_TOL = 1e-3  # and walks beyond, unless the tolerance is smaller than this
DENSE_PACE = 50  # products of a factorization in the time of one along an edge
KRYLOV_STEPS = 200  # of a walk, beyond which a solve for each column is quicker
TIGHT_DENSE_ROWS = 12_000  # where it factorizes up to here: 1.2 GB, under a minute on two cores
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
    """Affinities ``P W0``, symmetrized, and bounds of their errors."""
    decay, error = problem.decay, problem.error
    transition, n_threads = transition_matrix(graph), count_threads(problem.n_jobs)
    edges = None if problem.pairs == "all" else symmetric_edges(graph)
    solver, n, walked = problem.solver, graph.n_samples, None
    if solver == "auto":
        solver = _one_sided_solver(n, problem)
    if solver == "walk" and edges is not None:
        from ssdml.graphs.propagation.walks import walk_entries  # loads numba

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
        known = labeled_columns(labels, propagate_masses)
        return symmetrize_everywhere(n, one_sided_columns(known, propagate))
    if walked is not None:
        known = labeled_columns(labels, propagate_masses)  # not before: a walk takes memory too
        parts = with_labeled_columns(edges, walked.values, walked.bounds, known)
    elif solver == "torch":
        known = labeled_columns(labels, propagate_masses)
        parts = with_unlabeled_columns(edges, known, partial(inverse.entries, tol=error))
    else:
        known = labeled_columns(labels, propagate_masses)
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
    from ssdml.graphs.propagation.dense_torch import TorchInverse  # loads torch

    return TorchInverse(transition, problem.decay, problem.device)


def two_sided(graph: KNNGraph, labels: Ints, problem: Problem) -> Affinities:
    """Affinities ``P W0 Pᵀ``, and bounds of their errors."""
    check_labeled(labels, "propagate_affinities(sides='two')", "Label some rows, or use 'one'.")
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


class LabeledColumns(NamedTuple):
    """Columns of ``P W0`` that belong to labeled rows: all of a class are the same."""

    values: Array  # (n, n_classes)
    error: float  # of every entry
    codes: Ints  # (n,), a row's class as a column of ``values``; -1 where unlabeled


def labeled_columns(labels: Ints, propagate: Certified) -> LabeledColumns:
    """As many solves as classes: for l of class c, ``W*_il = Σ_l' ±P_il' = 2 F_ic - F_i 1``."""
    codes, n_classes = class_codes(labels)
    if not n_classes:
        return LabeledColumns(np.empty((len(labels), 0)), 0.0, codes)
    values, errors = solve_classes(codes, n_classes, propagate)
    totals = values.sum(axis=1, keepdims=True)
    values *= 2
    values -= totals
    return LabeledColumns(values, float(errors.sum()), codes)


def solve_classes(codes: Ints, n_classes: int, propagate: Certified) -> tuple[Array, Array]:
    """Masses of all classes, and the largest error of each; some at a time: solvers hold copies."""
    masses, errors = np.empty((len(codes), n_classes)), np.empty(n_classes)
    for block in row_blocks(n_classes, CLASS_ENTRIES // len(codes)):
        classes = np.arange(n_classes)[block]
        masses[:, block], errors[block] = propagate(np.asarray(codes[:, None] == classes, float))
    return masses, errors


def known_columns(known: LabeledColumns) -> Iterator[tuple[Ints, Array, Array]]:
    """Columns of ``P W0`` that belong to labeled rows."""
    labeled = np.flatnonzero(known.codes != UNLABELED)
    for block in row_blocks(labeled.size, BLOCK_ENTRIES // len(known.codes)):
        columns = labeled[block]
        yield columns, known.values[:, known.codes[columns]], np.full(columns.size, known.error)


def one_sided_columns(
    known: LabeledColumns, propagate: Certified
) -> Iterator[tuple[Ints, Array, Array]]:
    """Columns of ``P W0``: those of unlabeled rows are columns of P, and a solve each."""
    yield from known_columns(known)
    unlabeled = np.flatnonzero(known.codes == UNLABELED)
    for block in row_blocks(unlabeled.size, BLOCK_ENTRIES // len(known.codes)):
        columns = unlabeled[block]
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


def with_unlabeled_columns(
    edges: sparse.csr_array, known: LabeledColumns, entries: Entries
) -> tuple[Array, Array]:
    """Known columns on the edges, and beside them entries of P: row j gets column j."""
    values, errors = columns_on_edges(edges, known_columns(known))
    unlabeled = known.codes == UNLABELED
    wanted = np.repeat(unlabeled, np.diff(edges.indptr))
    columns = np.flatnonzero(unlabeled)
    values[wanted], errors[wanted] = entries(columns, edges[columns])
    return values, errors


def with_labeled_columns(
    edges: sparse.csr_array, values: Array, errors: Array, known: LabeledColumns
) -> tuple[Array, Array]:
    """Entries of P on the edges (row i holds row i of P) as entries of ``P W0``."""
    codes = known.codes[edges.indices]
    labeled = np.flatnonzero(codes != UNLABELED)
    rows = np.searchsorted(edges.indptr, labeled, side="right") - 1
    values[labeled], errors[labeled] = known.values[rows, codes[labeled]], known.error
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


MAX_DENSE_ROWS = 20_000  # an n x n array of float64 takes 3.2 GB here


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
    r"""Affinities between rows, spread from the labeled pairs along the graph.

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
        "dense" factorizes an n x n array; "krylov" solves for a block of columns at a time; "walk"
        (one side, on edges) walks a few steps from each row or back from each column, at a cost
        that hardly grows with n but for the hubs, and that "auto" leaves for the others where it
        finds that many steps lie ahead, as among embeddings of texts; "torch" does what "dense"
        does on ``device``, in single precision refined to ``tol``, to the last digit as its threads
        have it. Two sides need few solves: there "auto" is "krylov".
    device : str
        Where "torch" factorizes: "auto" is CUDA where torch finds it, else the CPU. It must have
        room for two n x n arrays, of float32 unless ``decay`` lies above 0.99998.
    tol : float
        Largest error of an affinity, in units of ``1 - decay``.
    return_bound : bool
        Whether to return, beside the affinities, how wrong each of them may be.
    n_jobs : int or None
        Threads of "walk" and "krylov", as joblib counts them: None is 1, -1 all. Never changes the
        result.

    Returns
    -------
    affinities : csr_array of shape (n_samples, n_samples), or ndarray for ``pairs="all"``
        Symmetric. The sparse array has zero diagonal and stores every edge, zeros as well.
    bounds : csr_array or ndarray like affinities
        Bounds of the absolute errors; only with ``return_bound``.

    Notes
    -----
    One side is [1]_ as [2]_ quotes it. There the block of unlabeled pairs is P itself: labels
    reach only pairs with a labeled row, and the rest is plain diffusion, never negative. Without
    labels W* is P. It takes a solve for each unlabeled row.

    Two sides carry labels to every pair. In terms of the class masses F of
    :func:`class_masses`, :math:`W^*_{ij} = 2 F_i \cdot F_j - (F_i 1)(F_j 1)`: as many solves as
    classes. Unlabeled rows have no 1 on the diagonal of :math:`W_0` here: it would add
    :math:`(P_U P_U^\top)_{ij} \ge 0`, diffusion without labels, which outweighs the labeled
    masses near the diagonal and hides their sign. This side is ours, not the paper's.

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
    decay = check_number(decay, "decay", "propagate_affinities", above=0, below=1)
    tol = check_number(tol, "tol", "propagate_affinities", above=0)
    labels = check_labels(
        y, check_graph(graph, "propagate_affinities").n_samples, "propagate_affinities"
    )
    spread = choose({"one": one_sided, "two": two_sided}, sides, "propagate_affinities: sides")
    choose({"edges": None, "all": None}, pairs, "propagate_affinities: pairs")
    solvers = {"auto": None, "walk": None, "torch": None, **SOLVERS}
    choose(solvers, solver, "propagate_affinities: solver")
    problem = Problem(decay, sides, pairs, solver, tol * (1 - decay), n_jobs, device)
    _check_problem(graph.n_samples, problem)
    affinities, bounds = spread(graph, labels, problem)
    return (affinities, bounds) if return_bound else affinities


def _check_problem(n_samples: int, problem: Problem) -> None:
    if n_samples > MAX_DENSE_ROWS and (problem.solver == "dense" or problem.pairs == "all"):
        raise ValueError(
            f"propagate_affinities: n must be at most {MAX_DENSE_ROWS} for solver='dense' or "
            f"pairs='all', which fill n x n arrays; got {n_samples}. "
            "Use pairs='edges' with solver='auto', or class_masses."
        )
    if problem.device != "auto" and problem.solver != "torch":
        raise ValueError(
            f"propagate_affinities: device must be 'auto' unless solver is 'torch'; got "
            f"{problem.device!r} with {problem.solver!r}. Pass solver='torch' to factorize there."
        )
    if problem.solver == "walk" and (problem.sides, problem.pairs) != ("one", "edges"):
        raise ValueError(
            "propagate_affinities: solver='walk' must come with sides='one' and pairs='edges'; "
            f"got {problem.sides!r} and {problem.pairs!r}. Use solver='auto'."
        )
