"""The ONNX graph of a deep estimator's ``transform``."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ssdml.deep.input_graph import InputProjection
from ssdml.metric.fitted.onnx import single_precision
from ssdml.utils.torch_tools import unit_rows


class SampleEmbedding(nn.Module):
    """Concatenate the network's embedding and the weighted projection of the input."""

    center: torch.Tensor
    axes: torch.Tensor

    def __init__(
        self, network: nn.Module, projection: InputProjection | None, weight: float
    ) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu()
        self.projection = projection if weight else None
        if self.projection is not None:
            axes = self.projection.axes / self.projection.scale * weight
            self.register_buffer("center", single_precision(self.projection.center))
            self.register_buffer("axes", single_precision(axes))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Embed samples (n, ...) as rows (n, n_components + m)."""
        embedding: torch.Tensor = self.network(X)
        if self.projection is None:
            return embedding
        rows = X.flatten(1)
        if self.projection.unit:
            rows = unit_rows(rows - self.projection.mean)
        return torch.cat([embedding, (rows - self.center) @ self.axes], dim=1)
