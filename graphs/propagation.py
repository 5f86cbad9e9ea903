"""Labels and affinities carried along the edges of a neighbour graph."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._checks import (
    UNLABELED,
    Floats,
    Integers,
    check_inside,
    check_labelled,
    check_labels,
    choose,
)
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors import KNNGraph
from ssdml.graphs.solvers import SOLVERS, conjugate_gradient, krylov_propagator


def propagate_labels(
    graph: KNNGraph | sparse.csr_array,
    y: Any,
    *,
    decay: float = 0.99,
    class_prior: Any = None,
    tol: float = 1e-6,
) -> Floats:
    """Distribution of the classes at each row."""
    decay = check_inside(decay, 0, 1, "decay", "propagate_labels")
    if isinstance(graph, KNNGraph):
        graph = adjacency(graph, weights="cosine" if graph.metric == "cosine" else "heat")
    labels = check_labels(y, graph.shape[0], "propagate_labels")
    check_labelled(
        labels, "propagate_labels", "Label some rows; unlabelled rows alone say nothing."
    )
    seeds, counts = _one_hot(labels)
    prior = counts / counts.sum() if class_prior is None else np.asarray(class_prior, np.float64)
    similarity = _symmetric_normalised(graph)
    result = conjugate_gradient(similarity, decay, (1 - decay) * seeds, tol=tol)
    if not result.converged:
        warnings.warn(
            f"propagate_labels: stopped after {result.n_iter} steps with residual "
            f"{result.residual:.1e} > tol={tol:.1e}; raise tol.",
            RuntimeWarning,
            stacklevel=2,
        )
    # One more step of the fixed point: a row far from the labels, whose mass is below the solver's
    # tolerance, takes the proportions of its neighbours.
    scores = np.maximum(result.solution, 0)
    scores = decay * (similarity @ scores) + (1 - decay) * seeds
    scores *= prior / scores.sum(axis=0)
    masses = scores.sum(axis=1, keepdims=True)
    unreached = masses[:, 0] <= 0
    if unreached.any():
        warnings.warn(
            f"propagate_labels: no label reaches {unreached.sum()} of {len(labels)} rows; they get "
            "the class prior. Label a row in each part of the graph, or raise n_neighbors.",
            RuntimeWarning,
            stacklevel=2,
        )
    return np.where(masses > 0, scores / np.where(masses > 0, masses, 1), prior)


def _one_hot(labels: Integers) -> tuple[Floats, Integers]:
    labelled = np.flatnonzero(labels != UNLABELED)
    classes, codes, counts = np.unique(labels[labelled], return_inverse=True, return_counts=True)
    seeds = np.zeros((len(labels), len(classes)))
    seeds[labelled, codes] = 1
    return seeds, counts


def _symmetric_normalised(graph: sparse.csr_array) -> sparse.csr_array:
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    roots = np.sqrt(np.where(degrees > 0, degrees, 1))
    scaled = sparse.csr_array(graph, copy=True)
    scaled.data = scaled.data / (np.repeat(roots, np.diff(scaled.indptr)) * roots[scaled.indices])
    return scaled


@dataclass(frozen=True, eq=False)
class ClassMasses:
    """Labelled mass of each class that a random walk from each row meets."""

    masses: Floats

    def affinities(self, i: Integers, j: Integers) -> Floats:
        """Two-sided affinities of the pairs ``(i, j)``."""
        left, right = self.masses[i], self.masses[j]
        return 2 * np.einsum("...c,...c->...", left, right) - left.sum(-1) * right.sum(-1)


def class_masses(
    graph: KNNGraph, y: Any, *, decay: float = 0.99, solver: str = "auto", tol: float = 1e-6
) -> ClassMasses:
    """Labelled mass of each class that a random walk from each row meets."""
    decay = check_inside(decay, 0, 1, "decay", "class_masses")
    labels = check_labels(y, graph.n_samples, "class_masses")
    check_labelled(labels, "class_masses", "Label some rows; unlabelled rows alone say nothing.")
    make = choose({"auto": krylov_propagator, **SOLVERS}, solver, "class_masses: solver")
    propagate = make(_transition(graph), decay, tol=tol * (1 - decay))
    return ClassMasses(propagate(_one_hot(labels)[0]))


def _transition(graph: KNNGraph) -> sparse.csr_array:
    n, k = graph.indices.shape
    starts = np.arange(0, n * k + 1, k)
    return sparse.csr_array((np.full(n * k, 1 / k), graph.indices.ravel(), starts), shape=(n, n))
