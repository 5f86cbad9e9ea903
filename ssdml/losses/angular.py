"""The angular loss of a triplet (Wang et al. 2017, as seed of the metric's own objective)."""

from __future__ import annotations

import torch

from ssdml.angular import angular_factor


def angular_triplet_loss(
    anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, *, angle: float = 40.0
) -> torch.Tensor:
    r"""Loss of each triplet, ``log(1 + exp(m))``.

    .. math:: m = |a - p|^2 - 4 \tan^2\!\alpha \; |n - (a + p) / 2|^2

    Parameters
    ----------
    anchor, positive, negative : tensor of shape (n_triplets, d)
    angle : float
        α in degrees.

    Returns
    -------
    losses : tensor of shape (n_triplets,)

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, Eq. (3).

    Examples
    --------
    >>> a, p, n = torch.tensor([[0.0]]), torch.tensor([[0.0]]), torch.tensor([[1.0]])
    >>> angular_triplet_loss(a, p, n, angle=45.0)
    tensor([0.0181])
    """
    to_positive = (anchor - positive).square().sum(dim=-1)
    to_middle = (negative - (anchor + positive) / 2).square().sum(dim=-1)
    return torch.nn.functional.softplus(to_positive - angular_factor(angle) * to_middle)
