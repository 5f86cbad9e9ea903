"""The published choice of a network: the best by validation, among epochs and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from ssdml.datasets.base import Dataset
from ssdml.datasets.budgets import Budget
from ssdml.datasets.splits import label_scarce_split
from ssdml.experiments.methods.base import Compared, Factory, format_method, parse_method
from ssdml.experiments.methods.deep import OfImages
from ssdml.experiments.methods.registry import DEEP_METHODS
from ssdml.experiments.methods.tuning import GRIDS, Settings
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

FRACTION = 0.15  # of the training images of each class
FIXED = ("initial",)  # nothing is chosen


class WithoutValidation(OfImages):
    """A deep method that trains without the images that choose its network and setting.

    The validation images are 15% of the training images of each class, as in Dutta et al. (2021):
    unlabeled ones, with their true labels. The network and setting with the highest R@1 on them
    are kept.

    Parameters
    ----------
    estimator : DeepEstimator
    item_shape : tuple of int
    dataset : Dataset
    budget : Budget
    settings : list of dict, or None
        Parameters to choose from. None: keep the last network, trained on the same images.
    random_state : int
        The seed of the split.
    """

    def __init__(
        self,
        estimator: Any,
        item_shape: tuple[int, ...],
        dataset: Dataset,
        budget: Budget,
        settings: Settings | None,
        random_state: int,
    ) -> None:
        super().__init__(estimator, item_shape)
        self.dataset = dataset
        self.budget = budget
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Array, y: Array) -> Self:
        """Fit every setting, and keep the best; or fit, and keep the last network."""
        split = label_scarce_split(self.dataset, self.budget, seed=self.random_state)
        truth = self.dataset.y[split.train]
        held_out = validation_rows(truth, y, FRACTION, self.random_state)
        images = self.prepare(X)
        others = np.setdiff1d(np.arange(len(X)), held_out)
        if self.settings is None:
            return super().fit(X[others], y[others])
        best = -np.inf
        for setting in self.settings:
            model = clone(self.estimator).set_params(validation_fraction=FRACTION, **setting)
            model.fit(images[others], y[others], validation=(images[held_out], truth[held_out]))
            score = max(score for entry in model.history_ for score in entry["R@1 per epoch"])
            if score > best:
                best, self.estimator_, self.best_params_ = score, model, setting
        return self


def validation_rows(truth: Ints, y: Ints, fraction: float, seed: int) -> Ints:
    """Draw a share of the rows of each class among the unlabeled ones.

    Examples
    --------
    >>> truth = np.repeat([0, 1], 20)
    >>> y = np.where(np.arange(40) % 20 < 2, truth, -1)
    >>> rows = validation_rows(truth, y, 0.15, 0)
    >>> truth[rows].tolist(), set(y[rows].tolist())
    ([0, 0, 0, 1, 1, 1], {-1})
    """
    rng = np.random.default_rng([seed, 2])
    drawn = []
    for code in np.unique(truth):
        rows = np.flatnonzero((truth == code) & (y == UNLABELED))
        count = min(len(rows), round(fraction * np.count_nonzero(truth == code)))
        drawn.append(rng.choice(rows, count, replace=False))
    return np.sort(np.concatenate(drawn))


def chosen_methods(
    methods: Sequence[str],
    known: Mapping[str, Factory],
    with_parameters: Any,
    dataset: Dataset,
    budget: Budget,
    keep: str,
    tune: bool,
) -> dict[str, Factory]:
    """Factories of the rows "last", "best by validation", or both.

    Parameters
    ----------
    methods : sequence of str
    known : dict
        Methods of the data set.
    with_parameters : callable
        Makes a factory of a name and `known`.
    dataset, budget
    keep : {"last", "best", "both"}
        Which networks; methods without a network have one row. With "both", neither is trained on
        the validation images.
    tune : bool
        Choose among the six settings of :mod:`ssdml.experiments.methods.tuning`, too.
    """
    found: dict[str, Factory] = {}
    for name in methods:
        factory = with_parameters(name, known)
        method, parameters = parse_method(name)
        if keep == "last" or method not in DEEP_METHODS or method in FIXED:
            found[name] = factory
            continue
        held_out = parameters | {"validation_fraction": str(FRACTION)}
        if keep == "both":
            last = format_method(method, {"keep": "last"} | held_out)
            found[last] = partial(_by_validation, factory, dataset, budget, None)
        settings = GRIDS[method] if tune and method in GRIDS else [{}]
        chosen = {"settings": str(len(settings))} if tune else {}
        found[format_method(method, held_out | chosen)] = partial(
            _by_validation, factory, dataset, budget, settings
        )
    return found


def _by_validation(
    factory: Factory,
    dataset: Dataset,
    budget: Budget,
    settings: Settings | None,
    random_state: int,
    n_jobs: int | None,
) -> Compared:
    model: Any = factory(random_state, n_jobs)
    options = dataset, budget, settings, random_state
    return WithoutValidation(model.estimator, model.item_shape, *options)
