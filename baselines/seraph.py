"""SERAPH: a metric from the likelihood of labeled pairs and the entropy of unlabeled pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit, log_expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions

from ssdml.baselines.base import Baseline, Problem
from ssdml.baselines.pairs import draw_pairs, draw_unknown_pairs, squares_under
from ssdml.graphs.laplacian import unchecked_scatter
from ssdml.metric.fitted.base import COUNT, NOT_NEGATIVE, POSITIVE
from ssdml.utils.linalg import symmetrize
from ssdml.utils.typing import Array, Floats
from ssdml.utils.validation import warn

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import BatchLoss

N_PAIRS = 100_000  # maximum of each kind; a drawn pair stands for several
N_ROWS = 10_000  # maximum number of rows of the unlabeled pairs: a step costs n d²
HALVINGS = 20
ROUND = 10  # steps per EM round, and window of the stopping rule
LARGEST_TRACE = 1e3  # over d, if nothing else bounds M
NO_STEP = "SERAPH: a step must raise the objective; none did. Look for a row far from all others."


@dataclass(eq=False, repr=False, kw_only=True)
class SERAPH(Baseline):
    r"""Semi-supervised metric learning with entropy regularization.

    .. math:: \max_{M \succeq 0} \sum_S \ln p_{ij}(1) + \sum_D \ln p_{ij}(-1)
        + \mu \sum_U \sum_y p_{ij}(y) \ln p_{ij}(y) - \lambda \operatorname{tr} M, \qquad
        p_{ij}(1) = \sigma(\eta - |z_i - z_j|_M^2)

    Parameters
    ----------
    n_components, n_neighbors, n_jobs, random_state
        See :class:`~ssdml.baselines.base.Baseline`. The metric does not
        use the graph; :meth:`predict` does.
    threshold : float
        η, the squared distance at which a pair is similar with probability 1/2.
    entropy_weight : float or "auto"
        μ; "auto": the number of labeled pairs over the number of all others.
    trace_weight : float
        λ, in the scale of the start.
    solver : {"gradient", "em"}
        Projected gradient ascent of the objective, or alternation between the posterior of the
        unlabeled pairs and M.
    unlabeled_pairs : {"all", "both"}
        All pairs with an unlabeled end, or those with both ends unlabeled (Dutta et al., 2021).
    max_iter : int
        Maximum number of gradient steps; "em" takes 10 per round. A port of the paper's code takes
        200.
    tol : float
        The ascent stops when the relative rise per step, over ten steps, is at most ``tol``.

    Attributes
    ----------
    components_, n_iter_, classes_, transduction_, label_distributions_, embedding_
        See :class:`~ssdml.baselines.base.Baseline`.
    info_ : dict
        ``entropy_weight`` as used, the number ``n_unknown`` of pairs that it weights, and
        ``values`` of the objective at each step or round.

    Warns
    -----
    UserWarning
        If no pair is dissimilar, so that M may shrink to 0, or if no pair is similar: with
        ``trace_weight=0`` the trace is then bounded.
    ConvergenceWarning
        If no step raised the objective.

    Notes
    -----
    Model and posteriors (Eq. (9)) are the paper's. EM rounds do not raise the objective above but
    one with Rényi's entropy of order 1 + μ, whose ``values`` are reported. In the M-step the weight
    μ of the unlabeled pairs is ours: as the posteriors contain μ too, these pairs act with μ² to
    first order, where the gradient of the objective has μ; that is negligible at "auto". Step
    lengths, ``threshold=1``, ``trace_weight=0`` and "auto" follow a third-party port, apparently of
    the authors' code, which stops when M moves by 1e-3, not reached in 200 steps, and doubles a
    step after 20 failed halvings; our stopping rules differ. At most 100,000 pairs of each kind are
    drawn, once, the unlabeled ones from 10,000 rows. The initial scale is ours: M and λ are in
    units in which the median distance of distinct rows is at the threshold, as otherwise all pairs
    are certain. O(m d² + p d + d³) per step for p pairs of m rows.

    References
    ----------
    .. [1] Niu, Dai, Yamada, Sugiyama, "Information-theoretic semi-supervised metric learning via
       entropy regularization", ICML 2012; Neural Computation 26(8), 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> bool(SERAPH(random_state=0).fit(X, labels).score(X, y) > 0.9)
    True
    """

    threshold: float = 1.0
    entropy_weight: float | str = "auto"
    trace_weight: float = 0.0
    solver: str = "gradient"
    unlabeled_pairs: str = "all"
    max_iter: int = 200
    tol: float = 1e-3

    _is_scale_free: ClassVar[bool] = False  # the threshold fixes the scale
    _without: ClassVar[dict[str, str]] = {
        "labels": "M makes the unlabeled pairs certain, similar or not",
        "dissimilar": "M may shrink to 0",
        "similar": "its trace is bounded by 1,000 d, unless trace_weight is positive",
    }
    _parameter_constraints = Baseline._parameter_constraints | {
        "threshold": POSITIVE,
        "entropy_weight": [*NOT_NEGATIVE, StrOptions({"auto"})],
        "trace_weight": NOT_NEGATIVE,
        "solver": [StrOptions({"gradient", "em"})],
        "unlabeled_pairs": [StrOptions({"all", "both"})],
        "max_iter": COUNT,
        "tol": NOT_NEGATIVE,
    }

    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        pairs, d = problem.pairs, problem.X.shape[1]
        bound = np.inf if pairs.n_similar or self.trace_weight else LARGEST_TRACE * d
        terms, unit = self._terms(problem)
        model = Model(self.threshold, self.trace_weight, bound)
        if self.solver == "gradient":
            found = ascend(np.eye(d), terms, model, max_iter=self.max_iter, tol=self.tol)
        else:
            rounds = -(-self.max_iter // ROUND)
            found = alternate(np.eye(d), terms, model, max_iter=rounds, tol=self.tol)
        if len(found.values) == 1 and terms.rows.any():
            warn(NO_STEP, ConvergenceWarning)
        n_unknown = round(float(terms.counts[terms.kinds == 0].sum()))
        info = {"values": found.values, "converged": found.converged, "n_unknown": n_unknown}
        info |= {"n_iter": len(found.values) - 1, "entropy_weight": terms.entropy_weight}
        return found.M * unit, info

    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        from ssdml.baselines.batch_losses import EntropyLoss

        both = self.unlabeled_pairs == "both"
        n_known = problem.pairs.n_similar + problem.pairs.n_dissimilar
        entropy = info["entropy_weight"] * info["n_unknown"] / max(n_known, 1)
        return EntropyLoss(self.threshold, entropy, both)

    def _terms(self, problem: Problem) -> tuple[Terms, float]:
        """Return the pairs, with the median at the threshold, and the square of their scale."""
        X, labels, rng = problem.X, problem.labels, problem.rng
        similar, dissimilar = draw_pairs(labels, N_PAIRS, rng)
        both = self.unlabeled_pairs == "both"
        others, n_others = draw_unknown_pairs(labels, N_PAIRS, rng, both=both, n_rows=N_ROWS)
        n_known = problem.pairs.n_similar + problem.pairs.n_dissimilar
        auto = max(n_known, 1) / max(n_others, 1)
        weight = auto if self.entropy_weight == "auto" else self.entropy_weight
        counts = problem.pairs.n_similar, problem.pairs.n_dissimilar, n_others
        drawn = [len(similar), len(dissimilar), len(others)]
        ends = np.vstack([similar, dissimilar, others])
        used, places = np.unique(ends, return_inverse=True)
        rows, ends = X[used], places.reshape(ends.shape)
        squares = squares_under(np.eye(X.shape[1]), rows, ends)
        unit = self.threshold / float(np.median(squares[squares > 0])) if squares.any() else 1.0
        terms = Terms(
            np.sqrt(unit) * rows,
            ends,
            np.repeat([1, -1, 0], drawn),
            np.repeat([count / max(m, 1) for count, m in zip(counts, drawn, strict=True)], drawn),
            float(weight),
        )
        return terms, unit


class Terms(NamedTuple):
    """Pairs of the objective."""

    rows: Floats  # (n, d)
    ends: Array  # (m, 2), row indices of the pairs
    kinds: Array  # 1: similar, -1: dissimilar, 0: unknown
    counts: Array  # number of pairs that each stands for
    entropy_weight: float  # of the unknown pairs


class Model(NamedTuple):
    """Parameters of the objective, and the bound of the trace."""

    threshold: float
    trace_weight: float
    largest_trace: float = np.inf


class Value(NamedTuple):
    """The objective and its derivatives by the squared distances of the pairs."""

    value: float
    slopes: Array  # (m,)


def objective(M: Floats, terms: Terms, model: Model, posteriors: Array | None = None) -> Value:
    """Compute the objective.

    With ``posteriors`` (m,), the probabilities that the pairs are similar, unknown pairs count by
    the expected log-likelihood instead of their entropy.

    Examples
    --------
    One similar pair at distance 1:

    >>> ends = np.array([[0, 1]])
    >>> terms = Terms(np.array([[0.0], [1.0]]), ends, np.array([1]), np.ones(1), 0.0)
    >>> objective(np.eye(1), terms, Model(1.0, 0.0))
    Value(value=-0.6931471805599453, slopes=array([-0.5]))
    """
    logits = _logits(M, terms, model)
    p, known = expit(logits), terms.kinds != 0
    target = np.where(known, (terms.kinds + 1) / 2, p if posteriors is None else posteriors)
    value = target * log_expit(logits) + (1 - target) * log_expit(-logits)
    slope = np.where(known, p - target, -p * (1 - p) * logits if posteriors is None else p - target)
    scale = terms.counts * np.where(known, 1.0, terms.entropy_weight)
    return Value(float(scale @ value - model.trace_weight * np.trace(M)), scale * slope)


def gradient(slopes: Array, terms: Terms, model: Model) -> Floats:
    """Compute the gradient by M: the scatter of the pairs weighted by their slopes.

    Examples
    --------
    >>> ends = np.array([[0, 1]])
    >>> terms = Terms(np.array([[0.0], [1.0]]), ends, np.array([1]), np.ones(1), 0.0)
    >>> gradient(np.array([-0.5]), terms, Model(1.0, 0.0))
    array([[-0.5]])
    """
    n, d = terms.rows.shape
    left, right = terms.ends.T
    half = sparse.coo_array((slopes, (left, right)), shape=(n, n)).tocsr()
    return unchecked_scatter(terms.rows, half + half.T) - model.trace_weight * np.eye(d)


class Ascent(NamedTuple):
    """Result of an ascent."""

    M: Floats  # (d, d), positive semidefinite
    values: list[float]  # of the objective, at the start and after each step or round
    converged: bool


def ascend(
    M: Floats,
    terms: Terms,
    model: Model,
    posteriors: Array | None = None,
    *,
    max_iter: int,
    tol: float,
) -> Ascent:
    """Run projected gradient ascent, with steps 0.1 d / sqrt(t) that are halved until they rise.

    It converges if no step raises the objective, or if ten together raise it by at most
    ``10 * tol`` relatively: a single step may have been halved.
    """
    found = objective(M, terms, model, posteriors)
    values = [found.value]
    for t in range(1, max_iter + 1):
        upwards = gradient(found.slopes, terms, model)
        length = np.linalg.norm(upwards)
        if not length > 0:
            return Ascent(M, values, True)
        step = 0.1 * len(M) / (length * np.sqrt(t))
        for _ in range(HALVINGS):
            moved = project_psd(M + step * upwards, model.largest_trace)
            there = objective(moved, terms, model, posteriors)
            if there.value >= found.value:
                break
            step /= 2
        else:
            return Ascent(M, values, True)
        M, found = moved, there
        values.append(found.value)
        if t >= ROUND and _has_settled(values[-1 - ROUND], values[-1], tol):
            return Ascent(M, values, True)
    return Ascent(M, values, False)


def alternate(M: Floats, terms: Terms, model: Model, *, max_iter: int, tol: float) -> Ascent:
    """Alternate between posteriors of the unknown pairs and ten steps of M (EM).

    ``values`` are those of :func:`em_objective`, which neither half of a round lowers.
    """
    values = [em_objective(M, terms, model)]
    for _ in range(max_iter):
        q = posterior(M, terms, model)
        M = ascend(M, terms, model, q, max_iter=ROUND, tol=tol).M
        values.append(em_objective(M, terms, model))
        if _has_settled(values[-2], values[-1], tol):
            return Ascent(M, values, True)
    return Ascent(M, values, False)


def _has_settled(before: float, after: float, tol: float) -> bool:
    """Whether ten steps raised the objective by at most ``tol`` per step, relatively."""
    return after - before <= ROUND * tol * abs(after)


def em_objective(M: Floats, terms: Terms, model: Model) -> float:
    r"""Compute the objective of EM at the optimal posteriors, those of Eq. (9).

    .. math:: \frac{\mu}{1 + \mu} \max_q \Big[ H(q) + (1 + \mu) \sum_y q(y) \ln p(y) \Big]
        = \frac{\mu}{1 + \mu} \ln \sum_y p(y)^{1 + \mu}

    replaces the entropy of a pair. It is Rényi's entropy of order 1 + μ, so the two solvers have
    different optima.

    Examples
    --------
    >>> terms = Terms(np.zeros((1, 1)), np.array([[0, 0]]), np.array([0]), np.ones(1), 1.0)
    >>> round(em_objective(np.eye(1), terms, Model(0.0, 0.0)), 4)  # ln(1/4 + 1/4) / 2
    -0.3466
    """
    order = 1 + terms.entropy_weight
    logits = _logits(M, terms, model)
    known = log_expit(np.where(terms.kinds < 0, -logits, logits))
    unknown = np.logaddexp(order * log_expit(logits), order * log_expit(-logits)) / order
    values = np.where(terms.kinds != 0, known, terms.entropy_weight * unknown)
    return float(terms.counts @ values - model.trace_weight * np.trace(M))


def posterior(M: Floats, terms: Terms, model: Model) -> Array:
    """Compute posteriors q with ``logit q = (1 + mu) logit p``, the paper's Eq. (9).

    Examples
    --------
    >>> terms = Terms(np.zeros((1, 1)), np.array([[0, 0]]), np.array([0]), np.ones(1), 1.0)
    >>> posterior(np.eye(1), terms, Model(1.0, 0.0)).round(4)  # 1 / (1 + exp(-2))
    array([0.8808])
    """
    logits = _logits(M, terms, model)
    return expit((1 + terms.entropy_weight) * logits)


def _logits(M: Floats, terms: Terms, model: Model) -> Array:
    """Compute the logits of similarity of the pairs."""
    return model.threshold - squares_under(M, terms.rows, terms.ends)


def project_psd(M: Floats, largest_trace: float = np.inf) -> Floats:
    """Project onto positive semidefinite matrices; scale down if the trace is too large.

    Examples
    --------
    >>> project_psd(np.diag([2.0, -1.0]))
    array([[2., 0.],
           [0., 0.]])
    """
    values, vectors = np.linalg.eigh(symmetrize(M))
    values = np.maximum(values, 0)
    values *= min(1.0, largest_trace / max(values.sum(), np.finfo(np.float64).tiny))
    return symmetrize((vectors * values) @ vectors.T)
