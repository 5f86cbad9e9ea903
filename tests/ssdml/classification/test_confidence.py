"""Powers of distributions."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.classification.confidence import confidence_power


@pytest.mark.parametrize("confidence", [0.4, 0.7, 0.95])
def test_power_gives_the_wanted_confidence(rng, confidence):
    rows = rng.dirichlet(np.ones(4), 500)
    powers = rows ** confidence_power(rows, confidence)
    found = (powers / powers.sum(axis=1, keepdims=True)).max(axis=1).mean()
    assert found == pytest.approx(confidence, abs=1e-3)
