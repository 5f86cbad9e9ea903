"""Graphs in the forms that UMAP, cleanlab and scikit-learn's label propagation take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors import KNNGraph
from ssdml.utils.typing import Array, Ints


def umap_neighbors(graph: KNNGraph) -> tuple[Ints, Array]:
    """Neighbours for ``UMAP(n_neighbors, precomputed_knn=...)``, each row the first of its own.

    Parameters
    ----------
    graph : KNNGraph

    Returns
    -------
    indices : ndarray of shape (n_samples, n_neighbors + 1), int64
    distances : ndarray of shape (n_samples, n_neighbors + 1)
        Pass ``n_neighbors + 1`` as UMAP's ``n_neighbors``: it counts the row itself.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> indices, distances = umap_neighbors(knn_graph(np.array([[0.0], [1.0], [3.0]]), 1))
    >>> indices.tolist(), distances.tolist()
    ([[0, 1], [1, 0], [2, 1]], [[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]])
    """
    rows = np.arange(graph.n_samples)[:, None]
    nothing = np.zeros((graph.n_samples, 1), graph.distances.dtype)
    return np.hstack([rows, graph.indices]), np.hstack([nothing, graph.distances])


def cleanlab_graph(graph: KNNGraph) -> sparse.csr_matrix:
    """Directed distances for ``Datalab.find_issues(knn_graph=...)`` of cleanlab.

    Unlike those of :meth:`KNNGraph.to_csr`, the entries of a row stand in the order of their
    distances. Operations of SciPy that sort the indices of a matrix undo that.

    Parameters
    ----------
    graph : KNNGraph

    Returns
    -------
    distances : csr_matrix of shape (n_samples, n_samples)
        A neighbour at distance 0 is stored.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> distances = cleanlab_graph(knn_graph(np.array([[0.0], [1.0], [3.0]]), 2))
    >>> distances.indices.reshape(3, 2).tolist(), distances.data.reshape(3, 2).tolist()
    ([[1, 2], [0, 2], [1, 0]], [[1.0, 3.0], [1.0, 2.0], [2.0, 3.0]])
    """
    n, k = graph.indices.shape
    starts = np.arange(0, n * k + 1, k)
    return sparse.csr_matrix(
        (graph.distances.ravel(), graph.indices.ravel(), starts), shape=(n, n), copy=True
    )


def spreading_kernel(graph: KNNGraph) -> Callable[[Any, Any], sparse.csr_matrix]:
    """Kernel for scikit-learn's ``LabelSpreading(kernel=...)`` of the rows that the graph has.

    It takes the weights of :func:`adjacency`. New rows have no neighbours in it: read
    ``transduction_``, not ``predict``.

    Parameters
    ----------
    graph : KNNGraph

    Raises
    ------
    ValueError
        From the kernel, for other rows than the graph's.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.semi_supervised import LabelSpreading
    >>> from ssdml.graphs import knn_graph
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> kernel = spreading_kernel(knn_graph(X, 8))
    >>> model = LabelSpreading(kernel=kernel, alpha=0.9, max_iter=300)
    >>> bool((model.fit(X, labels).transduction_ == y).mean() > 0.9)
    True
    """
    weights = adjacency(graph)

    def kernel(X: Any, Y: Any) -> sparse.csr_matrix:
        if not len(X) == len(Y) == graph.n_samples:
            raise ValueError(
                f"spreading_kernel: rows must be the {graph.n_samples} of the graph; got {len(X)} "
                f"and {len(Y)}. Fit with them, and read transduction_."
            )
        return sparse.csr_matrix(weights)

    return kernel
