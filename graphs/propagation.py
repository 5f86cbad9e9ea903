"""Labels and affinities carried along the edges of a neighbour graph."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ssdml.graphs._blocks import count_threads, threads
from ssdml.graphs._checks import check_inside, check_labelled, check_labels, check_positive, choose
from ssdml.graphs.affinities import Problem, one_sided, two_sided
from ssdml.graphs.laplacian import symmetric_weights
from ssdml.graphs.masses import ClassMasses, class_codes, class_masses
from ssdml.graphs.neighbors import KNNGraph, check_graph
from ssdml.graphs.solvers import SOLVERS
from ssdml.graphs.spreading import check_start, class_shares, spread_scores, to_simplex
from ssdml.utils.typing import Array

__all__ = ["ClassMasses", "class_masses", "propagate_affinities", "propagate_labels"]

MAX_DENSE_ROWS = 20_000  # an n x n array of float64 takes 3.2 GB here


def propagate_labels(
    graph: Any,
    y: Any,
    *,
    decay: float = 0.99,
    class_prior: Any = None,
    tol: float = 1e-6,
    start: Array | None = None,
    return_solution: bool = False,
    n_jobs: int | None = None,
) -> Any:
    r"""Distribution of the classes at each row, spread from the labelled rows.

    .. math:: F = (1 - \gamma) (I - \gamma D^{-1/2} W D^{-1/2})^{-1} H

    Rows are scaled to sum to 1, columns so that the mass of each class over all rows follows
    ``class_prior``, and rows to sum to 1 again.

    Parameters
    ----------
    graph : KNNGraph or sparse array of shape (n_samples, n_samples)
        A sparse array holds symmetric weights of at least 0; duplicate entries are summed, and
        one on the diagonal lets labels stay where they are. A KNNGraph takes the weights of
        :func:`adjacency`: "cosine" for a graph of cosine distances, "heat" otherwise.
    y : array of shape (n_samples,), int
        -1 where unlabelled.
    decay : float
        γ, between 0 and 1: the closer to 1, the farther labels reach.
    class_prior : array of shape (n_classes,), or None
        Share of each class among all rows; None: its share among the labelled rows.
    tol : float
        2-norm of the solver's residual, relative to the right-hand side, for each class.
    start : array of shape (n_samples, n_classes), or None
        Where the solver begins: the scores F of an earlier call on a similar graph.
    return_solution : bool
        Whether to return the solver's solution as well.
    n_jobs : int or None
        Threads, as joblib counts them: None is 1, -1 all. Never changes the result.

    Returns
    -------
    distributions : ndarray of shape (n_samples, n_classes)
        Columns in the order of ``np.unique(y[y != -1])``; in single precision where the distances
        or weights of the graph are.
    solution : Solution
        Scores F as ``values``, in the precision of the distributions where that can tell them from
        0, ``n_iter`` and ``residual``; only with ``return_solution``.

    Warns
    -----
    RuntimeWarning
        Where no label reaches some rows (they get ``class_prior``), or the solver stops early.

    Notes
    -----
    Differs from [1]_ in three ways: (a) classes are rescaled to their prior masses, after [2]_;
    (b) the linear system is solved by conjugate gradients in single precision, with residuals in
    double, and a coarse correction that saves half of the steps as long as labels reach all rows
    well; (c) one more step of the fixed point
    follows, so that rows whose mass is below the tolerance take the proportions of their
    neighbours. Labelled rows are not clamped: one among many of another class can be outvoted.

    References
    ----------
    .. [1] Zhou et al., "Learning with local and global consistency", NeurIPS 2003.
    .. [2] Zhu, Ghahramani, Lafferty, "Semi-supervised learning using Gaussian fields and harmonic
       functions", ICML 2003, Eq. (9).

    Examples
    --------
    >>> from scipy import sparse
    >>> path = sparse.csr_array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> propagate_labels(path, [0, -1, 1], decay=0.5).round(3)
    array([[0.875, 0.125],
           [0.5  , 0.5  ],
           [0.125, 0.875]])
    """
    decay = check_inside(decay, 0, 1, "decay", "propagate_labels")
    tol = check_positive(tol, "tol", "propagate_labels")
    weights = symmetric_weights(graph, "propagate_labels")
    labels = check_labels(y, weights.shape[0], "propagate_labels")
    check_labelled(labels, "propagate_labels", "Label some rows.")
    codes, n_classes = class_codes(labels)
    prior = class_shares(class_prior, codes, n_classes)
    start = None if start is None else np.asarray(start)
    check_start(start, (len(labels), n_classes))
    given = graph.distances if isinstance(graph, KNNGraph) else graph
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    with threads(count_threads(n_jobs)) as pool:
        solution = spread_scores(weights, codes, n_classes, decay, tol, start, dtype, pool)
    if not solution.converged:
        warnings.warn(
            f"propagate_labels: stopped after {solution.n_iter} steps with residual "
            f"{solution.residual:.1e} > tol={tol:.1e}; raise tol.",
            RuntimeWarning,
            stacklevel=2,
        )
    distributions = to_simplex(solution.values, prior, dtype)
    return (distributions, solution) if return_solution else distributions


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
    r"""Affinities between rows, spread from the labelled pairs along the graph.

    .. math:: W^* = P W_0 \;\text{(one side)}, \qquad W^* = P W_0 P^\top \;\text{(two sides)},
        \qquad P = (1 - \gamma) (I - \gamma Q)^{-1}

    with :math:`Q_{ij} = 1/k` for neighbours j of i. :math:`W_0` is 1 for labelled pairs of one
    class (a row with itself included), -1 for labelled pairs of two classes, and 0 elsewhere; on
    one side the diagonal is 1 for unlabelled rows as well. Returned is
    :math:`(W^*_{ij} + W^*_{ji}) / 2`.

    Parameters
    ----------
    graph : KNNGraph
    y : array of shape (n_samples,), int
        -1 where unlabelled.
    decay : float
        γ, between 0 and 1.
    sides : {"one", "two"}
    pairs : {"edges", "all"}
        Edges of the graph and their reverses, or all pairs: O(n²) memory.
    solver : {"auto", "dense", "walk", "krylov", "torch"}
        "dense" factorises an n x n array; "krylov" solves for a block of columns at a time; "walk"
        (one side, on edges) walks a few steps from each row or back from each column, at a cost
        that hardly grows with n but for the hubs, and that "auto" leaves for the others where it
        finds that many steps lie ahead, as among embeddings of texts; "torch" does what "dense"
        does on ``device``, in single precision refined to ``tol``, to the last digit as its threads
        have it. Two sides need few solves: there "auto" is "krylov".
    device : str
        Where "torch" factorises: "auto" is CUDA where torch finds it, else the CPU. It must have
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
    One side is [1]_ as [2]_ quotes it. There the block of unlabelled pairs is P itself: labels
    reach only pairs with a labelled row, and the rest is plain diffusion, never negative. Without
    labels W* is P. It takes a solve for each unlabelled row.

    Two sides carry labels to every pair. In terms of the class masses F of
    :func:`class_masses`, :math:`W^*_{ij} = 2 F_i \cdot F_j - (F_i 1)(F_j 1)`: as many solves as
    classes. Unlabelled rows have no 1 on the diagonal of :math:`W_0` here: it would add
    :math:`(P_U P_U^\top)_{ij} \ge 0`, diffusion without labels, which outweighs the labelled
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
    decay = check_inside(decay, 0, 1, "decay", "propagate_affinities")
    tol = check_positive(tol, "tol", "propagate_affinities")
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
            f"{problem.device!r} with {problem.solver!r}. Pass solver='torch' to factorise there."
        )
    if problem.solver == "walk" and (problem.sides, problem.pairs) != ("one", "edges"):
        raise ValueError(
            "propagate_affinities: solver='walk' must come with sides='one' and pairs='edges'; "
            f"got {problem.sides!r} and {problem.pairs!r}. Use solver='auto'."
        )
