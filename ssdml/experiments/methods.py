"""What a method of a comparison is, and two that scikit-learn does not have ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin, clone

from ssdml.graphs._checks import UNLABELED

Array = npt.NDArray[Any]


class Embedder(Protocol):
    """What a method makes: labels hold -1 where there is none."""

    def fit(self, X: Array, y: Array) -> Any:
        """Learn from the training rows."""

    def transform(self, X: Array) -> Array:
        """Embedding of any rows."""


# A method: from a seed and the number of jobs to an estimator that has not been fitted.
Factory = Callable[[int, int | None], Embedder]


class InputFeatures(TransformerMixin, BaseEstimator):
    """The features as they are: what every method has to beat."""

    def fit(self, X: Array, y: Array | None = None) -> Self:
        """Nothing is learned."""
        return self

    def transform(self, X: Array) -> Array:
        """Return X."""
        return X


class LabeledRowsOnly(TransformerMixin, BaseEstimator):
    """A supervised transformer, fitted on the labelled rows and no others."""

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Array, y: Array) -> Self:
        """Fit on the rows with ``y != -1``."""
        is_labeled = np.asarray(y) != UNLABELED
        self.transformer_ = clone(self.transformer).fit(X[is_labeled], y[is_labeled])
        return self

    def transform(self, X: Array) -> Array:
        """Embedding of any rows."""
        embedding: Array = self.transformer_.transform(X)
        return embedding
