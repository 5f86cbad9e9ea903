"""Classes of new rows, by induction from the rows whose classes propagation found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ssdml.calibration import (
    Calibration,
    SuspectedLabels,
    calibrate,
    neighbor_votes,
    sharpened,
    suspects,
)
from ssdml.dask_arrays import of_dask
from ssdml.graphs._checks import check_finite
from ssdml.graphs._rows import check_file
from ssdml.graphs.neighbors import nearest_rows
from ssdml.labels import read_labels
from ssdml.linalg import check_spread
from ssdml.metric import LearnedMetric
from ssdml.offered import ClassScore
from ssdml.utils.typing import Array, Ints


class InductiveMetric(ClassScore, LearnedMetric):
    """Mixin of learned metrics that know the distributions of the classes at their rows.

    The rows are those of ``embedding_``: all that were fitted, or ``reference_rows_`` of them.
    """

    n_components: int | None
    n_neighbors: int
    n_jobs: int | None
    classes_: Array
    embedding_: Array
    label_distributions_: Array
    confidence_powers_ = 1.0, 1.0  # of the distributions that were propagated, and of new rows
    calibration_: Calibration | None = None

    def _training_rows(self, X: Any, y: Any, way_out: str | None = None) -> tuple[Array, Ints]:
        """Rows in memory and their labels, as they are told to be; noted what columns they have."""
        name = type(self).__name__
        check_file(X, name)
        floats = (np.float64, np.float32)
        X = validate_data(self, X, dtype=floats, ensure_min_samples=2, ensure_all_finite=False)
        check_finite(X, name, "X")
        labels = read_labels(y, len(X), name, way_out)
        check_spread(X, name)
        return X, labels

    def _check_n_components(self, n_features: int) -> None:
        if self.n_components is not None and self.n_components > n_features:
            raise ValueError(
                f"{type(self).__name__}: n_components must be at most n_features = {n_features}; "
                f"got {self.n_components}."
            )

    def predict_proba(self, X: Any) -> Array:
        """Distribution of the classes at each row: that of its nearest training rows.

        Training rows count by ``exp(-distance² / scale²)`` in the embedding, where the scale of a
        row is the distance to the last of its ``n_neighbors`` neighbours (the induction formula of
        label propagation). After a fit of a dask array they are ``reference_rows_`` alone. They are
        raised to a power, ``confidence_powers_[1]``, and scaled again: 1, or where the fit could
        hide labels and see, that by which the largest are right as often as they say.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Of a dask array the blocks are predicted, when the result is computed.

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
        known, rows = self.label_distributions_, self.reference_rows_
        induce = partial(
            _induced,
            embedder=self._embedder,
            references=self.embedding_,
            distributions=known if rows is None else known[rows],
            n_neighbors=self.n_neighbors,
            n_jobs=self.n_jobs,
            power=self.confidence_powers_[1],
        )
        distributions: Array = self._mapped(X, induce, len(self.classes_))
        return distributions

    def predict(self, X: Any) -> Array:
        """Likeliest class of each row, by :meth:`predict_proba`.

        Returns
        -------
        classes : ndarray of shape (n_samples,)
            A dask array if X is.
        """
        distributions: Any = self.predict_proba(X)
        name = partial(_likeliest, classes=self.classes_)
        if of_dask(distributions):
            named: Array = distributions.map_blocks(name, drop_axis=1, meta=self.classes_[:0])
            return named
        return name(distributions)

    @property
    def transduction_confidence_(self) -> Array:
        """Largest probability of each row that was fitted, calibrated as :meth:`predict_proba`."""
        check_is_fitted(self)
        largest: Array = sharpened(self.label_distributions_, self.confidence_powers_[0]).max(
            axis=1
        )
        return largest

    def _calibrate(self, edges: Any, labels: Ints, decay: float) -> None:
        """Powers of the distributions; none where the rows have several graphs."""
        self.calibration_, self.confidence_powers_ = None, (1.0, 1.0)
        if edges is not None:
            self.calibration_ = calibrate(
                edges,
                labels,
                self.embedding_,
                decay=decay,
                n_neighbors=self.n_neighbors,
                rng=np.random.default_rng(len(labels)),
                n_jobs=self.n_jobs,
            )
        if self.calibration_ is not None:
            self.confidence_powers_ = self.calibration_[:2]

    def suspected_labels(self) -> SuspectedLabels:
        """Labels of the fit that the others contradict, the surest contradictions first.

        Each label is judged by a propagation in which it was hidden. Labels of a class that has no
        other cannot be judged, nor those of a fit of a dask array.

        Returns
        -------
        suspects : SuspectedLabels
            ``rows``, the ``labels`` they have, the ``classes`` that the others give them, and the
            calibrated ``confidences`` in these.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
        >>> labels[0] = 7  # it is a 0
        >>> from ssdml import SSDML
        >>> suspects = SSDML(random_state=0).fit(X, labels).suspected_labels()
        >>> first = suspects.rows.tolist().index(0)
        >>> first < 3, int(suspects.labels[first]), int(suspects.classes[first])
        (True, 7, 0)
        """
        check_is_fitted(self)
        if self.calibration_ is None:
            raise ValueError(
                f"{type(self).__name__}.suspected_labels: needs a class with two labels, and rows "
                "in memory; the fit hid no label. A model that was loaded has forgotten: fit it."
            )
        return suspects(self.calibration_, self.classes_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def neighbors_among(n_neighbors: int, n_samples: int, who: str, *, stacklevel: int) -> int:
    """As many neighbours as are asked for, or all other rows, with a warning.

    Examples
    --------
    >>> neighbors_among(10, 100, "SSDML", stacklevel=2)
    10
    """
    if n_samples < 2:
        raise ValueError(
            f"{who}: a graph of neighbours wants at least 2 rows; got {n_samples}. Give more."
        )
    if n_neighbors < n_samples:
        return int(n_neighbors)
    warnings.warn(
        f"{who}: n_neighbors must be below n_samples = {n_samples}; got {n_neighbors}. "
        f"Takes {n_samples - 1}.",
        stacklevel=stacklevel,
    )
    return n_samples - 1


def _induced(
    X: Array,
    embedder: Callable[[Array], Array],
    references: Array,
    distributions: Array,
    n_neighbors: int,
    n_jobs: int | None,
    power: float,
) -> Array:
    k = min(n_neighbors, len(references))
    indices, distances = nearest_rows(references, embedder(X), k, n_jobs=n_jobs)
    return sharpened(neighbor_votes(distances, distributions[indices]), power)


def _likeliest(distributions: Array, classes: Array) -> Array:
    likeliest: Array = classes[distributions.argmax(axis=1)]
    return likeliest
