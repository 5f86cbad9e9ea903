"""Density adaptivity: class variances matched to learned targets, Li et al. (2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ssdml.losses.base import Loss
from ssdml.losses.batch import (
    Batch,
    as_rows,
    as_tensor,
    as_weights,
    check_flag,
    check_rate,
    class_labels,
    promoted,
)
from ssdml.losses.pairs import weighted_mean
from ssdml.utils.torch_tools import check_integers, take_rows, unit_rows
from ssdml.utils.validation import UNLABELED, check_count, check_number

LEAST_DENSITY = 1e-6  # for classes of equal rows


def class_variances(
    rows: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None, n_classes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the mean squared distance of the rows of each class to their mean, Eq. (5).

    Returns variances (n_classes,), 0 for a class without rows, and the number of rows per class
    with a positive weight.

    Examples
    --------
    >>> rows, labels = torch.tensor([[1.0], [-1.0], [5.0]]), torch.tensor([0, 0, 1])
    >>> class_variances(rows, labels, None, 2)
    (tensor([1., 0.]), tensor([2., 1.]))
    """
    places = torch.where(labels == UNLABELED, n_classes, labels)  # an extra class for the rest

    def per_class(values: torch.Tensor) -> torch.Tensor:
        sums = values.new_zeros(n_classes + 1, *values.shape[1:])
        return sums.index_add(0, places, values)

    if weights is None:
        weights = rows.new_ones(len(rows))
    totals = per_class(weights)
    shares = torch.where(totals > 0, totals, 1).reciprocal()
    means = per_class(weights[:, None] * rows) * shares[:, None]
    # The mean of |x|² less |μ|² would lose the variances of classes in a small part of the space.
    squares = (rows - take_rows(means, places)).square().sum(dim=1)
    counts = per_class((weights > 0).to(rows.dtype))
    return (per_class(weights * squares) * shares)[:n_classes], counts[:n_classes]


def correlation_penalty(
    targets: torch.Tensor, densities: torch.Tensor, present: torch.Tensor
) -> torch.Tensor:
    r"""Compute ``Σ_ij (b_j α_i - b_i α_j)² / C²`` over the classes present, Eq. (8): 0 iff α ∝ b.

    Notes
    -----
    O(C), by Lagrange's identity: :math:`\sum_{ij} (b_j\alpha_i - b_i\alpha_j)^2
    = 2 [\sum b^2 \sum \alpha^2 - (\sum b \alpha)^2]`.

    Examples
    --------
    >>> everywhere = torch.ones(2, dtype=torch.bool)
    >>> correlation_penalty(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]), everywhere)
    tensor(0.5000)
    """
    a, b = targets * present, densities * present
    # The bracket is |b|² |α - b (b·α)/|b|²|², which avoids cancellation.
    along = (a * b).sum() / b.square().sum().clamp_min(torch.finfo(b.dtype).tiny)
    across = (a - along * b).square().sum()
    return 2 * b.square().sum() * across / present.sum().clamp_min(1).square()


def class_densities(
    features: torch.Tensor, labels: torch.Tensor, num_classes: int, *, weights: Any = None
) -> torch.Tensor:
    """Compute class variances of unit-length features: D⁰ of :class:`DensityAdaptivity`.

    Parameters
    ----------
    features : tensor of shape (n, d)
    labels : tensor of shape (n,), integers
        -1 where unlabeled.
    num_classes : int
    weights : array of shape (n,), optional
        Finite and not negative, one per row.

    Returns
    -------
    densities : tensor of shape (num_classes,)
        From 0 to 1; a class with fewer than two rows has the mean of the others.

    Raises
    ------
    TypeError, ValueError
        If labels are out of range, a shape or dtype is wrong, features or weights are not finite,
        weights are negative, or no class has two rows.

    Examples
    --------
    >>> features = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0], [0.0, 1.0], [1.0, 1.0]])
    >>> class_densities(features, torch.tensor([0, 0, 1, 1, -1]), 2)
    tensor([1., 0.])
    """
    who = "class_densities"
    check_count(num_classes, "num_classes", who)
    rows = as_rows(features, "features", who).detach()
    check_integers(labels, rows.shape[:1], "labels", who)
    labels = labels.to(rows.device, torch.int64)
    outside = labels[(labels < UNLABELED) | (labels >= num_classes)]
    if len(outside):
        raise ValueError(
            f"{who}: labels must lie from -1 to num_classes - 1 = {num_classes - 1}; "
            f"got {int(outside[0])}."
        )
    weights = as_weights(weights, len(rows), rows, "row", who)
    variances, counts = class_variances(unit_rows(rows), labels, weights, num_classes)
    spread = counts >= 2
    if not spread.any():
        raise ValueError(f"{who}: labels must give some class two rows; got at most 1 per class.")
    return torch.where(spread, variances, variances[spread].mean())


class DensityAdaptivity(Loss):
    r"""Deviation of class variances from learned or fixed targets.

    .. math:: \frac1C \sum_c (D_c - \alpha_c)^2 - \frac1C \sum_c \alpha_c
        + \frac{1}{C^2} \sum_{c, c'} (b_{c'} \alpha_c - b_c \alpha_{c'})^2, \qquad b = (D^0)^\eta

    Parameters
    ----------
    num_classes : int
    densities : tensor of shape (num_classes,), optional
        D⁰, the variances before training, by :func:`class_densities`. None: no last term.
    exponent : float
        η.
    initial : float
        Initial value of the targets α, or their mean if they are fixed.
    learned : bool
        Whether the targets are learned. If not, they are in proportion to b, and Eq. (7) holds
        throughout: ``initial * b / b.mean()``, or ``initial`` without ``densities``.
    normalize : bool
        Whether to scale rows to length 1, so that D is between 0 and 1.
    learning_rate : float or None
        Of the targets; None: that of the optimizer.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`, with labels from 0 to ``num_classes - 1`` or
    -1. Sums and C are over the classes with two rows in the batch, since a single row has D = 0;
    the loss is 0 if there are none. O(n d + C d). The parameter ``targets`` has no weight decay.

    The loss ignores ``indices_tuple``: variances are those of all rows of a class in the batch.

    Differs from [1]_ in three ways: (a) its sums are over all classes, of which a batch has ten;
    (b) D⁰ is computed from unit-length features, as its scale would weight the last term; (c) D⁰ is
    at least 1e-6. The paper uses η = 0.5 and adds 10 times this term, to a mean over pairs as we
    read it: its Eq. (2) is a sum, to which that would add little. Its batches have 10 rows of 10
    classes (:func:`ssdml.networks.sampling.class_batches`), or all rows of as many classes as fit
    if classes are small (``whole_class_batches``). Without the last term (DML-DA⁻ in the paper) the
    optimal targets are D + 1/2, and the loss only spreads the classes. Fixed targets are ours, for
    comparison.

    References
    ----------
    .. [1] Li et al., "Deep metric learning with density adaptivity", IEEE Transactions on
       Multimedia 22(5), 2020, Eq. (5), (6), (8).

    Examples
    --------
    >>> loss = DensityAdaptivity(1)
    >>> loss(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 0])).item()  # (1 - α)² - α
    -0.25
    """

    takes_reference = False
    needs = "a class with two rows"
    group_options = {"weight_decay": 0.0}  # noqa: RUF012
    densities: torch.Tensor | None
    targets: torch.Tensor

    def __init__(
        self,
        num_classes: int,
        densities: Any = None,
        exponent: float = 0.5,
        initial: float = 0.5,
        normalize: bool = True,
        learning_rate: float | None = None,
        learned: bool = True,
    ) -> None:
        super().__init__()
        who = "DensityAdaptivity"
        check_count(num_classes, "num_classes", who)
        check_number(exponent, "exponent", who)
        check_number(initial, "initial", who)
        check_rate(learning_rate, who)
        check_flag(normalize, "normalize", who)
        check_flag(learned, "learned", who)
        self.num_classes, self.exponent, self.initial = num_classes, exponent, initial
        self.normalize, self.learning_rate = normalize, learning_rate
        self.learned = learned
        targets = torch.full((num_classes,), float(initial))
        if densities is not None:
            way_out, cpu = "class_densities gives them.", torch.device("cpu")
            densities = as_tensor(densities, cpu, "densities", who, way_out).detach()
            _check_densities(densities, num_classes)
            densities = torch.empty_like(targets).copy_(densities)
        self.register_buffer("densities", densities)
        if learned:
            self.targets = nn.Parameter(targets)
            return
        if densities is not None:
            proportions = self._proportions()
            targets = targets * proportions / proportions.mean()
        self.register_buffer("targets", targets)

    def usable(self, batch: Batch) -> bool:
        """Whether a class has two rows in the batch."""
        return bool((self._variances(batch)[1] >= 2).any())

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the three terms over the classes of the batch."""
        variances, counts = self._variances(batch)
        present, targets = counts >= 2, promoted(self.targets)
        terms = (variances - targets).square() - targets
        loss = weighted_mean(terms, present.to(terms.dtype))
        if self.densities is None or not self.learned:  # fixed targets have no last term
            return loss
        return loss + correlation_penalty(targets, self._proportions().to(targets), present)

    def _variances(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the variance and the number of rows of each class."""
        labels = class_labels(batch, type(self).__name__)
        rows = unit_rows(batch.embeddings) if self.normalize else batch.embeddings
        return class_variances(rows, labels, batch.weights, len(self.targets))

    def _proportions(self) -> torch.Tensor:
        """Compute b, one entry per class."""
        assert self.densities is not None
        return promoted(self.densities).clamp_min(LEAST_DENSITY) ** self.exponent


def _check_densities(densities: torch.Tensor, num_classes: int) -> None:
    if densities.shape != (num_classes,):
        raise ValueError(
            f"DensityAdaptivity: densities must have shape ({num_classes},), one per class; got "
            f"shape {tuple(densities.shape)}."
        )
    wrong = densities[~(densities.isfinite() & (densities >= 0))]
    if len(wrong):
        raise ValueError(
            "DensityAdaptivity: densities must be finite and not negative; got "
            f"{wrong[0].item()}. class_densities gives them."
        )
