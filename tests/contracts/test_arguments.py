"""What no argument can be is refused by an error that names function and argument."""

from __future__ import annotations

import inspect
import math
import types

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import ssdml.evaluation
import ssdml.graphs
from ssdml.datasets import Dataset, label_scarce_split
from ssdml.graphs import (
    KNNGraph,
    adjacency,
    knn_graph,
    mine_triplets,
    propagate_affinities,
    proxy_similarities,
    proxy_subgraph,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
Y = np.array([0, 1, *[-1] * 10])
GRAPH = knn_graph(X, 3)
Z, PROXIES = torch.ones(4, 3), torch.eye(3)
CLASSES = torch.tensor([0, 0, 1])
SIMILARITIES = proxy_similarities(Z, PROXIES)
SUBGRAPH = proxy_subgraph(SIMILARITIES, torch.tensor([0, 0, 1, 1]), CLASSES, k=2)
TRUTH = np.arange(12) % 3
PROBABILITIES = np.full((12, 3), 1 / 3)
DATASET = Dataset(name="x", X=X.astype(np.float32), y=TRUTH, class_names=("a", "b", "c"))
GRAPHS = {
    "KNNGraph": {"indices": GRAPH.indices, "distances": GRAPH.distances},
    "adjacency": {"graph": GRAPH},
    "class_masses": {"graph": GRAPH, "y": Y},
    "cleanlab_graph": {"graph": GRAPH},
    "draw_neighborhood": {"graph": GRAPH, "anchor": 0, "axes": Figure().subplots()},
    "graph_modes": {"graph": GRAPH},
    "knn_graph": {"X": X, "n_neighbors": 3},
    "laplacian": {"adjacency": adjacency(GRAPH)},
    "mine_triplets": {"graph": GRAPH, "affinities": propagate_affinities(GRAPH, Y)},
    "nearest_rows": {"X": X, "queries": X[:2], "n_neighbors": 3},
    "neighbor_embedding": {"graph": GRAPH, "init": X[:, :2]},
    "pair_scatter": {"embeddings": X, "weights": adjacency(GRAPH)},
    "poisson_learning": {"graph": GRAPH, "y": Y},
    "propagate_affinities": {"graph": GRAPH, "y": Y},
    "propagate_labels": {"graph": GRAPH, "y": Y},
    "proxy_similarities": {"embeddings": Z, "proxies": PROXIES},
    "proxy_subgraph": {
        "similarities": SIMILARITIES,
        "labels": torch.tensor([0, 0, 1, 1]),
        "proxy_classes": CLASSES,
    },
    "reverse_label_propagation": {
        "weights": SUBGRAPH.weights,
        "classes": CLASSES[SUBGRAPH.indices],
        "n_classes": 2,
    },
    "smooth_rows": {"graph": GRAPH, "X": X},
    "spreading_kernel": {"graph": GRAPH},
    "to_networkx": {"graph": GRAPH},
    "umap_neighbors": {"graph": GRAPH},
}
OTHERS = {
    "calibration_error": {"probabilities": PROBABILITIES, "y": TRUTH},
    "evaluate": {"Z": X, "y": TRUTH},
    "few_label_accuracy": {"Z_labeled": X[:3], "y_labeled": TRUTH[:3], "Z": X, "y": TRUTH},
    "pairwise_f1": {"codes": TRUTH, "clusters": TRUTH},
    "reliability": {"confidence": PROBABILITIES[:, 0], "is_right": TRUTH == 0},
    "retrieval_scores": {"embeddings": X, "codes": TRUTH, "ks": 1},
    "triplet_purity": {"triplets": mine_triplets(**GRAPHS["mine_triplets"]), "y": TRUTH},
    "label_scarce_split": {"dataset": DATASET, "labels_per_class": 1, "seed": 0},
}
CALLS = GRAPHS | OTHERS
WRONG = (0, -1, 1.5, math.nan, math.inf, "nonsense", b"x", None, True, [1, 2], {}, object(), 2**63)
NEVER = {"int": ("nonsense", {}, 1.5), "float": ("nonsense", {}, math.nan), "str": (0, "nonsense")}
THREADED = ("knn_graph", "nearest_rows", "neighbor_embedding", "class_masses", "poisson_learning")
THREADED += ("propagate_affinities", "propagate_labels", "smooth_rows")
SWITCHES = ("return_bound", "return_solution", "positive_mask", "mask_softmax")
FREE = ("recall_", "rows", *SWITCHES)  # whatever they are
HUGE = ("n_triplets", "n_neighbors")  # 2**63 is a request


def refusal(function, arguments) -> str | None:
    """Return the message of the error; None without one."""
    try:
        function(**arguments)
    except (ValueError, TypeError) as error:
        return str(error)
    return None


FUNCTIONS = {
    name: function
    for package in (ssdml.graphs, ssdml.evaluation)
    for name in package.__all__
    if isinstance(function := getattr(package, name), types.FunctionType)
}
FUNCTIONS |= {"KNNGraph": KNNGraph, "label_scarce_split": label_scarce_split}


def test_every_public_function_is_called():
    assert FUNCTIONS.keys() == CALLS.keys()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")  # what was accepted
@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_named(name):
    function = FUNCTIONS[name]
    function(**CALLS[name])
    for parameter in inspect.signature(function).parameters.values():
        kind = str(parameter.annotation).removesuffix(" | None")
        if parameter.name in FREE:
            continue
        for value in WRONG:
            if parameter.name in HUGE and value == 2**63:
                continue
            said = refusal(function, {**CALLS[name], parameter.name: value})
            if said is not None:
                assert said.startswith(f"{name}: "), (parameter.name, value, said)
                # One of two lengths may be wrong.
                assert parameter.name in said or value == [1, 2], (parameter.name, value, said)
            elif parameter.name != "random_state":
                assert value not in NEVER.get(kind, ()), (parameter.name, value)


def test_extend_names_what_it_cannot_use():
    for name, value in (("X_new", "nonsense"), ("n_jobs", 0), ("n_jobs", "many"), ("X", 3)):
        with pytest.raises((ValueError, TypeError), match=rf"^extend: {name} "):
            GRAPH.extend(**{"X_new": X[:1], name: value})


@pytest.mark.parametrize("n_jobs", [0, 1.5, math.nan, "many", 2**40, -(2**40)])
@pytest.mark.parametrize("name", THREADED)
def test_numbers_of_threads_are_refused_with_advice(name, n_jobs):
    with pytest.raises((ValueError, TypeError), match=rf"^{name}: n_jobs must .* Pass .* or -1"):
        FUNCTIONS[name](**CALLS[name], n_jobs=n_jobs)
