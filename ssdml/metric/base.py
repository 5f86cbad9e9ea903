"""What a learned metric offers once it is learned: embedding, distances, matrix, save and load."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ssdml.graphs.neighbors.rows import check_file
from ssdml.metric.features import ResidualRepresentation
from ssdml.utils.dask_arrays import by_blocks, check_dask_array, of_dask
from ssdml.utils.labels import read_labels
from ssdml.utils.parallel import row_blocks
from ssdml.utils.persistence import load_state, save_state
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED, check_finite

# What every fitted estimator offers, of features or of networks: a score, an index to search.


class ClassScore:
    """Mixin of estimators that predict a class."""

    predict: Any

    def score(self, X: Any, y: Any) -> float:
        """Share of the labeled rows (``y != -1``) whose class is predicted."""
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


# What a learned metric offers once it is learned: embedding, distances, matrix, save and load.

BLOCK_ENTRIES = 2**18  # of the rows that are checked and multiplied at once
SAVED = ("components_", "classes_", "label_distributions_", "transduction_", "embedding_")


def embed(
    X: Array, components: Array, representation: ResidualRepresentation | None, *, who: str = ""
) -> Array:
    """``R(X) @ components.T`` in the precision of X, with R the identity for None.

    Given a name for the message, an entry that is not finite raises: blocks of rows are read for
    it right before they are multiplied, while they are near.

    Examples
    --------
    >>> embed(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0]]), None)
    array([[3.]])
    """
    embedding = np.empty((len(X), len(components)), X.dtype)
    columns = components.T.astype(X.dtype, copy=False)
    for place in row_blocks(len(X), BLOCK_ENTRIES // X.shape[1]):
        rows = X[place]
        if who:
            check_finite(rows, who, "X", first_row=place.start)
        np.matmul(
            rows if representation is None else representation(rows), columns, out=embedding[place]
        )
    return embedding


class LearnedMetric(SearchableEmbedding):
    """Mixin of estimators that learn ``components_``, and perhaps ``representation_``.

    The embedding of X is ``R(X) @ components_.T``, where R is ``representation_``, or the
    identity if that is None. Names follow metric-learn.
    """

    components_: Array  # (n_components, n_features of R)
    representation_: ResidualRepresentation | None
    n_features_in_: int
    reference_rows_: Array | None = None  # rows of ``embedding_`` among those of fit; None: all

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def transform(self, X: Any) -> Array:
        """Embedding of the rows, in which Euclidean distance is the learned metric.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            A dask array is embedded by blocks, when the result is computed; the numbers of rows in
            its chunks may be unknown.

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_components)
            float32 if X is, else float64. A dask array if X is.
        """
        check_is_fitted(self)
        if of_dask(X):
            return self._mapped(X, self._embedder, self._n_features_out)
        return self._embedder(self._validated_rows(X), who=type(self).__name__)

    def _mapped(self, X: Any, function: Callable[[Array], Array], n_columns: int) -> Any:
        """The function's result on rows that are fit for the metric, or on blocks of them."""
        if not of_dask(X):
            return function(self._checked(X))
        check_dask_array(X, type(self).__name__)
        validate_data(self, X, reset=False, skip_check_array=True)
        return by_blocks(X, function, n_columns, type(self).__name__)

    def _checked(self, X: Any) -> Array:
        """Rows of new data, once they are known to be fit for the metric."""
        rows = self._validated_rows(X)
        check_finite(rows, type(self).__name__, "X")
        return rows

    def _validated_rows(self, X: Any) -> Array:
        check_file(X, type(self).__name__)
        rows: Array = validate_data(
            self, X, dtype=(np.float64, np.float32), reset=False, ensure_all_finite=False
        )
        return rows

    @property
    def _embedder(self) -> Callable[..., Array]:
        """A function of arrays that needs nothing else of the estimator: it goes to workers."""
        return partial(embed, components=self.components_, representation=self.representation_)

    def _embed(self, X: Array) -> Array:
        return self._embedder(X)

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
        check_is_fitted(self)
        pairs = np.asarray(pairs)
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise ValueError(
                f"{type(self).__name__}.pair_distance: pairs must have shape "
                f"(n_pairs, 2, n_features); got {pairs.shape}."
            )
        if pairs.shape[2] != self.n_features_in_:
            raise ValueError(
                f"{type(self).__name__}.pair_distance: rows must have {self.n_features_in_} "
                f"features; got {pairs.shape[2]}."
            )
        rows = pairs.reshape(-1, pairs.shape[2])
        if rows.dtype not in (np.float64, np.float32):
            rows = rows.astype(np.float64)
        check_finite(rows, f"{type(self).__name__}.pair_distance", "pairs")
        embedding = self._embed(rows)
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

    def to_onnx(self, path: str | Path, *, method: str = "transform") -> None:
        """Write :meth:`transform` into a file that runs without Python: ONNX.

        Parameters
        ----------
        path : path
            The graph takes ``X``, float32 of shape (n, n_features), and gives ``embedding``,
            float32 of shape (n, n_components), for any n.
        method : {"transform"}
            Nothing else can be exported: a prediction searches the rows that were fitted.

        Raises
        ------
        ImportError
            Where onnx or onnxscript is not installed: ``pip install 'ssdml[onnx]'``.
        ValueError
            If another method is asked for.
        OSError
            Where the file cannot be written.
        """
        from ssdml.metric.onnx import EmbeddingOfRows, write_onnx

        check_is_fitted(self)
        module = EmbeddingOfRows(self.components_, self.representation_)
        write_onnx(module, (self.n_features_in_,), path, f"{type(self).__name__}.to_onnx", method)

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator into a folder: safetensors and JSON, no code.

        ``random_state`` is kept if it is a number. Triplets and history stay behind. A model that
        is there already is replaced whole: a save that is cut short leaves it as it was.
        """
        check_is_fitted(self)
        params = self.get_params()
        if not isinstance(params["random_state"], Integral | None):
            params["random_state"] = None
        arrays = {name: getattr(self, name) for name in SAVED}
        if self.reference_rows_ is not None:
            arrays["reference_rows_"] = self.reference_rows_
        if self.representation_ is not None:
            arrays |= {f"representation_{k}": v for k, v in self.representation_._asdict().items()}
        names = getattr(self, "feature_names_in_", None)
        save_state(
            folder,
            type(self).__name__,
            params,
            arrays,
            n_features_in=self.n_features_in_,
            feature_names_in=None if names is None else list(names),
            confidence_powers=list(getattr(self, "confidence_powers_", (1.0, 1.0))),
            input_weight=None if np.isinf(self.input_weight_) else self.input_weight_,
        )

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Estimator that :meth:`save` wrote."""
        config, arrays = load_state(folder, cls.__name__)
        try:
            return cls._restored(config, arrays)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{cls.__name__}.load: {folder} is damaged: {error}. Save it again."
            ) from error

    @classmethod
    def _restored(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Self:
        model = cls(**config["params"])
        for name in SAVED:
            setattr(model, name, arrays[name])
        model.reference_rows_ = arrays.get("reference_rows_")
        fields = ResidualRepresentation._fields
        parts = [arrays[f"representation_{f}"] for f in fields if f"representation_{f}" in arrays]
        model.representation_ = ResidualRepresentation(*parts) if parts else None
        model.n_features_in_ = config["n_features_in"]
        if config["feature_names_in"] is not None:
            model.feature_names_in_ = np.array(config["feature_names_in"], dtype=object)
        model.confidence_powers_ = tuple(config.get("confidence_powers", (1.0, 1.0)))
        weight = config["input_weight"]
        model.input_weight_ = np.inf if weight is None else weight
        model.triplets_, model.history_ = None, []
        return model
