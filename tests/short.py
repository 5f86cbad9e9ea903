"""Shorter fits for code that must run but whose scores are not read: pages and gallery."""

from __future__ import annotations

from importlib import import_module

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
# Modules that import one of these numbers: loaded under the patch, they would keep it for good.
IMPORTERS = (
    "ssdml.deep.alternation",
    "ssdml.experiments.labeling.accuracy",
    "ssdml.metric.out_of_core",
    "ssdml.model_selection.fit_cost",
)


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Shorten every fit, map and pilot of a test."""
    for module in IMPORTERS:
        import_module(module)
    for name, value in SHORT.items():
        patch.setattr(name, value)
