"""Losses of pairs, contrastive, binomial deviance and N-pair, and the pairs of a batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch, check_flag
from ssdml.utils.torch_tools import unit_rows
from ssdml.utils.validation import UNLABELED, check_number


class PairWeights(NamedTuple):
    """Weights of pairs: that of the anchor times that of the second row."""

    anchor: torch.Tensor  # (n,)
    positive: torch.Tensor  # (n, m), of the second row; 0 if the pair is not positive
    negative: torch.Tensor  # (n, m)


def pair_weights(batch: Batch, who: str) -> PairWeights:
    """Return the pairs of the tuples, or else those that the labels allow.

    Unlabeled rows form no pair by labels. A repeated pair counts once, with its largest weight.
    Weights of anchors are relative to the largest.
    """
    if batch.tuples is not None:
        return _of_tuples(batch)
    labels, others = batch.labels, batch.reference_labels
    if labels is None or others is None:
        missing = "labels" if labels is None else "ref_labels"
        raise ValueError(
            f"{who}: {missing} must be given without indices_tuple; got None. Pass the class of "
            f"each row, {UNLABELED} where unlabeled."
        )
    anchor, ends = relative(batch.row_weights), _end_weights(batch)
    same = labels[:, None] == others
    return PairWeights(anchor, _but_self(batch, same * ends), ~same * ends)


def all_pairs(batch: Batch, who: str) -> torch.Tensor:
    """Return the weights (n, m) of all pairs; without labels all rows form pairs."""
    if batch.tuples is None and (batch.labels is None or batch.reference_labels is None):
        return _but_self(batch, relative(batch.row_weights)[:, None] * _end_weights(batch))
    anchor, positive, negative = pair_weights(batch, who)
    return anchor[:, None] * torch.maximum(positive, negative)


def has_triplets(batch: Batch, who: str) -> bool:
    """Whether an anchor has a positive and a negative."""
    anchor, positive, negative = pair_weights(batch, who)
    return bool(((anchor > 0) & positive.any(dim=1) & negative.any(dim=1)).any())


def rows_of(batch: Batch, *, normalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return embeddings and references, scaled to length 1 on demand; one tensor if they are."""
    rows, others = batch.embeddings, batch.reference
    if not normalize:
        return rows, others
    rows = unit_rows(rows)
    return rows, unit_rows(others) if batch.has_reference else rows


def cosines(batch: Batch) -> torch.Tensor:
    """Compute the cosine of each pair, (n, m); 0 for a row of zeros."""
    rows, others = rows_of(batch, normalize=True)
    return rows @ others.T


def squared_distances(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Compute ``|x - y|²`` of each pair, (n, m), by a matrix product.

    Examples
    --------
    >>> squared_distances(torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0], [0.0, 3.0]]))
    tensor([[25.,  0.]])
    """
    if not len(others):
        return rows.sum() * 0 + rows.new_zeros(len(rows), 0)
    center = others.detach().mean(dim=0)  # centering reduces rounding errors
    y = others - center
    x = y if rows is others else rows - center
    products = x @ y.T
    if rows is others:
        starts = ends = products.diagonal()
    else:
        starts, ends = x.square().sum(dim=1), y.square().sum(dim=1)
    return torch.add(starts[:, None] + ends, products, alpha=-2).clamp_min(0)


def weighted_mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Compute ``Σ w v / Σ w``; 0, with a gradient of zeros, if all weights are 0.

    Examples
    --------
    >>> weighted_mean(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0]))
    tensor(2.)
    """
    total = weights.sum()
    return (weights * values).sum() / torch.where(total > 0, total, 1)


def relative(weights: torch.Tensor) -> torch.Tensor:
    """Divide weights by the largest: products of several do not underflow.

    Examples
    --------
    >>> relative(torch.tensor([1e-30, 0.0]))
    tensor([1., 0.])
    """
    if not weights.numel():
        return weights
    return weights / weights.amax().clamp_min(torch.finfo(weights.dtype).tiny)


def distinct_pairs(batch: Batch) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Return anchors, ends and largest weights of positive and negative pairs, sorted by anchor."""
    m = len(batch.reference)

    def distinct(
        starts: torch.Tensor, stops: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        pairs, places = torch.unique(starts * m + stops, return_inverse=True)
        largest = weights.new_zeros(len(pairs)).scatter_reduce(0, places, weights, "amax")
        return pairs // m, pairs % m, largest

    near, far = _pairs(batch)
    return distinct(*near), distinct(*far)


def _pairs(batch: Batch) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Return anchors, ends and weights of positive and of negative pairs of the tuples."""
    assert batch.tuples is not None
    anchor, positive, *other, negative = batch.tuples
    other_anchor = other[0] if other else anchor
    weights = batch.tuple_weights
    if weights is None:
        weights = batch.embeddings.new_ones(len(anchor) + (len(other_anchor) if other else 0))
    near = weights[: len(anchor)]
    far = weights[len(anchor) :] if other else weights
    return (anchor, positive, near), (other_anchor, negative, far)


def _of_tuples(batch: Batch) -> PairWeights:
    n, m = len(batch.embeddings), len(batch.reference)
    near, far = _pairs(batch)
    rows = batch.embeddings.new_ones(n) if batch.weights is None else batch.weights
    ends = rows.new_ones(m) if batch.has_reference else rows

    def table(starts: torch.Tensor, stops: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        flat = values.new_zeros(n * m)
        return flat.scatter_reduce(0, starts * m + stops, values, "amax").view(n, m) * ends

    return PairWeights(relative(rows), table(*near), table(*far))


def _end_weights(batch: Batch) -> torch.Tensor:
    """Return the weight of each row as the second of a pair; 1 for reference rows."""
    labels, weights = batch.reference_labels, batch.weights
    if not batch.has_reference and labels is batch.labels:
        return batch.row_weights
    if batch.has_reference or weights is None:
        weights = batch.reference.new_ones(len(batch.reference))
    return weights if labels is None else weights * (labels != UNLABELED)


def _but_self(batch: Batch, weights: torch.Tensor) -> torch.Tensor:
    """Remove the pairs of a row with itself."""
    return weights - torch.diag(weights.diagonal()) if batch.without_diagonal else weights


class PairLoss(Loss):
    """Base class of losses of pairs."""

    over_tuples = True
    needs = "a pair"

    def usable(self, batch: Batch) -> bool:
        """Whether the batch has a pair."""
        return bool(all_pairs(batch, type(self).__name__).any())


class ContrastiveLoss(PairLoss):
    r"""Mean squared distance of the positive pairs plus mean hinge of the negative pairs.

    .. math:: \text{mean}_{y_i = y_j} D_{ij}
        + \text{mean}_{y_i \ne y_j} \max(0, m - D_{ij}), \qquad D_{ij} = |x_i - x_j|^2

    Parameters
    ----------
    margin : float
        m, positive: negative pairs at a squared distance of at least m cost nothing. Squared
        distances of unit-length rows are at most 4.
    normalize : bool
        Whether to scale rows to length 1.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`; O(n m d) for n embeddings and m references. A
    mean over no pairs is 0.

    Differs from [1]_ in one way: two means instead of the sum, in which the negative pairs dominate
    and to which a term with weight 10 adds little. The loss of the same name in
    pytorch-metric-learning has distances that are not squared, and averages the negative pairs
    within the margin only.

    References
    ----------
    .. [1] Li et al., "Deep metric learning with density adaptivity", IEEE Transactions on
       Multimedia 22(5), 2020, Eq. (2).

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.8, 0.6]])
    >>> ContrastiveLoss()(z, torch.tensor([0, 0, 1]))  # 2, and the mean of 1 - 0.4 and 1 - 0.8
    tensor(2.4000)
    """

    def __init__(self, margin: float = 1.0, normalize: bool = True) -> None:
        super().__init__()
        check_number(margin, "margin", "ContrastiveLoss", above=0)
        check_flag(normalize, "normalize", "ContrastiveLoss")
        self.margin, self.normalize = margin, normalize

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the sum of the two weighted means."""
        anchor, positive, negative = pair_weights(batch, type(self).__name__)
        squares = squared_distances(*rows_of(batch, normalize=self.normalize))
        near = weighted_mean(squares, anchor[:, None] * positive)
        far = functional.relu(self.margin - squares)
        return near + weighted_mean(far, anchor[:, None] * negative)


def binomial_deviance(
    similarities: torch.Tensor,
    sign: float,
    *,
    alpha: float = 2.0,
    beta: float = 0.5,
    cost: float = 1.0,
) -> torch.Tensor:
    r"""Compute the loss of each pair, ``log(1 + exp(-sign · α (S - β) η))``.

    S are cosines; ``sign`` is 1 for positive pairs, -1 for negative ones.

    Examples
    --------
    >>> binomial_deviance(torch.tensor([1.0, 0.5]), 1.0)
    tensor([0.3133, 0.6931])
    """
    return functional.softplus(-sign * alpha * cost * (similarities - beta))


class BinomialDevianceLoss(PairLoss):
    r"""Mean binomial deviance of the positive pairs plus that of the negative pairs.

    .. math:: \text{mean}_{y_i = y_j} \log(1 + e^{-\alpha (S_{ij} - \beta)})
        + \text{mean}_{y_i \ne y_j} \log(1 + e^{\alpha (S_{ij} - \beta) \eta})

    Parameters
    ----------
    alpha, beta : float
        Slope α, positive, and the cosine β that separates the kinds.
    negative_cost : float
        η of the negative pairs, positive; 1 for the positive pairs.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`; O(n m d) for n embeddings and m references. A
    mean over no pairs is 0.

    Differs from [1]_ in one way: the two means follow [2]_, while [1]_ writes a sum, in which the
    negative pairs dominate.

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

    def __init__(self, alpha: float = 2.0, beta: float = 0.5, negative_cost: float = 25.0) -> None:
        super().__init__()
        who = "BinomialDevianceLoss"
        check_number(alpha, "alpha", who, above=0)
        check_number(beta, "beta", who)
        check_number(negative_cost, "negative_cost", who, above=0)
        self.alpha, self.beta, self.negative_cost = alpha, beta, negative_cost

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the sum of the two weighted means."""
        anchor, positive, negative = pair_weights(batch, type(self).__name__)
        similarities = cosines(batch)
        slope = {"alpha": self.alpha, "beta": self.beta}
        near = binomial_deviance(similarities, 1.0, **slope)
        far = binomial_deviance(similarities, -1.0, **slope, cost=self.negative_cost)
        rows = anchor[:, None]
        return weighted_mean(near, rows * positive) + weighted_mean(far, rows * negative)


class NPairBatchLoss(PairLoss):
    r"""N-pair loss: softmax of each positive pair against all negatives of its anchor.

    .. math:: \log\Bigl(1 + \sum_{j: y_j \ne y_i} e^{x_i \cdot x_j - x_i \cdot x_{i^+}}\Bigr)

    Parameters
    ----------
    normalize : bool
        Whether to scale rows to length 1, which the paper's formula does not.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`; O(n m d) for n embeddings and m references.
    The weight of a negative multiplies its exponential.

    The paper does not say which positive an anchor has; the loss averages over all of them, the
    expectation of a random one. It is a mean instead of a sum.

    References
    ----------
    .. [1] Chen et al., "Deep metric learning with graph consistency", AAAI 2021, Eq. (6).

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> NPairBatchLoss()(z, torch.tensor([0, 0, 1]))  # log(1 + 1/e)
    tensor(0.3133)
    """

    needs = "an anchor with a positive and a negative"

    def __init__(self, normalize: bool = False) -> None:
        super().__init__()
        check_flag(normalize, "normalize", "NPairBatchLoss")
        self.normalize = normalize

    def usable(self, batch: Batch) -> bool:
        """Whether an anchor has a positive and a negative."""
        return has_triplets(batch, type(self).__name__)

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the weighted mean over the positive pairs."""
        anchor, positive, negative = pair_weights(batch, type(self).__name__)
        rows, others = rows_of(batch, normalize=self.normalize)
        products = rows @ others.T
        losses = n_pair_losses(products, negative)
        return weighted_mean(losses, anchor[:, None] * positive)


def n_pair_losses(products: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    r"""Compute ``log(1 + Σ_j w_ij exp(s_ij - s_ip))`` for each pair (i, p) as a positive.

    ``products`` s (n, m) are inner products; ``negative`` w (n, m) are weights, 0 elsewhere.

    Examples
    --------
    >>> n_pair_losses(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([[0.3133, 0.6931]])
    """
    if not products.shape[1]:
        return products
    # Rows without negatives have loss 0; log(0) would have no gradient.
    some = (negative > 0).any(dim=1, keepdim=True)
    exponents = products + torch.where(some, negative, 1).log()
    against = exponents.logsumexp(dim=1, keepdim=True)
    return torch.where(some, functional.softplus(against - products), 0)
