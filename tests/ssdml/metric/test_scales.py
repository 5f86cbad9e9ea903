"""Rows whose scale hides others, or leaves the range of numbers."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from ssdml import SSDML, suggest_labels
from ssdml.utils.linalg import warn_of_absent_marks


def test_overflowing_variance_raises(rng):
    X = rng.standard_normal((40, 3)) * 1e200
    with pytest.raises(ValueError, match=r"X must have a finite variance.*Scale X down"):
        SSDML().fit(X, np.arange(40) % 2)


@pytest.mark.parametrize("columns", [4, 120])
def test_a_row_far_from_all_others_gives_a_warning(rng, columns):
    X = rng.standard_normal((60, columns))
    SSDML(random_state=0).fit(X, np.arange(60) % 2)  # warnings are errors
    X[7, 3] = -1e4  # with 120 columns, a single axis is left of them
    message = "SSDML: X must not .*; row 7, with -10000 in column 3, holds 9[89].*% of the variance"
    with pytest.warns(UserWarning, match=message):
        SSDML(random_state=0).fit(X, np.arange(60) % 2)


@pytest.mark.parametrize("mark", [-9999, -999, -99, 9999, 999.9, -32768, 1e20, -3.4028235e38])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_for_missing_values_give_a_warning(digits, rng, mark, dtype):
    X = digits[0].astype(dtype)
    cells = rng.random(X.shape) < 0.01
    cells[:, 1:] &= rng.random(X.shape[1] - 1) < 0.2  # in the first column and few others
    X[cells] = mark
    told = f"Thing: X must not mark .*; got {re.escape(f'{mark:g}')}, .* {cells.sum()} such .* 'c0'"
    with pytest.warns(UserWarning, match=told):
        warn_of_absent_marks(X, "Thing", [f"c{i}" for i in range(X.shape[1])])


def test_numbers_near_others_or_in_one_cell_mean_no_missing_value(rng):
    X = rng.integers(60, 99, (200, 5)).astype(float)
    X[:3, 0], X[:3, 1], X[3, 2], X[:3, 3] = 99, 120, 9999, 255
    warn_of_absent_marks(X, "Thing")
    warn_of_absent_marks(np.full((20, 2), -999.0), "Thing")


def test_a_fit_warns_of_numbers_for_missing_values_by_name(digits):
    pandas = pytest.importorskip("pandas")
    images, classes, _ = digits
    X = pandas.DataFrame(16.0 * images[:300], columns=[f"pixel {i}" for i in range(64)])
    X.loc[[3, 5], "pixel 20"] = -999
    y = np.where(np.arange(300) < 60, classes[:300], -1)
    with pytest.warns(UserWarning, match="got -999, .* 2 such cells, in columns 'pixel 20'"):
        SSDML(random_state=0).fit(X, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_method_raises_where_underflow_does(digits, dtype):
    """NumPy can raise when exponentials of far rows round to 0, as they should."""
    X, y, labels = digits
    X, y, labels = X[:300].astype(dtype), y[:300], labels[:300]
    new = np.vstack([X, 1e3 * X + 50, 1e-20 * X])
    with np.errstate(under="raise"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* are farther from the training samples")
        model = SSDML(random_state=0).fit(X, labels)
        model.predict(new)
        model.novelty_score(new)
        model.map(new)
        model.relabel(np.where(np.arange(300) % 2, y, labels))
        model.extend(X[:20] * dtype(1.01), y[:20])
        suggest_labels(model, 3)
        suggest_labels(X, 3)
