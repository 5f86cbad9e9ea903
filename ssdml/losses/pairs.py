"""Pairs of a batch: which there are, with what weight, and how far apart."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ssdml.losses.batch import Batch
from ssdml.utils.torch_tools import unit_rows
from ssdml.utils.validation import UNLABELED


class PairWeights(NamedTuple):
    """Weight of each pair: that of its anchor times that of the row where it ends.

    Parameters
    ----------
    anchor : tensor of shape (n,)
    positive : tensor of shape (n, m)
        Of the row where a positive pair ends; 0 where there is no such pair.
    negative : tensor of shape (n, m)
    """

    anchor: torch.Tensor
    positive: torch.Tensor
    negative: torch.Tensor


def pair_weights(batch: Batch, who: str) -> PairWeights:
    """Pairs by the tuples, where given, else by the labels: an unlabeled row is in none of those.

    A pair that the tuples name more than once counts once, with the largest of its weights; one of
    weight 0 is none.
    """
    if batch.tuples is not None:
        return _of_tuples(batch)
    labels, others = batch.labels, batch.reference_labels
    if labels is None or others is None:
        missing = "labels" if labels is None else "ref_labels"
        raise ValueError(
            f"{who}: {missing} must be given where indices_tuple is not; got None. Pass the class "
            f"of each row, {UNLABELED} where it has none."
        )
    anchor, ends = batch.row_weights, _end_weights(batch)
    same = labels[:, None] == others
    return PairWeights(anchor, _but_self(batch, same * ends), ~same * ends)


def all_pairs(batch: Batch, who: str) -> torch.Tensor:
    """Weight of each pair, (n, m), whatever its kind: without labels all rows make pairs."""
    if batch.tuples is None and (batch.labels is None or batch.reference_labels is None):
        return _but_self(batch, batch.row_weights[:, None] * _end_weights(batch))
    anchor, positive, negative = pair_weights(batch, who)
    return anchor[:, None] * torch.maximum(positive, negative)


def cosines(batch: Batch) -> torch.Tensor:
    """Cosine of each pair, (n, m); 0 for a row of zeros."""
    rows = unit_rows(batch.embeddings)
    return rows @ (unit_rows(batch.reference) if batch.has_reference else rows).T


def squared_distances(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """``|x - y|²`` of each pair, (n, m): a matrix product, no array of n m differences.

    Examples
    --------
    >>> squared_distances(torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0], [0.0, 3.0]]))
    tensor([[25.,  0.]])
    """
    if not len(others):
        return rows.sum() * 0 + rows.new_zeros(len(rows), 0)
    center = others.detach().mean(dim=0)  # a translation changes nothing but the rounding
    y = others - center
    return squares_about_0(y if rows is others else rows - center, y)


def squares_about_0(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """As :func:`squared_distances`, exact to the rounding of the rows' own squared lengths."""
    products = rows @ others.T
    if rows is others:
        starts = ends = products.diagonal()
    else:
        starts, ends = rows.square().sum(dim=1), others.square().sum(dim=1)
    return torch.add(starts[:, None] + ends, products, alpha=-2).clamp_min(0)


def weighted_mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """``Σ w v / Σ w``; 0 where no value has a weight, with a gradient of zeros.

    Examples
    --------
    >>> weighted_mean(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0]))
    tensor(2.)
    """
    total = weights.sum()
    return (weights * values).sum() / torch.where(total > 0, total, 1)


def _of_tuples(batch: Batch) -> PairWeights:
    assert batch.tuples is not None
    n, m = len(batch.embeddings), len(batch.reference)
    anchor, positive, *other, negative = batch.tuples
    other_anchor = other[0] if other else anchor
    weights = batch.tuple_weights
    if weights is None:
        weights = batch.embeddings.new_ones(len(anchor) + (len(other_anchor) if other else 0))
    near = weights[: len(anchor)]
    far = weights[len(anchor) :] if other else weights
    rows = batch.embeddings.new_ones(n) if batch.weights is None else batch.weights
    ends = rows.new_ones(m) if batch.has_reference else rows

    def table(starts: torch.Tensor, stops: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        flat = values.new_zeros(n * m)
        return flat.scatter_reduce(0, starts * m + stops, values, "amax").view(n, m) * ends

    return PairWeights(rows, table(anchor, positive, near), table(other_anchor, negative, far))


def _end_weights(batch: Batch) -> torch.Tensor:
    """Weight of each row as the end of a pair; other rows than the batch's own have 1."""
    if not batch.has_reference:
        return batch.row_weights
    labels = batch.reference_labels
    ones = batch.reference.new_ones(len(batch.reference))
    return ones if labels is None else ones * (labels != UNLABELED)


def _but_self(batch: Batch, weights: torch.Tensor) -> torch.Tensor:
    """Without the pair of a row with itself."""
    if batch.has_reference:
        return weights
    return weights - torch.diag(weights.diagonal())
