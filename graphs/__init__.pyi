from .export import (
    cleanlab_graph as cleanlab_graph,
    spreading_kernel as spreading_kernel,
    to_networkx as to_networkx,
    umap_neighbors as umap_neighbors,
)
from .laplacian import (
    adjacency as adjacency,
    laplacian as laplacian,
    pair_scatter as pair_scatter,
)
from .layout import neighbor_embedding as neighbor_embedding
from .neighbors.knn import (
    KNNGraph as KNNGraph,
    knn_graph as knn_graph,
    nearest_rows as nearest_rows,
)
from .plotting import draw_neighborhood as draw_neighborhood
from .propagation.affinities import propagate_affinities as propagate_affinities
from .propagation.class_masses import (
    ClassMasses as ClassMasses,
    class_masses as class_masses,
    graph_modes as graph_modes,
)
from .propagation.labels import (
    UNLABELED as UNLABELED,
    propagate_labels as propagate_labels,
)
from .propagation.poisson import poisson_learning as poisson_learning
from .propagation.smoothing import smooth_rows as smooth_rows
from .proxies import (
    ClassPrediction as ClassPrediction,
    ProxySubgraph as ProxySubgraph,
    proxy_similarities as proxy_similarities,
    proxy_subgraph as proxy_subgraph,
    reverse_label_propagation as reverse_label_propagation,
)
from .triplets import (
    Triplets as Triplets,
    mine_triplets as mine_triplets,
)
