"""Nearest-neighbor graphs, label propagation and triplet mining.

Needs numpy, scipy and faiss, and torch for the proxies. Names load on first use.
"""

from __future__ import annotations

from lazy_loader import attach_stub

# Not lazy: a module and a function share the name, and the last binding wins.
from ssdml.graphs.laplacian import laplacian  # noqa: F401

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
