"""The angular loss of a triplet (Wang et al. 2017, as seed of the metric's own objective)."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch
from ssdml.losses.pairs import pair_weights, squared_distances, weighted_mean
from ssdml.utils.linalg import angular_factor
from ssdml.utils.torch_tools import take_rows


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


# The angular loss over the triplets of a batch: those that were mined, or all of its labels.


class AngularTripletLoss(Loss):
    r"""Mean of ``log(1 + exp(m))`` over triplets, by the angle that each opens at its negative.

    .. math:: m = |a - p|^2 - 4 \tan^2\!\alpha \; |n - (a + p) / 2|^2

    Parameters
    ----------
    angle : float
        α in degrees, between 0 and 90.

    Notes
    -----
    The call is that of :class:`Loss <ssdml.losses.base.Loss>`. Triplets are those of
    ``indices_tuple``, which may be :class:`Triplets <ssdml.graphs.Triplets>`; without, all of the
    batch that its labels allow: O(n_pairs · n) memory for so many positive pairs. Their number is
    in the labels, and torch.compile breaks the graph there, unless it may capture dynamic shapes:
    ``fullgraph=True`` lets it, and ``torch._dynamo.config.capture_dynamic_output_shape_ops``. Of
    given triplets it makes one graph.

    Differs from [1]_ in one way: a weighted mean stands for the sum. A batch with one class, or
    without two rows of one class, has no triplet and the loss 0.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, Eq. (3).

    Examples
    --------
    >>> z = torch.tensor([[0.0], [0.0], [1.0]])
    >>> loss = AngularTripletLoss(angle=45.0)
    >>> loss(z, indices_tuple=(torch.tensor([0]), torch.tensor([1]), torch.tensor([2])))
    tensor(0.0181)
    >>> loss(z, torch.tensor([0, 0, 1]))  # the same triplet, and the one of the other anchor
    tensor(0.0181)
    """

    over_tuples = True

    def __init__(self, angle: float = 40.0) -> None:
        super().__init__()
        angular_factor(angle)
        self.angle = angle

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Weighted mean of the triplets' losses."""
        if batch.tuples is None or len(batch.tuples) == 4:
            return self._of_all(batch)
        anchor, positive, negative = batch.tuples
        weights = batch.tuple_weights
        if weights is None:
            weights = batch.embeddings.new_ones(len(anchor))
        if batch.weights is not None:
            weights = weights * batch.weights[anchor]
            if not batch.has_reference:
                weights = weights * batch.weights[positive] * batch.weights[negative]
        return weighted_mean(self._of_triplets(batch, anchor, positive, negative), weights)

    def _of_triplets(
        self, batch: Batch, anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor
    ) -> torch.Tensor:
        """Losses (n_triplets,) in the lesser memory: that of all pairs, or of all differences."""
        rows, others = batch.embeddings, batch.reference
        if len(rows) * len(others) > len(anchor) * rows.shape[1]:
            parts = (rows, anchor), (others, positive), (others, negative)
            ends = (take_rows(*part) for part in parts)
            return angular_triplet_loss(*ends, angle=self.angle)
        squares, among = _squares(batch)
        return _losses(
            _entries(squares, anchor, positive),
            _entries(squares, anchor, negative),
            _entries(among, positive, negative),
            angular_factor(self.angle),
        )

    def _of_all(self, batch: Batch) -> torch.Tensor:
        """Every positive pair with every negative of its anchor."""
        weights = pair_weights(batch, type(self).__name__)
        anchor, positive = weights.positive.nonzero(as_tuple=True)
        squares, among = _squares(batch)
        losses = _losses(
            _entries(squares, anchor, positive)[:, None],
            take_rows(squares, anchor),
            take_rows(among, positive),
            angular_factor(self.angle),
        )  # (n_pairs, m)
        of_pairs = weights.anchor[anchor] * weights.positive[anchor, positive]
        return weighted_mean(losses, of_pairs[:, None] * weights.negative[anchor])


def _squares(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared distances from rows to where pairs end, and among these."""
    squares = squared_distances(batch.embeddings, batch.reference)
    if not batch.has_reference:
        return squares, squares
    return squares, squared_distances(batch.reference, batch.reference)


def _entries(matrix: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Entries of a matrix, one a pair of row and column."""
    return take_rows(matrix.reshape(-1, 1), row * matrix.shape[1] + column)[:, 0]


def _losses(
    to_positive: torch.Tensor, to_negative: torch.Tensor, across: torch.Tensor, factor: float
) -> torch.Tensor:
    """Angular losses by the three sides of the triangles."""
    # |n - (a + p)/2|² = |n - a|²/2 + |n - p|²/2 - |a - p|²/4
    margins = (1 + factor / 4) * to_positive - factor / 2 * (to_negative + across)
    return functional.softplus(margins)


def batch_angular_loss(
    embedding: torch.Tensor, labels: torch.Tensor, angle: float, n_negatives: int
) -> torch.Tensor:
    """Mean angular loss over a batch: one random positive an anchor, its nearest negatives."""
    anchor, positive, negative = batch_triplets(embedding.detach(), labels, n_negatives)
    if not len(anchor):
        return embedding.sum() * 0
    parts = (take_rows(embedding, places) for places in (anchor, positive, negative))
    return angular_triplet_loss(*parts, angle=angle).mean()


def batch_triplets(
    embedding: torch.Tensor, labels: torch.Tensor, n_negatives: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Anchors, a random positive of each, and the negatives nearest to the middle of the two.

    Rows without a positive or a negative in the batch are left out.

    Examples
    --------
    >>> z = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> a, p, n = batch_triplets(z, torch.tensor([0, 0, 1, 1]), 1)
    >>> a.tolist(), p.tolist(), n.tolist()
    ([0, 1, 2, 3], [1, 0, 3, 2], [2, 2, 1, 1])
    """
    same = labels[:, None] == labels
    similar = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    usable = similar.any(dim=1) & ~same.all(dim=1)
    drawn = torch.rand(same.shape).to(labels.device)  # on the CPU: the same on every device
    scores = drawn.masked_fill(~similar, -1.0)
    positive = scores.argmax(dim=1)
    middle = (embedding + embedding[positive]) / 2
    squares = torch.cdist(middle, embedding).masked_fill(same, math.inf)
    nearest = squares.topk(min(n_negatives, len(labels)), largest=False)
    kept = usable[:, None] & nearest.values.isfinite()
    anchor, rank = kept.nonzero(as_tuple=True)
    return anchor, positive[anchor], nearest.indices[anchor, rank]
