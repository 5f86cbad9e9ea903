"""Feature maps: the features on which an orthonormal metric L is learned, and L itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ssdml.graphs.neighbors.exact import Progress
from ssdml.utils.linalg import covariance, float64_blocks, product, top_eigenvectors, unit_rows
from ssdml.utils.scatter import ClassScatter, class_scatter, discriminants, whitening
from ssdml.utils.typing import Array, Floats, Ints

RESIDUAL_COMPONENTS = 64  # columns of L under a residual head


class FeatureMap:
    """The rows as they are, under a metric L; subclasses learn other features.

    Attributes
    ----------
    L : ndarray of shape (d', l)
        Orthonormal columns; :meth:`learn` initializes them, the alternation updates them.
    losses : tuple of float
        Of the training steps of the last round, if the features are trained.
    """

    losses: tuple[float, ...] = ()

    def __init__(self, L: Floats) -> None:
        self.L = L

    def learn(self, X: Array, classes: Ints, seed: int, progress: Progress | None = None) -> None:
        """Learn the features from the class of each row, and initialize L."""

    def features(self, X: Array) -> Array:
        """Compute the features, (n, d')."""
        return X

    def embed(self, X: Array) -> Array:
        """Compute the embedding under L, (n, l)."""
        return product(X, self.components.T)

    @property
    def components(self) -> Floats:
        """Linear map from the representation to the embedding, (l, d)."""
        return self.L.T

    @property
    def representation(self) -> ResidualRepresentation | None:
        """The nonlinear map before the components, if there is one."""
        return None


class Whitening(FeatureMap):
    """Linear features whose within-class scatter is the identity; L starts at discriminants."""

    def __init__(self) -> None:
        super().__init__(np.empty((0, 0)))

    def learn(self, X: Array, classes: Ints, seed: int, progress: Progress | None = None) -> None:
        """Whiten by the shrunk within-class scatter of the rows."""
        self.learn_from(class_scatter(X, classes), len(np.unique(classes)))

    def learn_from(self, scatter: ClassScatter, n_classes: int) -> None:
        """Whiten by a given scatter of rows of ``n_classes`` classes."""
        self.transform = whitening(scatter)
        count = min(max(1, n_classes - 1), len(self.transform))
        self.L = discriminants(scatter, self.transform, count)

    def features(self, X: Array) -> Array:
        """Compute the whitened rows."""
        return product(X, self.transform)

    @property
    def components(self) -> Floats:
        """Whitening and L as one map, (l, d)."""
        components: Floats = (self.transform @ self.L).T
        return components


class Residual(FeatureMap):
    """Features of a residual head, trained under L; L starts at the principal axes."""

    def __init__(self, X: Array, *, angle: float, device: str) -> None:
        self.mean = X.mean(axis=0, dtype=np.float64)
        spread = covariance(X)
        variance = np.trace(spread) / len(spread)
        self.scale = 1 / np.sqrt(variance) if variance > 0 else 1.0
        super().__init__(top_eigenvectors(spread, min(X.shape[1], RESIDUAL_COMPONENTS)))
        self.angle, self.device = angle, device
        self.head: Any = None

    def learn(self, X: Array, classes: Ints, seed: int, progress: Progress | None = None) -> None:
        """Train the head, from its current weights on."""
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
        """Compute the outputs of the head on standardized rows."""
        return self.representation.features(X)

    def embed(self, X: Array) -> Array:
        """Compute the features under L, scaled to unit length."""
        return self.representation.embed(X)

    @property
    def components(self) -> Floats:
        """The identity: the representation already contains L."""
        return np.eye(self.L.shape[1])

    @property
    def representation(self) -> ResidualRepresentation:
        """The head and L as arrays."""
        hidden, output = self.head.hidden, self.head.output
        layers = (hidden.weight, hidden.bias, output.weight, output.bias)
        arrays = (parameter.detach().numpy() for parameter in layers)
        return ResidualRepresentation._make([self.mean, np.asarray(self.scale), *arrays, self.L])


class ResidualRepresentation(NamedTuple):
    """A trained residual head and its metric L as arrays, usable without torch."""

    mean: Array  # (d,)
    scale: Array  # ()
    hidden_weight: Array  # (h, d)
    hidden_bias: Array  # (h,)
    output_weight: Array  # (d, h)
    output_bias: Array  # (d,)
    metric: Array  # L, (d, l)

    def __call__(self, X: Array) -> Array:
        """Compute ``[unit(f(x) @ L), x]`` for each row, (n, l + d), in the dtype of X."""
        return np.hstack([self.embed(X), X])

    def embed(self, X: Array) -> Array:
        """Compute ``unit(f(x) @ L)`` for each row."""
        features: Array = self.features(X)
        return unit_rows(features @ self.metric.astype(X.dtype))

    def features(self, X: Array) -> Array:
        """Compute ``f(x) = x̂ + B relu(A x̂ + a) + b``, with x̂ the standardized row."""
        mean, scale, A, a, B, b = (part.astype(X.dtype) for part in self[:6])
        centered = (X - mean) * scale
        features: Array = centered + np.maximum(centered @ A.T + a, 0) @ B.T + b
        return features
