"""DML-DA: how far the rows of a class spread, drawn toward densities that are learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch, as_rows, as_tensor, as_weights, promoted
from ssdml.losses.pairs import weighted_mean
from ssdml.utils.torch_tools import check_integers, unit_rows
from ssdml.utils.validation import UNLABELED, check_count, check_number, check_rate

LEAST_DENSITY = 1e-6  # of a class whose rows are all the same


def class_variances(
    rows: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None, n_classes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean squared distance of the rows of each class to their mean, Eq. (5).

    Parameters
    ----------
    rows : tensor of shape (n, d)
    labels : tensor of shape (n,), int64
        From 0; -1 where unlabeled.
    weights : tensor of shape (n,), or None
    n_classes : int

    Returns
    -------
    variances : tensor of shape (n_classes,)
        0 for a class without rows. Exact to the rounding of the rows' squared lengths.
    counts : tensor of shape (n_classes,)
        Rows of each class with a weight.

    Examples
    --------
    >>> rows, labels = torch.tensor([[1.0], [-1.0], [5.0]]), torch.tensor([0, 0, 1])
    >>> class_variances(rows, labels, None, 2)
    (tensor([1., 0.]), tensor([2., 1.]))
    """
    places = torch.where(labels == UNLABELED, n_classes, labels)  # one class more, for the rest

    def per_class(values: torch.Tensor) -> torch.Tensor:
        sums = values.new_zeros(n_classes + 1, *values.shape[1:])
        return sums.index_add(0, places, values)[:n_classes]

    ones, squares = rows.new_ones(len(rows)), rows.square().sum(dim=1)
    counts = totals = per_class(ones)
    if weights is not None:
        rows, squares = weights[:, None] * rows, weights * squares
        counts, totals = per_class((weights > 0).to(rows.dtype)), per_class(weights)
    shares = torch.where(totals > 0, totals, 1).reciprocal()
    means = per_class(rows) * shares[:, None]
    # mean |x - μ|² = mean |x|² - |μ|²
    return (per_class(squares) * shares - means.square().sum(dim=1)).clamp_min(0), counts


def correlation_penalty(
    targets: torch.Tensor, densities: torch.Tensor, present: torch.Tensor
) -> torch.Tensor:
    r"""``Σ_ij (b_j α_i - b_i α_j)² / C²`` over the classes present, Eq. (8): 0 iff α ∝ b.

    Parameters
    ----------
    targets, densities : tensors of shape (n_classes,)
        α and b.
    present : tensor of shape (n_classes,), bool

    Returns
    -------
    penalty : tensor, a scalar

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
    # The part of α across b: the bracket is |b|² |α - b (b·α)/|b|²|², without its cancellation.
    along = (a * b).sum() / b.square().sum().clamp_min(torch.finfo(b.dtype).tiny)
    across = (a - along * b).square().sum()
    return 2 * b.square().sum() * across / present.sum().clamp_min(1).square()


def class_densities(
    features: torch.Tensor, labels: torch.Tensor, num_classes: int, *, weights: Any = None
) -> torch.Tensor:
    """Variance of each class in the features of a backbone, scaled to length 1.

    They are the D⁰ that :class:`DensityAdaptivity` keeps its targets in proportion to.

    Parameters
    ----------
    features : tensor of shape (n, d)
    labels : tensor of shape (n,), integers
        -1 where unlabeled.
    num_classes : int
    weights : array of shape (n,), optional
        Finite and not negative, one a row.

    Returns
    -------
    densities : tensor of shape (num_classes,)
        From 0 to 1; a class with less than two rows has the mean of the others.

    Raises
    ------
    TypeError, ValueError
        For labels out of range, tensors of another shape or dtype, features or weights that are not
        finite, negative weights, and no class with two rows.

    Examples
    --------
    >>> features = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0], [0.0, 1.0], [1.0, 1.0]])
    >>> class_densities(features, torch.tensor([0, 0, 1, 1, -1]), 2)
    tensor([1., 0.])
    """
    who = "class_densities"
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
        raise ValueError(f"{who}: labels must give two rows to a class; got none with more than 1.")
    return torch.where(spread, variances, variances[spread].mean())


class DensityAdaptivity(Loss):
    r"""Variances of the classes, drawn to targets that are learned with them.

    .. math:: \frac1C \sum_c (D_c - \alpha_c)^2 - \frac1C \sum_c \alpha_c
        + \frac{1}{C^2} \sum_{c, c'} (b_{c'} \alpha_c - b_c \alpha_{c'})^2, \qquad b = (D^0)^\eta

    Parameters
    ----------
    num_classes : int
    densities : tensor of shape (num_classes,), optional
        D⁰, the variances before training: :func:`class_densities`. None: the last term is left
        out.
    exponent : float
        η.
    initial : float
        Of each target α.
    normalize : bool
        Whether rows are scaled to length 1 first, so that D lies from 0 to 1.
    learning_rate : float or None
        Of the targets; None: that of the optimizer.

    Notes
    -----
    The call is that of :class:`Loss <ssdml.losses.base.Loss>`, labels from 0 to ``num_classes - 1``
    or -1. Sums and C are over the classes with two rows in the batch; others are left out, for one
    row has D = 0 whatever it is. A batch without such a class has the loss 0. O(n d + C d): the
    double sum is taken in O(C). The targets are the parameter ``targets``, and their group
    says no weight decay.

    Differs from [1]_ in three ways: (a) its sums run over all classes, of which a batch has ten;
    (b) D⁰ is taken of features of unit length, else its scale would weigh the last term; (c) a D⁰
    below 1e-6 counts as that. The paper trains with η = 0.5 and weighs the whole by 10, beside
    a loss averaged over pairs. Without the last term the best targets are D + 1/2, and what is left
    only asks the classes to spread.

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
    group_options = {"weight_decay": 0.0}  # noqa: RUF012
    densities: torch.Tensor | None

    def __init__(
        self,
        num_classes: int,
        densities: Any = None,
        exponent: float = 0.5,
        initial: float = 0.5,
        normalize: bool = True,
        learning_rate: float | None = None,
    ) -> None:
        super().__init__()
        who = "DensityAdaptivity"
        check_count(num_classes, "num_classes", who)
        check_number(exponent, "exponent", who)
        check_number(initial, "initial", who)
        check_rate(learning_rate, who)
        self.num_classes, self.exponent, self.initial = num_classes, exponent, initial
        self.normalize, self.learning_rate = normalize, learning_rate
        self.targets = nn.Parameter(torch.full((num_classes,), float(initial)))
        if densities is not None:
            densities = as_tensor(densities, self.targets.device).detach().to(self.targets.dtype)
            _check_densities(densities, num_classes)
        self.register_buffer("densities", None if densities is None else densities.clone())

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """The three terms over the classes of the batch."""
        labels = class_labels(batch, type(self).__name__)
        rows = unit_rows(batch.embeddings) if self.normalize else batch.embeddings
        variances, counts = class_variances(rows, labels, batch.weights, len(self.targets))
        present, targets = counts >= 2, promoted(self.targets)
        terms = (variances - targets).square() - targets
        loss = weighted_mean(terms, present.to(terms.dtype))
        if self.densities is None:
            return loss
        proportions = promoted(self.densities).clamp_min(LEAST_DENSITY) ** self.exponent
        return loss + correlation_penalty(targets, proportions.to(targets), present)


def class_labels(batch: Batch, who: str) -> torch.Tensor:
    """Labels of a loss that cannot be without."""
    if batch.labels is None:
        raise ValueError(
            f"{who}: labels must be given; got None. Pass the class of each row, {UNLABELED} where "
            "it has none."
        )
    return batch.labels


def _check_densities(densities: torch.Tensor, num_classes: int) -> None:
    if densities.shape != (num_classes,):
        raise ValueError(
            f"DensityAdaptivity: densities must have shape ({num_classes},), one a class; got "
            f"shape {tuple(densities.shape)}."
        )
    wrong = densities[~(densities.isfinite() & (densities >= 0))]
    if len(wrong):
        raise ValueError(
            "DensityAdaptivity: densities must be finite and not negative; got "
            f"{wrong[0].item()}. class_densities gives them."
        )
