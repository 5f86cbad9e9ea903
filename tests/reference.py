"""Slow twins of the graph algorithms: the equations as they stand, in dense NumPy."""

from __future__ import annotations

import numpy as np

UNLABELED = -1


def distance_matrix(X, metric="euclidean"):
    """All distances; cosine is 1 - cos, and the cosine with a row of zeros is 0."""
    X = np.asarray(X, dtype=np.float64)
    if metric == "euclidean":
        return np.array([[np.sqrt(((a - b) ** 2).sum()) for b in X] for a in X])
    norms = np.sqrt((X**2).sum(axis=1))
    cosines = np.zeros((len(X), len(X)))
    for i in range(len(X)):
        for j in range(len(X)):
            if norms[i] > 0 and norms[j] > 0:
                cosines[i, j] = X[i] @ X[j] / (norms[i] * norms[j])
    return 1 - cosines


def knn(X, k, metric="euclidean"):
    """Indices and distances of the k nearest other rows, ties to the smaller index."""
    distances = distance_matrix(X, metric)
    indices = np.array(
        [
            [j for j in np.argsort(row, kind="stable") if j != i][:k]
            for i, row in enumerate(distances)
        ]
    )
    return indices, np.take_along_axis(distances, indices, axis=1)


def transition(indices):
    """Q: 1/k toward each of the k neighbors."""
    n, k = indices.shape
    Q = np.zeros((n, n))
    np.put_along_axis(Q, indices, 1 / k, axis=1)
    return Q


def diffusion(indices, decay):
    """P = (1 - decay) (I - decay Q)^-1."""
    n = len(indices)
    return (1 - decay) * np.linalg.inv(np.eye(n) - decay * transition(indices))


def initial_affinities(y, unlabeled_diagonal):
    """W0: ±1 for labeled pairs, and a chosen number on the diagonal of unlabeled rows."""
    labeled = y != UNLABELED
    both = labeled[:, None] & labeled[None, :]
    W0 = np.where(both, np.where(y[:, None] == y[None, :], 1.0, -1.0), 0.0)
    return W0 + np.diag(np.where(labeled, 0.0, unlabeled_diagonal))


def one_sided_affinities(indices, y, decay):
    """sym(P W0)."""
    W = diffusion(indices, decay) @ initial_affinities(y, 1.0)
    return (W + W.T) / 2


def two_sided_affinities(indices, y, decay):
    """P W0 P^T with nothing on the diagonal of unlabeled rows."""
    P = diffusion(indices, decay)
    return P @ initial_affinities(y, 0.0) @ P.T


def propagated_labels(weights, y, decay, prior=None):
    """Local and global consistency; of rows that sum to 1 the class masses as the prior."""
    labeled = y != UNLABELED
    classes = np.unique(y[labeled])
    H = (y[:, None] == classes[None, :]).astype(np.float64)
    roots = np.sqrt(weights.sum(axis=1))
    S = weights / roots[:, None] / roots[None, :]
    F = np.linalg.solve(np.eye(len(y)) - decay * S, (1 - decay) * H)
    prior = H.sum(axis=0) / labeled.sum() if prior is None else prior
    F = F / F.sum(axis=1, keepdims=True)
    F = F * (prior / F.sum(axis=0))
    return F / F.sum(axis=1, keepdims=True)


def heat_weights(indices, distances, scale_floor=0.0):
    """Self-tuning weights on the edges and their reverses."""
    n = len(indices)
    scales = np.maximum(distances[:, -1], scale_floor)
    W = np.zeros((n, n))
    for i in range(n):
        for j, d in zip(indices[i], distances[i], strict=True):
            W[i, j] = W[j, i] = np.exp(-(d**2) / (scales[i] * scales[j]))
    return W


def pair_scatter(Z, W):
    """Σ_{i<j} w_ij (z_i - z_j)(z_i - z_j)^T, pair by pair."""
    scatter = np.zeros((Z.shape[1], Z.shape[1]))
    for i in range(len(Z)):
        for j in range(i + 1, len(Z)):
            scatter += W[i, j] * np.outer(Z[i] - Z[j], Z[i] - Z[j])
    return scatter


def neighborhood_triplets(indices, W):
    """Seed 003: neighbors by affinity, then by rank; the first half against the second."""
    triplets = []
    for a, neighbors in enumerate(indices):
        ranked = sorted(range(len(neighbors)), key=lambda r: (-W[a, neighbors[r]], r))
        m = len(ranked) // 2
        for i in range(m):
            triplets.append((a, neighbors[ranked[i]], neighbors[ranked[len(ranked) - m + i]]))
    return np.array(triplets)
