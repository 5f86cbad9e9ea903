"""Measure time and memory of propagation and fits against the number of samples.

``python examples/scale.py 1000 10000`` prints one line per number of samples; each entry runs in
its own process. Data: 64 features, 100 overlapping clusters, 500 labels.
"""

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from command_line import positive

from ssdml import SSDML
from ssdml.experiments.runs.resources import PeakMemory
from ssdml.graphs import knn_graph, propagate_affinities, propagate_labels

TASKS = {  # with the most samples that each one is run on
    "labels": (10**7, lambda X, y: propagate_labels(knn_graph(X, 10, n_jobs=-1), y, n_jobs=-1)),
    "one-sided edges": (
        10**7,
        lambda X, y: propagate_affinities(knn_graph(X, 10, n_jobs=-1), y, n_jobs=-1),
    ),
    "SSDML.fit": (10**7, lambda X, y: SSDML(random_state=0, n_jobs=-1).fit(X, y)),
    "LabelSpreading": (10**5, lambda X, y: spreading().fit(X, y)),
    "closed form": (2 * 10**4, lambda X, y: np.linalg.inv(np.eye(len(X)) - 0.99 * walk(X))),
}


def spreading():
    from sklearn.semi_supervised import LabelSpreading

    return LabelSpreading(kernel="knn", n_neighbors=10, n_jobs=-1)


def walk(X):
    """Dense transition matrix of the graph."""
    matrix = np.zeros((len(X), len(X)))
    np.put_along_axis(matrix, knn_graph(X, 10, n_jobs=-1).indices, 0.1, axis=1)
    return matrix


def cost(task, n):
    rng = np.random.default_rng(0)
    truth = rng.integers(100, size=n)
    X = rng.standard_normal((100, 64), dtype=np.float32)[truth]
    X += 1.5 * rng.standard_normal((n, 64), dtype=np.float32)
    y = np.full(n, -1)
    y[:500] = truth[:500]
    start = time.perf_counter()
    with PeakMemory() as memory:
        TASKS[task][1](X, y)
    return f"{time.perf_counter() - start:.1f} s, {memory.megabytes / 1000:.2f} GB"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", type=positive, nargs="+")
    given = parser.parse_args()
    print("samples", *TASKS, sep=" | ")
    for n in given.samples:
        cells = [str(n)]
        for task, (most, _) in TASKS.items():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                cells.append(process.submit(cost, task, n).result() if n <= most else "–")
        print(" | ".join(cells), flush=True)
