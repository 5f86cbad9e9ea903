"""The linear objective that LRML and ISDML share, kept bounded from below.

``tr(M H)`` with ``H = w_S S - w_D D + w_R R`` has a minimum over M of determinant 1 only where H is
positive definite; so the weight of the dissimilar pairs is lowered where it must be.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from ssdml.linalg import symmetrize
from ssdml.utils.typing import Floats

SAFE = 0.9  # share of the largest weight at which the objective stays bounded


class Balance(NamedTuple):
    """H, and the weight of the dissimilar pairs in it."""

    H: Floats
    dissimilar_weight: float


def balanced(
    similar: Floats,
    dissimilar: Floats,
    regularizer: Floats,
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
        with a warning; None: it is that. 0 where nothing is dissimilar.
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
    used = lowered(asked, largest, "dissimilar_weight", who) if np.isfinite(largest) else 0.0
    return Balance(symmetrize(attracted - used * dissimilar), used)


def lowered(asked: float | None, largest: float, name: str, who: str) -> float:
    """The weight asked for, or 0.9 of the largest if that is less, with a warning.

    None asks for as much as there may be, in silence.

    Examples
    --------
    >>> lowered(0.5, 1.0, "graph_weight", "APIT"), lowered(None, 1.0, "graph_weight", "APIT")
    (0.5, 0.9)
    """
    most = SAFE * largest
    if asked is None or asked <= most:
        return most if asked is None else asked
    warnings.warn(
        f"{who}: {name} must be at most {most:.3g}, 0.9 of where the system is no longer positive "
        f"definite; got {asked}. Takes {most:.3g}.",
        stacklevel=7,
    )
    return most


def largest_weight(attracted: Floats, dissimilar: Floats) -> float:
    """Largest w with ``attracted - w * dissimilar`` positive semidefinite; infinity if all are.

    Examples
    --------
    >>> largest_weight(np.diag([1.0, 4.0]), np.diag([1.0, 2.0]))
    1.0
    """
    try:
        top = eigh(dissimilar, attracted, eigvals_only=True)[-1]
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "X must vary in every direction by more than the rounding of its largest numbers, or "
            f"its scatters are singular; got {error} Look for a row far from all others, or scale "
            "the features."
        ) from error
    return float(1 / top) if top > 0 else float("inf")


def _level(matrix: Floats) -> float:
    """Mean eigenvalue, or 1 for zeros: as in :func:`ssdml.linalg.shrink`."""
    return float(np.trace(matrix) / len(matrix)) or 1.0
