"""What ``transform`` does to rows, as a file that other programs run: ONNX."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ssdml.deep.input_graph import InputSide
from ssdml.metric.onnx import single_precision
from ssdml.utils.torch_tools import unit_rows


class EmbeddingOfItems(nn.Module):
    """The network's embedding of items, and the weighted input beside it."""

    center: torch.Tensor
    axes: torch.Tensor

    def __init__(self, network: nn.Module, side: InputSide | None, weight: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu()
        self.weight, self.side = weight, side
        if weight and side is not None:
            self.register_buffer("center", single_precision(side.center))
            self.register_buffer("axes", single_precision(side.axes / side.scale * weight))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Embedding (n, n_components + m) of items (n, ...)."""
        embedding: torch.Tensor = self.network(X)
        if not self.weight or self.side is None:
            return embedding
        rows = X.flatten(1)
        if self.side.unit:
            rows = unit_rows(rows - self.side.mean)
        return torch.cat([embedding, (rows - self.center) @ self.axes], dim=1)
