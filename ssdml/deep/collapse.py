"""Signs that a network has collapsed or learned nothing, and what to change."""

from __future__ import annotations

import numpy as np

from ssdml.utils.typing import Array, Ints

CONSTANT = 1e-4  # spread of an embedding that is almost constant
AT_CHANCE = 0.99  # share of the chance level that a loss must fall below
MIN_EPOCHS = 5  # before a loss is judged


def spread(embedding: Array) -> float:
    """Mean squared distance of unit rows to their mean: 0 if constant, at most 1.

    Examples
    --------
    >>> spread(np.array([[1.0, 0.0], [-1.0, 0.0]])), spread(np.array([[1.0, 0.0]] * 3))
    (1.0, 0.0)
    """
    rows = embedding.astype(np.float64)
    return float(np.square(rows - rows.mean(axis=0)).sum(axis=1).mean())


def constant_embedding(found: float, rate: float) -> str | None:
    """Describe a spread that is almost 0; None if it is not.

    Examples
    --------
    >>> constant_embedding(0.3, 1e-3) is None
    True
    """
    if found >= CONSTANT:
        return None
    return (
        f"the embedding is almost constant: its spread is {found:.1e} of 1. Lower "
        f"learning_rate={rate}, raise batch_size, or set pretrain_epochs."
    )


def loss_at_chance(losses: list[float], chance: float | None, rate: float) -> str | None:
    """Describe a loss per epoch that stays where a constant embedding has it; None otherwise.

    Examples
    --------
    >>> loss_at_chance([0.71, 0.7, 0.695, 0.694, 0.6931], 0.6931, 1e-4)[:38]
    'the loss is hardly below chance: 0.693'
    >>> loss_at_chance([0.71, 0.5, 0.4, 0.4, 0.3], 0.6931, 1e-4) is None
    True
    """
    if chance is None or len(losses) < MIN_EPOCHS or losses[-1] < AT_CHANCE * chance:
        return None
    return (
        f"the loss is hardly below chance: {losses[-1]:.3f} in epoch {len(losses)}, where a "
        f"constant embedding has {chance:.3f}. The network has learned little yet, even if its "
        f"classes are easy to tell. Raise epochs or learning_rate={rate}, and check that labels "
        "and samples have the same order."
    )


def single_prediction(codes: Ints, n_classes: int) -> str | None:
    """Describe predictions of a single class among several; None otherwise.

    Examples
    --------
    >>> single_prediction(np.array([0, 1, 0]), 2) is None
    True
    """
    if n_classes < 2 or len(codes) < 2 or len(np.unique(codes)) > 1:
        return None
    return (
        f"all {len(codes)} checked samples are predicted as one of {n_classes} classes. Raise "
        "epochs, label more samples of the other classes, or fit SSDML on features of a pretrained "
        "network."
    )
