"""Rows whose scale hides others, or leaves the range of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml import SSDML


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
