"""Each method of a comparison against one of them, on the same labels, over the seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ssdml.experiments.results import Row
from ssdml.experiments.significance import PairedTest, corrected_t_test
from ssdml.experiments.tables import by_seed
from ssdml.utils.typing import Floats


def means(rows: Sequence[Row], score: str) -> dict[str, float]:
    """Mean of each method over the seeds that it finished; NaN where it finished none."""
    return {
        name: float(np.nanmean(values)) if np.isfinite(values).any() else np.nan
        for name, values in _scores(rows, score).items()
    }


def against(rows: Sequence[Row], reference: str, score: str) -> dict[str, PairedTest]:
    """By how much the reference is ahead of each method, and the corrected t-test of it.

    Parameters
    ----------
    rows : sequence of dict
        Runs on one data set with one budget of labels.
    reference : str
        A method among them.
    score : str

    Examples
    --------
    >>> runs = [("a", 0, 80.0), ("b", 0, 81.0), ("a", 1, 90.0), ("b", 1, 92.0)]
    >>> rows = [{"method": m, "seed": seed, "scores": {"NMI": value}, "n_test": 1, "n_train": 2}
    ...         for m, seed, value in runs]
    >>> round(against(rows, "b", "NMI")["a"].mean, 2)
    1.5
    """
    scores = _scores(rows, score)
    share = rows[0]["n_test"] / rows[0]["n_train"]
    return {
        name: corrected_t_test(scores[reference] - values, test_share=share)
        for name, values in scores.items()
    }


def _scores(rows: Sequence[Row], score: str) -> dict[str, Floats]:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    seeds = sorted({row["seed"] for row in rows})
    return dict(zip(methods, by_seed(rows, methods, seeds, score), strict=True))
