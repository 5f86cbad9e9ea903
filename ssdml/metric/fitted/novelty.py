"""Novel samples of a fitted metric: their scores, their rejection, and groups of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ssdml.classification.novelty import Novelty, learn_novelty, novel_groups
from ssdml.metric.alternation import diffusions_of
from ssdml.metric.fitted.kept import KeptFit
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED, check_finite, check_number

MAX_GROUPED = 20_000  # novel samples that are grouped


class NoveltyMixin(KeptFit):
    """Mixin of estimators that tell samples of no labeled class."""

    def novelty_score(self, X: Any = None) -> Array:
        """Estimate the probability that a sample belongs to no labeled class.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or None
            None: the training samples.

        Returns
        -------
        scores : ndarray of shape (n_samples,), float32
            From 0 to 1; 0 for labeled samples.

        Notes
        -----
        The score is calibrated on classes whose labels are held out, and on an estimate of the
        share of novel samples. With a quarter of the classes of Banking77 unlabeled, its mean is
        0.26 where the true share is 0.24, and 70% of the samples with a score above 0.5 are novel.
        Samples unlike all training samples are recognized by distance alone, with 2% false alarms
        at 0.5; their scores are too low. A novel class inside a labeled one is not found, and with
        one label per class the score is a guess. See ``ssdml.classification.novelty``.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from ssdml import SSDML
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where((np.arange(len(y)) < 100) & (y != 4), y, -1)
        >>> scores = SSDML(random_state=0).fit(X / 16, labels).novelty_score()
        >>> bool(scores[y == 4].mean() > 0.8), bool(scores[y != 4].mean() < 0.2)
        (True, True)
        """
        novelty, classifier = self._learned_novelty(), self.classifier_
        if X is None:
            return novelty.of_training_rows()
        assert classifier is not None

        def score(rows: Array, who: str = "") -> Array:
            check_finite(rows, who, "X")
            found = classifier.neighbors(classifier.form(rows), self.n_jobs)
            return novelty.of_new_rows(*found)[:, None]

        scores: Array = self._apply(X, score, 1)
        return scores[:, 0]

    def predict(self, X: Any, *, reject: float | None = None) -> Array:
        """Predict the most probable class of each row, or reject it as novel.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        reject : float or None
            Smallest :meth:`novelty_score`, from 0 to 1, of rows to reject: they get -1, or "" if
            classes are names, None if they are booleans. None: reject none.

        Returns
        -------
        classes : ndarray of shape (n_samples,)
            A dask array if X is.
        """
        classes = super().predict(X)
        if reject is None:
            return classes
        check_number(reject, "reject", f"{type(self).__name__}.predict", least=0, most=1)
        none = {"U": "", "b": None}.get(classes.dtype.kind, UNLABELED)
        if classes.dtype.kind == "b":
            classes = classes.astype(object)
        classes[self.novelty_score(X) >= reject] = none
        return classes

    def suggest_classes(self, reject: float = 0.5) -> list[Array]:
        """Cluster training samples that belong to no known class, as candidates for new classes.

        Parameters
        ----------
        reject : float
            Smallest :meth:`novelty_score` of the samples, of which at most the 20,000 most novel
            are grouped.

        Returns
        -------
        groups : list of arrays of int
            Rows of each group, the most central first; the largest group first.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from ssdml import SSDML
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where((np.arange(len(y)) < 100) & (y != 4), y, -1)
        >>> groups = SSDML(random_state=0).fit(X / 16, labels).suggest_classes()
        >>> bool((y[groups[0]] == 4).mean() > 0.9)
        True
        """
        check_number(reject, "reject", f"{type(self).__name__}.suggest_classes", least=0, most=1)
        kept, scores = self._kept_rows("suggest_classes"), self.novelty_score()
        rows = np.argsort(-scores, kind="stable")[:MAX_GROUPED]
        rows = np.sort(rows[scores[rows] >= reject])
        return novel_groups(self._form(kept).graph, rows) if len(rows) else []

    def _learned_novelty(self) -> Novelty:
        check_is_fitted(self)
        if self._novelty is None:
            kept = self._kept_rows("novelty_score")
            if self.classifier_ is None:
                raise ValueError(
                    f"{type(self).__name__}.novelty_score: needs two classes among the training "
                    "samples; got one. Label samples of another class."
                )
            form, codes = self._form(kept), np.full(len(kept.X), UNLABELED)
            rows = self.labeled_rows_
            codes[rows] = np.searchsorted(self.classes_, self.transduction_[rows])
            with diffusions_of([form], self.n_jobs) as [diffusion]:
                self._novelty = learn_novelty(form, codes, diffusion)
        return self._novelty

    def _more_arrays(self) -> dict[str, Array]:
        if self.classifier_ is None or (self._novelty is None and self._kept is None):
            return {}
        return {f"novelty_{k}": v for k, v in self._learned_novelty()._asdict().items()}

    def _restore_more(self, arrays: dict[str, Array]) -> None:
        if "novelty_log_odds" in arrays:
            self._novelty = Novelty(arrays["novelty_log_odds"], arrays["novelty_farthest"])
