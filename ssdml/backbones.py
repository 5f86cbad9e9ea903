"""Torch modules that make the features on which a metric is learned."""

from __future__ import annotations

import torch
from torch import nn


class ResidualHead(nn.Module):
    """Features ``x + B relu(A x + a) + b``: the input, bent by one hidden layer.

    The last layer starts at zero, so an untrained head returns its input.

    Parameters
    ----------
    n_features : int
    n_hidden : int
    dropout : float
        Share of the inputs and of the hidden units that are dropped while training.

    Examples
    --------
    >>> ResidualHead(3, n_hidden=8)(torch.ones(1, 3))
    tensor([[1., 1., 1.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, n_features: int, *, n_hidden: int = 512, dropout: float = 0.2) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_features, n_hidden)
        self.output = nn.Linear(n_hidden, n_features)
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features of shape (n, n_features), of the same shape as the input."""
        hidden = torch.relu(self.hidden(self.dropout(features)))
        bent: torch.Tensor = features + self.output(self.dropout(hidden))
        return bent
