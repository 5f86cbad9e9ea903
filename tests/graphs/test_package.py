"""Lazy imports of the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ssdml.graphs


@pytest.mark.parametrize("name", ssdml.graphs.__all__)
def test_every_public_name_loads(name):
    assert getattr(ssdml.graphs, name) is not None
    assert name in dir(ssdml.graphs)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match=r"No ssdml\.graphs attribute knn"):
        ssdml.graphs.knn  # noqa: B018


@pytest.mark.parametrize("order", ["laplacian, adjacency", "adjacency, laplacian"])
def test_laplacian_is_the_function(order):
    code = (
        f"from ssdml.graphs import {order}; import ssdml.graphs.propagation.labels; "
        "from ssdml.graphs import laplacian; assert laplacian.__name__ == 'laplacian', laplacian"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_loads_no_heavy_library():
    code = (
        "import sys, ssdml.graphs, ssdml.graphs.propagation.labels, ssdml.graphs.triplets, "
        "ssdml.graphs.plotting; "
        "heavy = {'torch', 'sklearn', 'faiss', 'networkx', 'joblib', 'numba'} & {*sys.modules}; "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
