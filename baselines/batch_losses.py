"""Objectives of the baselines on mini-batches, for a network under a fixed metric.

Algorithm 1 of Dutta et al. (2021) trains the network by the objective of the metric. Each term is a
mean over its pairs in the batch, 0 if there are none. On all rows at once the loss equals the
objective, without the terms of the metric alone: ridge, barrier, prior and trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional

from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED


class BatchLoss(ABC):
    """Objective on mini-batches."""

    def weights_of(self, batch: Array) -> Array:
        """Return the weights (b, b) of the pairs of these rows; zeros without a graph."""
        return np.zeros((len(batch), len(batch)))

    @abstractmethod
    def __call__(
        self, squares: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Compute the loss from squared distances (b, b) under the metric."""


@dataclass(frozen=True)
class LaplacianLoss(BatchLoss):
    """Loss of LRML and ISDML: ``w_S mean_S - w_D mean_D + w_R mean_W`` of squared distances.

    ``pulls`` are weights of the squared distances to the mean, for a normalized Laplacian.

    Examples
    --------
    >>> loss = LaplacianLoss(sparse.csr_array([[0.0, 2.0], [2.0, 0.0]]), 1.0, 0.5, 1.0)
    >>> squares = torch.tensor([[0.0, 3.0], [3.0, 0.0]])
    >>> weights = torch.from_numpy(loss.weights_of(np.array([0, 1])))
    >>> loss(squares, torch.tensor([0, 1]), weights).item()  # 3 - 0.5 * 3
    1.5
    """

    edges: sparse.csr_array  # symmetric
    similar: float
    dissimilar: float
    graph: float
    pulls: Array | None = None  # (n,)

    def weights_of(self, batch: Array) -> Array:
        """Return weights of the edges, of sum 1, and of the pairs that stand for the pulls."""
        weights = dense_block(self.edges, batch)
        weights /= weights.sum() or 1.0
        if self.pulls is not None:
            rows_per_row = len(self.pulls) / len(batch)
            weights += rows_per_row / self.edges.sum() * pairs_about_mean(self.pulls[batch])
        return weights

    def __call__(
        self, squares: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Compute the loss of a batch."""
        same, different, _ = kinds_of_pairs(labels)
        return (
            self.similar * _mean(squares, same)
            - self.dissimilar * _mean(squares, different)
            + self.graph * (weights * squares).sum()
        )


@dataclass(frozen=True)
class AffinityLoss(BatchLoss):
    """Loss of APLLR and APIT: mean of propagated affinity times squared distance.

    The affinity is known for edges and for pairs with a labeled end. For the latter it is half of
    what the label propagates, neglecting what the unlabeled row sends back.

    Examples
    --------
    >>> edges, masses = sparse.csr_array((2, 2)), np.array([[0.6, 0.2], [0.9, 0.0]])
    >>> loss = AffinityLoss(edges, masses, np.array([-1, 0]))
    >>> loss.weights_of(np.array([0, 1])).round(3)  # (0.6 - 0.2) / 2
    array([[0. , 0.2],
           [0.2, 0. ]])
    """

    edges: sparse.csr_array  # affinities, symmetric
    masses: Array  # (n, n_classes), of each class at each row
    codes: Array  # (n,), class of each labeled row, -1 elsewhere

    def weights_of(self, batch: Array) -> Array:
        """Return the known affinities, 0 for other pairs."""
        codes, masses = self.codes[batch], self.masses[batch]
        labeled = codes != UNLABELED
        sent = 2 * masses[:, np.maximum(codes, 0)] - masses.sum(axis=1, keepdims=True)
        sent = np.where(labeled, sent, 0.0)
        known = dense_block(self.edges, batch)
        weights: Array = np.where(known != 0, known, (sent + sent.T) / 2)
        np.fill_diagonal(weights, 0)
        return weights

    def __call__(
        self, squares: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Compute the loss of a batch."""
        n_known = (weights != 0).sum()
        return (weights * squares).sum() / n_known.clamp_min(1)


@dataclass(frozen=True)
class EntropyLoss(BatchLoss):
    """Loss of SERAPH: negative log-likelihood of labeled pairs and entropy of the others.

    Examples
    --------
    >>> loss = EntropyLoss(threshold=1.0, entropy=1.0)
    >>> weights = torch.from_numpy(loss.weights_of(np.array([0, 1])))
    >>> squares = torch.ones(2, 2)
    >>> [round(loss(squares, torch.tensor(y), weights).item(), 4) for y in ([0, 0], [0, -1])]
    [0.6931, 0.6931]
    """

    threshold: float
    entropy: float  # weight of all unknown pairs relative to all known ones
    both: bool = False  # whether both ends of an unknown pair must be unlabeled

    def __call__(
        self, squares: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Compute the loss of a batch."""
        same, different, unknown = kinds_of_pairs(labels)
        if self.both:
            unlabeled = labels == UNLABELED
            unknown = unknown & unlabeled[:, None] & unlabeled
        logits = self.threshold - squares
        surprise = torch.where(same, functional.softplus(-logits), functional.softplus(logits))
        p = torch.sigmoid(logits)
        entropy = p * functional.softplus(-logits) + (1 - p) * functional.softplus(logits)
        return _mean(surprise, same | different) + self.entropy * _mean(entropy, unknown)


def kinds_of_pairs(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return masks (b, b) of the similar, dissimilar and unknown pairs i < j.

    Examples
    --------
    >>> [mask.nonzero().tolist() for mask in kinds_of_pairs(torch.tensor([0, 0, 1, -1]))]
    [[[0, 1]], [[0, 2], [1, 2]], [[0, 3], [1, 3], [2, 3]]]
    """
    pairs = torch.ones(len(labels), len(labels), device=labels.device).triu(1).bool()
    known = labels != UNLABELED
    both = known[:, None] & known & pairs
    equal = labels[:, None] == labels
    return both & equal, both & ~equal, pairs & ~both


def pairs_about_mean(pulls: Array) -> Array:
    r"""Rewrite weights of squared distances to the mean as weights (b, b) of pairs.

    .. math:: \sum_i u_i |z_i - \bar z|^2 = \sum_{i<j} A_{ij} |z_i - z_j|^2, \qquad
        A_{ij} = (u_i + u_j) / b - \sum_k u_k / b^2

    Examples
    --------
    >>> pairs_about_mean(np.array([1.0, 1.0]))  # (z_1 - z_2)² / 2
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    b = len(pulls)
    weights: Array = (pulls[:, None] + pulls) / b - pulls.sum() / b**2
    np.fill_diagonal(weights, 0)
    return weights


def dense_block(matrix: sparse.csr_array, rows: Array) -> Array:
    """Return the dense block (b, b) of these rows, which may repeat.

    Examples
    --------
    >>> dense_block(sparse.csr_array(np.diag([1.0, 2.0])), np.array([1, 1]))
    array([[2., 2.],
           [2., 2.]])
    """
    return matrix[rows][:, rows].toarray()


def _mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Compute the mean over the mask; 0, with a gradient of zeros, if it is empty."""
    return (values * mask).sum() / mask.sum().clamp_min(1)
