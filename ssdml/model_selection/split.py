"""Cross-validation when most rows have no label: those train, and are never scored.

scikit-learn's own splitters put unlabeled rows into the test folds and take their -1 for a
class to be predicted, so a good model looks useless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from ssdml.evaluation.scores import evaluate, is_embedding_score
from ssdml.utils.labels import encode_partial_labels
from ssdml.utils.typing import Ints
from ssdml.utils.validation import UNLABELED, choose


class SemiSupervisedSplit(BaseCrossValidator):
    """Stratified folds of the labeled rows; every unlabeled row is in every training set.

    Parameters
    ----------
    n_splits : int
        Number of folds, from 2 on; at most the labeled rows of the largest class.
    shuffle : bool
        Whether the rows of a class are drawn at random into the folds.
    random_state : int, RandomState or None
        Seed of the shuffling.

    Raises
    ------
    ValueError, TypeError
        As ``StratifiedKFold`` does.

    Notes
    -----
    Rows are unlabeled where y is -1, None, NaN or "". The folds are those of scikit-learn's
    ``StratifiedKFold`` on the labeled rows, with its warning where a class has fewer labeled
    rows than there are folds.

    Examples
    --------
    >>> y = [0, -1, 0, 1, -1, 1]
    >>> for train, test in SemiSupervisedSplit(2, shuffle=False).split(np.zeros((6, 1)), y):
    ...     print(train, test)
    [1 2 4 5] [0 3]
    [0 1 3 4] [2 5]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None
    ) -> None:
        StratifiedKFold(n_splits, shuffle=shuffle, random_state=random_state)  # raises if it cannot
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Ints, Ints]]:
        """Indices of training and test rows, a pair a fold.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        groups : ignored
        """
        if y is None:
            raise ValueError("SemiSupervisedSplit: y must be given; it says which rows to score.")
        codes, _ = encode_partial_labels(y)
        if X is not None and len(codes) != _num_samples(X):
            raise ValueError(
                f"SemiSupervisedSplit: y must have a label for each of the {_num_samples(X)} rows "
                f"of X; got {len(codes)}."
            )
        labeled = np.flatnonzero(codes != UNLABELED)
        unlabeled = np.flatnonzero(codes == UNLABELED)
        largest = int(np.bincount(codes[labeled], minlength=1).max())
        if self.n_splits > largest:
            raise ValueError(
                "SemiSupervisedSplit: n_splits must be at most the number of labeled rows of the "
                f"largest class = {largest}; got {self.n_splits}. Use fewer folds or label more."
            )
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        for train, test in folds.split(labeled, codes[labeled]):
            yield np.sort(np.concatenate([labeled[train], unlabeled])), labeled[test]


class LabeledScorer:
    """Scores an estimator on the labeled rows alone; see `labeled_scorer`."""

    def __init__(self, scoring: str) -> None:
        self.scoring = scoring

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score of the fitted estimator on the rows of X whose y is a label."""
        codes, classes = encode_partial_labels(y)
        rows = np.flatnonzero(codes != UNLABELED)
        if len(rows) == 0:
            raise ValueError(
                f"labeled_scorer: y must contain labels; all {len(codes)} entries are unlabeled. "
                "Split with SemiSupervisedSplit."
            )
        items = _safe_indexing(X, rows)
        if not is_embedding_score(self.scoring):
            return float(get_scorer(self.scoring)(estimator, items, classes[codes[rows]]))
        Z = estimator.transform(items)
        score = evaluate(Z, codes[rows], scores=[self.scoring])[self.scoring]
        if np.isnan(score):
            raise ValueError(
                f"labeled_scorer: {self.scoring} needs a class with two labeled rows among those "
                f"it scores; got {len(rows)} rows of as many classes. Use fewer folds."
            )
        return score

    def __repr__(self) -> str:
        return f"labeled_scorer({self.scoring!r})"


def labeled_scorer(scoring: str = "accuracy") -> LabeledScorer:
    """Scorer that never counts an unlabeled row, for ``scoring=`` of scikit-learn's searches.

    Parameters
    ----------
    scoring : str
        A score of `ssdml.evaluation.evaluate` ("NMI", "F1", "R@1", "R@5", "MAP@R", "RP"), of
        ``estimator.transform(X)`` and in percent; or a name of scikit-learn's ("accuracy",
        "balanced_accuracy", ...), in its own unit.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y) -> float``; greater is better. It pickles.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> model = KNeighborsClassifier(1).fit([[0.0], [1.0]], [0, 1])
    >>> labeled_scorer("accuracy")(model, [[0.1], [0.9], [0.2]], [0, 1, -1])
    1.0
    """
    if not is_embedding_score(scoring):
        names = ("NMI", "F1", "R@1", "MAP@R", "RP", *get_scorer_names())
        choose(dict.fromkeys(names), scoring, "scoring")
    return LabeledScorer(scoring)
