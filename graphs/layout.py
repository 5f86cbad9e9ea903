r"""Two-dimensional maps of a graph: t-SNE with its repulsion on a grid.

Rows repel by :math:`1 / (1 + |y_i - y_j|^2)`, whose sum over all pairs is a convolution. Rows are
spread over the nodes of a grid, convolved by a fast Fourier transform, and the gradient of the
result is read between the nodes, as in particle-mesh methods of physics. A step takes
O(n k + A log A) time, where A is the area of the map.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import fft, sparse

from ssdml.graphs.laplacian import row_normalized, symmetric_weights
from ssdml.utils.linalg import scale_exactly
from ssdml.utils.parallel import count_threads
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import check_number, check_rows

CELL = 0.5  # of the grid, where the width of the repulsion is 1
MARGIN = 2  # nodes around the rows
MAX_NODES = 2000  # along a side; beyond, cells are larger
EARLY_STEPS, STEPS = 150, 250
EARLY_EXAGGERATION = 12.0
MOMENTUM = 0.8
GROWTH, DECAY, LEAST_GAIN = 0.2, 0.8, 0.01  # of the step of a coordinate
LONGEST_STEP = 5.0
START = 1e-2  # standard deviation of the wider coordinate


class Repulsion(NamedTuple):
    """Repulsion of points from all others."""

    forces: Array  # (2, n)
    total: float  # Σ 1 / (1 + |y_i - y_j|²) over pairs of different points


def neighbor_embedding(
    graph: Any, init: Any, *, exaggeration: float = 1.0, n_jobs: int | None = None
) -> Array:
    r"""Lay out a graph in two dimensions by t-SNE: neighbors are near, clusters apart.

    Gradient descent on the Kullback-Leibler divergence of [1]_,

    .. math:: \frac14 \frac{\partial}{\partial y_i} = \rho \sum_j p_{ij} q_{ij} (y_i - y_j)
        - \frac{1}{Z} \sum_j q_{ij}^2 (y_i - y_j), \qquad q_{ij} = \frac{1}{1 + |y_i - y_j|^2}

    where p are the weights of the graph, scaled to sum to 1 in each row and made symmetric.

    Parameters
    ----------
    graph : KNNGraph or sparse array of shape (n, n)
        As for :func:`propagate_labels`. Some 10 to 15 neighbors are enough.
    init : array of shape (n, 2)
        First positions, whose scale and mean do not matter: two principal components keep the
        global arrangement.
    exaggeration : float
        ρ: above 1, clusters are tighter.
    n_jobs : int or None
        Threads of the transforms; never changes the result.

    Returns
    -------
    points : ndarray of shape (n, 2), float32
        Centered.

    Notes
    -----
    Deterministic. 150 steps of early exaggeration and 250 others, with momentum and a step length
    per coordinate. Forces come from a grid with nodes 0.5 apart, as Linderman et al. [2]_ do with
    finer interpolation; weights of self-tuning neighbor graphs replace a search for perplexities.
    Some 15 s on one core for 10^5 rows, 4 s for 2 · 10^4.

    References
    ----------
    .. [1] van der Maaten, Hinton, "Visualizing data using t-SNE", JMLR 9, 2008, Eq. (5).
    .. [2] Linderman et al., "Fast interpolation-based t-SNE for improved visualization of
       single-cell RNA-seq data", Nature Methods 16, 2019.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> rows = np.random.default_rng(0).standard_normal((200, 3)) + np.repeat([[0], [9]], 100, 0)
    >>> points = neighbor_embedding(knn_graph(rows, 10), rows[:, :2])
    >>> nearest = knn_graph(points, 1).indices.ravel()
    >>> bool(((nearest < 100) == (np.arange(200) < 100)).all())
    True
    """
    who = "neighbor_embedding"
    check_number(exaggeration, "exaggeration", who, above=0)
    n_threads = count_threads(n_jobs, who)
    weights = row_normalized(symmetric_weights(graph, who))
    first = check_rows(init, who, "init")
    n = weights.shape[0]
    if first.shape != (n, 2):
        raise ValueError(
            f"{who}: init must have shape ({n}, 2), a position per row of the graph; got "
            f"{first.shape}. Pass two principal components of the rows."
        )
    affinities = sparse.csr_array((weights + weights.T) * (0.5 / n)).astype(np.float32)
    first, _ = scale_exactly(first)
    first = first - first.mean(axis=0)  # before rounding to single precision
    spread = float(first.std(axis=0).max())
    points = np.ascontiguousarray(first.T * (START / spread if spread > 0 else 0), np.float32)
    return descend(points, affinities, exaggeration, n_threads).T


def descend(
    points: Array, affinities: sparse.csr_array, exaggeration: float, n_threads: int
) -> Array:
    """Positions (2, n) after all steps of gradient descent."""
    edges = affinities.indptr, affinities.indices, affinities.data
    n, velocity, gains = points.shape[1], np.zeros_like(points), np.ones_like(points)
    for step in range(EARLY_STEPS + STEPS):
        exaggerated = EARLY_EXAGGERATION if step < EARLY_STEPS else exaggeration
        repulsion = grid_repulsion(points, n_threads=n_threads)
        slope = attraction(points, *edges)
        slope *= np.float32(4 * exaggerated)
        slope -= repulsion.forces * np.float32(4 / max(repulsion.total, 1e-12))
        gains = np.where(slope * velocity > 0, gains * DECAY, gains + GROWTH).astype(np.float32)
        np.maximum(gains, LEAST_GAIN, out=gains)
        velocity *= np.float32(MOMENTUM)
        velocity -= np.float32(n / exaggerated) * gains * slope
        lengths = np.sqrt(velocity[0] ** 2 + velocity[1] ** 2)
        velocity *= LONGEST_STEP / np.maximum(lengths, LONGEST_STEP)
        points = points + velocity
        points -= points.mean(axis=1, keepdims=True)
    return points


@njit(nogil=True)
def attraction(points: Array, starts: Ints, columns: Ints, weights: Array) -> Array:
    """Sum ``w_ij (y_i - y_j) / (1 + |y_i - y_j|²)`` over the edges of each row; (2, n)."""
    forces = np.empty_like(points)
    one = np.float32(1)
    for i in range(points.shape[1]):
        x, y = points[0, i], points[1, i]
        force_x = force_y = np.float32(0)
        for edge in range(starts[i], starts[i + 1]):
            j = columns[edge]
            dx, dy = x - points[0, j], y - points[1, j]
            weight = weights[edge] / (one + dx * dx + dy * dy)
            force_x += weight * dx
            force_y += weight * dy
        forces[0, i], forces[1, i] = force_x, force_y
    return forces


def grid_repulsion(points: Array, *, cell: float = CELL, n_threads: int = 1) -> Repulsion:
    r"""Sum :math:`(y_i - y_j) / (1 + |y_i - y_j|^2)^2` over all j, and their normalization.

    Parameters
    ----------
    points : array of shape (2, n)
    cell : float
        Distance of the nodes, between which sums are interpolated linearly.
    n_threads : int

    Returns
    -------
    repulsion : Repulsion

    Examples
    --------
    >>> points = np.array([[0.0, 3.0], [0.0, 0.0]], np.float32)
    >>> repulsion = grid_repulsion(points, cell=0.1)
    >>> repulsion.forces.round(2) + 0.0, round(repulsion.total, 2)
    (array([[-0.03,  0.03],
           [ 0.  ,  0.  ]], dtype=float32), 0.2)
    """
    low, sides = points.min(axis=1, keepdims=True), np.ptp(points, axis=1)
    cell = max(cell, float(sides.max()) / MAX_NODES)
    counts = sides / cell + 2 * MARGIN
    shape = tuple(int(fft.next_fast_len(2 * int(count), real=True)) for count in counts)
    places = (points - low) / np.float32(cell) + np.float32(MARGIN / 2)
    corners = places.astype(np.int64)
    x, y = places - corners.astype(np.float32)
    first = corners[0] * shape[1] + corners[1]
    steps = 0, 1, shape[1], shape[1] + 1
    parts = (1 - x) * (1 - y), (1 - x) * y, x * (1 - y), x * y
    shares = [(first + step, part) for step, part in zip(steps, parts, strict=True)]
    nodes = np.zeros(shape[0] * shape[1])
    for node, share in shares:
        nodes += np.bincount(node, share, minlength=len(nodes))
    density = nodes.reshape(shape).astype(np.float32)
    spectrum = fft.rfft2(density, workers=n_threads)
    spectrum *= _kernel(shape, cell)
    potential = fft.irfft2(spectrum, s=shape, workers=n_threads)
    total = float(np.vdot(density, potential)) - _self_energy(parts, cell)
    forces = np.empty_like(points)
    for axis in range(2):
        # The gradient of 1 / (1 + r²) is -2 r / (1 + r²)²
        slopes = (np.roll(potential, -1, axis) - np.roll(potential, 1, axis)).ravel()
        forces[axis] = sum(share * slopes[node] for node, share in shares)
    forces /= np.float32(-4 * cell)
    return Repulsion(forces, total)


def _self_energy(parts: tuple[Array, ...], cell: float) -> float:
    """Part of the total that points have with themselves; 1 each in infinitesimal cells."""
    a, b, c, d = parts
    near, across = (a + d) * (b + c), a * d + b * c
    equal = a * a + b * b + c * c + d * d
    terms = equal + 2 * near / (1 + cell**2) + 2 * across / (1 + 2 * cell**2)
    return float(terms.sum(dtype=np.float64))


@lru_cache(maxsize=2)
def _kernel(shape: tuple[int, int], cell: float) -> Array:
    """Transform of ``1 / (1 + r²)`` on a periodic grid."""
    x, y = (np.minimum(np.arange(size), size - np.arange(size)) * cell for size in shape)
    return fft.rfft2((1 / (1 + x[:, None] ** 2 + y**2)).astype(np.float32))
