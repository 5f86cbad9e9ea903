"""APIT: propagated affinities and an information-theoretic prior."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines.base import Problem
from ssdml.baselines.pairs import LabeledPairs, draw_pairs
from ssdml.baselines.propagated import PropagatedBaseline
from ssdml.metric.fitted.base import COUNT, POSITIVE
from ssdml.utils.labels import class_codes
from ssdml.utils.linalg import inverse_sqrt, shrink, symmetrize
from ssdml.utils.typing import Floats

PAIRS_PER_CLASS, MAX_PAIRS = 20, 5000  # min(20 C², 5,000) pairs; 20 C² is ITML's usual number


@dataclass(eq=False, repr=False, kw_only=True)
class APIT(PropagatedBaseline):
    r"""Affinity propagation with an information-theoretic prior.

    .. math:: M = (M_0^{-1} + \eta K)^{-1}

    with M_0 learned from labeled pairs by ITML, and the scatter K of all pairs weighted by their
    propagated affinities.

    Parameters
    ----------
    n_components, n_neighbors, n_jobs, random_state
        See :class:`~ssdml.baselines.base.Baseline`.
    decay, graph_weight
        See :class:`~ssdml.baselines.propagated.PropagatedBaseline`.
    prior : {"itml", "gmml"}
        "gmml": the geometric mean of the inverse scatter of similar pairs and the scatter of
        dissimilar pairs.
    slack : float
        ITML's γ: weight of its bounds against the identity.
    shrinkage : float
        Shrinkage of the scatters of "gmml" toward the identity, between 0 and 1.
    max_iter : int
        Maximum number of ITML's passes over its pairs.
    tol : float
        Relative change of ITML's multipliers at which it stops.

    Attributes
    ----------
    components_, n_iter_, classes_, transduction_, label_distributions_, embedding_
        See :class:`~ssdml.baselines.base.Baseline`.
    info_ : dict
        ``graph_weight`` as used.

    Raises
    ------
    ValueError
        If ITML overflows, which a labeled row far from all others causes.

    Notes
    -----
    The equation of M is our reconstruction, as for :class:`APLLR`; "gmml" and its shrinkage are
    ours. ITML's step is γ / (γ + 1) of the way; its Algorithm 1 has 1/2, which holds for γ = 1
    only. Its bounds are the 5th and the 95th percentile of the pairs' squared distances. It sees at
    most 20 C² pairs of C classes and at most 5,000, half of them similar.

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

    prior: str = "itml"
    slack: float = 1.0
    shrinkage: float = 0.1
    max_iter: int = 1000
    tol: float = 1e-3

    _without: ClassVar[dict[str, str]] = {
        "labels": "the prior is the identity",
        "dissimilar": "the prior comes from the similar pairs alone",
        "similar": "the prior comes from the dissimilar pairs alone",
    }
    _parameter_constraints = PropagatedBaseline._parameter_constraints | {
        "prior": [StrOptions({"itml", "gmml"})],
        "slack": POSITIVE,
        "shrinkage": [Interval(Real, 0, 1, closed="right")],
        "max_iter": COUNT,
        "tol": POSITIVE,
    }

    def _prior(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        pairs = problem.pairs
        if not pairs.n_similar + pairs.n_dissimilar:
            return np.eye(problem.X.shape[1]), {"n_iter": 0, "converged": True}
        if self.prior == "gmml":
            return geometric_mean(pairs, self.shrinkage), {"n_iter": 0, "converged": True}
        _, n_classes = class_codes(problem.labels)
        count = max(1, min(PAIRS_PER_CLASS * n_classes**2, MAX_PAIRS) // 2)
        similar, dissimilar = draw_pairs(problem.labels, count, problem.rng)
        differences = [problem.X[a] - problem.X[b] for a, b in (similar.T, dissimilar.T)]
        prior = itml(*differences, slack=self.slack, max_iter=self.max_iter, tol=self.tol)
        if not _is_definite(prior.M):
            lengths = np.linalg.norm(np.vstack(differences), axis=1) * problem.scale
            least, largest = lengths[lengths > 0].min(), lengths.max()
            raise ValueError(
                "APIT: X must hold labeled rows whose distances ITML's bounds can satisfy; got "
                f"distances from {least:.3g} to {largest:.3g}, which make the prior singular. "
                "Look for a row far from all others, scale the features, or pass prior='gmml'."
            )
        return prior.M, {"n_iter": prior.n_iter, "converged": prior.converged}


def _is_definite(M: Floats) -> bool:
    """Whether M is finite, and positive definite by more than rounding."""
    if not np.isfinite(M).all():
        return False
    values = np.linalg.eigvalsh(M)
    return bool(values[0] > np.finfo(np.float64).eps * values[-1])


class Prior(NamedTuple):
    """Prior of APIT."""

    M: Floats
    n_iter: int
    converged: bool


def itml(
    similar: Floats, dissimilar: Floats, *, slack: float = 1.0, max_iter: int = 1000, tol: float
) -> Prior:
    """Learn the metric nearest to the identity that keeps similar pairs near, dissimilar ones far.

    ``similar`` and ``dissimilar`` are differences of pairs (m, d); one may be empty, and pairs of
    equal rows are ignored. ``tol`` is the relative change of the multipliers.

    Notes
    -----
    Squared distances of similar pairs are bounded above by the 5th percentile of all pairs, those
    of dissimilar pairs below by the 95th. Each pass projects onto one bound after another, O(m d²).
    M is not finite if the bounds lie too far apart for float64.

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


@njit(error_model="numpy")
def _project(
    M: Any, rows: Any, signs: Any, bounds: Any, multipliers: Any, slack: float
) -> None:  # pragma: no cover
    """Run one pass of Bregman projections, in place."""
    share = slack / (slack + 1)  # 1/2 in the paper, which holds for slack 1 only
    for i in range(len(rows)):
        image = M @ rows[i]
        square = max(rows[i] @ image, 1e-300)
        step = min(multipliers[i], signs[i] * share * (1 / square - 1 / bounds[i]))
        multipliers[i] -= step
        change = signs[i] * step / (1 - signs[i] * step * square)
        bounds[i] = slack * bounds[i] / (slack + signs[i] * step * bounds[i])
        for a in range(len(M)):  # loops compile ten times as fast as an outer product
            for b in range(len(M)):
                M[a, b] += change * (image[a] * image[b])


def geometric_mean(pairs: LabeledPairs, shrinkage: float) -> Floats:
    """Solve ``M S M = D`` for a positive definite M, with the shrunk scatters.

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
