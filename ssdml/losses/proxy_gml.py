"""ProxyGML: classification by the nearest proxies, Zhu et al. (2020)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ssdml.graphs.proxies import proxy_subgraph, reverse_label_propagation
from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch, check_flag, check_rate, class_labels, promoted
from ssdml.losses.pairs import weighted_mean
from ssdml.utils.torch_tools import inverse_lengths, unit_rows
from ssdml.utils.validation import check_count, check_number, warn

BLOCK = 2**22  # entries of a block of logits
LEAST_LOG = math.log(1e-20)  # of a probability, as in the paper's code


def proxy_regularizer(
    proxies: torch.Tensor, scales: torch.Tensor, num_classes: int
) -> torch.Tensor:
    """Compute the mean cross-entropy of the proxies, classified by their cosines to all proxies.

    ``proxies`` (num_classes * n, d) are grouped by class; ``scales`` are their inverse lengths.

    Notes
    -----
    O(C² n d): the votes of a proxy for a class are its product with the sum of the class's proxies.
    Above 4 million entries the logits are computed in blocks, and again in the backward pass:
    O(C n d) memory.

    Examples
    --------
    >>> proxy_regularizer(torch.eye(2), torch.ones(2), 2)  # log(1 + 1/e)
    tensor(0.3133)
    """
    count, d = proxies.shape
    n_each = count // num_classes
    parts = scales.view(num_classes, 1, n_each), proxies.view(num_classes, n_each, d)
    sums = torch.bmm(*parts)[:, 0]  # (C, d), of unit-length proxies
    classes = torch.arange(num_classes, device=proxies.device).repeat_interleave(n_each)
    if count * num_classes <= BLOCK:
        return _summed_entropy(proxies, scales, sums, classes) / count
    size = max(1, BLOCK // num_classes)
    total = proxies.new_zeros(())
    for block in range(0, count, size):
        own = (part[block : block + size] for part in (proxies, scales))
        args = (*own, sums, classes[block : block + size])
        total = total + checkpoint(_summed_entropy, *args, use_reentrant=False)
    return total / count


class ProxyGMLLoss(Loss):
    r"""Cross-entropy of the classes voted for by the nearest proxies of each row.

    .. math:: -\text{mean}_i \log P_{i y_i} + \lambda \, L^p, \qquad
        P_{ic} = \frac{M_{ic} e^{Z_{ic}}}{\sum_{c'} M_{ic'} e^{Z_{ic'}}}

    Z and M are those of :func:`ssdml.graphs.reverse_label_propagation` on the subgraph of
    :func:`ssdml.graphs.proxy_subgraph`. :math:`L^p` is the same for the proxies themselves, on the
    complete graph.

    Parameters
    ----------
    num_classes, embedding_size : int
    n_proxies : int
        N, per class.
    ratio : float
        Share of all proxies that a row is connected to, those of its class first:
        ``k = ⌈ratio · num_classes · n_proxies⌉``, rounded as in the paper's code.
    regularization : float
        λ, at least 0; 0 leaves out :math:`L^p`.
    learning_rate : float or None
        Of the proxies, see :meth:`parameter_groups`; None: that of the optimizer.
    positive_mask : bool
        Whether the proxies of a row's class come first (:math:`S^{pos}`).
    mask_softmax : bool
        Whether the softmax leaves out classes without a connected proxy (M).

    Attributes
    ----------
    k : int
        Number of proxies that a row is connected to.

    Warns
    -----
    UserWarning
        If k is at most ``n_proxies``, so that a row is connected to its own class alone and has no
        gradient: k is then ``n_proxies + 1``, as with the defaults and up to 20 classes. Also with
        a single class, whose loss is constant.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`, with labels from 0 to ``num_classes - 1`` or
    -1. Without a labeled row the loss, including :math:`L^p`, is 0. O(n C N d) for the rows,
    O(C² N d) for the proxies. The parameter ``proxies`` is grouped by class; ``proxy_classes``
    holds the classes. torch.compile breaks the graph at the checks of the subgraph.

    Defaults are those of the paper's code for CUB and Cars, where the network has learning rate
    1e-4, both with Adam(eps=0.01) and weight decay 1e-4. For Stanford Online Products it has
    ``n_proxies=1, regularization=0, learning_rate=0.3``. With 100 classes k is 60: for a few
    classes pass a ratio that keeps k near 60 (``min(1, 60 / (num_classes * n_proxies))``).

    The paper leaves out :math:`S^{pos}`, M and :math:`L^p` in turn by ``positive_mask=False``,
    ``mask_softmax=False`` and ``regularization=0``. Without the positive mask a row may miss its
    own class; with mask softmax its loss is then :math:`-\log 10^{-20}` without a gradient, as in
    the paper's code. See :mod:`ssdml.graphs.proxies` for differences from the code in the subgraph
    and the mask.

    References
    ----------
    .. [1] Zhu, Yang, Deng, Liu, "Fewer is more: a deep graph metric learning perspective using
       fewer proxies", NeurIPS 2020.

    Examples
    --------
    >>> loss = ProxyGMLLoss(2, 2, n_proxies=1, ratio=1.0, regularization=0.0)
    >>> with torch.no_grad():
    ...     _ = loss.proxies.copy_(torch.eye(2))
    >>> value = loss(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))
    >>> round(value.item(), 6)  # log(1 + 1/e)
    0.313262
    """

    takes_reference = False
    follows_miner = True
    num_classes: int

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        n_proxies: int = 12,
        ratio: float = 0.05,
        regularization: float = 0.3,
        learning_rate: float | None = 0.03,
        positive_mask: bool = True,
        mask_softmax: bool = True,
    ) -> None:
        super().__init__()
        who = "ProxyGMLLoss"
        check_number(ratio, "ratio", who)
        if not 0 < ratio <= 1:
            raise ValueError(f"{who}: ratio must be above 0 and at most 1; got {ratio}.")
        check_number(regularization, "regularization", who, least=0)
        check_count(num_classes, "num_classes", who)
        check_count(embedding_size, "embedding_size", who)
        check_count(n_proxies, "n_proxies", who)
        check_rate(learning_rate, who)
        check_flag(positive_mask, "positive_mask", who)
        check_flag(mask_softmax, "mask_softmax", who)
        self.num_classes, self.embedding_size = num_classes, embedding_size
        self.n_proxies = n_proxies
        self.ratio, self.regularization, self.learning_rate = ratio, regularization, learning_rate
        self.positive_mask, self.mask_softmax = positive_mask, mask_softmax
        count = num_classes * n_proxies
        self.k = self._subgraph_size(count)
        bound = 1 / math.sqrt(count)  # Kaiming initialization, as in the paper's code
        self.proxies = nn.Parameter(torch.empty(count, embedding_size).uniform_(-bound, bound))

    @property
    def proxy_classes(self) -> torch.Tensor:
        """Class of each proxy."""
        classes = torch.arange(self.num_classes, device=self.proxies.device)
        return classes.repeat_interleave(self.n_proxies)

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the mean over the labeled rows, plus the regularizer."""
        labels, proxies = class_labels(batch, type(self).__name__), promoted(self.proxies)
        # Scale the products, which are fewer than the entries of the proxies.
        scales = inverse_lengths(proxies)
        similarities = unit_rows(batch.embeddings) @ proxies.T * scales
        classes = self.proxy_classes
        subgraph = proxy_subgraph(
            similarities, labels, classes, k=self.k, positive_mask=self.positive_mask
        )
        votes = reverse_label_propagation(
            subgraph.weights,
            classes[subgraph.indices],
            self.num_classes,
            mask_softmax=self.mask_softmax,
        )
        losses = functional.nll_loss(
            votes.log_probabilities, labels, ignore_index=-1, reduction="none"
        )
        if not self.positive_mask:
            losses = losses.clamp_max(-LEAST_LOG)
        weights = batch.row_weights
        loss = weighted_mean(losses, weights)
        if not self.regularization:
            return loss
        some = (weights.sum() > 0).to(loss.dtype)
        return loss + self.regularization * some * proxy_regularizer(
            proxies, scales, self.num_classes
        )

    def _subgraph_size(self, count: int) -> int:
        """Return k; warn if a row would have no gradient."""
        # In this order, in which the paper's code multiplies.
        k = min(math.ceil(self.ratio * self.num_classes * self.n_proxies), count)
        if self.num_classes == 1:
            warn(
                "ProxyGMLLoss: num_classes must be at least 2 for a gradient; got 1. Label rows of "
                "another class."
            )
        elif self.positive_mask and self.mask_softmax and k <= self.n_proxies:
            least = self.n_proxies + 1
            enough = _rounded_up(min(1.0, max(60, least) / count))
            warn(
                f"ProxyGMLLoss: ratio must connect a row to more than n_proxies={self.n_proxies} "
                f"proxies, those of its own class; got ratio={self.ratio} of {count} proxies, "
                f"k={k}. Uses k={least}; pass ratio={enough:g}."
            )
            k = least
        return k


def _rounded_up(share: float) -> float:
    """Round up to two digits.

    Examples
    --------
    >>> _rounded_up(0.0503), _rounded_up(0.5)
    (0.051, 0.5)
    """
    unit = 10.0 ** (math.floor(math.log10(share)) - 1)
    return round(math.ceil(round(share / unit, 6)) * unit, 12)


def _summed_entropy(
    proxies: torch.Tensor, scales: torch.Tensor, sums: torch.Tensor, classes: torch.Tensor
) -> torch.Tensor:
    logits = proxies @ sums.T * scales[:, None]
    return functional.cross_entropy(logits, classes, reduction="sum")
