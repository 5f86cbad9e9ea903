"""Class centers on a sphere: decorrelation and ranking, Zheng et al. (2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch, check_flag, check_rate, class_labels, promoted
from ssdml.losses.pairs import weighted_mean
from ssdml.utils.torch_tools import unit_rows
from ssdml.utils.validation import check_count, check_number, choose, warn


class NormalizeScale(nn.Module):
    """Scale rows to a fixed length: the last layer of a network, not a loss.

    Parameters
    ----------
    scale : float
        α, the length, positive. The paper uses 128, and finds values above 16 stable.

    Notes
    -----
    Rows of zeros stay zero. float16 and bfloat16 are kept, with lengths computed in float32.

    References
    ----------
    .. [1] Zheng et al., "Toward optimal fine grained retrieval via decorrelated centralized loss
       with normalize-scale layer", AAAI 2019, Eq. (1).

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
        """Return rows of length α."""
        with torch.autocast(embeddings.device.type, enabled=False):
            return (self.scale * unit_rows(promoted(embeddings))).to(embeddings.dtype)

    def extra_repr(self) -> str:
        """Return the scale, for ``repr``."""
        return f"scale={self.scale}"


def center_correlation(centers: torch.Tensor) -> torch.Tensor:
    """Compute the mean of ``½ <w_i, w_j>²`` over pairs of centers: 0 if they are orthogonal.

    Notes
    -----
    O(K d min(K, d)) time, O(min(K, d)²) memory: ``W Wᵀ`` and ``Wᵀ W`` have the same norm.

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


def _wide(rows: torch.Tensor) -> torch.dtype:
    """Precision of products: float64, except on MPS, which lacks it."""
    return rows.dtype if rows.device.type == "mps" else torch.float64


class _SquaredDistances(torch.autograd.Function):
    """Squared distances and their gradients with products in float64."""

    generate_vmap_rule = True  # for the Hessian of torch.func

    @staticmethod
    def forward(rows: torch.Tensor, centers: torch.Tensor) -> torch.Tensor:
        x, w = (part.to(_wide(rows)) for part in (rows, centers))
        starts, ends = (torch.linalg.vector_norm(part, dim=1).square() for part in (x, w))
        lengths = torch.add(starts[:, None], ends)
        squares = torch.addmm(lengths, x, w.T, alpha=-2)
        # Rows that equal a center but for a few units in the last place have no direction.
        same = squares <= lengths * (4 * torch.finfo(rows.dtype).eps) ** 2
        return squares.masked_fill(same, 0).to(rows.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        """Keep the arguments; apart from ``forward``, as torch.func requires."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, centers = ctx.saved_tensors
        slope, x, w = (part.to(_wide(rows)) for part in (2 * slope, rows, centers))
        to_rows = torch.addmm(slope.sum(dim=1)[:, None] * x, slope, w, alpha=-1)
        to_centers = torch.addmm(slope.sum(dim=0)[:, None] * w, slope.T, x, alpha=-1)
        return to_rows.to(rows.dtype), to_centers.to(rows.dtype)


def center_distances(rows: torch.Tensor, centers: torch.Tensor) -> torch.Tensor:
    """Compute the distance of each row to each center, (n, K), without cancellation.

    Notes
    -----
    O(n K d) time, O(n K + (n + K) d) memory. It can be differentiated twice; the gradient is 0
    where row and center are equal. ``torch.cdist`` in float32 loses distances below a thousandth
    of the lengths, and their gradients, and has no second derivative.

    Examples
    --------
    >>> center_distances(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0], [0.0, 4.0]]))
    tensor([[5., 3.]])
    """
    squares = _SquaredDistances.apply(rows, centers)  # type: ignore[no-untyped-call]
    return squares.clamp_min(torch.finfo(rows.dtype).tiny).sqrt()


class _Centers(Loss):
    """Loss with one center per class, initially on the unit sphere."""

    takes_reference = False
    follows_miner = True
    _least_classes = 1

    def __init__(self, num_classes: int, embedding_size: int, learning_rate: float | None) -> None:
        super().__init__()
        who = type(self).__name__
        check_count(num_classes, "num_classes", who, least=self._least_classes)
        check_count(embedding_size, "embedding_size", who)
        check_rate(learning_rate, who)
        self.num_classes, self.embedding_size = num_classes, embedding_size
        self.learning_rate = learning_rate
        self.centers = nn.Parameter(unit_rows(torch.randn(num_classes, embedding_size)))
        if num_classes == 1:
            warn(
                f"{who}: num_classes must be at least 2 for a gradient; got 1. Label rows of "
                "another class."
            )


class DecorrelatedCentersLoss(_Centers):
    r"""Cross-entropy of scaled cosines to the centers, plus their mean squared correlation.

    .. math:: \text{CE}(\alpha \hat x \hat W^\top, y)
        + \frac{\lambda}{|\Omega|} \sum_{i<j} \tfrac12 \langle \hat w_i, \hat w_j \rangle^2,
        \qquad |\Omega| = K(K-1)/2

    Parameters
    ----------
    num_classes, embedding_size : int
        K and d.
    scale : float
        α, positive.
    decorrelation : float
        λ, at least 0.
    normalize : bool
        Whether to scale centers to length 1; rows always are.
    tangent : bool
        Whether to project the gradient onto the tangent space of the sphere, so that a step keeps
        the length of a center to first order. Always so with ``normalize``.
    learning_rate : float or None
        Of the centers; None: that of the optimizer.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`, with labels from 0 to ``num_classes - 1`` or
    -1. Without a labeled row the loss, including the penalty, is 0. O(n K d + K d min(K, d)).

    Differs from [1]_ in three ways: (a) the sign: its Eq. (11) subtracts the products, which would
    reward correlation, and its Eq. (13) as printed increases it; (b) half squares for the absolute
    products: read as a step along :math:`-\langle w_i, w_j\rangle w_j`, Eq. (13) is their gradient,
    which vanishes for orthogonal centers, as the paper's text says; (c) centers have length 1 by
    default: the text at Eq. (1) asks for that and for the opposite, and Eq. (10) scales features
    alone, which is ``normalize=False``. With K > d not all centers can be orthogonal: the squared
    cosines of ordered pairs sum to at least K(K - d)/d.

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
        check_flag(normalize, "normalize", "DecorrelatedCentersLoss")
        check_flag(tangent, "tangent", "DecorrelatedCentersLoss")
        self.scale, self.decorrelation = scale, decorrelation
        self.normalize, self.tangent = normalize, tangent

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the mean over the labeled rows, plus the penalty."""
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
            # The value is W; the gradient of w/|w| at fixed |w| is the projection.
            lengths = torch.linalg.vector_norm(centers.detach(), dim=1, keepdim=True)
            return lengths * unit_rows(centers)
        return centers


class GlobalCenterRankingLoss(_Centers):
    r"""Hinge of the distance to the own center against the mean distance to the others.

    .. math:: \text{mean}_i \max(0, t_i) \quad\text{or}\quad \max(0, \text{mean}_i \, t_i), \qquad
        t_i = m + |x_i - w_{y_i}| - \frac{1}{K - 1} \sum_{j \ne y_i} |x_i - w_j|

    Parameters
    ----------
    num_classes, embedding_size : int
        K, at least 2, and d.
    margin : float
        m. The paper's 4 is for rows of length 128; rows and centers of length 1 are at most 2
        apart.
    learning_rate : float or None
        Of the centers; None: that of the optimizer.
    hinge : {"row", "batch"}
        Whether the hinge is around each row's term, or around their mean, as Eq. (2) is printed:
        then rows within the margin pull and push as long as the mean is above 0.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`, with labels from 0 to ``num_classes - 1`` or
    -1. Rows are not normalized; the paper's have length 128 (:class:`NormalizeScale`). O(n K d)
    time, O(n K) memory. It can be differentiated twice.

    Differs from [1]_ in four ways: (a) a weighted mean over rows instead of the sum; (b) by
    default a hinge per row: its Eq. (3) and (4) are the gradients of a single row within the
    hinge; (c) we read the index c, undefined in its sum over the other centers, as the class of the
    row; (d) the maximum is with 0, where its Eq. (2) prints a maximum of one argument.

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

    _least_classes = 2

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        margin: float = 4.0,
        learning_rate: float | None = None,
        hinge: str = "row",
    ) -> None:
        super().__init__(num_classes, embedding_size, learning_rate)
        check_number(margin, "margin", "GlobalCenterRankingLoss")
        choose(dict.fromkeys(("row", "batch")), hinge, "GlobalCenterRankingLoss: hinge")
        self.margin, self.hinge = margin, hinge

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the weighted mean over the labeled rows."""
        labels, centers = class_labels(batch, type(self).__name__), promoted(self.centers)
        distances = center_distances(batch.embeddings, centers)
        own = distances.gather(1, labels.clamp_min(0)[:, None])[:, 0]
        others = (distances.sum(dim=1) - own) / (len(centers) - 1)
        terms, weights = self.margin + own - others, batch.row_weights
        if self.hinge == "row":
            return weighted_mean(functional.relu(terms), weights)
        return functional.relu(weighted_mean(terms, weights))
