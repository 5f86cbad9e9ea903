"""What a learned metric offers once it is learned: an embedding, distances, a matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ssdml.graphs._checks import check_finite
from ssdml.representation import ResidualRepresentation

Array = npt.NDArray[Any]


class LearnedMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin of estimators that learn ``components_``, and perhaps ``representation_``.

    The embedding of X is ``R(X) @ components_.T``, where R is ``representation_``, or the
    identity if that is None. Names follow metric-learn.
    """

    components_: Array  # (n_components, n_features of R)
    representation_: ResidualRepresentation | None

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def transform(self, X: Any) -> Array:
        """Embedding of the rows, in which Euclidean distance is the learned metric.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_components)
            float32 if X is, else float64.
        """
        check_is_fitted(self)
        X = validate_data(
            self, X, dtype=(np.float64, np.float32), reset=False, ensure_all_finite=False
        )
        check_finite(X, type(self).__name__, "X")
        return self._embed(X)

    def _embed(self, X: Array) -> Array:
        rows = X if self.representation_ is None else self.representation_(X)
        embedding: Array = rows @ self.components_.T.astype(X.dtype, copy=False)
        return embedding

    def get_mahalanobis_matrix(self) -> Array:
        """Matrix M of the squared distance ``(r - s).T @ M @ (r - s)`` between representations.

        Returns
        -------
        M : ndarray of shape (d, d)
            Symmetric and positive semidefinite; d is n_features, unless a backbone stands before
            the metric: then it is the number of columns of ``representation_(X)``.
        """
        check_is_fitted(self)
        M: Array = self.components_.T @ self.components_
        return M

    def pair_distance(self, pairs: Any) -> Array:
        """Learned distance between the two rows of each pair.

        Parameters
        ----------
        pairs : array of shape (n_pairs, 2, n_features)

        Returns
        -------
        distances : ndarray of shape (n_pairs,)
        """
        pairs = np.asarray(pairs)
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise ValueError(
                f"{type(self).__name__}.pair_distance: pairs must have shape "
                f"(n_pairs, 2, n_features); got {pairs.shape}."
            )
        embedding = self.transform(pairs.reshape(-1, pairs.shape[2]))
        distances: Array = np.linalg.norm(embedding[::2] - embedding[1::2], axis=1)
        return distances

    def pair_score(self, pairs: Any) -> Array:
        """Learned similarity of each pair: minus :meth:`pair_distance`."""
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[[Any, Any], float]:
        """Distance function of two rows, as scikit-learn's ``metric=`` takes it."""
        check_is_fitted(self)

        def metric(u: Any, v: Any) -> float:
            embedding = self._embed(np.stack([u, v]).astype(np.float64))
            return float(np.linalg.norm(embedding[0] - embedding[1]))

        return metric
