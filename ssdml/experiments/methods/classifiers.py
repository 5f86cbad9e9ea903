"""What else learns from few labels: classifiers for their accuracy, and supervised UMAP."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone

from ssdml.experiments.methods.base import Embedder, Factory
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED


class ClassDistributions(ClassifierMixin, TransformerMixin, BaseEstimator):
    """A classifier of partly labeled rows whose embedding is what it believes of their classes."""

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Array, y: Array) -> Self:
        """Fit on all rows; -1 where there is no label."""
        self.classifier_ = clone(self.classifier).fit(X, y)
        return self

    def transform(self, X: Array) -> Array:
        """Distributions of the classes (n, n_classes)."""
        return self.predict_proba(X)

    @property
    def classes_(self) -> Array:
        """Columns of :meth:`predict_proba`."""
        classes: Array = self.classifier_.classes_
        return classes

    def predict(self, X: Array) -> Array:
        """The likeliest class, a label as it was given."""
        classes: Array = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return classes

    def predict_proba(self, X: Array) -> Array:
        """What the classifier says."""
        distributions: Array = self.classifier_.predict_proba(X)
        return np.nan_to_num(distributions)  # of rows that no label reaches: 0 / 0


class SupervisedUMAP(TransformerMixin, BaseEstimator):
    """UMAP of rows and labels, of which -1 is none to it as well."""

    def __init__(
        self, n_components: int = 10, n_neighbors: int = 15, random_state: int = 0
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    def fit(self, X: Array, y: Array) -> Self:
        """Fit on all rows."""
        from umap import UMAP

        if not (np.asarray(y) != UNLABELED).any():
            raise ValueError("umap: y must label some rows; got -1 alone. Label some rows.")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="n_jobs value")  # a seed asks for one
            model = UMAP(
                n_neighbors=self.n_neighbors,
                n_components=self.n_components,
                random_state=self.random_state,
            )
            self.model_ = model.fit(X, y)
        return self

    def transform(self, X: Array) -> Array:
        """Embedding of any rows."""
        embedding: Array = self.model_.transform(X)
        return embedding


def _label_spreading(random_state: int, n_jobs: int | None) -> Embedder:
    from sklearn.semi_supervised import LabelSpreading

    return ClassDistributions(LabelSpreading(kernel="knn", n_neighbors=10, n_jobs=n_jobs))


def _self_training(random_state: int, n_jobs: int | None) -> Embedder:
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import SelfTrainingClassifier

    return ClassDistributions(SelfTrainingClassifier(LogisticRegression(max_iter=1000)))


def _umap(random_state: int, n_jobs: int | None) -> Embedder:
    return SupervisedUMAP(random_state=random_state)


REFERENCES: dict[str, Factory] = {
    "label-spreading": _label_spreading,
    "self-training": _self_training,
    **({"umap": _umap} if find_spec("umap") else {}),
}
