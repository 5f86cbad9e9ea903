"""Losses on torch embeddings, with the call of pytorch-metric-learning.

``loss(embeddings, labels=None, indices_tuple=None, ref_emb=None, ref_labels=None, weights=None)``
returns a scalar; ``triplet + 0.001 * consistency`` is a loss too. See
:class:`ssdml.losses.base.Loss`.
"""

from __future__ import annotations

import sys

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

if "pytorch_metric_learning" in sys.modules:  # let its losses be scaled and added from now on
    __getattr__("Loss")
