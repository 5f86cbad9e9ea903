"""Splitters and scorers for data that are mostly unlabeled.

scikit-learn's own splitters put unlabeled samples into test folds, and score -1 as a class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isfunction
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import BaseCrossValidator, StratifiedGroupKFold, StratifiedKFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from ssdml.evaluation.scores import evaluate, is_embedding_score
from ssdml.utils.labels import check_order, encode_labels, index_of
from ssdml.utils.typing import Ints
from ssdml.utils.validation import UNLABELED, as_array, choose

NO_GROUP = ("nan", "<NA>", "NaT")


class SemiSupervisedSplit(BaseCrossValidator):
    """Stratified K-fold over the labeled samples; unlabeled ones are in every training set.

    Parameters
    ----------
    n_splits : int
        At least 2, and at most the number of labeled samples of the largest class.
    shuffle : bool
        Whether to shuffle each class before splitting.
    random_state : int, RandomState or None
        Of the shuffling.

    Notes
    -----
    Samples are unlabeled where y is -1, None, NaN or "". Folds, warnings and errors are those of
    scikit-learn's ``StratifiedKFold`` on the labeled samples; with ``groups``, those of
    ``StratifiedGroupKFold``. Unlabeled samples of a tested group are in neither set then.

    Examples
    --------
    >>> y = [0, -1, 0, 1, -1, 1]
    >>> for train, test in SemiSupervisedSplit(2, shuffle=False).split(np.zeros((6, 1)), y):
    ...     print(train, test)
    [1 2 4 5] [0 3]
    [0 1 3 4] [2 5]
    """

    # scikit-learn's metadata routing: groups passed to a search reach split.
    __metadata_request__split: ClassVar = {"groups": True}

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None
    ) -> None:
        StratifiedKFold(n_splits, shuffle=shuffle, random_state=random_state)  # validates
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Ints, Ints]]:
        """Generate the indices of training and test samples of each fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        groups : array-like of shape (n_samples,), optional
            Samples of one group, such as the images of a patient, are never in training and test
            at once. None may be missing.
        """
        if y is None:
            raise ValueError(
                "SemiSupervisedSplit: y must not be None. Pass labels, -1 where unlabeled."
            )
        codes, _ = encode_labels(y, "SemiSupervisedSplit")
        check_order(X, y, "SemiSupervisedSplit")
        given, rows = ("y", y) if index_of(X) is None else ("X", X)
        check_order(rows, groups, "SemiSupervisedSplit", (given, "groups"))
        if X is not None and len(codes) != _num_samples(X):
            raise ValueError(
                f"SemiSupervisedSplit: y must have n_samples = {_num_samples(X)} entries; got "
                f"{len(codes)}."
            )
        labeled = np.flatnonzero(codes != UNLABELED)
        unlabeled = np.flatnonzero(codes == UNLABELED)
        largest = int(np.bincount(codes[labeled], minlength=1).max())
        if self.n_splits > largest:
            raise ValueError(
                "SemiSupervisedSplit: n_splits must be at most the labels of the largest class = "
                f"{largest}; got {self.n_splits}. Use fewer folds or label more samples."
            )
        options = {"shuffle": self.shuffle, "random_state": self.random_state}
        if groups is None:
            for train, test in StratifiedKFold(self.n_splits, **options).split(
                labeled, codes[labeled]
            ):
                yield np.sort(np.concatenate([labeled[train], unlabeled])), labeled[test]
            return
        members = self._group_codes(groups, len(codes), labeled)
        kind = StratifiedGroupKFold(self.n_splits, **options)
        folds = list(kind.split(labeled, codes[labeled], members[labeled]))
        if not all(len(test) for _, test in folds):
            raise ValueError(
                f"SemiSupervisedSplit: each of n_splits = {self.n_splits} folds must test a "
                "labeled sample; got one without, which StratifiedGroupKFold makes of some "
                "groups. Use fewer folds, or shuffle with another random_state."
            )
        for train, test in folds:
            apart = unlabeled[~np.isin(members[unlabeled], members[labeled[test]])]
            yield np.sort(np.concatenate([labeled[train], apart])), labeled[test]

    def _group_codes(self, groups: Any, n_samples: int, labeled: Ints) -> Ints:
        """Number the groups; labels must be in as many of them as folds."""
        who = "SemiSupervisedSplit"
        names = as_array(groups, who, "groups")
        if names.shape != (n_samples,):
            raise ValueError(
                f"{who}: groups must have n_samples = {n_samples} entries; got shape {names.shape}."
            )
        if names.dtype.kind in "fOM":  # None, NaN, pd.NA and NaT would be groups of their own
            missing = [name is None or str(name) in NO_GROUP for name in names]
            if any(missing):
                raise ValueError(
                    f"{who}: groups must be known; got {sum(missing)} missing ones, the first in "
                    f"row {missing.index(True)}. Name them, such as each sample for itself."
                )
        members: Ints = np.unique(
            names.astype(str) if names.dtype == object else names, return_inverse=True
        )[1]
        count = len(np.unique(members[labeled]))
        if self.n_splits > count:
            raise ValueError(
                f"{who}: n_splits must be at most the number of groups with labels = {count}; got "
                f"{self.n_splits}. Use fewer folds or label other groups."
            )
        return members


class LabeledScorer:
    """Score an estimator on the labeled samples; see :func:`labeled_scorer`."""

    def __init__(self, scoring: str | Callable[..., float]) -> None:
        self.scoring = scoring

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score a fitted estimator on the labeled samples."""
        codes, classes = encode_labels(y, "labeled_scorer")
        rows = np.flatnonzero(codes != UNLABELED)
        if len(rows) == 0:
            raise ValueError(
                f"labeled_scorer: y must contain labels; all {len(codes)} entries are unlabeled. "
                "Split with SemiSupervisedSplit."
            )
        samples = _safe_indexing(X, rows)
        if not (isinstance(self.scoring, str) and is_embedding_score(self.scoring)):
            return float(get_scorer(self.scoring)(estimator, samples, classes[codes[rows]]))
        if self.scoring != "NMI" and np.bincount(codes[rows]).max() < 2:
            raise ValueError(
                f"labeled_scorer: {self.scoring} needs a class with two labels in the test fold; "
                f"got {len(rows)} labels of as many classes. Use fewer folds."
            )
        if not hasattr(estimator, "transform"):
            raise TypeError(
                f"labeled_scorer: estimator must have transform for {self.scoring}, a score of the "
                f"embedding; got {type(estimator).__name__}. Pass 'accuracy'."
            )
        (score,) = evaluate(estimator.transform(samples), codes[rows], scores=self.scoring).values()
        return score

    def __repr__(self) -> str:
        return f"labeled_scorer({self.scoring!r})"


def labeled_scorer(scoring: str | Callable[..., float] = "accuracy") -> LabeledScorer:
    """Make a scorer that ignores unlabeled samples, for ``scoring=`` of scikit-learn's searches.

    Parameters
    ----------
    scoring : str or callable
        A score of :func:`ssdml.evaluation.evaluate` ("NMI", "F1", "R@1", "R@5", "MAP@R", "RP"),
        of the embedding and in percent; or a scikit-learn scorer: its name ("accuracy", ...), or
        what ``make_scorer`` returns, ``scoring(estimator, X, y) -> float``.

    Returns
    -------
    scorer : LabeledScorer
        ``scorer(estimator, X, y) -> float``; higher is better. It can be pickled.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> model = KNeighborsClassifier(1).fit([[0.0], [1.0]], [0, 1])
    >>> labeled_scorer("accuracy")(model, [[0.1], [0.9], [0.2]], [0, 1, -1])
    1.0
    """
    if not callable(scoring) and not (isinstance(scoring, str) and is_embedding_score(scoring)):
        names = ("NMI", "F1", "R@1", "MAP@R", "RP", *get_scorer_names())
        choose(dict.fromkeys(names), scoring, "labeled_scorer: scoring")
    if isfunction(scoring) and scoring.__module__.startswith("sklearn.metrics."):
        name = scoring.__name__
        raise TypeError(
            f"labeled_scorer: scoring must be called as scoring(estimator, X, y); got {name}, of "
            f"labels alone. Pass sklearn.metrics.make_scorer({name})."
        )
    return LabeledScorer(scoring)
