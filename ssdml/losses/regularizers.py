"""Regularizers of pairs: entropy, and global orthogonality."""

from __future__ import annotations

import torch
from torch.nn import functional

from ssdml.losses.batch import Batch
from ssdml.losses.pairs import (
    PairLoss,
    all_pairs,
    cosines,
    pair_weights,
    squared_distances,
    weighted_mean,
)
from ssdml.utils.validation import check_number


def pair_entropies(squares: torch.Tensor, threshold: float) -> torch.Tensor:
    """Compute the entropy of a pair being similar, with probability ``sigmoid(η - |x - y|²)``.

    η is the squared distance with the largest entropy, log 2.

    Examples
    --------
    >>> pair_entropies(torch.tensor([1.0, 4.0]), 1.0)
    tensor([0.6931, 0.1909])
    """
    logits = threshold - squares
    # -p log p - (1 - p) log(1 - p) with log(1 - p) = -softplus(t), log p = t - softplus(t)
    return functional.softplus(logits) - logits.sigmoid() * logits


class EntropyRegularizer(PairLoss):
    r"""Negative mean entropy of the pairs of a batch.

    .. math:: -\text{mean}_{ij} \; H(p_{ij}), \qquad p_{ij} = \sigma(\eta - |x_i - x_j|^2)

    Parameters
    ----------
    threshold : float
        η.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`. Without labels all rows form pairs, with
    labels the labeled ones. It draws every squared distance to η, which widens classes and closes
    the gaps between them; scale the rows to length 1. O(n m d).

    The formula is our reconstruction: the paper compares with the regularizer of SERAPH, but
    prints no formula.

    References
    ----------
    .. [1] Li et al., "Deep metric learning with density adaptivity", IEEE Transactions on
       Multimedia 22(5), 2020, its reference [51].

    Examples
    --------
    >>> EntropyRegularizer()(torch.tensor([[0.0], [1.0]]))  # -log 2
    tensor(-0.6931)
    """

    def __init__(self, threshold: float = 1.0) -> None:
        super().__init__()
        check_number(threshold, "threshold", "EntropyRegularizer")
        self.threshold = threshold

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the weighted mean over the pairs."""
        squares = squared_distances(batch.embeddings, batch.reference)
        pairs = all_pairs(batch, type(self).__name__)
        return -weighted_mean(pair_entropies(squares, self.threshold), pairs)


def global_orthogonality(
    similarities: torch.Tensor, weights: torch.Tensor, n_components: int
) -> torch.Tensor:
    r"""Compute ``M1² + max(0, M2 - 1/d)`` with the weighted mean cosine M1 and squared cosine M2.

    Examples
    --------
    >>> global_orthogonality(torch.ones(3), torch.ones(3), 3)
    tensor(1.6667)
    """
    first = weighted_mean(similarities, weights)
    second = weighted_mean(similarities.square(), weights)
    return first.square() + functional.relu(second - 1 / n_components)


class GlobalOrthogonalRegularizer(PairLoss):
    r"""Deviation of the cosines between classes from those of random directions.

    .. math:: M_1^2 + \max(0, M_2 - 1/d), \qquad
        M_1 = \text{mean}_{y_i \ne y_j} \cos_{ij}, \quad M_2 = \text{mean} \cos^2_{ij}

    Random directions in d dimensions have :math:`M_1 = 0` and :math:`M_2 = 1/d`.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`; only negative pairs count. Rows are scaled to
    length 1. O(n m d). The paper adds it with weight 1; its code for triplets uses the larger of
    two squares as M2, unlike its formula.

    References
    ----------
    .. [1] Zhang et al., "Learning spread-out local feature descriptors", ICCV 2017.

    Examples
    --------
    >>> labels = torch.tensor([0, 1, 2])
    >>> GlobalOrthogonalRegularizer()(torch.eye(3), labels)
    tensor(0.)
    >>> GlobalOrthogonalRegularizer()(torch.ones(3, 3), labels)  # 1 + (1 - 1/3)
    tensor(1.6667)
    """

    needs = "a negative pair"

    def usable(self, batch: Batch) -> bool:
        """Whether the batch has a negative pair."""
        anchor, _, negative = pair_weights(batch, type(self).__name__)
        return bool((anchor[:, None] * negative).any())

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the value over the negative pairs."""
        anchor, _, negative = pair_weights(batch, type(self).__name__)
        d = batch.embeddings.shape[1]
        return global_orthogonality(cosines(batch), anchor[:, None] * negative, d)
