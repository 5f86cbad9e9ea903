"""Wrappers for compared estimators: input, labeled samples only, classifiers, UMAP."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if

from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED


class EstimatorWrapper(BaseEstimator):
    """Base of methods around a fitted ``estimator_``, whose attributes they pass on."""

    estimator_: Any

    def prepare(self, X: Any) -> Any:
        """Convert samples to the form that the estimator takes."""
        return X

    @available_if(lambda self: hasattr(self.estimator_, "transform"))
    def transform(self, X: Any) -> Array:
        """Embed samples."""
        return self.estimator_.transform(self.prepare(X))

    @available_if(lambda self: hasattr(self.estimator_, "predict"))
    def predict(self, X: Any) -> Array:
        """Predict classes."""
        return self.estimator_.predict(self.prepare(X))

    @available_if(lambda self: hasattr(self.estimator_, "predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """Predict class probabilities."""
        return self.estimator_.predict_proba(self.prepare(X))

    @property
    def classes_(self) -> Array:
        """Columns of :meth:`predict_proba`."""
        return self.estimator_.classes_

    @property
    def triplets_(self) -> Any:
        """The last mined triplets."""
        return self.estimator_.triplets_

    @property
    def history_(self) -> Any:
        """Training history."""
        return self.estimator_.history_


class InputFeatures(TransformerMixin, BaseEstimator):
    """The input itself, the baseline of every method."""

    def fit(self, X: Array, y: Array | None = None) -> Self:
        """Learn nothing."""
        return self

    def transform(self, X: Array) -> Array:
        """Return X."""
        return X


class LabeledRowsOnly(EstimatorWrapper):
    """A supervised transformer, fitted on the labeled samples only."""

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Array, y: Array) -> Self:
        """Fit on the samples with ``y != -1``."""
        is_labeled = np.asarray(y) != UNLABELED
        self.estimator_ = clone(self.transformer).fit(X[is_labeled], y[is_labeled])
        return self


class ClassDistributions(ClassifierMixin, TransformerMixin, BaseEstimator):
    """A semi-supervised classifier whose embedding is its class probabilities."""

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Array, y: Array) -> Self:
        """Fit on all samples; -1 means unlabeled."""
        self.classifier_ = clone(self.classifier).fit(X, y)
        return self

    def transform(self, X: Array) -> Array:
        """Class probabilities of shape (n, n_classes)."""
        return self.predict_proba(X)

    @property
    def classes_(self) -> Array:
        """Columns of :meth:`predict_proba`."""
        return self.classifier_.classes_

    @property
    def transduction_(self) -> Array:
        """Class of each training sample."""
        return self.classifier_.transduction_

    def predict(self, X: Array) -> Array:
        """Predict the most probable class."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Array) -> Array:
        """Class probabilities, 0 for samples that no label reaches."""
        return np.nan_to_num(self.classifier_.predict_proba(X))  # there they are 0 / 0


class SupervisedUMAP(TransformerMixin, BaseEstimator):
    """UMAP of samples and partial labels."""

    def __init__(
        self, n_components: int = 10, n_neighbors: int = 15, random_state: int = 0
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    def fit(self, X: Array, y: Array) -> Self:
        """Fit on all samples; UMAP too reads -1 as unlabeled."""
        from umap import UMAP

        if not (np.asarray(y) != UNLABELED).any():
            raise ValueError("umap: y must label some samples; got only -1. Label some samples.")
        model = UMAP(
            n_neighbors=self.n_neighbors,
            n_components=self.n_components,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="n_jobs value")  # a seed implies one job
            self.model_ = model.fit(X, y)
        return self

    def transform(self, X: Array) -> Array:
        """Embed samples."""
        return self.model_.transform(X)
