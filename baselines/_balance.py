"""The linear objective that LRML and ISDML share, kept bounded from below.

``tr(M H)`` with ``H = w_S S - w_D D + w_R R`` has a minimum over M of determinant 1 only where H is
positive definite; so the weight of the dissimilar pairs is lowered where it must be.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from ssdml.linalg import Matrix, symmetrize

SAFE = 0.9  # share of the largest weight at which the objective stays bounded


class Balance(NamedTuple):
    """H, and the weight of the dissimilar pairs in it."""

    H: Matrix
    dissimilar_weight: float


def balanced(
    similar: Matrix,
    dissimilar: Matrix,
    regularizer: Matrix,
    *,
    weights: tuple[float, float | None, float],
    ridge: float,
    who: str,
) -> Balance:
    """H of the weighted scatters, positive definite.

    Parameters
    ----------
    similar, dissimilar, regularizer : arrays of shape (d, d)
        Positive semidefinite.
    weights : tuple of three numbers
        Of each. The second is lowered to 0.9 of the largest that leaves H positive semidefinite,
        with a warning; None: it is that.
    ridge : float
        Share of the identity that is mixed into what is attracted.
    who : str
        Beginning of the warning.

    Examples
    --------
    >>> I = np.eye(2)
    >>> balanced(I, I, 0 * I, weights=(1.0, None, 1.0), ridge=0.0, who="LRML").dissimilar_weight
    0.9
    """
    asked = weights[1]
    attracted = weights[0] * similar + weights[2] * regularizer
    attracted = attracted + ridge * _level(attracted) * np.eye(len(attracted))
    largest = largest_weight(attracted, dissimilar)
    used = SAFE * largest if asked is None else min(asked, SAFE * largest)
    if not np.isfinite(used):
        used = 0.0  # there are no dissimilar pairs
    elif asked is not None and used < asked:
        warnings.warn(
            f"{who}: dissimilar_weight must stay below {largest:.3g}, where the objective is no "
            f"longer bounded; got {asked}. Takes {used:.3g}.",
            stacklevel=5,
        )
    return Balance(symmetrize(attracted - used * dissimilar), used)


def largest_weight(attracted: Matrix, dissimilar: Matrix) -> float:
    """Largest w with ``attracted - w * dissimilar`` positive semidefinite; infinity for zeros.

    Examples
    --------
    >>> largest_weight(np.diag([1.0, 4.0]), np.diag([1.0, 2.0]))
    1.0
    """
    top = eigh(dissimilar, attracted, eigvals_only=True)[-1]
    return float(1 / top) if top > 0 else float("inf")


def _level(matrix: Matrix) -> float:
    """Mean eigenvalue, or 1 for zeros: as in :func:`ssdml.linalg.shrink`."""
    return float(np.trace(matrix) / len(matrix)) or 1.0
