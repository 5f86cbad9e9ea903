"""Losses on torch embeddings, called as pytorch-metric-learning calls its own.

A loss is called as ``loss(embeddings, labels=None, indices_tuple=None, ref_emb=None,
ref_labels=None, weights=None)``; ``triplet + 0.001 * consistency`` is a loss as well. See
:class:`ssdml.losses.base.Loss` for the interface.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
