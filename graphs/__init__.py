"""Neighbour graphs, propagation on them, and the triplets that they mine.

The ground floor: numpy, scipy and faiss, and torch for the proxies; nothing here knows of
learning. Names load on first use, so that ``import ssdml.graphs`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not lazy: a submodule and a function share this name, and the last binding wins.
from ssdml.graphs.laplacian import laplacian

if TYPE_CHECKING:
    from ssdml.graphs._checks import UNLABELED
    from ssdml.graphs.drawing import draw_neighborhood, to_networkx
    from ssdml.graphs.interchange import cleanlab_graph, spreading_kernel, umap_neighbors
    from ssdml.graphs.laplacian import adjacency, pair_scatter
    from ssdml.graphs.masses import ClassMasses, class_masses
    from ssdml.graphs.modes import graph_modes
    from ssdml.graphs.neighbors import KNNGraph, knn_graph, nearest_rows
    from ssdml.graphs.propagation import propagate_affinities, propagate_labels
    from ssdml.graphs.proxies import (
        ClassPrediction,
        ProxySubgraph,
        proxy_similarities,
        proxy_subgraph,
        reverse_label_propagation,
    )
    from ssdml.graphs.triplets import Triplets, mine_triplets

__all__ = [
    "UNLABELED",
    "ClassMasses",
    "ClassPrediction",
    "KNNGraph",
    "ProxySubgraph",
    "Triplets",
    "adjacency",
    "class_masses",
    "cleanlab_graph",
    "draw_neighborhood",
    "graph_modes",
    "knn_graph",
    "laplacian",
    "mine_triplets",
    "nearest_rows",
    "pair_scatter",
    "propagate_affinities",
    "propagate_labels",
    "proxy_similarities",
    "proxy_subgraph",
    "reverse_label_propagation",
    "spreading_kernel",
    "to_networkx",
    "umap_neighbors",
]

_HOMES = {
    "UNLABELED": "_checks",
    "ClassMasses": "masses",
    "ClassPrediction": "proxies",
    "KNNGraph": "neighbors",
    "ProxySubgraph": "proxies",
    "Triplets": "triplets",
    "adjacency": "laplacian",
    "class_masses": "masses",
    "graph_modes": "modes",
    "draw_neighborhood": "drawing",
    "knn_graph": "neighbors",
    "mine_triplets": "triplets",
    "nearest_rows": "neighbors",
    "pair_scatter": "laplacian",
    "propagate_affinities": "propagation",
    "propagate_labels": "propagation",
    "proxy_similarities": "proxies",
    "proxy_subgraph": "proxies",
    "reverse_label_propagation": "proxies",
    "spreading_kernel": "interchange",
    "to_networkx": "drawing",
    "cleanlab_graph": "interchange",
    "umap_neighbors": "interchange",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ssdml.graphs' has no attribute {name!r}")
    return getattr(import_module(f"ssdml.graphs.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
