"""Shorter fits for code that must run but whose scores are not read: pages, gallery, scripts."""

from __future__ import annotations

import pytest

SHORT = {
    "ssdml.classification.pool.N_FOLDS": 2,
    "ssdml.classification.softmax.MAX_STEPS": 5,
    "ssdml.deep.alternation.N_TRIPLETS": 5000,
    "ssdml.graphs.layout.EARLY_STEPS": 15,
    "ssdml.graphs.layout.STEPS": 25,
    "ssdml.metric.alternation.METRIC_STEPS": 1,
    "ssdml.metric.alternation.N_TRIPLETS": 5000,
    "ssdml.model_selection.fit_cost.PILOT_ROWS": 1000,
}


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Shorten every fit, map and pilot of a test."""
    for name, value in SHORT.items():
        patch.setattr(name, value)
