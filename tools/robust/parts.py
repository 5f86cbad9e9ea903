"""SSDML() without one of its parts: what each is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from ssdml.classification import pool
from ssdml.graphs.propagation.class_prior import ClassPrior
from ssdml.metric.selection import combined_components

PREFIX = "ssdml-without-"


def _without_metric(metric: Any, *others: Any) -> Any:
    n_classes = others[1]
    components = combined_components(metric, *others)
    return np.delete(components, slice(n_classes, n_classes + len(metric)), axis=0)


def _without_classes(metric: Any, *others: Any) -> Any:
    n_classes = others[1]
    return combined_components(metric, *others)[n_classes:]


# What replaces a name, by its place.
PARTS: Mapping[str, Mapping[str, Any]] = {
    "classifiers": {"classification.pool.REGRESSIONS": ()},
    "graph": {
        "classification.pool.REGRESSIONS": pool.REGRESSIONS[:2],
        "classification.pool.PROPAGATIONS": (),
        "classification.learning.FEW_REACH": 0.0,
    },
    "trees": {"classification.pool.FEWEST_GROWING": float("inf")},
    "balance": {
        "classification.learning.balance_factors": lambda shares, prior: np.ones(len(prior)),
    },
    "prior": {
        "classification.learning.estimate_prior": lambda Q, shares, *_: ClassPrior(shares, 0.0),
    },
    "second-round": {"metric.alternation.SECOND_GRAPH_ROWS": 0},
    "metric": {"metric.alternation.combined_components": _without_metric},
    "classes": {"metric.alternation.combined_components": _without_classes},
}
WITHOUT = tuple(f"{PREFIX}{part}" for part in PARTS)


@contextmanager
def without(method: str) -> Iterator[str]:
    """Take the part out that the method's name says, and yield the name of the method itself.

    Examples
    --------
    >>> with without("ssdml-without-graph") as name:
    ...     name, len(pool.REGRESSIONS)
    ('ssdml', 2)
    >>> len(pool.REGRESSIONS)
    4
    """
    if method not in WITHOUT:
        yield method
        return
    with ExitStack() as stack:
        for place, value in PARTS[method.removeprefix(PREFIX)].items():
            stack.enter_context(patch(f"ssdml.{place}", value))
        yield "ssdml"
