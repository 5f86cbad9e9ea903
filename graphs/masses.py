"""Class masses: two-sided affinities of all pairs, in factored form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._blocks import count_threads
from ssdml.graphs._checks import (
    UNLABELED,
    check_inside,
    check_labelled,
    check_labels,
    check_positive,
    choose,
)
from ssdml.graphs.laplacian import row_normalized, symmetric_weights
from ssdml.graphs.neighbors import KNNGraph, directed_csr
from ssdml.graphs.solvers import SOLVERS, krylov_propagator
from ssdml.utils.typing import Array, Ints


@dataclass(frozen=True, eq=False)
class ClassMasses:
    r"""Labelled mass of each class that a random walk from each row comes to.

    Row i of ``masses`` holds :math:`F_{ic} = \sum_{l \in c} P_{il}` over the labelled rows of
    class c. Distributions of classes, as :func:`propagate_labels` gives, serve as masses too.

    Parameters
    ----------
    masses : ndarray of shape (n_samples, n_classes)
        Not negative; rows sum to at most 1.

    Examples
    --------
    >>> masses = ClassMasses(np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 0.5]]))
    >>> masses.affinities(np.array([0, 0]), np.array([1, 2]))
    array([ 0.25, -0.25])
    """

    masses: Array

    def affinities(self, i: Any, j: Any) -> Array:
        """Two-sided affinities ``2 F_i · F_j - (F_i 1)(F_j 1)`` of the pairs (i, j)."""
        left, right = self.masses[i], self.masses[j]
        totals = left.sum(axis=-1) * right.sum(axis=-1)
        affinities: Array = 2 * np.einsum("...c,...c->...", left, right) - totals
        return affinities


def class_masses(
    graph: Any,
    y: Any,
    *,
    decay: float = 0.99,
    solver: str = "auto",
    tol: float = 1e-6,
    n_jobs: int | None = None,
) -> ClassMasses:
    r"""Labelled mass of each class that a random walk from each row comes to.

    .. math:: F = (1 - \gamma) (I - \gamma Q)^{-1} H, \qquad Q_{ij} = 1/k \text{ for } j \in N_k(i)

    with H the one-hot labels, zero on unlabelled rows.

    Parameters
    ----------
    graph : KNNGraph or sparse array of shape (n_samples, n_samples)
        A sparse array holds symmetric weights of at least 0, as :func:`adjacency` gives; then the
        walk goes to a neighbour in proportion to its weight, and stays by one on the diagonal.
        Duplicate entries are summed.
    y : array of shape (n_samples,), int
        -1 where unlabelled.
    decay : float
        γ, between 0 and 1.
    solver : {"auto", "dense", "krylov"}
        "auto" is "krylov": there are only as many right-hand sides as classes.
    tol : float
        Largest error of a mass, in units of ``1 - decay``.
    n_jobs : int or None
        Threads, as joblib counts them: None is 1, -1 all. Never changes the result.

    Returns
    -------
    masses : ClassMasses
        Columns in the order of ``np.unique(y[y != -1])``; zero where no label can be reached.

    Examples
    --------
    >>> graph = KNNGraph(np.array([[1], [0]]), np.ones((2, 1)))
    >>> class_masses(graph, [0, -1], decay=0.5).masses.round(6)
    array([[0.666667],
           [0.333333]])
    """
    decay = check_inside(decay, 0, 1, "decay", "class_masses")
    tol = check_positive(tol, "tol", "class_masses")
    transition = transition_matrix(graph)
    labels = check_labels(y, transition.shape[0], "class_masses")
    check_labelled(labels, "class_masses", "Label some rows.")
    make = choose({"auto": krylov_propagator, **SOLVERS}, solver, "class_masses: solver")
    propagate = make(transition, decay, tol=tol * (1 - decay), n_threads=count_threads(n_jobs))
    # The true masses are not negative; an approximate one may be, by as little as tol.
    return ClassMasses(np.maximum(propagate(one_hot(labels)), 0))


def transition_matrix(graph: Any) -> sparse.csr_array:
    """Random walk: to a neighbour drawn evenly, or by weight; rows sum to 1, or 0 if alone."""
    if isinstance(graph, KNNGraph):
        return directed_csr(graph, np.full(graph.indices.shape, 1 / graph.n_neighbors))
    return row_normalized(symmetric_weights(graph, "class_masses"))


def class_codes(labels: Ints) -> tuple[Ints, int]:
    """Place of each row's class in ``np.unique``, -1 where unlabelled, and how many there are."""
    codes, labelled = np.full(len(labels), UNLABELED), labels != UNLABELED
    classes, codes[labelled] = np.unique(labels[labelled], return_inverse=True)
    return codes, len(classes)


def one_hot(labels: Ints) -> Array:
    """Indicator of each class, in the order of ``np.unique``; zero on unlabelled rows."""
    codes, n_classes = class_codes(labels)
    indicator = np.zeros((len(labels), n_classes))
    labelled = np.flatnonzero(codes != UNLABELED)
    indicator[labelled, codes[labelled]] = 1
    return indicator
