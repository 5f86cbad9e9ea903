"""Base class of learned metrics: embedding, distances, prediction, maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ssdml.classification.learning import HeldOut
from ssdml.classification.new_rows import ClassInterpolator
from ssdml.graphs.neighbors.rows import check_file
from ssdml.metric.features import ClassRepresentation
from ssdml.metric.fitted.base import EmbeddingMixin
from ssdml.metric.fitted.distance import RowDistance
from ssdml.metric.fitted.maps import draw_map, map_rows, place_rows
from ssdml.metric.fitted.prediction import (
    class_probabilities,
    embed,
    interpolated_probabilities,
    most_probable,
)
from ssdml.metric.fitted.saving import load_metric, save_metric
from ssdml.utils.dask_arrays import check_dask_array, is_dask, map_row_blocks
from ssdml.utils.labels import check_order, warn_of_labels_in
from ssdml.utils.linalg import (
    check_spread,
    warn_of_absent_marks,
    warn_of_far_row,
    warn_of_index,
)
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import check_cells, check_dimensions, check_finite, working_dtype

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class LearnedMetric(EmbeddingMixin):
    """Mixin of estimators of a linear metric, perhaps after a representation.

    The embedding of X is ``R(X) @ components_.T``, where R is ``representation_``, or the identity
    if that is None. New rows take their class from ``classifier_``, or, if that is None, from their
    neighbors in ``embedding_``.
    Names follow metric-learn.
    """

    n_components: int | None
    n_neighbors: int
    n_jobs: int | None
    components_: Array  # (n_components, n_features of R)
    representation_: ClassRepresentation | None
    n_features_in_: int
    embedding_: Array
    label_distributions_: Array
    reference_rows_: Array | None = None  # rows of ``embedding_`` among those of fit; None: all
    labeled_rows_: Array | None = None
    classifier_: ClassInterpolator | None = None
    held_out_: HeldOut | None = None
    _map: tuple[Array, Array] | None = None  # of an embedding

    def _training_rows(
        self, X: Any, y: Any, way_out: str | None = None, *, may_underflow: bool = False
    ) -> tuple[Array, Ints]:
        """Validate rows and labels of a fit in memory; without ``way_out``, y may hold none.

        ``may_underflow``: the fit scales rows whose variance underflows.
        """
        name = type(self).__name__
        check_order(X, y, name)
        X = self._validate_rows(X, name, ensure_min_samples=2)
        check_finite(X, name, "X")
        labels = self._read_labels(y, len(X), way_out)
        names = getattr(self, "feature_names_in_", None)
        warn_of_labels_in(X, labels, name, names)
        warn_of_absent_marks(X, name, names)
        warn_of_index(X, name, names)
        squares = check_spread(X, name, may_underflow=may_underflow)
        warn_of_far_row(X, squares, squares.sum(), name)
        return X, labels

    def _validate_rows(self, X: Any, who: str, **checks: Any) -> Array:
        """Validate rows in memory; their entries may still be NaN or infinite."""
        check_file(X, who)
        X, floats = check_cells(X, who), (np.float64, np.float32)
        check_dimensions(X, who)
        if X.shape[1:] == (0,) and X.shape[0]:  # scikit-learn checks for the end of the condition
            raise ValueError(
                f"{who}: X must have a column; got 0 feature(s) (shape={X.shape}) while a minimum "
                "of 1 is required. Select columns of numbers, or encode others."
            )
        if isinstance(X, np.ndarray) and X.dtype.kind == "f":
            X = X.astype(working_dtype(X.dtype), copy=False)
        return validate_data(self, X, dtype=floats, ensure_all_finite=False, **checks)

    def _check_n_components(self, n_features: int) -> None:
        if self.n_components is not None and self.n_components > n_features:
            raise ValueError(
                f"{type(self).__name__}: n_components must be at most n_features = {n_features}; "
                f"got {self.n_components}. Lower it, or pass None."
            )

    def transform(self, X: Any) -> Array:
        """Embed the rows; Euclidean distance in the embedding is the learned metric.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            A dask array is embedded by blocks when the result is computed; its chunk sizes may be
            unknown.

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_components)
            float32 for float32 and float16, else float64. A dask array if X is.
        """
        check_is_fitted(self)
        return self._apply(X, self._embedder, self._n_features_out)

    def predict_proba(self, X: Any) -> Array:
        """Predict class probabilities.

        With a ``classifier_``, combine classifiers and the calibrated class probabilities of the
        nearest training rows; see :class:`ssdml.classification.new_rows.ClassInterpolator`.
        Otherwise average the distributions of neighbors in the embedding with weight
        ``exp(-distance² / scale²)``; the scale of a row is the distance to its last neighbor [1]_.
        After a fit of a dask array, only ``reference_rows_`` are neighbors.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            A dask array is predicted by blocks when the result is computed.

        Returns
        -------
        distributions : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``. A dask array if X is.

        References
        ----------
        .. [1] Delalleau, Bengio, Le Roux, "Efficient non-parametric function induction in
           semi-supervised learning", AISTATS 2005, Eq. (7).
        """
        check_is_fitted(self)
        function: Callable[..., Array]
        if self.classifier_ is not None:
            function = partial(
                interpolated_probabilities, classifier=self.classifier_, n_jobs=self.n_jobs
            )
        else:
            known, rows = self.label_distributions_, self.reference_rows_
            function = partial(
                class_probabilities,
                embedder=self._embedder,
                references=self.embedding_,
                distributions=known if rows is None else known[rows],
                n_neighbors=self.n_neighbors,
                n_jobs=self.n_jobs,
            )
        return self._apply(X, function, len(self.classes_))

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of each row.

        Returns
        -------
        classes : ndarray of shape (n_samples,)
            A dask array if X is.
        """
        distributions: Any = self.predict_proba(X)
        choose = partial(most_probable, classes=self.classes_)
        if is_dask(distributions):
            return distributions.map_blocks(choose, drop_axis=1, meta=self.classes_[:0])
        return choose(distributions)

    @property
    def transduction_confidence_(self) -> Array:
        """Confidence in ``transduction_``, per training row."""
        check_is_fitted(self)
        return self.label_distributions_.max(axis=1)

    def map(self, X: Any = None) -> Array:
        """Lay out rows in two dimensions under the learned metric.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or None
            None: the training rows, by t-SNE; after a fit of a dask array, ``reference_rows_``.
            Others are placed on this map, among their nearest training rows.

        Returns
        -------
        points : ndarray of shape (n_samples, 2)
            Near points are similar rows; areas of clusters and distances between them mean little.

        See Also
        --------
        plot_map : Draw the map.
        ssdml.graphs.neighbor_embedding : The algorithm.

        Notes
        -----
        Deterministic. The map of the training rows is kept until the next fit, but not saved.
        Some 20 s on one core for 10^5 rows and 64 columns, with the neighbor search.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from ssdml import SSDML
        >>> X, y = load_iris(return_X_y=True)
        >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
        >>> SSDML(random_state=0).fit(X, labels).map().shape
        (150, 2)
        """
        check_is_fitted(self)
        if self._map is None or self._map[0] is not self.embedding_:
            self._map = self.embedding_, map_rows(self.embedding_, n_jobs=self.n_jobs)
        points = self._map[1]
        if X is None:
            return points.copy()
        queries = self._apply(X, self._embedder, self._n_features_out)
        return place_rows(points, self.embedding_, np.asarray(queries), n_jobs=self.n_jobs)

    def plot_map(self, X: Any = None, *, axes: Axes | None = None) -> Axes:
        """Draw the map of the rows, with a color and a name for each class.

        Labeled training rows have a black edge.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or None
            As for :meth:`map`. Classes are those of :meth:`predict`, or of ``transduction_``.
        axes : matplotlib.axes.Axes or None
            None: draw on a new figure of pyplot.

        Returns
        -------
        axes : matplotlib.axes.Axes

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from sklearn.datasets import load_iris
        >>> from ssdml import SSDML
        >>> X, y = load_iris(return_X_y=True)
        >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
        >>> model = SSDML(random_state=0).fit(X, labels)
        >>> [text.get_text() for text in model.plot_map(axes=Figure().subplots()).texts]
        ['0', '1', '2']
        """
        points, marked = self.map(X), None
        if X is not None:
            classes = np.asarray(self.predict(X))
        elif self.reference_rows_ is not None:
            classes = self.transduction_[self.reference_rows_]
        else:
            classes, marked = self.transduction_, self.labeled_rows_
        codes = np.searchsorted(self.classes_, classes)
        return draw_map(points, codes, self.classes_, marked=marked, axes=axes)

    def _apply(self, X: Any, function: Callable[..., Array], n_columns: int) -> Any:
        """Validate new rows and apply the function to them, or lazily to blocks of them."""
        name = type(self).__name__
        if is_dask(X):
            check_dask_array(X, name)
            validate_data(self, X, reset=False, skip_check_array=True)
            return map_row_blocks(X, function, n_columns, name)
        return function(self._validate_rows(X, name, reset=False), who=name)

    @property
    def _embedder(self) -> Callable[..., Array]:
        """:func:`embed` under this metric, without the rest of the estimator, for workers."""
        return partial(embed, components=self.components_, representation=self.representation_)

    def get_mahalanobis_matrix(self) -> Array:
        """Matrix M of the squared distance ``(r - s).T @ M @ (r - s)`` between representations.

        Returns
        -------
        M : ndarray of shape (d, d)
            Symmetric and positive semidefinite. d is n_features, or with a ``representation_`` the
            number of its columns.
        """
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def pair_distance(self, pairs: Any) -> Array:
        """Compute the learned distance between the two rows of each pair.

        Parameters
        ----------
        pairs : array of shape (n_pairs, 2, n_features)

        Returns
        -------
        distances : ndarray of shape (n_pairs,)
        """
        check_is_fitted(self)
        who = f"{type(self).__name__}.pair_distance"
        pairs = np.asarray(check_cells(pairs, who, "pairs"))
        if pairs.ndim != 3 or pairs.shape[1:] != (2, self.n_features_in_):
            raise ValueError(
                f"{who}: pairs must have shape (n_pairs, 2, n_features = {self.n_features_in_}); "
                f"got {pairs.shape}."
            )
        rows = pairs.reshape(-1, pairs.shape[2])
        if rows.dtype not in (np.float64, np.float32):
            rows = rows.astype(np.float64)
        check_finite(rows, who, "pairs")
        embedding = self._embedder(rows)
        return np.linalg.norm(embedding[::2] - embedding[1::2], axis=1)

    def pair_score(self, pairs: Any) -> Array:
        """Compute the similarity of each pair: minus :meth:`pair_distance`."""
        return -self.pair_distance(pairs)

    def get_metric(self) -> RowDistance:
        """Return the distance between two rows as a function, for scikit-learn's ``metric=``.

        Euclidean distances between rows of :meth:`transform` are the same, and far faster: with a
        ``representation_``, each new row searches the training rows. The embeddings of the last
        10,000 rows are cached.
        """
        check_is_fitted(self)
        who = f"{type(self).__name__}.get_metric"
        return RowDistance(self._embedder, self.n_features_in_, who)

    def to_onnx(self, path: str | Path, *, method: str = "transform") -> None:
        """Write :meth:`transform` to an ONNX file, to run without Python.

        Parameters
        ----------
        path : path
            The graph takes ``X``, float32 of shape (n, n_features), and returns ``embedding``,
            float32 of shape (n, n_components), for any n.
        method : {"transform"}
            ``predict`` cannot be exported; search an index of :meth:`to_faiss` instead.

        Raises
        ------
        ImportError
            If onnx or onnxscript is missing: ``pip install 'ssdml[onnx]'``.
        """
        from ssdml.metric.fitted.onnx import RowEmbedding, write_onnx

        check_is_fitted(self)
        module = RowEmbedding(self.components_, self.representation_)
        write_onnx(module, (self.n_features_in_,), path, f"{type(self).__name__}.to_onnx", method)

    def save(self, folder: str | Path) -> None:
        """Save the fitted estimator to a folder: safetensors and JSON, no code.

        ``random_state`` is saved if it is an integer; triplets and history are not. An existing
        model is replaced atomically.
        """
        save_metric(self, folder, {})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load an estimator saved by :meth:`save`."""
        return load_metric(cls, folder)[0]

    def _more_arrays(self) -> dict[str, Array]:
        """Arrays to save of a subclass."""
        return {}

    def _restore_more(self, arrays: dict[str, Array]) -> None:
        """Take them from those of a saved model."""

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
