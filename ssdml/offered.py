"""What every fitted estimator offers, of features or of networks: a score, an index to search."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from ssdml.graphs._checks import UNLABELED
from ssdml.labels import read_labels


class ClassScore:
    """Mixin of estimators that predict a class."""

    predict: Any

    def score(self, X: Any, y: Any) -> float:
        """Share of the labelled rows (``y != -1``) whose class is predicted."""
        labels = read_labels(y, len(X), f"{type(self).__name__}.score", "Score rows with labels.")
        known = labels != UNLABELED
        return float((np.asarray(self.predict(X))[known] == labels[known]).mean())


class SearchableEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin of estimators under whose embedding Euclidean distance is the metric."""

    transform: Any

    def to_faiss(self, X: Any) -> Any:
        """Index of rows, or items, under the learned metric, for a search by faiss.

        Parameters
        ----------
        X : array of shape (n, n_features), or whatever :meth:`transform` takes

        Returns
        -------
        index : faiss.IndexFlatL2
            Of the embedding in float32: ``index.search(model.transform(Q).astype("float32"), k)``
            gives the squared distances and the numbers of the k nearest rows. It is exact;
            ``faiss.write_index`` keeps it.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from ssdml import SSDML
        >>> X, y = load_iris(return_X_y=True)
        >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
        >>> model = SSDML(random_state=0).fit(X, labels)
        >>> squares, rows = model.to_faiss(X).search(model.transform(X[:2]).astype("float32"), 1)
        >>> rows.ravel().tolist()
        [0, 1]
        """
        import faiss

        embedding = np.ascontiguousarray(self.transform(X), dtype=np.float32)
        index = faiss.IndexFlatL2(embedding.shape[1])
        index.add(embedding)
        return index
