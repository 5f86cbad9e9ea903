"""APIT: affinities are propagated, and the metric stays near an information-theoretic one."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines.base import NOT_NEGATIVE, Baseline, Problem
from ssdml.baselines.pairs import LabeledPairs, draw_pairs
from ssdml.baselines.propagated import PropagatedBaseline
from ssdml.utils.labels import class_codes
from ssdml.utils.linalg import inverse_sqrt, shrink, symmetrize
from ssdml.utils.typing import Floats

PAIRS_OF_A_CLASS, MOST_PAIRS = 20, 5000  # 20 C² pairs, as is usual, and no more than 5,000


class APIT(PropagatedBaseline):
    r"""Affinity propagation with an information-theoretic prior.

    .. math:: M = (M_0^{-1} + \eta K)^{-1}

    where M_0 is learned from labeled pairs by ITML, and K is the scatter of all pairs weighted by
    their propagated affinities.

    Parameters
    ----------
    n_components : int or None
        Rows of M's factor, which keep the distances under M as well as so many can; None: as
        many as features.
    n_neighbors : int
    prior : {"itml", "gmml"}
        "gmml" is the geometric mean of the inverse scatter of similar pairs and the scatter of
        dissimilar ones.
    decay : float
        Of the propagation, between 0 and 1.
    graph_weight : float or None
        η; None: 1, or 0.9 of where the system is no longer positive definite, if that is less.
    slack : float
        ITML's γ: how much its bounds count against the identity.
    shrinkage : float
        Of the scatters of "gmml" toward the identity, between 0 and 1.
    max_iter : int
        Passes of ITML over its pairs.
    tol : float
        Relative change of its multipliers at which it ends.
    n_jobs : int or None
        Threads of the neighbor search and of the propagation.
    random_state : int, RandomState or None
        Of the pairs, and of the search where it is not exact.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    info_ : dict
        ``graph_weight`` that was used.
    n_iter_ : int
        Passes of ITML.
    classes_, transduction_, label_distributions_, embedding_ : ndarray
        As those of :class:`ssdml.SSDML`.

    Raises
    ------
    ValueError
        As :class:`ssdml.SSDML`; if ITML overflows, which a labeled row far from all others does.

    Warns
    -----
    UserWarning
        If a ``graph_weight`` that was given had to be lowered, or pairs of a kind are missing.

    Notes
    -----
    As for :class:`APLLR`, the equation of M is our reconstruction, with η = 1, K over the number of
    rows and the guard; "gmml" and its shrinkage are not the paper's at all. ITML's step is γ over
    γ + 1 of the way where its Algorithm 1 has a half, which holds for γ = 1 alone. Its bounds are
    the 5th and 95th percentile of the pairs' squared distances; it sees at most 20 C² pairs of C
    classes, and 5,000, half of them similar.

    References
    ----------
    .. [1] Dutta, Sekhar, "Affinity propagation based closed-form semi-supervised metric learning",
       ICANN 2018.
    .. [2] Davis, Kulis, Jain, Sra, Dhillon, "Information-theoretic metric learning", ICML 2007,
       Algorithm 1.
    .. [3] Zadeh, Hosseini, Sra, "Geometric mean metric learning", ICML 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> bool(APIT(random_state=0).fit(X, labels).score(X, y) > 0.9)
    True
    """

    _without = {  # noqa: RUF012
        "labels": "the prior is the identity",
        "dissimilar": "the prior is learned from the similar ones",
        "similar": "the prior is learned from the dissimilar ones",
    }
    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Baseline._shared_constraints,
        "prior": [StrOptions({"itml", "gmml"})],
        "decay": [Interval(Real, 0, 1, closed="neither")],
        "graph_weight": [*NOT_NEGATIVE, None],
        "slack": [Interval(Real, 0, None, closed="neither")],
        "shrinkage": [Interval(Real, 0, 1, closed="right")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 10,
        prior: str = "itml",
        decay: float = 0.99,
        graph_weight: float | None = None,
        slack: float = 1.0,
        shrinkage: float = 0.1,
        max_iter: int = 1000,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.prior = prior
        self.decay = decay
        self.graph_weight = graph_weight
        self.slack = slack
        self.shrinkage = shrinkage
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _prior(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        M, n_iter, converged = self._pairs_prior(problem)
        return M, {"n_iter": n_iter, "converged": converged}

    def _pairs_prior(self, problem: Problem) -> Prior:
        pairs = problem.pairs
        if not pairs.n_similar + pairs.n_dissimilar:
            return Prior(np.eye(problem.X.shape[1]), 0, True)
        if self.prior == "gmml":
            return Prior(geometric_mean(pairs, self.shrinkage), 0, True)
        _, n_classes = class_codes(problem.labels)
        count = max(1, min(PAIRS_OF_A_CLASS * n_classes**2, MOST_PAIRS) // 2)
        similar, dissimilar = draw_pairs(problem.labels, count, problem.rng)
        differences = [problem.X[a] - problem.X[b] for a, b in (similar.T, dissimilar.T)]
        prior = itml(*differences, slack=self.slack, max_iter=self.max_iter, tol=self.tol)
        if not _is_definite(prior.M):
            lengths = np.linalg.norm(np.vstack(differences), axis=1) * problem.scale
            least, largest = lengths[lengths > 0].min(), lengths.max()
            raise ValueError(
                "APIT: X must hold labeled rows whose distances ITML's bounds can hold together; "
                f"they lie from {least:.3g} to {largest:.3g} apart, which leaves a singular prior. "
                "Look for a row far from all others, scale the features, or take prior='gmml'."
            )
        return prior


def _is_definite(M: Floats) -> bool:
    """Whether it is finite, and positive definite by more than rounding."""
    if not np.isfinite(M).all():
        return False
    values = np.linalg.eigvalsh(M)
    return bool(values[0] > np.finfo(np.float64).eps * values[-1])


class Prior(NamedTuple):
    """The metric, and after how many passes it stands."""

    M: Floats
    n_iter: int
    converged: bool


def itml(
    similar: Floats, dissimilar: Floats, *, slack: float = 1.0, max_iter: int = 1000, tol: float
) -> Prior:
    """The metric nearest to the identity under which similar pairs are near, dissimilar ones far.

    Parameters
    ----------
    similar, dissimilar : arrays of shape (m, d)
        Differences of the pairs; one of the two may be empty. Those of equal rows do not count.
    slack : float
        γ of the bounds' own divergence.
    max_iter : int
    tol : float
        Relative change of the multipliers.

    Notes
    -----
    Squared distances of similar pairs are bounded by the 5th percentile of all pairs', those of
    dissimilar ones from below by the 95th. Bregman projections onto one bound after another,
    O(m d²) a pass. M is not finite where bounds lie too far apart for float64.

    Examples
    --------
    >>> itml(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), tol=1e-6).M.round(3)
    array([[1., 0.],
           [0., 1.]])
    """
    differences = np.vstack([similar, dissimilar])
    signs = np.repeat([1.0, -1.0], [len(similar), len(dissimilar)])
    squares = (differences**2).sum(axis=1)
    kept = squares > 0
    M = np.eye(differences.shape[1])
    if not kept.any():
        return Prior(M, 0, True)
    near, far = np.percentile(squares[kept], [5, 95])
    bounds = np.where(signs > 0, near, far)[kept]
    multipliers = np.zeros(len(bounds))
    rows, signs = np.ascontiguousarray(differences[kept]), signs[kept]
    n_iter, moved, size = 0, np.inf, 1.0
    while n_iter < max_iter and moved > tol * size and np.isfinite(M).all():
        before = multipliers.copy()
        _project(M, rows, signs, bounds, multipliers, slack)
        with np.errstate(over="ignore", invalid="ignore"):
            moved = float(np.linalg.norm(multipliers - before))
            size = float(np.linalg.norm(before) + np.linalg.norm(multipliers))
        n_iter += 1
    return Prior(symmetrize(M), n_iter, moved <= tol * size)


@njit(cache=True, error_model="numpy")
def _project(
    M: Any, rows: Any, signs: Any, bounds: Any, multipliers: Any, slack: float
) -> None:  # pragma: no cover
    """One pass of Bregman projections, in place."""
    share = slack / (slack + 1)  # 1/2 in the paper, whose step holds for slack 1 alone
    for i in range(len(rows)):
        image = M @ rows[i]
        square = max(rows[i] @ image, 1e-300)
        step = min(multipliers[i], signs[i] * share * (1 / square - 1 / bounds[i]))
        multipliers[i] -= step
        change = signs[i] * step / (1 - signs[i] * step * square)
        bounds[i] = slack * bounds[i] / (slack + signs[i] * step * bounds[i])
        M += change * np.outer(image, image)


def geometric_mean(pairs: LabeledPairs, shrinkage: float) -> Floats:
    """The positive definite M with ``M S M = D`` for the shrunk scatters.

    Examples
    --------
    >>> geometric_mean(LabeledPairs(np.eye(2), 4 * np.eye(2), 1, 1), 0.1)
    array([[2., 0.],
           [0., 2.]])
    """
    S, D = shrink(pairs.similar, shrinkage), shrink(pairs.dissimilar, shrinkage)
    outer = inverse_sqrt(S)
    root = np.linalg.inv(outer)
    values, vectors = np.linalg.eigh(symmetrize(root @ D @ root))
    middle = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return symmetrize(outer @ middle @ outer)
