"""Compare methods when labels are scarce: runs, statistics and a report."""

from __future__ import annotations

from lazy_loader import attach_stub

# Not lazy: a module and a function share the name, and the last binding wins.
from ssdml.experiments.compare import compare  # noqa: F401

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
