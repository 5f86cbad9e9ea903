"""Classes of new rows, by induction from the rows whose classes propagation found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from ssdml.graphs.neighbors.exact import without_self
from ssdml.graphs.neighbors.knn import nearest_rows
from ssdml.graphs.neighbors.rows import check_file
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.metric.base import ClassScore, LearnedMetric
from ssdml.utils.dask_arrays import of_dask
from ssdml.utils.labels import class_codes, read_labels
from ssdml.utils.linalg import check_spread
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, check_finite

# Confidence in the classes that a graph gave, calibrated by labeled rows that were hidden.

FOLDS = 5
TOL = 1e-3  # of the solver: powers are not known to a hundredth
DOUBT = 0.25  # of a row whose classes are all alike, beside those that were hidden
POWERS = (0.1, 50.0)


class Calibration(NamedTuple):
    """Powers that make confidences as large as the share of what is right, and what told them."""

    of_rows: float  # of the distributions that were propagated
    of_new: float  # of those that new rows take from their neighbors
    rows: Ints  # (m,) labeled rows that were hidden
    codes: Ints  # (m,) their classes, by number
    distributions: Array  # (m, n_classes), what the others say of them, calibrated


class SuspectedLabels(NamedTuple):
    """Labels that the others contradict."""

    rows: Ints
    labels: Array
    classes: Array  # that the others give the rows
    confidences: Array  # in these


def calibrate(
    edges: Any,
    labels: Ints,
    embedding: Array,
    *,
    decay: float,
    n_neighbors: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Calibration | None:
    """Hide a fifth of the labeled rows at a time, and see how sure the others are of them.

    Parameters
    ----------
    edges : KNNGraph or sparse array
        Along which labels are spread.
    labels : array of shape (n,), int
        -1 where unlabeled.
    embedding : array of shape (n, l)
        In which new rows find their neighbors.
    decay : float
    n_neighbors : int
    rng : Generator
        Of the fifths.
    n_jobs : int or None

    Returns
    -------
    calibration : Calibration or None
        None where no class has two labeled rows.

    Notes
    -----
    Five propagations. A power is a temperature of the log-probabilities [1]_; it is that of the
    greatest likelihood of the hidden labels, with a quarter of a row beside them whose classes are
    all alike, so that it stays finite where all are right. It never changes which class is
    likeliest.

    References
    ----------
    .. [1] Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", ICML 2017,
       Section 4.2.
    """
    rows, folds = hidden_folds(labels, rng)
    if not len(rows):
        return None
    codes, n_classes = class_codes(labels)
    indices, distances = _other_neighbors(embedding, rows, n_neighbors, n_jobs)
    of_rows = np.empty((len(rows), n_classes))
    of_new = np.empty_like(of_rows)
    for fold in np.unique(folds):
        hidden, known = folds == fold, labels.copy()
        known[rows[hidden]] = UNLABELED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of labels that are hidden for a moment
            spread = propagate_labels(edges, known, decay=decay, tol=TOL, n_jobs=n_jobs)
        of_rows[hidden] = spread[rows[hidden]]
        of_new[hidden] = neighbor_votes(distances[hidden], spread[indices[hidden]])
    hidden_codes = codes[rows]
    power = best_power(of_rows, hidden_codes)
    return Calibration(
        power, best_power(of_new, hidden_codes), rows, hidden_codes, sharpened(of_rows, power)
    )


def suspects(calibration: Calibration, classes: Array) -> SuspectedLabels:
    """Labeled rows whose likeliest class is another, the surest first."""
    found, confidences = calibration.distributions.argmax(1), calibration.distributions.max(1)
    wrong = np.flatnonzero(found != calibration.codes)
    wrong = wrong[np.argsort(-confidences[wrong], kind="stable")]
    codes = calibration.codes[wrong]
    return SuspectedLabels(
        calibration.rows[wrong], classes[codes], classes[found[wrong]], confidences[wrong]
    )


def hidden_folds(labels: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Labeled rows of the classes that have two or more, and the fifth of each.

    Of no class all rows are in one fifth.

    Examples
    --------
    >>> rows, folds = hidden_folds(np.array([0, 1, -1, 0, 0]), np.random.default_rng(0))
    >>> rows.tolist(), sorted(folds.tolist())
    ([0, 3, 4], [0, 1, 2])
    """
    rows, folds = [], []
    for label in np.unique(labels[labels != UNLABELED]):
        members = np.flatnonzero(labels == label)
        if len(members) > 1:
            rows.append(members)
            folds.append(rng.permutation(len(members)) % FOLDS)
    if not rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    together, order = np.concatenate(rows), np.argsort(np.concatenate(rows))
    return together[order], np.concatenate(folds)[order]


def best_power(distributions: Array, codes: Ints) -> float:
    """Power of the distributions (m, n_classes) under which the classes (m,) are likeliest.

    Examples
    --------
    Nine of ten are right where the confidence is 0.6:

    >>> sure = np.tile([0.6, 0.4], (1000, 1))
    >>> power = best_power(sure, (np.arange(1000) % 10 == 0).astype(int))
    >>> sharpened(sure[:1], power).round(2)
    array([[0.9, 0.1]])
    """

    def surprise(exponent: float) -> float:
        log = np.log(np.maximum(sharpened(distributions, np.exp(exponent)), 1e-300))
        return float(-log[np.arange(len(codes)), codes].sum() - DOUBT * log.mean())

    found = minimize_scalar(surprise, bounds=tuple(np.log(POWERS)), method="bounded")
    return float(np.exp(found.x))


def sharpened(distributions: Array, power: float) -> Array:
    """Powers of the entries, rows scaled to sum to 1 again; in the precision they have.

    Examples
    --------
    >>> sharpened(np.array([[0.8, 0.2]]), 2.0).round(3)
    array([[0.941, 0.059]])
    """
    top = distributions.max(axis=1, keepdims=True)
    powers: Array = (distributions / top) ** power
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def neighbor_votes(distances: Array, distributions: Array) -> Array:
    """Distributions (m, k, n_classes) of neighbors, by how near they are, as one of each row.

    Examples
    --------
    >>> neighbor_votes(np.array([[0.0, 1.0]]), np.array([[[1.0, 0.0], [0.0, 1.0]]])).round(3)
    array([[0.731, 0.269]])
    """
    scale = np.maximum(distances[:, -1:], np.finfo(distances.dtype).tiny)
    weights = np.exp(-((distances / scale) ** 2))[:, :, None]
    votes: Array = (weights * distributions).sum(axis=1)
    votes /= votes.sum(axis=1, keepdims=True)
    return votes


def _other_neighbors(
    embedding: Array, rows: Ints, n_neighbors: int, n_jobs: int | None
) -> tuple[Ints, Array]:
    """Nearest neighbors of rows, themselves left out, and the distances to them."""
    k = min(n_neighbors, len(embedding) - 1)
    return without_self(nearest_rows(embedding, embedding[rows], k + 1, n_jobs=n_jobs), rows)


# Classes of new rows, by induction from the rows whose classes propagation found.


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
        row is the distance to the last of its ``n_neighbors`` neighbors (the induction formula of
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
    """As many neighbors as are asked for, or all other rows, with a warning.

    Examples
    --------
    >>> neighbors_among(10, 100, "SSDML", stacklevel=2)
    10
    """
    if n_samples < 2:
        raise ValueError(
            f"{who}: a graph of neighbors wants at least 2 rows; got {n_samples}. Give more."
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
