"""Bad graphs, labels, affinities and triplets, for every function that accepts them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy import sparse

from ssdml.graphs import (
    ClassMasses,
    KNNGraph,
    Triplets,
    adjacency,
    class_masses,
    draw_neighborhood,
    graph_modes,
    knn_graph,
    laplacian,
    mine_triplets,
    propagate_affinities,
    propagate_labels,
    to_networkx,
)
from ssdml.graphs.triplets import EdgeLookup

N, DECAY = 8, 0.9
Y = np.array([0, -1, -1, 1, -1, -1, 0, -1])
POINTS = np.random.default_rng(0).standard_normal((N, 3))
GRAPH = knn_graph(POINTS, 3)


def spoiled(name, value, place=(5, 1), dtype=None):
    arrays = {"indices": GRAPH.indices.copy(), "distances": GRAPH.distances.copy()}
    arrays[name] = arrays[name].astype(dtype or arrays[name].dtype)
    arrays[name][place] = value
    return arrays


ill_formed = {
    "beyond": (
        spoiled("indices", 8),
        "indices must be rows from 0 to n - 1 = 7; got 8 in row 5. N",
    ),
    "missing": (spoiled("indices", -1), "got -1 in row 5. .* reads -1 as a missing"),
    "own": (spoiled("indices", 5), "not name the row itself; got 5 in this row. knn_graph"),
    "twice": (
        spoiled("indices", GRAPH.indices[5, 0]),
        f"neighbor of a row once; got {GRAPH.indices[5, 0]} twice in row 5. Keep",
    ),
    "floats": (spoiled("indices", 1, dtype=float), "indices must be integers; got dtype float64"),
    "booleans": (spoiled("indices", 1, dtype=bool), "indices must be integers; got dtype bool"),
    "NaN": (
        spoiled("distances", np.nan),
        "finite and at least 0; got nan from row 5 to row .. Drop",
    ),
    "infinite": (spoiled("distances", np.inf), "got inf from row 5 to row .. .*scale down rows"),
    "negative": (
        spoiled("distances", -1e-9, (5, 0)),
        r"got -1e-09 from row 5 .*maximum\(distances",
    ),
    "complex": (spoiled("distances", 1, dtype=complex), "real numbers; got dtype complex128"),
    "texts": (spoiled("distances", "a", dtype=str), "real numbers; got dtype <U"),
    "unsorted": (
        spoiled("distances", 99.0),
        "not fall along a row; got .* after 99.0 in row 5. knn",
    ),
    "shapes": (
        {"indices": GRAPH.indices, "distances": GRAPH.distances[:, :2]},
        r"share one shape \(n_samples, n_neighbors\).*; got \(8, 3\) and \(8, 2\)",
    ),
    "lines": (
        {"indices": GRAPH.indices[:, 0], "distances": GRAPH.distances[:, 0]},
        r"share one shape.*; got \(8,\) and \(8,\)",
    ),
    "no neighbor": (
        {"indices": GRAPH.indices[:, :0], "distances": GRAPH.distances[:, :0]},
        r"at least 1 of either; got \(8, 0\)",
    ),
    "no row": (
        {"indices": GRAPH.indices[:0], "distances": GRAPH.distances[:0]},
        r"at least 1 of either; got \(0, 3\)",
    ),
    "metric": (
        {"indices": GRAPH.indices, "distances": GRAPH.distances, "metric": "cosin"},
        r"metric must be one of 'euclidean', 'cosine'; .*Did you mean 'cosine'\?",
    ),
}


@pytest.mark.parametrize("case", ill_formed)
def test_bad_graph_is_refused(case):
    arguments, message = ill_formed[case]
    with pytest.raises((ValueError, TypeError), match=f"^KNNGraph: .*{message}"):
        KNNGraph(**arguments)


def test_bad_row_is_found_in_any_block(monkeypatch):
    monkeypatch.setattr("ssdml.graphs._validation.BLOCK_ROWS", 2)
    for name in ("beyond", "own", "twice", "NaN", "unsorted"):
        arguments, message = ill_formed[name]
        with pytest.raises(ValueError, match=message):
            KNNGraph(**arguments)


AFFINITIES = np.where(np.add.outer(Y, Y) % 2, -0.5, 0.5)
DOORS = {
    "adjacency": lambda graph: adjacency(graph).toarray(),
    "propagate_labels": lambda graph: propagate_labels(graph, Y, decay=DECAY),
    "class_masses": lambda graph: class_masses(graph, Y, decay=DECAY).masses,
    "propagate_affinities": lambda graph: propagate_affinities(graph, Y).toarray(),
    "graph_modes": graph_modes,
    "mine_triplets": lambda graph: np.stack(mine_triplets(graph, AFFINITIES, random_state=0)),
    "to_networkx": lambda graph: sorted(to_networkx(graph).edges),
    "draw_neighborhood": lambda graph: draw_neighborhood(
        graph, 0, axes=Figure().subplots()
    ).get_title(),
}
FINE = {
    "int32": lambda i, d: (i.astype(np.int32), d),
    "uint64": lambda i, d: (i.astype(np.uint64), d),
    "lists": lambda i, d: (i.tolist(), d.tolist()),
    "Fortran order": lambda i, d: (np.asfortranarray(i), np.asfortranarray(d)),
    "long double": lambda i, d: (i, d.astype(np.longdouble)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("form", FINE)
def test_form_of_neighbors_does_not_matter(door, form):
    graph = KNNGraph(*FINE[form](GRAPH.indices, GRAPH.distances))
    assert (graph.indices.dtype, graph.distances.dtype) == (np.int64, np.float64)
    np.testing.assert_array_equal(DOORS[door](graph), DOORS[door](GRAPH))


def test_dtypes_are_widened_without_other_copies():
    whole = np.sort(np.ceil(GRAPH.distances), axis=1)
    for given, kept in ((np.int16, np.float64), (np.float16, np.float32), (np.float32, np.float32)):
        graph = KNNGraph(GRAPH.indices, whole.astype(given))
        assert graph.distances.dtype == kept
        np.testing.assert_array_equal(graph.distances, whole)
        assert graph.to_csr().dtype == kept
    again = KNNGraph(GRAPH.indices, GRAPH.distances)
    assert again.indices is GRAPH.indices
    assert again.distances is GRAPH.distances


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("given", [POINTS, POINTS.tolist(), None, (GRAPH.indices, GRAPH.distances)])
def test_other_types_are_refused(door, given):
    message = f"^{door}: graph must be a KNNGraph.*; got {type(given).__name__}"
    with pytest.raises(TypeError, match=message):
        DOORS[door](given)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_overflowing_distances_are_refused(dtype):
    far = 0.9 * np.finfo(dtype).max * np.array([[1], [-1], [0]], dtype)
    with pytest.raises(ValueError, match=r"X must have finite distances; got inf at row 0. Scale"):
        knn_graph(far, 2)


with_labels = {
    "propagate_labels": lambda y: propagate_labels(GRAPH, y),
    "class_masses": lambda y: class_masses(GRAPH, y),
    "propagate_affinities": lambda y: propagate_affinities(GRAPH, y, sides="two"),
    "to_networkx": lambda y: to_networkx(GRAPH, y=y),
    "draw_neighborhood": lambda y: draw_neighborhood(GRAPH, 0, y=y, axes=Figure().subplots()),
}


@pytest.mark.parametrize("door", with_labels)
@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (Y[:-1], ValueError, r"y must have shape \(8,\), one label per row; got shape \(7,\)"),
        (np.append(Y, 0), ValueError, r"y must have shape \(8,\), .*; got shape \(9,\)"),
        (Y[:, None], ValueError, r"y must have shape \(8,\), .*; got shape \(8, 1\)"),
        (np.where(Y < 0, np.nan, Y), TypeError, "y must hold integers, -1 for unlabeled rows"),
        (np.where(Y < 0, -np.inf, Y), ValueError, "y must fit into int64; got -inf"),
        (np.where(Y < 0, 1e30, Y), ValueError, r"y must fit into int64; got 1e\+30"),
        (Y.astype(np.uint64), ValueError, "y must fit into int64; got 18446744073709551615"),
    ],
    ids=["short", "long", "column", "NaN", "infinite", "huge", "wrapped"],
)
def test_bad_labels_are_refused(door, y, error, message):
    with pytest.raises(error, match=f"^{door}: .*{message}"):
        with_labels[door](y)


@pytest.mark.parametrize("door", with_labels)
def test_minus_one_cast_to_an_unsigned_type_is_doubted(door):
    message = f"^{door}: y must be signed for -1 .* got 255 in uint8"
    with pytest.warns(UserWarning, match=message) as record:
        with_labels[door](Y.astype(np.uint8))
    assert record[0].filename == __file__


with_decay = {
    "propagate_labels": lambda decay: propagate_labels(GRAPH, Y, decay=decay),
    "class_masses": lambda decay: class_masses(GRAPH, Y, decay=decay),
    "propagate_affinities": lambda decay: propagate_affinities(GRAPH, Y, decay=decay),
    "graph_modes": lambda decay: graph_modes(GRAPH, decay=decay),
}


@pytest.mark.parametrize("door", with_decay)
@pytest.mark.parametrize("decay", [0, 1, -0.1, 1.5, np.nan, np.inf, True, np.float32(1)])
def test_decay_lies_between_0_and_1(door, decay):
    message = f"^{door}: decay must lie strictly between 0 and 1; got {decay}"
    with pytest.raises(ValueError, match=message):
        with_decay[door](decay)


@pytest.mark.parametrize("door", with_decay)
@pytest.mark.parametrize("decay", ["0.5", None, 0.5j, [0.5], np.array([0.5, 0.6])], ids=repr)
def test_decay_is_a_number(door, decay):
    with pytest.raises(TypeError, match=f"^{door}: decay must be a number; got "):
        with_decay[door](decay)


@pytest.mark.parametrize("start", [np.full((N, 2), np.nan), np.full((N, 2), np.inf)])
def test_start_must_be_finite(start):
    with pytest.raises(ValueError, match="propagate_labels: start must be finite; got NaN"):
        propagate_labels(GRAPH, Y, start=start)


with_affinities = {
    "mine_triplets": lambda affinities: mine_triplets(GRAPH, affinities),
    "to_networkx": lambda affinities: to_networkx(GRAPH, affinities=affinities),
    "draw_neighborhood": lambda affinities: draw_neighborhood(
        GRAPH, 0, affinities=affinities, axes=Figure().subplots()
    ),
}


def sparse_affinities(column=1):
    affinities = sparse.csr_array(AFFINITIES)
    affinities.indices[1] = column
    return affinities


@pytest.mark.parametrize("door", with_affinities)
@pytest.mark.parametrize(
    ("affinities", "error", "message"),
    [
        (AFFINITIES[:7, :7], ValueError, r"have shape \(8, 8\), a row for .*; got \(7, 7\)"),
        (np.where(AFFINITIES > 0, np.nan, 1), ValueError, "be finite; got NaN"),
        (AFFINITIES * 1j, TypeError, "hold real numbers; got dtype complex128"),
        (AFFINITIES.astype(str), TypeError, "hold real numbers; got dtype <U"),
        (sparse.lil_array(AFFINITIES * np.inf), ValueError, "be finite; got NaN"),
        (sparse_affinities(8), ValueError, "be a sound sparse array; .*indices must be < 8"),
        (sparse_affinities(-1), ValueError, "be a sound sparse array; .*indices must be >= 0"),
        (ClassMasses(np.ones(N)), ValueError, r"have shape \(8, 1\), .*; got \(8,\)"),
        (ClassMasses(np.ones((N, 0))), ValueError, r"have shape \(8, 1\), .*; got \(8, 0\)"),
        (ClassMasses(np.full((N, 2), -0.1)), ValueError, "have masses of at least 0; got -0.1"),
    ],
    ids="size NaN complex texts lil beyond below line empty negative".split(),
)
def test_bad_affinities_are_refused(door, affinities, error, message):
    with pytest.raises(error, match=f"^{door}: affinities must {message}"):
        with_affinities[door](affinities)


@pytest.mark.parametrize("form", ["coo", "lil", "dok", "twice"])
def test_form_of_affinities_does_not_matter(form):
    row, column = (np.tile(ends, 2) for ends in np.nonzero(AFFINITIES))
    halves = sparse.coo_array((AFFINITIES[row, column] / 2, (row, column)))
    given = halves if form == "twice" else sparse.csr_array(AFFINITIES).asformat(form)
    expected = mine_triplets(GRAPH, sparse.csr_array(AFFINITIES), random_state=0)
    for found, same in zip(mine_triplets(GRAPH, given, random_state=0), expected, strict=True):
        np.testing.assert_array_equal(found, same)


@pytest.mark.parametrize(
    ("n_triplets", "error"),
    [(2.5, TypeError), ("3", TypeError), (True, TypeError), (0, ValueError)],
)
def test_n_triplets_must_be_positive_integer(n_triplets, error):
    with pytest.raises(error, match=f"n_triplets must be .*; got {n_triplets!r}"):
        mine_triplets(GRAPH, AFFINITIES, n_triplets=n_triplets)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (([0], [-1], [2]), "rows of the graph, from 0 to 7; got row -1"),
        (([0], [1], [8]), "rows of the graph, from 0 to 7; got row 8"),
        (([0, 0], [1], [2]), r"as many anchors as .*; got \[2, 1, 1\]"),
    ],
)
def test_bad_triplets_are_refused(ends, message):
    triplets = Triplets(*map(np.array, ends), np.ones(1))
    with pytest.raises(ValueError, match=f"draw_neighborhood: triplets must .*{message}"):
        draw_neighborhood(GRAPH, 0, triplets=triplets, axes=Figure().subplots())


def test_pairs_of_rows_need_64_bits():
    """Of 100,000 rows the pairs (1, 5) and (42950, 67301) are the same modulo 2^32."""
    n = 100_000
    assert (1 * n + 5) % 2**32 == (42950 * n + 67301) % 2**32
    neighbors = (np.arange(n, dtype=np.int32) + 1) % n
    neighbors[1], neighbors[42950] = 5, 67301
    graph = knn_graph((neighbors[:, None], np.ones((n, 1))), 1, method="precomputed")
    np.testing.assert_array_equal(graph.indices.ravel(), neighbors)
    rows = np.array([1, 42950, 42950], np.int32)
    edges = EdgeLookup(sparse.csr_array(([1.0, 2.0], ([1, 42950], [5, 67301])), shape=(n, n)))
    found = edges.values(rows, np.array([5, 67301, 5], np.int32))
    np.testing.assert_array_equal(found, [1.0, 2.0, 0.0])


TENSOR = torch.ones(N, 2, requires_grad=True)
RAGGED = [[0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    "call",
    [
        lambda value: propagate_labels(GRAPH, Y, start=value),
        lambda value: propagate_labels(GRAPH, Y, evidence=value / 2),
        lambda value: propagate_labels(GRAPH, Y, class_prior=value[0] / 2),
        lambda value: mine_triplets(GRAPH, ClassMasses(value / 2), strategy="neighborhood"),
        lambda value: KNNGraph(GRAPH.indices[:, :2], value),
        lambda value: knn_graph((GRAPH.indices[:, :2], value), 2, method="precomputed"),
    ],
)
def test_tensors_with_gradients_are_read(call):
    call(TENSOR)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda value: propagate_labels(GRAPH, Y, start=value), "start"),
        (lambda value: propagate_labels(GRAPH, Y, class_prior=value), "class_prior"),
        (lambda value: mine_triplets(GRAPH, value), "affinities"),
        (lambda value: KNNGraph(value, value), "indices"),
        (lambda value: knn_graph((value, value), 1, method="precomputed"), "indices"),
        (laplacian, "adjacency"),
    ],
)
def test_lists_of_several_lengths_are_named(call, name):
    with pytest.raises(ValueError, match=f": {name} must have rows of one length"):
        call(RAGGED)


def test_start_of_text_is_named():
    with pytest.raises(TypeError, match="propagate_labels: start must hold real numbers"):
        propagate_labels(GRAPH, Y, start=np.full((N, 2), "a"))
