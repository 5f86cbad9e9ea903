"""N-pair loss with all other classes of the batch as negatives."""

from __future__ import annotations

import torch
from torch.nn import functional

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch
from ssdml.losses.pairs import pair_weights, weighted_mean
from ssdml.utils.torch_tools import unit_rows


class NPairBatchLoss(Loss):
    r"""Mean over positive pairs of a softmax of the positive against all negatives of its anchor.

    .. math:: \log\Bigl(1 + \sum_{j: y_j \ne y_i} e^{x_i \cdot x_j - x_i \cdot x_{i^+}}\Bigr)

    Parameters
    ----------
    normalize : bool
        Whether rows are scaled to length 1 first. The paper's formula does not say so.

    Notes
    -----
    The call is that of :class:`Loss <ssdml.losses.base.Loss>`; O(n m d) for n rows and m that
    pairs end at. The weight of a negative multiplies its exponential. A batch with one class has
    no negatives and the loss 0.

    The paper leaves open which positive an anchor has. Here the mean is taken over all of them,
    which is what a random one gives on average, and depends neither on the order of the rows nor on
    a seed; with two rows a class there is one. A mean stands for the sum.

    References
    ----------
    .. [1] Chen et al., "Deep metric learning with graph consistency", AAAI 2021, Eq. (6).

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> NPairBatchLoss()(z, torch.tensor([0, 0, 1]))  # log(1 + 1/e)
    tensor(0.3133)
    """

    over_tuples = True

    def __init__(self, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Weighted mean over the positive pairs."""
        anchor, positive, negative = pair_weights(batch, type(self).__name__)
        rows, others = batch.embeddings, batch.reference
        if self.normalize:
            rows, others = unit_rows(rows), unit_rows(others)
        products = rows @ others.T
        losses = n_pair_losses(products, negative)
        return weighted_mean(losses, anchor[:, None] * positive)


def n_pair_losses(products: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    r"""``log(1 + Σ_j w_ij exp(s_ij - s_ip))`` of each pair (i, p), as if it were a positive one.

    Parameters
    ----------
    products : tensor of shape (n, m)
        Inner products s.
    negative : tensor of shape (n, m)
        Weights w of the negatives of each row, 0 where there is none.

    Returns
    -------
    losses : tensor of shape (n, m)

    Examples
    --------
    >>> n_pair_losses(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([[0.3133, 0.6931]])
    """
    if not products.shape[1]:
        return products
    # A row without negatives costs nothing; the logarithm of no summand has no slope.
    some = (negative > 0).any(dim=1, keepdim=True)
    exponents = products + torch.where(some, negative, 1).log()
    against = exponents.logsumexp(dim=1, keepdim=True)
    return torch.where(some, functional.softplus(against - products), 0)
