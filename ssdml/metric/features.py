"""Feature maps: the features on which an orthonormal metric L is learned, and L itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ssdml.classification.new_rows import ClassInterpolator
from ssdml.utils.linalg import product, span
from ssdml.utils.scatter import ClassScatter, class_scatter, discriminants, whitening
from ssdml.utils.typing import Array, Floats, Ints


class FeatureMap:
    """The rows as they are, under a metric L; subclasses learn other features.

    Attributes
    ----------
    L : ndarray of shape (d', l)
        Orthonormal columns; :meth:`learn` initializes them, the alternation updates them.
    """

    def __init__(self, L: Floats) -> None:
        self.L = L

    def learn(self, X: Array, classes: Ints) -> None:
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


class Whitening(FeatureMap):
    """Linear features whose within-class scatter is the identity; L starts at discriminants."""

    def __init__(self) -> None:
        super().__init__(np.empty((0, 0)))

    def learn(self, X: Array, classes: Ints) -> None:
        """Whiten by the shrunk within-class scatter of the rows.

        O(n d min(n, d)): fewer rows than columns are whitened in their span, which L never leaves.
        """
        n, d = X.shape
        axes = span(X) if n < d else None
        coordinates = X if axes is None else product(X, axes)
        self.learn_from(class_scatter(coordinates, classes), len(np.unique(classes)), axes)

    def learn_from(self, scatter: ClassScatter, n_classes: int, axes: Floats | None = None) -> None:
        """Whiten by a given scatter of rows of ``n_classes`` classes, or of coordinates on axes."""
        inner = whitening(scatter, n_features=None if axes is None else len(axes))
        self.L = discriminants(scatter, inner, min(max(1, n_classes - 1), len(inner)))
        self.transform = inner if axes is None else axes @ inner

    def features(self, X: Array) -> Array:
        """Compute the whitened rows."""
        return product(X, self.transform)

    @property
    def components(self) -> Floats:
        """Whitening and L as one map, (l, d)."""
        return (self.transform @ self.L).T


class ClassRepresentation(NamedTuple):
    """Class probabilities beside the input, as a representation of rows.

    Rows that are far from all training rows may be of none of the classes: their probabilities are
    multiplied by their :func:`ssdml.classification.new_rows.nearness` r.
    """

    classifier: ClassInterpolator
    n_jobs: int | None = None

    def __call__(self, X: Array) -> Array:
        """Compute ``[sqrt(r(x) p(x)), x]`` for each row, (n, C + d), in the dtype of X."""
        roots = self.classifier.roots(X, n_jobs=self.n_jobs)
        return np.hstack([roots.astype(X.dtype), X])
