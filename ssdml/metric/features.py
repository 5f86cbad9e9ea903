"""Backbones: the features on which an orthonormal metric is learned, and L with them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from ssdml.graphs.neighbors.exact import Progress
from ssdml.utils.linalg import covariance, float64_blocks, product, top_eigenvectors, unit_rows
from ssdml.utils.scatter import ClassScatter, class_scatter, discriminants, whitening
from ssdml.utils.typing import Array, Floats, Ints

RESIDUAL_COMPONENTS = 64  # columns of L under a residual head


class Backbone(Protocol):
    """Makes features of rows, learned in turn with the metric L on them."""

    L: Floats
    losses: tuple[float, ...]  # of the steps of the last round, where there are any

    def learn(self, X: Array, classes: Ints, seed: int, progress: Progress | None = None) -> None:
        """Learn the features from the class of each row; L is where its search begins."""

    def features(self, X: Array) -> Array:
        """Features of the rows, (n, d')."""

    def embed(self, X: Array) -> Array:
        """Embedding of the rows under L, (n, l)."""

    @property
    def components(self) -> Floats:
        """The embedding as a linear map, (l, d), where it is one."""

    @property
    def representation(self) -> ResidualRepresentation | None:
        """What comes before the linear map, where the embedding is not linear."""


class Identity:
    """The rows as they are, under an L that somebody else learns."""

    representation = None
    losses: tuple[float, ...] = ()

    def __init__(self, L: Floats) -> None:
        self.L = L

    def learn(self, X: Array, classes: Ints, seed: int, progress: Progress | None = None) -> None:
        """Nothing is learned."""

    def features(self, X: Array) -> Array:
        """The rows."""
        return X

    def embed(self, X: Array) -> Array:
        """Rows times L."""
        return product(X, self.L)

    @property
    def components(self) -> Floats:
        """L, transposed."""
        return self.L.T


class Whitening:
    """Linear features: the scatter within classes is the identity. L starts at discriminants."""

    representation = None
    losses: tuple[float, ...] = ()

    def __init__(self) -> None:
        self.L = np.empty((0, 0))

    def learn(self, X: Array, classes: Ints, seed: int, progress: Progress | None = None) -> None:
        """Whiten by the shrunk scatter within classes."""
        self.learn_from(class_scatter(X, classes), len(np.unique(classes)))

    def learn_from(self, scatter: ClassScatter, n_classes: int) -> None:
        """Whiten by the scatter of rows that need not be at hand; so many classes have rows."""
        self.transform = whitening(scatter)
        count = min(max(1, n_classes - 1), len(self.transform))
        self.L = discriminants(scatter, self.transform, count)

    def features(self, X: Array) -> Array:
        """Rows times the whitening map."""
        return product(X, self.transform)

    def embed(self, X: Array) -> Array:
        """Rows times :attr:`components`, transposed."""
        return product(X, self.components.T)

    @property
    def components(self) -> Floats:
        """The whole map as one matrix, (l, d)."""
        components: Floats = (self.transform @ self.L).T
        return components


class Residual:
    """Features bent by a residual head, trained under L. L starts at principal axes."""

    def __init__(self, X: Array, *, angle: float, device: str) -> None:
        self.mean = X.mean(axis=0, dtype=np.float64)
        spread = covariance(X)
        variance = np.trace(spread) / len(spread)
        self.scale = 1 / np.sqrt(variance) if variance > 0 else 1.0
        self.L = top_eigenvectors(spread, min(X.shape[1], RESIDUAL_COMPONENTS))
        self.angle, self.device = angle, device
        self.head: Any = None
        self.losses: tuple[float, ...] = ()

    def learn(self, X: Array, classes: Ints, seed: int, progress: Progress | None = None) -> None:
        """Train the head on from where it is."""
        import torch

        from ssdml.metric.residual import train_backbone
        from ssdml.networks.backbones import ResidualHead

        if self.head is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.head = ResidualHead(X.shape[1])
        rows = np.empty(X.shape, dtype=np.float32)
        for place, block in float64_blocks(X):
            rows[place] = (block - self.mean) * self.scale
        self.head, losses = train_backbone(
            self.head,
            self.L,
            rows,
            classes,
            angle=self.angle,
            seed=seed,
            device=self.device,
            progress=progress,
        )
        self.losses = tuple(losses)

    def features(self, X: Array) -> Array:
        """Standardized rows, bent by the head."""
        return self.representation.features(X)

    def embed(self, X: Array) -> Array:
        """Unit rows of the features under L."""
        return self.representation.embed(X)

    @property
    def components(self) -> Floats:
        """The identity: the embedding comes out of the representation."""
        return np.eye(self.L.shape[1])

    @property
    def representation(self) -> ResidualRepresentation:
        """The head and L as arrays."""
        hidden, output = self.head.hidden, self.head.output
        return ResidualRepresentation(
            self.mean,
            np.asarray(self.scale),
            hidden.weight.detach().numpy(),
            hidden.bias.detach().numpy(),
            output.weight.detach().numpy(),
            output.bias.detach().numpy(),
            self.L,
        )


# What the residual backbone makes of a row: its unit embedding, with the input beside it.


class ResidualRepresentation(NamedTuple):
    """A trained residual head under a metric L, as arrays; calling it needs no torch."""

    mean: Array  # (d,)
    scale: Array  # ()
    hidden_weight: Array  # (h, d)
    hidden_bias: Array  # (h,)
    output_weight: Array  # (d, h)
    output_bias: Array  # (d,)
    metric: Array  # L, (d, l)

    def __call__(self, X: Array) -> Array:
        """``[unit(f(x) @ L), x]`` of each row, (n, l + d), in the precision of X."""
        return np.hstack([self.embed(X), X])

    def embed(self, X: Array) -> Array:
        """``unit(f(x) @ L)`` of each row, with ``f(x) = x̂ + B relu(A x̂ + a) + b``."""
        features: Array = self.features(X)
        return unit_rows(features @ self.metric.astype(X.dtype))

    def features(self, X: Array) -> Array:
        """``f(x)``: the standardized row, bent by the hidden layer."""
        mean, scale, A, a, B, b = (part.astype(X.dtype) for part in self[:6])
        centered = (X - mean) * scale
        features: Array = centered + np.maximum(centered @ A.T + a, 0) @ B.T + b
        return features
