"""Angular loss of triplets, Wang et al. (2017) and Dutta et al. (2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from ssdml.losses.batch import Batch, can_check_values
from ssdml.losses.pairs import (
    PairLoss,
    PairWeights,
    distinct_pairs,
    has_triplets,
    pair_weights,
    relative,
    squared_distances,
    weighted_mean,
)
from ssdml.utils.linalg import angular_factor
from ssdml.utils.torch_tools import take_rows, to_device
from ssdml.utils.validation import check_number

BLOCK = 2**22  # triplets at once, if they are many: 16 MB in float32


def angular_triplet_loss(
    anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, *, angle: float = 40.0
) -> torch.Tensor:
    r"""Compute the loss of each triplet, ``log(1 + exp(m))``.

    .. math:: m = |a - p|^2 - 4 \tan^2\!\alpha \; |n - (a + p) / 2|^2

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
    return functional.softplus(to_positive - angular_factor(angle) * to_middle)


class AngularTripletLoss(PairLoss):
    r"""Mean of ``log(1 + exp(m))`` over the triplets of a batch.

    .. math:: m = |a - p|^2 - 4 \tan^2\!\alpha \; |n - (a + p) / 2|^2

    Parameters
    ----------
    angle : float
        α in degrees, between 0 and 90.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`. Triplets are those of ``indices_tuple``, which
    may be :class:`Triplets <ssdml.graphs.Triplets>`, in O(n_triplets · d) memory, or all that pairs
    or labels allow, in O(n m) memory for n embeddings and m references: if they are many, in blocks
    that the backward pass computes again (a minute for 2 · 10⁹ triplets on one core), but not under
    torch.compile. Their number depends on labels, so torch.compile breaks the graph there unless
    dynamic shapes are captured (``fullgraph=True`` or
    ``torch._dynamo.config.capture_dynamic_output_shape_ops``). Given triplets make one graph.

    Differs from [1]_ in one way: a weighted mean instead of the sum. The paper's distances are
    under L: pass embeddings that L has projected. pytorch-metric-learning's ``AngularLoss`` is
    another loss: it sums over the negatives of a pair inside of the logarithm.

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

    needs = "an anchor with a positive and a negative"

    def __init__(self, angle: float = 40.0) -> None:
        super().__init__()
        check_number(angle, "angle", "AngularTripletLoss", above=0, below=90)
        self.angle = angle

    def usable(self, batch: Batch) -> bool:
        """Whether an anchor has a positive and a negative."""
        return has_triplets(batch, type(self).__name__)

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the weighted mean over the triplets, in the way that takes least memory."""
        if batch.tuples is None or len(batch.tuples) == 4:
            way = _cheapest_way(batch, type(self).__name__) if can_check_values() else "pairs"
            if way != "triplets":
                return self._of_pairs(batch) if way == "pairs" else self._in_blocks(batch)
        if batch.tuples is None:
            batch = _with_tuples(batch, type(self).__name__)
        anchor, positive, negative, weights = _triplets(batch)
        if batch.weights is not None:
            of_rows = relative(batch.weights)
            weights = weights * of_rows[anchor]
            if not batch.has_reference:
                weights = weights * of_rows[positive] * of_rows[negative]
        return weighted_mean(self._of_triplets(batch, anchor, positive, negative), weights)

    def _of_triplets(
        self, batch: Batch, anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor
    ) -> torch.Tensor:
        """Compute losses (n_triplets,) from all pairs or all differences, whichever are fewer."""
        rows, others = batch.embeddings, batch.reference
        n_pairs = len(rows) * len(others) + batch.has_reference * len(others) ** 2
        if n_pairs > len(anchor) * rows.shape[1]:
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

    def _of_pairs(self, batch: Batch) -> torch.Tensor:
        """Compute the loss of every positive pair with every negative of its anchor."""
        weights = PairWeights(*map(relative, pair_weights(batch, type(self).__name__)))
        anchor, positive = weights.positive.nonzero(as_tuple=True)
        others = batch.reference
        if batch.has_reference and len(anchor) < len(others):
            squares = squared_distances(batch.embeddings, others)
            across = squared_distances(take_rows(others, positive), others)
        else:
            squares, among = _squares(batch)
            across = take_rows(among, positive)
        losses = _losses(
            _entries(squares, anchor, positive)[:, None],
            take_rows(squares, anchor),
            across,
            angular_factor(self.angle),
        )  # (n_pairs, m)
        of_pairs = weights.anchor[anchor] * weights.positive[anchor, positive]
        return weighted_mean(losses, of_pairs[:, None] * weights.negative[anchor])

    def _in_blocks(self, batch: Batch) -> torch.Tensor:
        """Compute as :meth:`_of_pairs`, by blocks that the backward pass computes again."""
        anchor, positive, negative = map(relative, pair_weights(batch, type(self).__name__))
        factor, blocks = angular_factor(self.angle), []
        for rows, near, far in _groups(batch, positive > 0, negative > 0):
            of_far = negative[rows][:, far]
            for some in torch.split(near, max(1, BLOCK // (len(rows) * len(far)))):
                of_near = anchor[rows, None] * positive[rows][:, some]
                blocks.append((rows, some, far, of_near, of_far, factor))
        ends = batch.embeddings, batch.reference
        total = _SumOfBlocks.apply(*ends, blocks)  # type: ignore[no-untyped-call]
        weight = (anchor * positive.sum(dim=1) * negative.sum(dim=1)).sum()
        return total / torch.where(weight > 0, weight, 1)


def _cheapest_way(batch: Batch, who: str) -> str:
    """Return the way to go over the triplets of pairs that takes least memory."""
    n, (m, d) = len(batch.embeddings), batch.reference.shape
    if batch.tuples is None:
        _, positive, negative = pair_weights(batch, who)
        near, far = (part.count_nonzero(dim=1) for part in (positive, negative))
    else:
        near, far = (torch.bincount(rows, minlength=n) for rows in batch.tuples[::2])
    entries = {
        "triplets": int((near * far).sum()) * d,
        "pairs": int(near.sum()) * m,
        "blocks": max(n * m, BLOCK),
    }
    return min(entries, key=lambda way: entries[way])


def _with_tuples(batch: Batch, who: str) -> Batch:
    """Give a batch its pairs as tuples; the weights of rows are multiplied later."""
    _, positive, negative = pair_weights(batch, who)
    return batch._replace(tuples=(*positive.nonzero().T, *negative.nonzero().T))


def _triplets(batch: Batch) -> tuple[torch.Tensor, ...]:
    """Return the triplets of the tuples and their weights; of pairs, those with equal anchors."""
    tuples, weights = batch.tuples, batch.tuple_weights
    assert tuples is not None
    if len(tuples) == 3:
        ones = batch.embeddings.new_ones(len(tuples[0]))
        return (*tuples, ones if weights is None else relative(weights))
    (anchor, positive, near), (other, negative, far) = distinct_pairs(batch)
    near, far = relative(near), relative(far)
    # Pairs are sorted by anchor: those of an anchor lie together.
    counts = torch.bincount(other, minlength=len(batch.embeddings))
    first = torch.repeat_interleave(torch.arange(len(anchor), device=anchor.device), counts[anchor])
    starts, begun = counts.cumsum(0) - counts, counts[anchor].cumsum(0) - counts[anchor]
    second = torch.arange(len(first), device=first.device) + (starts[anchor] - begun)[first]
    return anchor[first], positive[first], negative[second], near[first] * far[second]


def _groups(
    batch: Batch, near: torch.Tensor, far: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield anchors with the same positives, but for themselves, and the same negatives."""
    same = near.clone().fill_diagonal_(True) if batch.without_diagonal else near
    _, groups = torch.unique(torch.cat([same, far], dim=1), dim=0, return_inverse=True)
    for group in range(int(groups.max()) + 1):
        rows = (groups == group).nonzero()[:, 0]
        ends = [part[rows].any(dim=0).nonzero()[:, 0] for part in (near, far)]
        if all(len(part) for part in ends):
            yield rows, *ends


def _block_sum(
    rows: torch.Tensor,
    others: torch.Tensor,
    anchor: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    of_near: torch.Tensor,
    of_far: torch.Tensor,
    factor: float,
) -> torch.Tensor:
    """Sum the losses of all triplets of the ends; pairs with the anchor have weights."""
    a, p, n = take_rows(rows, anchor), take_rows(others, positive), take_rows(others, negative)
    to_positive = squared_distances(a, p)[:, :, None]
    to_negative = squared_distances(torch.cat([a, p]), n)
    losses = _losses(to_positive, to_negative[: len(a), None], to_negative[len(a) :], factor)
    return (of_near * (losses @ of_far[:, :, None])[:, :, 0]).sum()


class _SumOfBlocks(torch.autograd.Function):
    """Sum of :func:`_block_sum` over blocks, which the backward pass computes again.

    Checkpoints would do, but the graph that they keep per block fragments the memory.
    """

    @staticmethod
    def forward(rows: torch.Tensor, others: torch.Tensor, blocks: Any) -> torch.Tensor:
        return sum((_block_sum(rows, others, *block) for block in blocks), rows.new_zeros(()))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep the arguments; apart from ``forward``, as torch.func requires."""
        rows, others, ctx.blocks = inputs
        ctx.save_for_backward(rows, others)

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        again = torch.is_grad_enabled()  # for a second derivative
        with torch.enable_grad(), torch.autocast(slope.device.type, enabled=False):
            ends = [end if again else end.detach().requires_grad_() for end in ctx.saved_tensors]
            ends = [end.view_as(end) for end in ends]  # apart, if they are one tensor
            wanted = [end for end, need in zip(ends, ctx.needs_input_grad, strict=False) if need]
            slopes = [torch.zeros_like(end) for end in wanted]
            for block in ctx.blocks:
                value = slope * _block_sum(*ends, *block)
                parts = torch.autograd.grad(value, wanted, create_graph=again)
                slopes = [torch.add(*pair) for pair in zip(slopes, parts, strict=True)]
        found = iter(slopes)
        return *(next(found) if need else None for need in ctx.needs_input_grad[:2]), None


def _squares(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute squared distances from embeddings to references, and among references."""
    squares = squared_distances(batch.embeddings, batch.reference)
    if not batch.has_reference:
        return squares, squares
    return squares, squared_distances(batch.reference, batch.reference)


def _entries(matrix: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Return the entries of a matrix at pairs of row and column."""
    return take_rows(matrix.reshape(-1, 1), row * matrix.shape[1] + column)[:, 0]


def _losses(
    to_positive: torch.Tensor, to_negative: torch.Tensor, across: torch.Tensor, factor: float
) -> torch.Tensor:
    """Compute angular losses from the squared sides of the triangles."""
    # |n - (a + p)/2|² = |n - a|²/2 + |n - p|²/2 - |a - p|²/4
    margins = (1 + factor / 4) * to_positive - factor / 2 * (to_negative + across)
    return functional.softplus(margins)


def batch_angular_loss(
    embedding: torch.Tensor,
    labels: torch.Tensor,
    angle: float,
    n_negatives: int,
    drawn: torch.Tensor,
) -> torch.Tensor:
    """Compute the mean angular loss of :func:`batch_triplets`."""
    *ends, kept = batch_triplets(embedding.detach(), labels, n_negatives, drawn)
    losses = angular_triplet_loss(*(take_rows(embedding, rows) for rows in ends), angle=angle)
    return (losses * kept).sum() / kept.sum().clamp(min=1)  # indexing by it would stall a GPU


def batch_triplets(
    embedding: torch.Tensor, labels: torch.Tensor, n_negatives: int, drawn: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Choose a random positive per anchor, and the negatives nearest to their midpoint.

    ``drawn`` (m, m), uniform random numbers, chooses the positives. Returns anchors, positives and
    negatives, ``n_negatives`` per row, and which of them are triplets.

    Examples
    --------
    >>> z = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> a, p, n, kept = batch_triplets(z, torch.tensor([0, 0, 1, 1]), 1, torch.rand(4, 4))
    >>> a.tolist(), p.tolist(), n.tolist(), bool(kept.all())
    ([0, 1, 2, 3], [1, 0, 3, 2], [2, 2, 1, 1], True)
    """
    same = labels[:, None] == labels
    similar = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    usable = similar.any(dim=1) & ~same.all(dim=1)
    scores = to_device(drawn, labels.device).masked_fill(~similar, -1.0)
    positive = scores.argmax(dim=1)
    middle = (embedding + embedding[positive]) / 2
    squares = torch.cdist(middle, embedding).masked_fill(same, math.inf)
    nearest = squares.topk(min(n_negatives, len(labels)), largest=False)
    kept = usable[:, None] & nearest.values.isfinite()
    rows = torch.arange(len(labels), device=labels.device)[:, None].expand_as(kept)
    ends = (rows, positive[:, None].expand_as(kept), nearest.indices)
    return *(part.flatten() for part in ends), kept.flatten()
