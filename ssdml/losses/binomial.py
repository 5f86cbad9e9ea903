"""Binomial deviance of the cosines of pairs."""

from __future__ import annotations

import torch
from torch.nn import functional

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch
from ssdml.losses.pairs import cosines, pair_weights, weighted_mean
from ssdml.utils.validation import check_number


def binomial_deviance(
    similarities: torch.Tensor,
    sign: float,
    *,
    alpha: float = 2.0,
    beta: float = 0.5,
    cost: float = 1.0,
) -> torch.Tensor:
    r"""Loss of each pair, ``log(1 + exp(-sign · α (S - β) η))``.

    Parameters
    ----------
    similarities : tensor of any shape
        S, cosines.
    sign : float
        1 for pairs that should be alike, -1 for the others.
    alpha, beta, cost : float
        Slope α, the cosine β where the loss is log 2, and η.

    Returns
    -------
    losses : tensor of that shape

    Examples
    --------
    >>> binomial_deviance(torch.tensor([1.0, 0.5]), 1.0)
    tensor([0.3133, 0.6931])
    """
    return functional.softplus(-sign * alpha * cost * (similarities - beta))


class BinomialDevianceLoss(Loss):
    r"""Mean deviance of the positive pairs plus that of the negative ones.

    .. math:: \text{mean}_{y_i = y_j} \log(1 + e^{-\alpha (S_{ij} - \beta)})
        + \text{mean}_{y_i \ne y_j} \log(1 + e^{\alpha (S_{ij} - \beta) \eta})

    Parameters
    ----------
    alpha, beta : float
        Slope α, above 0, and the cosine β where the two kinds part.
    negative_cost : float
        η of the negative pairs, above 0; that of the positive ones is 1.

    Notes
    -----
    The call is that of :class:`Loss <ssdml.losses.base.Loss>`; O(n m d) for n rows and m that
    pairs end at. A batch without negative pairs has the mean of the positive ones alone, and the
    other way round.

    Differs from [1]_ in one way: it writes a plain sum, in which the many negative pairs outweigh
    the positive ones. Two means are those of [2]_.

    References
    ----------
    .. [1] Chen et al., "Deep metric learning with graph consistency", AAAI 2021, Eq. (7).
    .. [2] Yi, Lei, Li, "Deep metric learning for practical person re-identification", 2014.

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    >>> loss = BinomialDevianceLoss()
    >>> loss(z[:2], torch.tensor([0, 0])), loss(z[1:], torch.tensor([0, 1]))
    (tensor(0.3133), tensor(25.))
    """

    over_tuples = True

    def __init__(self, alpha: float = 2.0, beta: float = 0.5, negative_cost: float = 25.0) -> None:
        super().__init__()
        who = "BinomialDevianceLoss"
        check_number(alpha, "alpha", who, above=0)
        check_number(beta, "beta", who)
        check_number(negative_cost, "negative_cost", who, above=0)
        self.alpha, self.beta, self.negative_cost = alpha, beta, negative_cost

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Sum of the two weighted means."""
        anchor, positive, negative = pair_weights(batch, type(self).__name__)
        similarities = cosines(batch)
        slope = {"alpha": self.alpha, "beta": self.beta}
        near = binomial_deviance(similarities, 1.0, **slope)
        far = binomial_deviance(similarities, -1.0, **slope, cost=self.negative_cost)
        rows = anchor[:, None]
        return weighted_mean(near, rows * positive) + weighted_mean(far, rows * negative)
