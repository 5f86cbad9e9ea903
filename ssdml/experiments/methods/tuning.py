"""Choose the parameters of a method by cross-validation on the labeled samples."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.validation import _num_samples

from ssdml.evaluation.predictions import label_accuracy
from ssdml.experiments.methods.base import Compared, Factory, embed
from ssdml.experiments.methods.estimators import EstimatorWrapper
from ssdml.model_selection.split import SemiSupervisedSplit
from ssdml.utils.labels import encode_labels
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED, as_list, warn

Settings = list[dict[str, Any]]

SUFFIX = "-tuned"
FOLDS = 3
PUBLISHED_RATES, DECAYS = (1e-4, 1e-5, 1e-3), (5e-4, 0.0)
MAX_UNLABELED = 4000  # unlabeled samples in the search


def grid(**values: Sequence[Any]) -> Settings:
    """List all combinations of values; the first one, which wins a tie, has the first values.

    Examples
    --------
    >>> grid(decay=[0.99, 0.9], prior=["itml"])
    [{'decay': 0.99, 'prior': 'itml'}, {'decay': 0.9, 'prior': 'itml'}]
    """
    return [
        dict(zip(values, setting, strict=True)) for setting in itertools.product(*values.values())
    ]


# Six settings per method, its default first. Networks are tuned by their optimizer; "logistic" and
# "knn" choose their parameter themselves.
GRIDS: dict[str, Settings] = {
    "poisson": grid(n_neighbors=[10, 5, 20], class_prior=[None, "labeled"]),
    "pca": grid(n_components=[0.95, 0.5, 0.7, 0.8, 0.9, 0.99]),
    "lda": grid(transformer__shrinkage=[0.5, 0.1, 0.3, 0.7, 0.9, 0.99]),
    "nca": grid(transformer__n_components=[None, 8, 16, 24, 32, 48]),
    "label-spreading": grid(classifier__n_neighbors=[10, 5, 20], classifier__alpha=[0.2, 0.9]),
    "self-training": grid(classifier__estimator__C=[1.0, 10.0, 30.0, 100.0, 300.0, 1000.0]),
    "lrml": grid(dissimilar_weight=[None, 0.0], graph_weight=[1.0, 0.1, 10.0]),
    "seraph": grid(entropy_weight=["auto", 0.0], trace_weight=[0.0, 1.0, 100.0]),
    "isdml": grid(dissimilar_weight=[None, 0.0], graph_weight=[1.0, 0.1, 10.0]),
    "apllr": grid(shrinkage=[0.1, 0.5, 0.9], graph_weight=[None, 0.1]),
    "apit": grid(prior=["itml", "gmml"], graph_weight=[None, 0.1, 0.01]),
    "ssdml": grid(n_neighbors=[10, 6, 20], max_rounds=[None, 1]),
    "ssdml-paper": grid(n_neighbors=[10, 6, 20], decay=[0.99, 0.9]),
    "umap": grid(n_neighbors=[15, 8, 30], n_components=[10, 2]),
} | {
    f"deep-{name}": grid(learning_rate=rates, weight_decay=decays)
    for names, rates, decays in (
        # The published method and its baselines alike.
        (("ssdml-paper", "lrml", "seraph", "isdml", "apllr", "apit"), PUBLISHED_RATES, DECAYS),
        (("triplet", "angular"), PUBLISHED_RATES, DECAYS),
        (("exemplar", "rotnet", "nce", "deepcluster", "suml"), (None, 1e-3, 1e-2), DECAYS),
        (("ssdml",), (1e-3, 3e-4, 3e-3), (1e-2, 0.0)),
    )
    for name in names
}


class Tuned(EstimatorWrapper):
    """A method with the best of several settings, found by cross-validation.

    Each setting is fitted on folds of the labeled samples with up to 4,000 unlabeled ones and
    scored by its accuracy on the held-out labeled samples; the best one is refitted on all samples.

    Parameters
    ----------
    estimator : estimator
        With ``fit(X, y)``, and ``transform(X)`` or ``predict(X)``.
    settings : list of dict
        Parameters of the estimator.
    random_state : int

    Attributes
    ----------
    estimator_ : estimator
        Fitted with the best setting.
    best_params_ : dict
    accuracies_ : ndarray of shape (n_settings,)
        Mean over the folds, in percent; empty if no class has two labeled samples, in which case
        the first setting is used, with a warning.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ssdml.baselines import ISDML
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
    >>> model = Tuned(ISDML(), grid(bandwidth=[10.0, 5.0]), 0).fit(X, labels)
    >>> len(model.accuracies_), model.best_params_ in model.settings
    (2, True)
    """

    def __init__(self, estimator: Any, settings: Settings, random_state: int = 0) -> None:
        self.estimator = estimator
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Choose a setting and fit with it."""
        settings = as_list(self.settings, "settings", "Tuned", "dictionaries of parameters")
        if not settings or not all(isinstance(setting, Mapping) for setting in settings):
            raise ValueError(
                f"Tuned: settings must be dictionaries of parameters; got {self.settings!r}. Pass "
                "[{}] for the estimator as it is."
            )
        codes, _ = encode_labels(y, "Tuned")
        if len(codes) != _num_samples(X):
            raise ValueError(
                f"Tuned: y must have a label for each of the {_num_samples(X)} rows of X; got "
                f"{len(codes)}."
            )
        rows = self._searched(codes)
        self.accuracies_ = self._accuracies(_safe_indexing(X, rows), codes[rows])
        best = int(self.accuracies_.argmax()) if len(self.accuracies_) else 0
        self.best_params_ = self.settings[best]
        self.estimator_ = self._with(self.best_params_).fit(X, y)
        return self

    def __sklearn_tags__(self) -> Tags:
        return get_tags(self.estimator)  # a classifier stays one

    def _searched(self, labels: Array) -> Array:
        """Rows of all labeled and some unlabeled samples."""
        rng = np.random.default_rng(self.random_state)
        others = rng.permutation(np.flatnonzero(labels == UNLABELED))[:MAX_UNLABELED]
        return np.sort(np.concatenate([np.flatnonzero(labels != UNLABELED), others]))

    def _accuracies(self, X: Any, labels: Array) -> Array:
        largest = np.unique(labels[labels != UNLABELED], return_counts=True)[1].max(initial=0)
        if largest < 2:
            warn(
                f"Tuned: y must label two samples of a class to choose a setting; got {largest}. "
                f"The first setting is used: {self.settings[0]}."
            )
            return np.empty(0)
        split = SemiSupervisedSplit(min(FOLDS, largest), random_state=self.random_state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings that may not be chosen
            folds = list(split.split(X, labels))
            scores = [
                [self._accuracy(setting, X, labels, *fold) for fold in folds]
                for setting in self.settings
            ]
        return np.mean(scores, axis=1)

    def _accuracy(
        self, setting: dict[str, Any], X: Any, labels: Array, train: Array, test: Array
    ) -> float:
        known = train[labels[train] != UNLABELED]
        tested = _safe_indexing(X, test)
        model = self._with(setting).fit(_safe_indexing(X, train), labels[train])
        Z, Z_test = embed(model, _safe_indexing(X, known)), embed(model, tested)
        return label_accuracy(model, tested, Z_test, labels[test], Z, labels[known])

    def _with(self, setting: dict[str, Any]) -> Any:
        return clone(self.estimator).set_params(**setting)


def tuned(known: Mapping[str, Factory]) -> dict[str, Factory]:
    """Tuned variants, ``"lrml-tuned"`` for ``"lrml"``, of the methods with a grid."""
    names = [name for name in GRIDS if name in known]
    return {name + SUFFIX: partial(_tuned, known[name], GRIDS[name]) for name in names}


def _tuned(factory: Factory, settings: Settings, random_state: int, n_jobs: int | None) -> Compared:
    return Tuned(factory(random_state, n_jobs), settings, random_state)
