"""Sparse weights from outside, for every function that accepts them."""

from __future__ import annotations

from functools import partial

import networkx
import numpy as np
import pytest
import torch
from scipy import sparse

from ssdml.graphs import (
    KNNGraph,
    class_masses,
    knn_graph,
    laplacian,
    pair_scatter,
    propagate_labels,
)
from tests import reference

N, DECAY = 8, 0.9
Y = np.array([0, -1, -1, 1, -1, -1, 0, -1])
POINTS = np.random.default_rng(0).standard_normal((N, 3))
W = np.zeros((N, N))  # a ring with chords, in quarters: sums of halves of them are exact
for row in range(N):
    for step, weight in ((1, 0.75), (3, 0.25 + row)):
        W[row, (row + step) % N] = W[(row + step) % N, row] = weight

# Every function that accepts weights: its argument, and a call.
WEIGHTED = {
    "propagate_labels": ("graph", partial(propagate_labels, y=Y, decay=DECAY, tol=1e-12)),
    "class_masses": ("graph", lambda W: class_masses(W, Y, decay=DECAY, tol=1e-10).masses),
    "laplacian": ("adjacency", lambda W: laplacian(W).toarray()),
    "laplacian normed": (
        "adjacency",
        lambda W: laplacian(W, normalization="symmetric").toarray(),
    ),
    "pair_scatter": ("weights", partial(pair_scatter, POINTS)),
}
over_weighted = pytest.mark.parametrize("door", WEIGHTED)


def by_rows(row, column, data):
    """CSR with the entries of each row in the given order, duplicates kept."""
    order = np.argsort(row, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=N))])
    return sparse.csr_array((data[order], column[order], starts), shape=(N, N))


def entries(weights=W):
    return (*np.nonzero(weights), weights[np.nonzero(weights)])


def backwards(arrays):
    return [array[::-1] for array in arrays]


def twice(row, column, data):
    return np.tile(row, 2), np.tile(column, 2), np.concatenate([1.5 * data, -0.5 * data])


def coo(row, column, data):
    return sparse.coo_array((data, (row, column)), shape=(N, N))


FORMS = {
    "coo": lambda: coo(*entries()),
    "coo, duplicates": lambda: coo(*twice(*entries())),
    "coo, backwards": lambda: coo(*backwards(entries())),
    "csr, duplicates": lambda: by_rows(*twice(*entries())),
    "csr, unsorted": lambda: by_rows(*backwards(entries())),
    "csr, zeros stored": lambda: by_rows(*(a.ravel() for a in (*np.indices((N, N)), W))),
    "int64 numbers": lambda: sparse.csr_array(
        (W[W != 0], np.nonzero(W)[1], np.r_[0, np.cumsum((W != 0).sum(axis=1))])
    ),
    "csr matrix": lambda: sparse.csr_matrix(W),
    **{
        name: lambda name=name: coo(*entries()).asformat(name) for name in "csc lil dok bsr".split()
    },
}


def arrays_of(matrix):
    found = [getattr(matrix, name, None) for name in ("data", "indices", "indptr", "row", "col")]
    return [array for array in found if isinstance(array, np.ndarray) and array.dtype != object]


@over_weighted
@pytest.mark.parametrize("form", FORMS)
def test_form_of_weights_does_not_matter(door, form):
    matrix, (_, call) = FORMS[form](), WEIGHTED[door]
    for array in arrays_of(matrix):
        array.flags.writeable = False
    np.testing.assert_allclose(call(matrix), call(sparse.csr_array(W)), rtol=1e-13, atol=1e-15)
    assert matrix.shape == (N, N)
    assert not any(array.flags.writeable for array in arrays_of(matrix))


def with_edge(value, row=2, column=3, mirrored=True):
    weights = sparse.lil_array(W)
    weights[row, column] = value
    if mirrored:
        weights[column, row] = value
    return sparse.csr_array(weights)


def unsound(array, position, value):
    weights = sparse.csr_array(W)
    getattr(weights, array)[position] = value
    return weights


UNFIT = {
    "NaN": (with_edge(np.nan), ValueError, "finite; got nan from row 2 to row 3. Drop"),
    "infinite": (with_edge(-np.inf), ValueError, "finite; got -inf from row 2 to row 3. Drop"),
    "directed": (
        with_edge(9.0, 1, 6, mirrored=False),
        ValueError,
        r"differ by 2.75 from their transpose, from row 1 to row 6. Use \(.* for distances, knn_gr",
    ),
    "complex": (sparse.csr_array(W * 1j), TypeError, "real numbers; got dtype complex128"),
    "oblong": (sparse.csr_array((N, 9)), ValueError, r"square; got shape \(8, 9\)"),
    "a line": (sparse.coo_array(np.ones(N)), ValueError, r"square; got shape \(8,\)"),
    "empty": (sparse.csr_array((0, 0)), ValueError, r"not be empty; got shape \(0, 0\)"),
    "row beyond": (unsound("indices", 4, 8), ValueError, "sound .*indices must be < 8.*coo_array"),
    "row below": (unsound("indices", 4, -1), ValueError, "sound .*indices must be >= 0"),
    "pointers": (unsound("indptr", 4, 1), ValueError, "sound .*non-decreasing"),
}


@over_weighted
@pytest.mark.parametrize("case", UNFIT)
def test_bad_weights_are_named_by_edge(door, case):
    argument, call = WEIGHTED[door]
    matrix, error, message = UNFIT[case]
    with pytest.raises(error, match=f"^{door.split()[0]}: {argument} must .*{message}"):
        call(matrix)


@over_weighted
@pytest.mark.parametrize(
    ("graph", "call"),
    [
        (networkx.Graph([(0, 1)]), r"networkx\.to_scipy_sparse_array\(NAME\)"),
        (torch.eye(N).to_sparse(), r"(csr_array|NAME\.to_dense\(\))"),
        (knn_graph(POINTS, 2), r"ssdml\.graphs\.adjacency\(NAME\)"),
    ],
    ids=["networkx", "torch", "KNNGraph"],
)
def test_graphs_of_another_kind_have_a_way_out(door, graph, call):
    argument, function = WEIGHTED[door]
    if argument == "graph" and isinstance(graph, KNNGraph):
        return  # read as it is
    message = f"^{door.split()[0]}: {argument} must be .*{call.replace('NAME', argument)}"
    with pytest.raises(TypeError, match=message):
        function(graph)


@pytest.mark.parametrize("door", ["propagate_labels", "class_masses"])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (with_edge(-2.0), r"at least 0; got -2 from row 2 to row 3. Use graph.maximum\(0\)"),
        (sparse.csr_array(W * 1.5 * 2.0**1020), "divided by; row 2 sums to inf. Multiply all"),
        (sparse.csr_array(W * 1e-310), "divided by; row 0 sums to 7e-310. Multiply all"),
    ],
    ids=["negative", "huge", "tiny"],
)
def test_weights_without_walk_are_refused(door, matrix, message):
    with pytest.raises(ValueError, match=f"^{door}: graph must (hold|have) .*{message}"):
        WEIGHTED[door][1](matrix)


def test_laplacian_accepts_negative_weights():
    signed = with_edge(-0.25).toarray()
    D = np.diag(signed.sum(axis=1))
    np.testing.assert_allclose(laplacian(signed).toarray(), D - signed)
    roots = np.sqrt(np.linalg.inv(D))
    normed = laplacian(signed, normalization="symmetric").toarray()
    np.testing.assert_allclose(normed, roots @ (D - signed) @ roots, atol=1e-15)
    zero = np.array([[0.0, 1.0, -1.0], [1.0, 0.0, 1.0], [-1.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match=r"must be None .* sum to 0 or less; row 0 sums to 0"):
        laplacian(zero, normalization="random_walk")


def test_loops_are_steps_that_stay():
    """The diagonal counts in the degrees, and cancels in D - W."""
    loops = W + np.diag([0.0, 3.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0])
    results = {door: call(sparse.csr_array(loops)) for door, (_, call) in WEIGHTED.items()}
    expected = reference.propagated_labels(loops, Y, DECAY)
    np.testing.assert_allclose(results["propagate_labels"], expected, atol=1e-10)
    degrees = loops.sum(axis=1)
    P = (1 - DECAY) * np.linalg.inv(np.eye(N) - DECAY * loops / degrees[:, None])
    masses = np.stack([P[:, c == Y].sum(axis=1) for c in (0, 1)], axis=1)
    np.testing.assert_allclose(results["class_masses"], masses, atol=1e-10)
    difference = np.diag(degrees) - loops
    np.testing.assert_allclose(results["laplacian"], np.diag(W.sum(axis=1)) - W)
    normed = difference / np.sqrt(np.outer(degrees, degrees))
    np.testing.assert_allclose(results["laplacian normed"], normed, atol=1e-15)
    np.testing.assert_allclose(results["pair_scatter"], pair_scatter(POINTS, W))


@pytest.mark.parametrize("alone", [[7], [1, 7], [0, 1, 7], list(range(N))], ids=str)
def test_rows_without_edges(alone):
    weights = W.copy()
    weights[alone] = weights[:, alone] = 0
    unreached = [row for row in alone if Y[row] == -1]
    message = f"no label reaches {len(unreached)} of 8 rows; they get the class prior"
    with pytest.warns(RuntimeWarning, match=message):
        found = propagate_labels(sparse.csr_array(weights), Y)
    np.testing.assert_allclose(found[unreached], [[2 / 3, 1 / 3]] * len(unreached))
    labeled = [row for row in alone if Y[row] != -1]
    np.testing.assert_array_equal(found[labeled].argmax(axis=1), Y[labeled])
    assert not class_masses(sparse.csr_array(weights), Y).masses[unreached].any()
    for normalization in (None, "symmetric", "random_walk"):
        L = laplacian(weights, normalization=normalization).toarray()
        assert not L[alone].any()
        assert not L[:, alone].any()
    rest = np.setdiff1d(np.arange(N), alone)
    if rest.size:
        expected = pair_scatter(POINTS[rest], weights[np.ix_(rest, rest)])
        np.testing.assert_allclose(pair_scatter(POINTS, weights), expected)
