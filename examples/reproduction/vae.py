"""Codes of a variational autoencoder, the features of Calder et al. (2020)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ssdml.utils.torch_tools import find_device
from ssdml.utils.typing import Array

HIDDEN = 400
BATCH_SIZE, LEARNING_RATE = 128, 1e-3  # not stated in the paper


class Autoencoder(nn.Module):
    """Three fully connected layers (d, 400, n_codes), and a symmetric decoder."""

    def __init__(self, n_features: int, n_codes: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_features, HIDDEN), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(HIDDEN, n_codes), nn.Linear(HIDDEN, n_codes)
        self.decoder = nn.Sequential(
            nn.Linear(n_codes, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, n_features)
        )

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        """Negative evidence lower bound of rows between 0 and 1, summed over them."""
        hidden = self.encoder(rows)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        codes = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        missed = binary_cross_entropy_with_logits(self.decoder(codes), rows, reduction="sum")
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum() / 2
        return missed + divergence


def vae_codes(X: Array, n_codes: int, *, epochs: int = 100, random_state: int = 0) -> Array:
    """Train an autoencoder on rows without labels and return the means of their codes.

    Parameters
    ----------
    X : array of shape (n, d)
        Between 0 and 1.
    n_codes : int
    epochs : int
    random_state : int

    Returns
    -------
    codes : ndarray of shape (n, n_codes), float32

    Examples
    --------
    >>> import numpy as np
    >>> vae_codes(np.random.default_rng(0).random((200, 16)), 3, epochs=1).shape
    (200, 3)
    """
    device = find_device("auto", "vae_codes")
    with torch.random.fork_rng():
        torch.manual_seed(random_state)
        rows = torch.as_tensor(X, dtype=torch.float32, device=device)
        network = Autoencoder(X.shape[1], n_codes).to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
        for _ in range(epochs):
            order = torch.randperm(len(rows), device=device)
            for batch in torch.split(order, BATCH_SIZE):
                optimizer.zero_grad()
                network.loss(rows[batch]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        with torch.no_grad():
            codes: Array = network.mean(network.encoder(rows)).cpu().numpy()
    return codes
