"""Checked arguments of a loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ssdml.graphs.triplets import Triplets
from ssdml.utils.torch_tools import HALVES, check_float_matrix, check_integers
from ssdml.utils.validation import UNLABELED, check_number, check_tensor, warn, warn_of_wrapped

NEEDS, SAMPLER = "a labeled row", "class_batches"  # of most losses
HEAVIEST = 1e10  # sums of products of three weights must be finite in float32


class Batch(NamedTuple):
    """Checked arguments of a loss.

    Parameters
    ----------
    embeddings : tensor of shape (n, d), float32 or float64
    labels : tensor of shape (n,), int64, or None
    reference : tensor of shape (m, d)
        Second rows of the pairs; the embeddings by default.
    reference_labels : tensor of shape (m,), int64, or None
    tuples : tuple of 3 or 4 tensors, int64, or None
        Anchors, positives and negatives; or anchors, positives, other anchors, negatives.
    tuple_weights : tensor, or None
        One per triplet, or one per pair, positive pairs first. 0 if a plain tuple contains a row
        labeled -1; mined :class:`Triplets` may include such rows.
    weights : tensor of shape (n,), or None
        One per row.
    without_diagonal : bool
        Whether row i and reference i form no pair by labels.
    """

    embeddings: torch.Tensor
    labels: torch.Tensor | None
    reference: torch.Tensor
    reference_labels: torch.Tensor | None
    tuples: tuple[torch.Tensor, ...] | None
    tuple_weights: torch.Tensor | None
    weights: torch.Tensor | None
    without_diagonal: bool

    @property
    def has_reference(self) -> bool:
        """Whether ``reference`` differs from ``embeddings``."""
        return self.reference is not self.embeddings

    @property
    def row_weights(self) -> torch.Tensor:
        """Weight of each row: 1 by default, 0 if unlabeled."""
        weights = self.embeddings.new_ones(len(self.embeddings))
        if self.weights is not None:
            weights = self.weights
        return weights if self.labels is None else weights * (self.labels != UNLABELED)


def as_batch(
    who: str,
    embeddings: Any,
    labels: Any,
    indices_tuple: Any,
    ref_emb: Any,
    ref_labels: Any,
    weights: Any,
    *,
    over_tuples: bool,
    follows_miner: bool = False,
    n_classes: int | None = None,
) -> Batch:
    """Check the arguments of a loss; float16 and bfloat16 become float32.

    Labels, tuples and weights are moved to the device of the embeddings, as in
    pytorch-metric-learning. Values are not checked under torch.compile.

    ``over_tuples`` says whether the loss uses ``indices_tuple``, ``follows_miner`` whether it
    weights its rows by how often plain tuples name them; ``n_classes`` bounds the labels.
    """
    rows = as_rows(embeddings, "embeddings", who)
    own_rows = ref_emb is None or ref_emb is embeddings
    # As in pytorch-metric-learning, labels make pairs (i, i) if ref_labels are other labels.
    own_labels = ref_emb is None or (own_rows and ref_labels is None) or ref_labels is labels
    without_diagonal = own_labels and (own_rows or labels is not None)
    labels = reference_labels = _as_labels(labels, rows, "labels", who, n_classes)
    if own_rows:
        reference = rows
    else:
        _check_alike(ref_emb, rows, who)
        reference = as_rows(ref_emb, "ref_emb", who)
    if not (own_rows and own_labels):
        reference_labels = _as_labels(ref_labels, reference, "ref_labels", who, n_classes)
    tuples = tuple_weights = None
    mined = isinstance(indices_tuple, Triplets)
    if indices_tuple is not None and (over_tuples or (follows_miner and not mined)):
        tuples = as_tuples(indices_tuple, len(rows), len(reference), rows.device, who)
    if tuples is not None and over_tuples:
        count = len(tuples[0]) + (len(tuples[2]) if len(tuples) == 4 else 0)
        if mined:  # have their own; weights are those of rows
            tuple_weights = as_weights(indices_tuple.weight, count, rows, "triplet", who)
        else:
            kind = "triplet" if len(tuples) == 3 else "pair"
            tuple_weights = as_weights(weights, count, rows, kind, who)
            if labels is not None or reference_labels is not None:
                known = torch.cat(among_labeled(tuples, labels, reference_labels)).to(rows.dtype)
                tuple_weights = known if tuple_weights is None else known * tuple_weights
            weights = None
    weights = as_weights(weights, len(rows), rows, "row", who)
    if tuples is not None and not over_tuples:
        named = row_counts(tuples, len(rows)).to(rows.dtype)
        weights = named if weights is None else named * weights
        tuples = None
    return Batch(
        rows,
        labels,
        reference,
        reference_labels,
        tuples,
        tuple_weights,
        weights,
        without_diagonal,
    )


def row_counts(tuples: Sequence[torch.Tensor], n: int) -> torch.Tensor:
    """Count how often tuples name each of n rows, relative to the most; 1 without tuples.

    The weights of rows that pytorch-metric-learning's classification losses take from a miner.

    Examples
    --------
    >>> row_counts((torch.tensor([0, 0]), torch.tensor([1, 1]), torch.tensor([2, 3])), 5)
    tensor([1.0000, 1.0000, 0.5000, 0.5000, 0.0000])
    """
    counts = torch.bincount(torch.cat(list(tuples)), minlength=n)
    most = counts.max() if n else counts.sum()
    return torch.where(most > 0, counts / most.clamp_min(1), 1.0)


def among_labeled(
    tuples: tuple[torch.Tensor, ...],
    labels: torch.Tensor | None,
    reference_labels: torch.Tensor | None,
) -> list[torch.Tensor]:
    """Find triplets, or positive and negative pairs, without a row labeled -1.

    ``labels`` are those of anchors, ``reference_labels`` those of positives and negatives; None:
    all count as labeled.

    Examples
    --------
    >>> ends = torch.tensor([0, 0]), torch.tensor([1, 1]), torch.tensor([2, 3])
    >>> labels = torch.tensor([0, 0, 1, -1])
    >>> among_labeled(ends, labels, labels)
    [tensor([ True, False])]
    """
    found = []
    for anchor, *ends in tuple_groups(tuples):
        known = torch.ones_like(anchor, dtype=torch.bool)
        if labels is not None:
            known = known & (labels[anchor] != UNLABELED)
        if reference_labels is not None:
            for end in ends:
                known = known & (reference_labels[end] != UNLABELED)
        found.append(known)
    return found


def class_labels(batch: Batch, who: str) -> torch.Tensor:
    """Return the labels of a batch, for a loss that needs them."""
    if batch.labels is None:
        raise ValueError(
            f"{who}: labels must be given; got None. Pass the class of each row, {UNLABELED} where "
            "unlabeled."
        )
    return batch.labels


def as_tensor(value: Any, device: torch.device, name: str, who: str, way_out: str) -> torch.Tensor:
    """Return a dense tensor of real numbers on the device; copy an array or a column."""
    if isinstance(value, torch.Tensor):
        check_tensor(value, who, name)
    try:
        found = _on_device(value, device)
        if found.is_complex():
            raise TypeError("they are complex")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{who}: {name} must be an array of numbers; got {type(value).__name__}: {error}. "
            f"{way_out}"
        ) from error
    return found


def _on_device(value: Any, device: torch.device) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    value = value.to_numpy() if hasattr(value, "to_numpy") else value
    if isinstance(value, np.ndarray):  # torch.tensor refuses reversed ones, and warns if compiled
        return torch.asarray(value.copy(), device=device)
    return torch.tensor(value, device=device)


def promoted(tensor: torch.Tensor) -> torch.Tensor:
    """Convert float16 and bfloat16 to float32; clone inference tensors: autograd saves none."""
    tensor = tensor.float() if tensor.dtype in HALVES else tensor
    is_foreign = can_check_values() and tensor.is_inference()
    return tensor.clone() if is_foreign and not torch.is_inference_mode_enabled() else tensor


def can_check_values() -> bool:
    """Whether values can be checked: under torch.compile that would break the graph."""
    return not torch.compiler.is_compiling()


def warn_of_zero(
    who: str, n_rows: int, found: str, *, needs: str = NEEDS, sampler: str = SAMPLER
) -> None:
    """Warn, at the line that called the loss or its sum, of a batch with nothing to compare."""
    warn(
        f"{who}: the batch must have {needs}; got {n_rows} rows, {found}. The loss is 0. "
        f"ssdml.networks.sampling.{sampler} draws rows by class."
    )


def as_rows(value: Any, name: str, who: str) -> torch.Tensor:
    """Check for finite rows with finite squares; convert float16 and bfloat16 to float32."""
    check_float_matrix(value, name, who)
    rows = promoted(value)
    # One pass: the norm is finite only if all entries are, but it may also overflow.
    if not can_check_values() or math.isfinite(float(torch.linalg.vector_norm(rows.detach()))):
        return rows
    way_out = "Lower the learning rate, or look for a division by zero in the network."
    check_finite(rows, name, who, way_out)
    if not torch.linalg.vector_norm(rows.detach(), dim=1).isfinite().all():
        raise ValueError(
            f"{who}: {name} must have finite squares; got an entry of "
            f"{float(rows.detach().abs().max()):.3g}. {way_out}"
        )
    return rows


def check_finite(tensor: torch.Tensor, name: str, who: str, way_out: str) -> None:
    """Raise on the first entry that is NaN or infinite."""
    if not can_check_values():
        return
    found = tensor.detach()
    # One pass: the sum is finite only if all entries are, but it may also overflow.
    if not math.isfinite(float(found.sum())) and not (finite := found.isfinite()).all():
        wrong = found[~finite][0].item()
        raise ValueError(f"{who}: {name} must be finite; got {wrong}. {way_out}")


def check_flag(value: Any, name: str, who: str) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{who}: {name} must be True or False; got {value!r}.")


def check_rate(value: Any, who: str) -> None:
    """Raise unless ``value`` is a learning rate or None."""
    if value is not None:
        check_number(value, "learning_rate", who, least=0)


def _check_alike(reference: Any, rows: torch.Tensor, who: str) -> None:
    check_float_matrix(reference, "ref_emb", who)
    if reference.shape[1] != rows.shape[1]:
        raise ValueError(
            f"{who}: ref_emb must have as many columns as embeddings = {rows.shape[1]}; "
            f"got {reference.shape[1]}. Embed both by the same network."
        )
    check_home(reference, rows, "ref_emb", who, "Pass ref_emb.to(embeddings).")


def check_home(tensor: torch.Tensor, rows: torch.Tensor, name: str, who: str, way_out: str) -> None:
    """Raise unless the tensor has the device and the dtype of the rows."""
    for what in ("device", "dtype"):
        found, expected = getattr(promoted(tensor), what), getattr(rows, what)
        if found != expected:
            raise ValueError(
                f"{who}: {name} must have the {what} of embeddings, {expected}; got {found}. "
                f"{way_out}"
            )


def _as_labels(
    value: Any, rows: torch.Tensor, name: str, who: str, n_classes: int | None
) -> torch.Tensor | None:
    if value is None:
        return None
    check_integers(value, rows.shape[:1], name, who)
    labels = promoted(value.to(rows.device, torch.int64))
    if can_check_values() and len(labels):
        least, largest = (int(end) for end in labels.aminmax())
        if least < UNLABELED:
            way_out = "Number the classes from 0."
            if least == -100:  # losses of torch ignore such rows
                way_out = f"Pass {name}.masked_fill({name} == -100, {UNLABELED})."
            raise ValueError(
                f"{who}: {name} must be {UNLABELED} (unlabeled) or at least 0; got {least}. "
                f"{way_out}"
            )
        if largest == torch.iinfo(value.dtype).max:
            warn_of_wrapped(value.cpu().numpy(), who, name)
        if n_classes is not None and largest >= n_classes:
            raise ValueError(
                f"{who}: {name} must lie below num_classes = {n_classes}; got {largest}. Number "
                "the classes from 0, or raise num_classes."
            )
    return labels


def as_tuples(
    value: Any, n: int, m: int, device: torch.device, who: str
) -> tuple[torch.Tensor, ...]:
    """Convert tuples to int64 tensors, checked to index n anchors and m references."""
    if isinstance(value, Triplets):
        value = value[:3]
    if getattr(value, "ndim", 0) == 2:  # one row per part
        value = tuple(value)
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_sequence or len(value) not in (3, 4):
        found = len(value) if is_sequence else type(value).__name__
        raise ValueError(
            f"{who}: indices_tuple must be (anchors, positives, negatives) or (anchors, positives, "
            f"anchors, negatives); got {found}."
        )
    way_out = "Pass tensors of rows of the batch."
    parts = [as_tensor(part, device, "indices_tuple", who, way_out) for part in value]
    parts = [part.long() if part.numel() == 0 else part for part in parts]  # [] is float32
    for group in tuple_groups(parts):
        for part in group:
            if part.dtype == torch.bool:
                raise TypeError(
                    f"{who}: indices_tuple must hold integers, rows of the batch; got a mask, "
                    "torch.bool. Pass the rows of each mask, mask.nonzero()[:, 0]."
                )
            shape = group[0].shape[:1] or torch.Size([1])
            check_integers(part, shape, "indices_tuple", who)
    tuples = tuple(promoted(part.long()) for part in parts)
    if can_check_values():
        anchors = (0,) if len(tuples) == 3 else (0, 2)
        for place, part in enumerate(tuples):
            _check_range(part, n if place in anchors else m, who)
    return tuples


def tuple_groups(tuples: Sequence[torch.Tensor]) -> tuple[Sequence[torch.Tensor], ...]:
    """Split tuples into positive and negative pairs; triplets are one group."""
    return (tuples,) if len(tuples) == 3 else (tuples[:2], tuples[2:])


def _check_range(indices: torch.Tensor, n: int, who: str) -> None:
    if not len(indices):
        return
    for end in indices.aminmax():
        if not 0 <= int(end) < n:
            raise ValueError(
                f"{who}: indices_tuple must lie from 0 to {n - 1}, rows of the batch; "
                f"got {int(end)}. Mine in this batch, or pass the rows it was mined in as ref_emb."
            )


def as_weights(
    value: Any, count: int, rows: torch.Tensor, kind: str, who: str
) -> torch.Tensor | None:
    """Check weights; give them the dtype and the device of the rows."""
    if value is None:
        return None
    way_out = f"Pass {count} numbers of at least 0."
    given = as_tensor(value, rows.device, "weights", who, way_out).detach()
    if given.shape != (count,):
        raise ValueError(
            f"{who}: weights must have one entry per {kind}, shape ({count},); "
            f"got shape {tuple(given.shape)}. Select those of the batch."
        )
    weights = promoted(given.to(rows.dtype))
    if can_check_values() and count:
        lightest = torch.finfo(weights.dtype).tiny
        _check_weights(given if given.is_floating_point() else weights, lightest, who)
    return weights


def _check_weights(weights: torch.Tensor, lightest: float, who: str) -> None:
    """Raise unless weights are finite, at least 0, and neither too large nor all too small.

    Those below ``lightest`` lose digits in the dtype of the rows, or become 0.
    """
    least, largest = (float(end) for end in weights.aminmax())  # NaN is both
    for end in (least, largest):
        if not 0 <= end < math.inf:
            raise ValueError(
                f"{who}: weights must be finite and not negative; got {end}. Pass 0 for rows that "
                "shall not count."
            )
    too_light = 0 < largest < lightest
    if too_light or largest > HEAVIEST:
        bound = f"above {lightest:.2g} in one row" if too_light else f"at most {HEAVIEST:g}"
        raise ValueError(
            f"{who}: weights must be {bound}; got {largest:g}. Divide them by their maximum."
        )
