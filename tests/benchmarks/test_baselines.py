"""Time of the baselines on 60,000 rows, as a multiple of their neighbor search.

The floor, printed beside it, is the linear algebra that each needs. Run on two idle cores.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from ssdml.baselines import APIT, APLLR, ISDML, LRML, SERAPH
from ssdml.graphs import knn_graph
from ssdml.graphs.laplacian import adjacency, pair_scatter
from tests.benchmarks.test_metric import clustered_rows, seconds


@pytest.fixture(scope="module")
def problem():
    """Rows, labels, and the seconds of the search and of the floor: edge scatter and inverse."""
    X, y = clustered_rows(60_000, 64)
    rows = X.astype(np.float64)
    start = time.perf_counter()
    graph = knn_graph(rows, 10, n_jobs=-1, random_state=0)
    search = time.perf_counter() - start
    weights = adjacency(graph, weights="uniform")
    floor = seconds(lambda: np.linalg.inv(pair_scatter(rows, weights)))
    return X, y, search, floor


@pytest.mark.parametrize(
    ("method", "most"), [(LRML, 5), (ISDML, 10), (APLLR, 10), (APIT, 10), (SERAPH, 20)]
)
def test_fit_time_over_neighbor_search(benchmark, capsys, problem, method, most):
    X, y, search, floor = problem
    model = method(random_state=0, n_jobs=-1)
    benchmark.pedantic(lambda: model.fit(X, y), rounds=1)
    taken = benchmark.stats.stats.min
    benchmark.extra_info |= {"search": search, "floor": floor, "of the floor": taken / floor}
    with capsys.disabled():
        sys.stdout.write(
            f"\n{method.__name__:6} {taken:6.1f} s, {taken / floor:.0f} times the floor; "
            f"search of neighbors {search:.1f} s, floor {floor:.2f} s\n"
        )
    assert taken <= most * search, f"{taken:.1f} s, search {search:.1f} s, floor {floor:.2f} s"
