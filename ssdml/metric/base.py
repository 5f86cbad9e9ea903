"""Base classes of fitted metrics: embedding, distances, prediction, save and load."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from ssdml.classification.learning import HeldOut
from ssdml.classification.new_rows import ClassInterpolator
from ssdml.classification.novelty import Novelty
from ssdml.graphs.neighbors.knn import nearest_rows
from ssdml.graphs.neighbors.rows import check_file
from ssdml.metric.features import ClassRepresentation
from ssdml.metric.maps import draw_map, map_rows, place_rows
from ssdml.metric.prediction import neighbor_votes
from ssdml.utils.dask_arrays import check_dask_array, is_dask, map_row_blocks
from ssdml.utils.labels import check_same_kind, in_precision, read_labels
from ssdml.utils.linalg import check_spread
from ssdml.utils.parallel import row_blocks
from ssdml.utils.persistence import check_arrays, load_state, restoring, save_state
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, check_finite, without_container

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ssdml.metric.relabeling import Kept

N_JOBS: list[Any] = [  # as joblib takes it, without 0
    Interval(Integral, None, -1, closed="right"),
    Interval(Integral, 1, None, closed="left"),
    None,
]
BLOCK_ENTRIES = 2**18  # of the rows that are checked and multiplied at once
SEARCHED_AT_ONCE = 2**12  # new rows, at least, where the representation searches neighbors
LAST_ROWS = 10_000  # whose embeddings a metric keeps
SAVED = ("components_", "label_distributions_", "embedding_")
# Kind and axes of saved arrays: l components of d features, n rows, r of them references,
# c classes, q columns of the form that neighbors are searched in.
LABEL_SHAPES = {"classes_": "* c", "transduction_": "* n"}
SHAPES = LABEL_SHAPES | {
    "components_": "f l {width}",
    "label_distributions_": "f n c",
    "embedding_": "f r l",
}
CLASSIFIER = {
    "classifier_mean": "f {d}",
    "classifier_matrix": "f {d} q",
    "classifier_rows": "f r q",
    "classifier_scales": "f r",
    "classifier_trend": "f {q} c",
    "classifier_residuals": "f r c",
    "classifier_n_neighbors": "i",
}


class EmbeddingMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin):
    """Mixin of all estimators with ``transform`` and ``predict``: accuracy and faiss index.

    scikit-learn takes them for classifiers: an integer ``cv`` is stratified, and ensembles and
    displays accept them.
    """

    transform: Any
    predict: Any
    classes_: Array
    transduction_: Array
    _class_names: Array | None = None  # if labels are codes of names

    def _read_labels(self, y: Any, n_samples: int, way_out: str | None = None) -> Ints:
        """Read labels as integers, -1 where missing, and remember the names of the classes."""
        labels, self._class_names = read_labels(y, n_samples, type(self).__name__, way_out)
        return labels

    def _classes(self, labels: Ints) -> Array:
        """Return ``classes_``: the distinct labels, or their names."""
        if self._class_names is not None:
            return self._class_names
        classes: Array = np.unique(labels[labels != UNLABELED])
        return classes

    def _saved_labels(self) -> tuple[dict[str, Array], list[str] | None]:
        """Return ``classes_`` and ``transduction_`` to save; for names, codes and the names."""
        classes, found = self.classes_, self.transduction_
        if classes.dtype.kind != "U":
            return {"classes_": classes, "transduction_": found}, None
        codes = {
            "classes_": np.arange(len(classes)),
            "transduction_": np.searchsorted(classes, found),
        }
        return codes, classes.tolist()

    def _restore_labels(self, arrays: dict[str, Array], names: list[str] | None) -> None:
        """Set ``classes_`` and ``transduction_`` from what :meth:`_saved_labels` returned."""
        self.classes_, self.transduction_ = arrays["classes_"], arrays["transduction_"]
        if names is not None:
            if len(names) != len(self.classes_):
                raise TypeError(f"{len(names)} names of {len(self.classes_)} classes")
            self.classes_ = np.array(names, dtype=np.str_)
            self.transduction_ = self.classes_[self.transduction_]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy of :meth:`predict` on the labeled rows.

        Parameters
        ----------
        X : array of shape (n, n_features), or whatever :meth:`predict` takes
        y : array-like of shape (n,)
            Labels; unlabeled rows do not count.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        accuracy : float
            From 0 to 1.

        Warns
        -----
        UserWarning
            If no label of y is a class of the fit.
        """
        who = f"{type(self).__name__}.score"
        labels, names = read_labels(y, len(X), who, "Score rows with labels.")
        known = labels != UNLABELED
        weights = None if sample_weight is None else np.asarray(sample_weight)
        if weights is not None and weights.shape != known.shape:
            raise ValueError(
                f"{who}: sample_weight must have shape {known.shape}, one per row; got shape "
                f"{weights.shape}."
            )
        truth = labels[known] if names is None else names[labels[known]]
        predicted = np.asarray(self.predict(X))[known]
        check_same_kind(truth, predicted, who, ("y", "the labels of the fit"))
        if not np.isin(truth, self.classes_).any():
            warnings.warn(
                f"{who}: y must hold a class of the fit, {self.classes_.tolist()[:3]}; got "
                f"{np.unique(truth).tolist()[:3]}. The accuracy is 0. If rows are sorted by class, "
                "shuffle them before they are split.",
                stacklevel=2,
            )
        right = predicted == truth
        return float(np.average(right, weights=None if weights is None else weights[known]))

    def to_faiss(self, X: Any) -> Any:
        """Build an exact faiss index of samples by the learned metric.

        Parameters
        ----------
        X : array of shape (n, n_features), or whatever :meth:`transform` takes

        Returns
        -------
        index : faiss.IndexFlatL2
            Of the embedding in float32. ``index.search(model.transform(Q).astype("float32"), k)``
            returns the squared distances and the row numbers of the k nearest samples. Save it with
            ``faiss.write_index``.

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
    _kept: Kept | None = None
    _novelty: Novelty | None = None
    _graphs: Mapping[str, Array] = MappingProxyType({})  # of a saved model, until X is known

    def _training_rows(
        self, X: Any, y: Any, way_out: str | None = None, *, may_underflow: bool = False
    ) -> tuple[Array, Ints]:
        """Validate rows and labels of a fit in memory; without ``way_out``, y may hold none.

        ``may_underflow``: the fit scales rows whose variance underflows.
        """
        name = type(self).__name__
        check_file(X, name)
        floats = (np.float64, np.float32)
        X = without_container(X, name)
        X = validate_data(self, X, dtype=floats, ensure_min_samples=2, ensure_all_finite=False)
        check_finite(X, name, "X")
        labels = self._read_labels(y, len(X), way_out)
        check_spread(X, name, may_underflow=may_underflow)
        return X, labels

    def _check_n_components(self, n_features: int) -> None:
        if self.n_components is not None and self.n_components > n_features:
            raise ValueError(
                f"{type(self).__name__}: n_components must be at most n_features = {n_features}; "
                f"got {self.n_components}."
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
            float32 if X is, else float64. A dask array if X is.
        """
        check_is_fitted(self)
        return self._apply(X, self._embedder, self._n_features_out)

    def predict_proba(self, X: Any) -> Array:
        """Predict class probabilities from the nearest training rows.

        With a ``classifier_``, interpolate their calibrated class probabilities; see
        :class:`ssdml.classification.new_rows.ClassInterpolator`. Otherwise average the
        distributions of neighbors in the embedding with weight ``exp(-distance² / scale²)``; the
        scale of a row is the distance to its last neighbor [1]_. After a fit of a dask array, only
        ``reference_rows_`` are neighbors.

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
                _interpolated,
                classifier=self.classifier_,
                n_jobs=self.n_jobs,
            )
        else:
            known, rows = self.label_distributions_, self.reference_rows_
            function = partial(
                _class_probabilities,
                embedder=self._embedder,
                references=self.embedding_,
                distributions=known if rows is None else known[rows],
                n_neighbors=self.n_neighbors,
                n_jobs=self.n_jobs,
            )
        distributions: Array = self._apply(X, function, len(self.classes_))
        return distributions

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of each row.

        Returns
        -------
        classes : ndarray of shape (n_samples,)
            A dask array if X is.
        """
        distributions: Any = self.predict_proba(X)
        choose = partial(_most_probable, classes=self.classes_)
        if is_dask(distributions):
            classes: Array = distributions.map_blocks(choose, drop_axis=1, meta=self.classes_[:0])
            return classes
        return choose(distributions)

    @property
    def transduction_confidence_(self) -> Array:
        """Confidence in ``transduction_``, per training row."""
        check_is_fitted(self)
        confidences: Array = self.label_distributions_.max(axis=1)
        return confidences

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
            return points
        queries = self._apply(X, self._embedder, self._n_features_out)
        return place_rows(points, self.embedding_, np.asarray(queries), n_jobs=self.n_jobs)

    def plot_map(self, X: Any = None, *, axes: Axes | None = None) -> Axes:
        """Draw the map of the rows in the colors of their classes, with the names of the classes.

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
        check_file(X, name)
        floats, X = (np.float64, np.float32), without_container(X, name)
        rows = validate_data(self, X, dtype=floats, reset=False, ensure_all_finite=False)
        return function(rows, who=name)

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
        M: Array = self.components_.T @ self.components_
        return M

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
        who, pairs = f"{type(self).__name__}.pair_distance", np.asarray(pairs)
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
        distances: Array = np.linalg.norm(embedding[::2] - embedding[1::2], axis=1)
        return distances

    def pair_score(self, pairs: Any) -> Array:
        """Compute the similarity of each pair: minus :meth:`pair_distance`."""
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[[Any, Any], float]:
        """Return the distance between two rows as a function, for scikit-learn's ``metric=``.

        Euclidean distances between rows of :meth:`transform` are the same, and far faster: with a
        ``representation_``, each new row searches the training rows. The embeddings of the last
        10,000 rows are cached.
        """
        check_is_fitted(self)
        embedder = self._embedder

        @lru_cache(LAST_ROWS)
        def embedded(row: bytes) -> Array:
            embedding: Array = embedder(np.frombuffer(row)[None])[0]
            return embedding

        def metric(u: Any, v: Any) -> float:
            one, two = (embedded(np.asarray(row, dtype=np.float64).tobytes()) for row in (u, v))
            return float(np.linalg.norm(one - two))

        return metric

    def to_onnx(self, path: str | Path, *, method: str = "transform") -> None:
        """Write :meth:`transform` to an ONNX file, to run without Python.

        Parameters
        ----------
        path : path
            The graph takes ``X``, float32 of shape (n, n_features), and returns ``embedding``,
            float32 of shape (n, n_components), for any n.
        method : {"transform"}
            ``predict`` cannot be exported: it searches the training rows.

        Raises
        ------
        ImportError
            If onnx or onnxscript is missing: ``pip install 'ssdml[onnx]'``.
        """
        from ssdml.metric.onnx import RowEmbedding, write_onnx

        check_is_fitted(self)
        module = RowEmbedding(self.components_, self.representation_)
        write_onnx(module, (self.n_features_in_,), path, f"{type(self).__name__}.to_onnx", method)

    def save(self, folder: str | Path) -> None:
        """Save the fitted estimator to a folder: safetensors and JSON, no code.

        ``random_state`` is saved if it is an integer; triplets and history are not. An existing
        model is replaced atomically.
        """
        self._save(folder, {})

    def _save(self, folder: str | Path, more: dict[str, Array]) -> None:
        check_is_fitted(self)
        params = self.get_params()
        if not isinstance(params["random_state"], Integral | None):
            params["random_state"] = None
        labels, class_names = self._saved_labels()
        arrays = {name: getattr(self, name) for name in SAVED} | labels
        if self.labeled_rows_ is not None:
            arrays["labeled_rows_"] = self.labeled_rows_
        if self.reference_rows_ is not None:
            arrays["reference_rows_"] = self.reference_rows_
        if self.classifier_ is not None:
            parts = self.classifier_._asdict()
            arrays |= {f"classifier_{k}": v for k, v in parts.items() if v is not None}
        arrays |= self._more_arrays() | more
        names = getattr(self, "feature_names_in_", None)
        save_state(
            folder,
            type(self).__name__,
            params,
            arrays,
            n_features_in=self.n_features_in_,
            feature_names_in=None if names is None else list(names),
            class_names=class_names,
            represents_classes=self.representation_ is not None,
            input_weight=None if np.isinf(self.input_weight_) else self.input_weight_,
        )

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load an estimator saved by :meth:`save`."""
        config, arrays = load_state(folder, cls.__name__)
        fields = [f"classifier_{name}" for name in ClassInterpolator._fields]
        with restoring(folder, cls.__name__, config):
            model = cls(**config["params"])
            model._validate_params()
            _check_saved(config, arrays)
            for name in SAVED:
                setattr(model, name, arrays[name])
            model._restore_labels(arrays, config.get("class_names"))
            parts = [arrays[field] for field in fields if field in arrays]
            model.classifier_ = ClassInterpolator(*parts) if parts else None
            model.representation_ = None
            if config["represents_classes"]:
                assert model.classifier_ is not None
                model.representation_ = ClassRepresentation(model.classifier_, model.n_jobs)
            model.n_features_in_ = config["n_features_in"]
            if config["feature_names_in"] is not None:
                model.feature_names_in_ = np.array(config["feature_names_in"], dtype=object)
            weight = config["input_weight"]
            model.input_weight_ = np.inf if weight is None else weight
            model.reference_rows_ = arrays.get("reference_rows_")
            model.labeled_rows_ = arrays.get("labeled_rows_")
            model._restore_more(arrays)
        model.triplets_, model.history_ = None, []
        return model

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


def embed(
    X: Array, components: Array, representation: ClassRepresentation | None, *, who: str = ""
) -> Array:
    """Compute ``R(X) @ components.T`` in the dtype of X, with R the identity for None.

    With ``who``, entries must be finite. They are checked block by block, while in the cache.

    Examples
    --------
    >>> embed(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0]]), None)
    array([[3.]])
    """
    embedding = np.empty((len(X), len(components)), X.dtype)
    columns = components.T.astype(X.dtype, copy=False)
    step = BLOCK_ENTRIES // X.shape[1]
    if representation is not None:
        step = max(step, SEARCHED_AT_ONCE)
    for place in row_blocks(len(X), step):
        rows = X[place]
        if who:
            check_finite(rows, who, "X", first_row=place.start)
        np.matmul(
            rows if representation is None else representation(rows), columns, out=embedding[place]
        )
    return embedding


def _class_probabilities(
    X: Array,
    *,
    embedder: Callable[..., Array],
    references: Array,
    distributions: Array,
    n_neighbors: int,
    n_jobs: int | None,
    who: str = "",
) -> Array:
    k = min(n_neighbors, len(references))
    indices, distances = nearest_rows(references, embedder(X, who=who), k, n_jobs=n_jobs)
    return neighbor_votes(distances, distributions[indices])


def _interpolated(
    X: Array,
    *,
    classifier: ClassInterpolator,
    n_jobs: int | None,
    who: str = "",
) -> Array:
    check_finite(X, who, "X")
    return in_precision(classifier(X, n_jobs=n_jobs), X.dtype)


def _most_probable(distributions: Array, classes: Array) -> Array:
    most_probable: Array = classes[distributions.argmax(axis=1)]
    return most_probable


def limit_neighbors(n_neighbors: int, n_samples: int, who: str, *, stacklevel: int) -> int:
    """Limit the number of neighbors to the other samples, with a warning.

    Examples
    --------
    >>> limit_neighbors(10, 100, "SSDML", stacklevel=2)
    10
    """
    if n_samples < 2:
        raise ValueError(
            f"{who}: X must have at least 2 samples for a neighbor graph; got {n_samples}. Add "
            "samples."
        )
    if n_neighbors < n_samples:
        return int(n_neighbors)
    warnings.warn(
        f"{who}: n_neighbors must be below n_samples = {n_samples}; got {n_neighbors}. "
        f"Using {n_samples - 1}.",
        stacklevel=stacklevel,
    )
    return n_samples - 1


def _check_saved(config: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Raise ValueError, KeyError or TypeError unless the parts of a saved model fit together."""
    d, names = config["n_features_in"], config["feature_names_in"]
    if type(d) is not int or d < 1:
        raise ValueError(f"n_features_in must be a positive integer; got {d!r}")
    if names is not None and (len(names) != d or {type(name) for name in names} != {str}):
        raise ValueError(f"feature_names_in must be {d} names; got {names!r}")
    weight, represents = config["input_weight"], config["represents_classes"]
    if weight is not None and not (type(weight) in (int, float) and weight >= 0):
        raise ValueError(f"input_weight must be a number of at least 0; got {weight!r}")
    shapes, width, q, rows = dict(SHAPES), d, 0, arrays.get("reference_rows_")
    if any(name in arrays for name in CLASSIFIER):
        shapes |= CLASSIFIER
        q = arrays["classifier_matrix"].shape[-1] + 1
        k, most = int(arrays["classifier_n_neighbors"]), len(arrays["classifier_rows"])
        if not 1 <= k <= most:
            raise ValueError(f"classifier_n_neighbors must be from 1 to {most}; got {k}")
    elif represents:
        raise KeyError("classifier_rows")
    if represents:
        width += arrays["label_distributions_"].shape[-1]
    if rows is None:
        shapes["embedding_"] = "f n l"
    else:
        shapes["reference_rows_"] = "i r"
    optional = {"labeled_rows_": "i m", "novelty_log_odds": "f n", "novelty_farthest": "f n"}
    optional["classifier_center"] = "f {d}"
    optional |= {"held_out_rows": "i h", "held_out_codes": "i h", "held_out_distributions": "f h c"}
    shapes |= {name: shape for name, shape in optional.items() if name in arrays}
    sizes = {"d": d, "width": width, "q": q}
    check_arrays(arrays, {name: s.format(**sizes) for name, s in shapes.items()})
    n_rows, n_classes = arrays["label_distributions_"].shape
    limits = {name: n_rows for name in ("reference_rows_", "labeled_rows_", "held_out_rows")}
    for name, limit in {**limits, "held_out_codes": n_classes}.items():
        rows = arrays.get(name, np.empty(0))
        if rows.size and not 0 <= rows.min() <= rows.max() < limit:
            raise ValueError(f"{name} must be from 0 to {limit - 1}")
    check_class_names(config, arrays)


def check_class_names(config: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Raise ValueError unless the names of saved classes are text, and their codes name one."""
    names, codes = config.get("class_names"), arrays["transduction_"]
    if names is None:
        return
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"class_names must be a list of names; got {names!r}")
    if codes.dtype.kind != "i" or (codes.size and not 0 <= codes.min() <= codes.max() < len(names)):
        raise ValueError(f"transduction_ must be integers from 0 to {len(names) - 1}")
