"""Graphs for UMAP, cleanlab, scikit-learn and networkx."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.knn import KNNGraph, check_graph
from ssdml.graphs.propagation.class_masses import ClassMasses
from ssdml.graphs.triplets import affinity_lookup
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import check_count, check_labels

if TYPE_CHECKING:
    import networkx


def umap_neighbors(graph: KNNGraph) -> tuple[Ints, Array]:
    """Convert a graph for ``UMAP(n_neighbors, precomputed_knn=...)``, each row its first neighbor.

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
    check_graph(graph, "umap_neighbors")
    rows = np.arange(graph.n_samples)[:, None]
    nothing = np.zeros((graph.n_samples, 1), graph.distances.dtype)
    return np.hstack([rows, graph.indices]), np.hstack([nothing, graph.distances])


def cleanlab_graph(graph: KNNGraph) -> sparse.csr_matrix:
    """Convert a graph for ``Datalab.find_issues(knn_graph=...)`` of cleanlab.

    Unlike in :meth:`KNNGraph.to_csr`, the entries of a row are sorted by distance. Operations of
    SciPy that sort the indices of a matrix undo that.

    Parameters
    ----------
    graph : KNNGraph

    Returns
    -------
    distances : csr_matrix of shape (n_samples, n_samples)
        A neighbor at distance 0 is stored.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> distances = cleanlab_graph(knn_graph(np.array([[0.0], [1.0], [3.0]]), 2))
    >>> distances.indices.reshape(3, 2).tolist(), distances.data.reshape(3, 2).tolist()
    ([[1, 2], [0, 2], [1, 0]], [[1.0, 3.0], [1.0, 2.0], [2.0, 3.0]])
    """
    n, k = check_graph(graph, "cleanlab_graph").indices.shape
    starts = np.arange(0, n * k + 1, k)
    return sparse.csr_matrix(
        (graph.distances.ravel(), graph.indices.ravel(), starts), shape=(n, n), copy=True
    )


def spreading_kernel(graph: KNNGraph) -> Callable[[Any, Any], sparse.csr_matrix]:
    """Make a kernel for scikit-learn's ``LabelSpreading(kernel=...)`` on the rows of the graph.

    The weights are those of :func:`adjacency`. The kernel refuses other rows: read
    ``transduction_`` instead of ``predict``.

    Parameters
    ----------
    graph : KNNGraph

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
    weights = adjacency(check_graph(graph, "spreading_kernel"))

    def kernel(X: Any, Y: Any) -> sparse.csr_matrix:
        if not X.shape[0] == Y.shape[0] == graph.n_samples:  # sparse matrices have no length
            raise ValueError(
                f"spreading_kernel: rows must be the {graph.n_samples} of the graph; got "
                f"{X.shape[0]} and {Y.shape[0]}. Fit on those rows and read transduction_."
            )
        return sparse.csr_matrix(weights, copy=True)  # callers may write to it

    return kernel


def to_networkx(
    graph: KNNGraph,
    *,
    affinities: ClassMasses | sparse.csr_array | Any = None,
    y: Any = None,
    max_nodes: int = 100_000,
) -> networkx.Graph:
    """Convert to an undirected networkx graph with distances, affinities and labels.

    Parameters
    ----------
    graph : KNNGraph
    affinities : ClassMasses, sparse array or ndarray of shape (n_samples, n_samples), or None
        Edge attribute ``affinity``.
    y : array of shape (n_samples,), int, or None
        Node attribute ``label``; -1 where unlabeled.
    max_nodes : int
        Larger graphs are refused: networkx takes some 0.4 kB per edge.

    Returns
    -------
    graph : networkx.Graph
        Nodes 0 to n - 1; edges carry ``distance``.

    Examples
    --------
    >>> graph = KNNGraph(np.array([[1], [0]]), np.array([[2.0], [2.0]]))
    >>> to_networkx(graph, y=[0, -1]).edges(data=True)
    EdgeDataView([(0, 1, {'distance': 2.0})])
    """
    import networkx

    n, k = check_graph(graph, "to_networkx").indices.shape
    check_count(max_nodes, "max_nodes", "to_networkx")
    if n > max_nodes:
        raise ValueError(
            f"to_networkx: graph must have at most max_nodes={max_nodes} nodes; got {n}. "
            "Pass a part of it, raise max_nodes, or use graph.to_csr() with scipy.sparse.csgraph."
        )
    rows, columns = np.repeat(np.arange(n), k), graph.indices.ravel()
    attributes = {"distance": graph.distances.ravel()}
    if affinities is not None:
        attributes["affinity"] = affinity_lookup(affinities, n, "to_networkx").values(rows, columns)
    drawn = networkx.Graph()
    drawn.add_nodes_from(range(n))
    names = list(attributes)
    values = zip(*(attributes[name].tolist() for name in names), strict=True)
    drawn.add_edges_from(
        (i, j, dict(zip(names, edge, strict=True)))
        for i, j, edge in zip(rows.tolist(), columns.tolist(), values, strict=True)
    )
    if y is not None:
        labels = check_labels(y, n, "to_networkx").tolist()
        networkx.set_node_attributes(drawn, dict(enumerate(labels)), "label")
    return drawn
