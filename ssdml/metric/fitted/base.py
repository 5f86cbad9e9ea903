"""Base class of all estimators: class labels, accuracy, faiss index."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval

from ssdml._version import __version__
from ssdml.utils.labels import check_order, check_same_kind, check_weights, read_labels
from ssdml.utils.linalg import total_variance
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED, warn

VERSION = "_ssdml_version"  # in pickles
ROUNDED = 1e-3  # of the spread: 1% of the five nearest neighbors differ
# Constraints of parameters.
COUNT: list[Any] = [Interval(Integral, 1, None, closed="left")]
POSITIVE: list[Any] = [Interval(Real, 0, None, closed="neither")]
NOT_NEGATIVE: list[Any] = [Interval(Real, 0, None, closed="left")]
DECAY: list[Any] = [Interval(Real, 0, 1, closed="neither")]
FRACTION: list[Any] = [Interval(Real, 0, 1, closed="left")]
ANGLE: list[Any] = [Interval(Real, 0, 90, closed="neither")]  # in degrees
N_JOBS: list[Any] = [Interval(Integral, None, -1, closed="right"), *COUNT, None]  # as of joblib


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

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, VERSION: __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if (version := state.get(VERSION, "of another version")) != __version__:
            warn(
                f"{type(self).__name__}: pickled by ssdml {version}, and this is {__version__}; "
                "results may be wrong. Fit again, or keep models by save() and load()."
            )
        self.__dict__.update(state)
        self.__dict__.pop(VERSION, None)

    def _forget(self) -> None:
        """Forget the last fit: an interrupted one must not leave a fitted estimator."""
        for name in ("components_", "network_"):
            self.__dict__.pop(name, None)

    def _read_labels(self, y: Any, n_samples: int, way_out: str | None = None) -> Ints:
        """Read labels as integers, -1 where missing, and remember the names of the classes."""
        labels, self._class_names = read_labels(y, n_samples, type(self).__name__, way_out)
        return labels

    def _classes(self, labels: Ints) -> Array:
        """Return ``classes_``: the distinct labels, or their names."""
        if self._class_names is not None:
            return self._class_names
        return np.unique(labels[labels != UNLABELED])

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
        check_order(X, y, who)
        predicted = np.asarray(self.predict(X))
        labels, names = read_labels(y, len(predicted), who, "Score rows with labels.")
        known = labels != UNLABELED
        weights = None if sample_weight is None else _check_weights(sample_weight, known, who)
        truth = labels[known] if names is None else names[labels[known]]
        predicted = predicted[known]
        check_same_kind(truth, predicted, who, ("y", "the labels of the fit"))
        if not np.isin(truth, self.classes_).any():
            warn(
                f"{who}: y must hold a class of the fit, {self.classes_.tolist()[:3]}; got "
                f"{np.unique(truth).tolist()[:3]}. The accuracy is 0. If rows are sorted by class, "
                "shuffle them before they are split."
            )
        right = predicted == truth
        return float(np.average(right, weights=weights))

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

        Warns
        -----
        UserWarning
            If the embedding lies so far from 0 that neighbors in float32 are others.

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

        rows = np.asarray(self.transform(X))
        _check_single(rows, f"{type(self).__name__}.to_faiss")
        embedding = np.ascontiguousarray(rows, dtype=np.float32)
        index = faiss.IndexFlatL2(embedding.shape[1])
        index.add(embedding)
        return index


def _check_single(rows: Array, who: str) -> None:
    """Warn if rounding to float32 moves the rows by a thousandth of their spread."""
    center = np.linalg.norm(rows.mean(axis=0, dtype=np.float64))
    spread = np.sqrt(total_variance(rows))
    if np.finfo(np.float32).eps * center > ROUNDED * spread > 0:
        warn(
            f"{who}: X must lie near 0, or neighbors in float32 differ from those in float64; got "
            f"an embedding with a mean of length {center:.2g} and a spread of {spread:.2g}. "
            "Subtract the mean of X before fit."
        )


def _check_weights(sample_weight: Any, known: npt.NDArray[np.bool_], who: str) -> Floats:
    """Return the weights of the labeled rows, which must be at least 0 and not all 0."""
    weights = check_weights(sample_weight, len(known), who, "sample_weight")
    if not weights[known].any():
        raise ValueError(
            f"{who}: sample_weight must be above 0 for a labeled row; got 0 for all of them. Omit "
            "it, or score other rows."
        )
    return weights[known]
