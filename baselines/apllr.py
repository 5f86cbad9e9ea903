"""APLLR: affinities are propagated, and the metric stays near that of the likelihood ratio."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from ssdml.baselines.base import NOT_NEGATIVE, Baseline, Problem
from ssdml.baselines.pairs import LabeledPairs
from ssdml.baselines.propagated import PropagatedBaseline
from ssdml.utils.linalg import shrink, symmetrize
from ssdml.utils.typing import Floats

FLOOR = 1e-6  # least eigenvalue of a prior, relative to its largest


class APLLR(PropagatedBaseline):
    r"""Affinity propagation with a log-likelihood ratio prior.

    .. math:: M = (M_0^{-1} + \eta K)^{-1}, \qquad M_0 = \Sigma_S^{-1} - \Sigma_D^{-1}

    with the scatters of similar and of dissimilar labeled pairs, and K that of all pairs weighted
    by their propagated affinities.

    Parameters
    ----------
    n_components : int or None
        Rows of M's factor, which keep the distances under M as well as so many can; None: as
        many as features.
    n_neighbors : int
    decay : float
        Of the propagation, between 0 and 1.
    graph_weight : float or None
        η; None: 1, or 0.9 of where the system is no longer positive definite, if that is less.
    shrinkage : float
        Of both scatters toward the identity, between 0 and 1: from few labels they are singular.
    n_jobs : int or None
        Threads of the neighbor search and of the propagation.
    random_state : int, RandomState or None
        Of the search, where it is not exact.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    info_ : dict
        ``graph_weight`` that was used; ``raised``, in how many directions dissimilar pairs lie as
        near as similar ones, so that the prior stands at its floor.
    classes_, transduction_, label_distributions_, embedding_ : ndarray
        As those of :class:`ssdml.SSDML`.

    Warns
    -----
    UserWarning
        If a ``graph_weight`` that was given had to be lowered; if pairs of a kind are missing, or
        give no prior, which is then the identity.

    Notes
    -----
    The prior, the propagation [2]_ and the closed form's cost are the paper's, by its abstract and
    by what seed 003 says of it; the equation of M is our reconstruction, for the divergence of
    log-determinants is the one for which "near a prior" and "closed form" go together and a
    singular prior does harm. So are η = 1, K over the number of rows, and 0.9 as the guard; None
    lowers η in silence, for it asks for just that, and ``info_`` tells it. The shrinkage of 0.1 is
    ours too: with few labels neither scatter has an inverse. O(d³), and some 50 sparse products
    with d columns; no n x n array.

    References
    ----------
    .. [1] Dutta, Sekhar, "Affinity propagation based closed-form semi-supervised metric learning",
       ICANN 2018.
    .. [2] Liu, Ma, Tao, Liu, Liu, "Semi-supervised sparse metric learning using alternating
       linearization optimization", KDD 2010.
    .. [3] Köstinger et al., "Large scale metric learning from equivalence constraints", CVPR 2012:
       the prior, and the floor of its eigenvalues.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> bool(APLLR().fit(X, labels).score(X, y) > 0.9)
    True
    """

    _without = {  # noqa: RUF012
        "labels": "the prior is the identity",
        "dissimilar": "the prior is that of the similar ones",
        "similar": "the prior is the identity",
    }
    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Baseline._shared_constraints,
        "decay": [Interval(Real, 0, 1, closed="neither")],
        "graph_weight": [*NOT_NEGATIVE, None],
        "shrinkage": [Interval(Real, 0, 1, closed="right")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 10,
        decay: float = 0.99,
        graph_weight: float | None = None,
        shrinkage: float = 0.1,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.decay = decay
        self.graph_weight = graph_weight
        self.shrinkage = shrinkage
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _prior(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        prior = likelihood_ratio(problem.pairs, self.shrinkage)
        if prior is None:
            if problem.pairs.n_similar:
                warnings.warn(
                    "APLLR: similar pairs must lie nearer than dissimilar ones in some direction, "
                    "or there is no prior. Takes the identity.",
                    stacklevel=6,
                )
            prior = Ratio(np.eye(problem.X.shape[1]), 0)
        return prior.M, {"raised": prior.raised}


class Ratio(NamedTuple):
    """The prior, and how many of its eigenvalues were raised to their floor."""

    M: Floats
    raised: int


def likelihood_ratio(pairs: LabeledPairs, shrinkage: float) -> Ratio | None:
    """``S^-1 - D^-1`` of the shrunk scatters, its eigenvalues at least 1e-6 of the largest.

    Without dissimilar pairs ``S^-1``. None where there are no similar pairs, or no eigenvalue is
    positive.

    Examples
    --------
    >>> likelihood_ratio(LabeledPairs(np.eye(2), 4 * np.eye(2), 1, 1), 0.1).M
    array([[0.75, 0.  ],
           [0.  , 0.75]])
    """
    if not pairs.n_similar:
        return None
    ratio = np.linalg.inv(shrink(pairs.similar, shrinkage))
    if pairs.n_dissimilar:
        ratio = ratio - np.linalg.inv(shrink(pairs.dissimilar, shrinkage))
    values, vectors = np.linalg.eigh(symmetrize(ratio))
    if not values[-1] > 0:
        return None
    floor = FLOOR * values[-1]
    M = symmetrize((vectors * np.maximum(values, floor)) @ vectors.T)
    return Ratio(M, int((values < floor).sum()))
