"""DGCRL: rows on a sphere, a center for each class, and centers at right angles."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch, promoted
from ssdml.losses.density import class_labels
from ssdml.losses.pairs import weighted_mean
from ssdml.utils.torch_tools import unit_rows
from ssdml.utils.validation import check_count, check_number, check_rate


class NormalizeScale(nn.Module):
    """Rows scaled to one length: the last layer of a network, no loss.

    Parameters
    ----------
    scale : float
        α, the length, above 0. The paper finds at least 16 stable.

    Notes
    -----
    A row of zeros stays one. float16 and bfloat16 come back as they are, with lengths taken in
    float32.

    References
    ----------
    .. [1] Zheng et al., "Toward optimal fine grained retrieval via decorrelated centralized loss
       with normalize-scale layer", AAAI 2019.

    Examples
    --------
    >>> NormalizeScale(10.0)(torch.tensor([[3.0, 4.0]]))
    tensor([[6., 8.]])
    """

    def __init__(self, scale: float = 128.0) -> None:
        super().__init__()
        check_number(scale, "scale", "NormalizeScale", above=0)
        self.scale = scale

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Rows of length α."""
        with torch.autocast(embeddings.device.type, enabled=False):
            return (self.scale * unit_rows(promoted(embeddings))).to(embeddings.dtype)

    def extra_repr(self) -> str:
        """Length."""
        return f"scale={self.scale}"


def center_correlation(centers: torch.Tensor) -> torch.Tensor:
    """Mean over pairs of half the squared product, ``½ <w_i, w_j>²``: 0 at right angles.

    Parameters
    ----------
    centers : tensor of shape (K, d)

    Returns
    -------
    value : tensor, a scalar
        0 for one center.

    Notes
    -----
    O(K d min(K, d)) time, O(min(K, d)²) memory beside the centers: ``W Wᵀ`` and ``Wᵀ W`` have the
    same norm.

    Examples
    --------
    >>> center_correlation(torch.tensor([[1.0, 0.0], [0.6, 0.8]]))  # 0.6² / 2
    tensor(0.1800)
    """
    count, d = centers.shape
    n_pairs = max(1, count * (count - 1) // 2)
    if count <= d:
        products = centers @ centers.T
        return (products - torch.diag(products.diagonal())).square().sum() / (4 * n_pairs)
    lengths = centers.square().sum(dim=1).square().sum()
    return ((centers.T @ centers).square().sum() - lengths) / (4 * n_pairs)


class _Centers(Loss):
    """A center of each class, on a sphere at the start."""

    takes_reference = False

    def __init__(self, num_classes: int, embedding_size: int, learning_rate: float | None) -> None:
        super().__init__()
        who = type(self).__name__
        check_count(num_classes, "num_classes", who, least=self._fewest)
        check_count(embedding_size, "embedding_size", who)
        check_rate(learning_rate, who)
        self.num_classes, self.embedding_size = num_classes, embedding_size
        self.learning_rate = learning_rate
        self.centers = nn.Parameter(unit_rows(torch.randn(num_classes, embedding_size)))

    _fewest = 1


class DecorrelatedCentersLoss(_Centers):
    r"""Cross-entropy of scaled cosines to the centers, plus the mean of their squared products.

    .. math:: \text{CE}(\alpha \hat x \hat W^\top, y)
        + \frac{\lambda}{|\Omega|} \sum_{i<j} \tfrac12 \langle \hat w_i, \hat w_j \rangle^2,
        \qquad |\Omega| = K(K-1)/2

    Parameters
    ----------
    num_classes, embedding_size : int
        K and d.
    scale : float
        α, above 0.
    decorrelation : float
        λ, at least 0.
    normalize : bool
        Whether centers are scaled to length 1; rows always are.
    tangent : bool
        Whether the gradient of centers of any length is projected to right angles with them, so
        that a step turns a center and keeps its length to first order. That of centers scaled to
        length 1 is there already.
    learning_rate : float or None
        Of the centers; None: that of the optimizer.

    Notes
    -----
    The call is that of :class:`Loss <ssdml.losses.base.Loss>`, labels from 0 to ``num_classes - 1``
    or -1; weights are those of the mean over rows. A batch without a labeled row has the loss 0,
    centers and all. O(n K d + K d min(K, d)).

    Differs from [1]_ in sign: its Eq. (11) subtracts the products' absolute values, which would
    reward correlation, and its Eq. (13) as printed raises it. Read as a step along
    :math:`-\langle w_i, w_j\rangle w_j`, it is the gradient of the half squares here, which is 0
    at right angles, as the paper's text says. Whether centers have length 1 the paper tells both
    ways. With more centers than dimensions not all can be at right angles: the sum over ordered
    pairs of squared cosines is at least K(K - d)/d.

    References
    ----------
    .. [1] Zheng et al., "Toward optimal fine grained retrieval via decorrelated centralized loss
       with normalize-scale layer", AAAI 2019, Eq. (10), (11), (13).

    Examples
    --------
    >>> loss = DecorrelatedCentersLoss(2, 2, scale=1.0)
    >>> with torch.no_grad():
    ...     _ = loss.centers.copy_(torch.eye(2))
    >>> value = loss(torch.tensor([[5.0, 0.0]]), torch.tensor([0]))
    >>> round(value.item(), 6)  # log(1 + 1/e)
    0.313262
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        scale: float = 128.0,
        decorrelation: float = 0.1,
        normalize: bool = True,
        tangent: bool = False,
        learning_rate: float | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_size, learning_rate)
        check_number(scale, "scale", "DecorrelatedCentersLoss", above=0)
        check_number(decorrelation, "decorrelation", "DecorrelatedCentersLoss", least=0)
        self.scale, self.decorrelation = scale, decorrelation
        self.normalize, self.tangent = normalize, tangent

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Mean over the labeled rows, and the centers' own term."""
        labels, centers = class_labels(batch, type(self).__name__), self._used_centers()
        logits = unit_rows(batch.embeddings) @ centers.T * self.scale
        losses = functional.cross_entropy(logits, labels, ignore_index=-1, reduction="none")
        weights = batch.row_weights
        some = (weights.sum() > 0).to(losses.dtype)
        penalty = self.decorrelation * some * center_correlation(centers)
        return weighted_mean(losses, weights) + penalty

    def _used_centers(self) -> torch.Tensor:
        centers = promoted(self.centers)
        if self.normalize:
            return unit_rows(centers)
        if self.tangent:
            # The value is W; the slope of w/|w| at fixed |w| is the projection.
            lengths = torch.linalg.vector_norm(centers.detach(), dim=1, keepdim=True)
            return lengths * unit_rows(centers)
        return centers


class GlobalCenterRankingLoss(_Centers):
    r"""How much farther a row is from its own center than, on average, from the others.

    .. math:: \max\Bigl(0,\; m + |x_i - w_{y_i}|
        - \frac{1}{K - 1} \sum_{j \ne y_i} |x_i - w_j|\Bigr)

    Parameters
    ----------
    num_classes, embedding_size : int
        K, at least 2, and d.
    margin : float
        m. On rows of unit length, distances are below 2 and 4 is never reached.
    learning_rate : float or None
        Of the centers; None: that of the optimizer.

    Notes
    -----
    The call is that of :class:`Loss <ssdml.losses.base.Loss>`, labels from 0 to ``num_classes - 1``
    or -1. Rows are taken as they come. O(n K d) time, O(n K) memory.

    Differs from [1]_ in two ways: (a) a weighted mean over rows stands for the sum; (b) its sum
    over the other centers leaves out the index c, which we read as the class of the row.

    References
    ----------
    .. [1] Zheng et al., "Toward optimal fine grained retrieval via decorrelated centralized loss
       with normalize-scale layer", AAAI 2019, Eq. (2).

    Examples
    --------
    >>> loss = GlobalCenterRankingLoss(2, 1)
    >>> with torch.no_grad():
    ...     _ = loss.centers.copy_(torch.tensor([[0.0], [3.0]]))
    >>> loss(torch.tensor([[1.0]]), torch.tensor([0])).item()  # 4 + 1 - 2
    3.0
    """

    _fewest = 2

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        margin: float = 4.0,
        learning_rate: float | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_size, learning_rate)
        check_number(margin, "margin", "GlobalCenterRankingLoss")
        self.margin = margin

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Weighted mean over the labeled rows."""
        labels, centers = class_labels(batch, type(self).__name__), promoted(self.centers)
        distances = torch.cdist(batch.embeddings, centers)  # (n, K)
        own = distances.gather(1, labels.clamp_min(0)[:, None])[:, 0]
        others = (distances.sum(dim=1) - own) / (len(centers) - 1)
        return weighted_mean(functional.relu(self.margin + own - others), batch.row_weights)
