"""SERAPH: labeled pairs are to be sure, and unlabeled pairs too, whichever way."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit, log_expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines.base import NOT_NEGATIVE, Baseline, Problem
from ssdml.baselines.pairs import draw_pairs, draw_unknown_pairs, squares_under
from ssdml.graphs.laplacian import pair_scatter
from ssdml.utils.linalg import symmetrize
from ssdml.utils.typing import Array, Floats

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import BatchLoss


N_PAIRS = 100_000  # of each kind at most; where there are more, so many stand for all
N_ROWS = 10_000  # of which pairs are that the labels do not know: a step costs n d²
HALVINGS = 20
TURN = 10  # steps between two turns of the pairs' beliefs, and over which the rise is judged
LARGEST_TRACE = 1e3  # over d: where nothing else bounds M
NO_STEP = "SERAPH: a step must raise the objective; none did. Look for a row far from all others."


class SERAPH(Baseline):
    r"""Semi-supervised metric learning with sparsity by entropy.

    .. math:: \max_{M \succeq 0} \sum_S \ln p_{ij}(1) + \sum_D \ln p_{ij}(-1)
        + \mu \sum_U \sum_y p_{ij}(y) \ln p_{ij}(y) - \lambda \operatorname{tr} M, \qquad
        p_{ij}(1) = \sigma(\eta - |z_i - z_j|_M^2)

    Parameters
    ----------
    n_components : int or None
        Rows of M's factor, which keep the distances under M as well as so many can; None: as
        many as features.
    n_neighbors : int
        Of the graph by which :meth:`predict` knows classes; the metric does not see it.
    threshold : float
        η, the squared distance at which a pair is as likely similar as not.
    entropy_weight : float or "auto"
        μ; "auto": as many labeled pairs as there are, over all others.
    trace_weight : float
        λ, of the trace in the scale of the start.
    solver : {"gradient", "em"}
        Projected gradients of the whole, or in turn beliefs of the other pairs and M under them.
    unlabeled_pairs : {"all", "both"}
        All pairs that the labels do not know, or those whose ends both have none (seed 003).
    max_iter : int
        Steps of the gradient; with "em" in turns of at most 10. Its code takes 200.
    tol : float
        Ends where the objective rises by no more than this share of itself a step, over ten.
    n_jobs : int or None
        Threads of the neighbor search.
    random_state : int, RandomState or None
        Of the pairs that are drawn.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    info_ : dict
        ``entropy_weight`` that was used, ``n_unknown`` pairs that it weighs, ``values`` of the
        objective at each step, or turn.
    n_iter_ : int
    classes_, transduction_, label_distributions_, embedding_ : ndarray
        As those of :class:`ssdml.SSDML`.

    Warns
    -----
    UserWarning
        If no pair is dissimilar, so that M may shrink to nothing, or none is similar, and with
        ``trace_weight=0`` the trace has to be bounded.
    ConvergenceWarning
        If ``max_iter`` steps did not come to ``tol``, or none raised the objective.

    Notes
    -----
    The model and the beliefs (Eq. (9)) are the paper's; turns of beliefs raise not the objective
    above but its like with Renyi's entropy of order 1 + μ, and ``values`` are of that. The weight μ
    of the other pairs in the half that learns M is ours: the beliefs have μ in them already, so to
    first order these pairs pull with μ² where the gradient of the whole has μ, which is next to
    nothing at "auto". Step lengths, ``threshold=1``, ``trace_weight=0`` and "auto" are those of the
    paper's code, as others carried it over. It ends where M moves by 1e-3, which its steps do not
    come to in 200, and takes a double step where 20 halvings do not help; the rule by the objective
    and ending there are ours. Of each kind at most 100,000 pairs are drawn, once; those that the
    labels do not know, of 10,000 rows. The start's scale is ours, for elsewhere all pairs are sure:
    M and λ are in the unit in which the median pair, of rows that differ, is at the threshold.
    O(m d² + p d + d³) a step for p pairs of m rows, those 10,000 and the labeled ones.

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

    _is_scale_free = False  # a pair at the threshold is as likely similar as not
    _without = {  # noqa: RUF012
        "labels": "M makes the unlabeled pairs sure, whichever way",
        "dissimilar": "M may shrink to nothing",
        "similar": "its trace is bounded by 1,000 d, unless trace_weight is positive",
    }
    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Baseline._shared_constraints,
        "threshold": [Interval(Real, 0, None, closed="neither")],
        "entropy_weight": [*NOT_NEGATIVE, StrOptions({"auto"})],
        "trace_weight": NOT_NEGATIVE,
        "solver": [StrOptions({"gradient", "em"})],
        "unlabeled_pairs": [StrOptions({"all", "both"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": NOT_NEGATIVE,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 10,
        threshold: float = 1.0,
        entropy_weight: float | str = "auto",
        trace_weight: float = 0.0,
        solver: str = "gradient",
        unlabeled_pairs: str = "all",
        max_iter: int = 200,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.threshold = threshold
        self.entropy_weight = entropy_weight
        self.trace_weight = trace_weight
        self.solver = solver
        self.unlabeled_pairs = unlabeled_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        pairs, d = problem.pairs, problem.X.shape[1]
        bound = np.inf if pairs.n_similar or self.trace_weight else LARGEST_TRACE * d
        terms, unit = self._terms(problem)
        model = Model(self.threshold, self.trace_weight, bound)
        if self.solver == "gradient":
            found = ascend(np.eye(d), terms, model, max_iter=self.max_iter, tol=self.tol)
        else:
            turns = -(-self.max_iter // TURN)
            found = alternate_beliefs(np.eye(d), terms, model, max_iter=turns, tol=self.tol)
        if len(found.values) == 1 and terms.rows.any():
            warnings.warn(NO_STEP, ConvergenceWarning, stacklevel=5)
        n_unknown = round(float(terms.counts[terms.kinds == 0].sum()))
        told = {"values": found.values, "converged": found.converged, "n_unknown": n_unknown}
        told |= {"n_iter": len(found.values) - 1, "entropy_weight": terms.entropy_weight}
        return found.M * unit, told

    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        from ssdml.baselines.batch_losses import EntropyLoss

        both = self.unlabeled_pairs == "both"
        n_known = problem.pairs.n_similar + problem.pairs.n_dissimilar
        entropy = info["entropy_weight"] * info["n_unknown"] / max(n_known, 1)
        return EntropyLoss(self.threshold, entropy, both)

    def _terms(self, problem: Problem) -> tuple[Terms, float]:
        """The pairs, scaled so that the median one is at the threshold, and the scale's square."""
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
    ends: Array  # (m, 2), of the pairs
    kinds: Array  # 1: similar, -1: dissimilar, 0: not known
    counts: Array  # how many pairs each stands for
    entropy_weight: float  # of those that are not known


class Model(NamedTuple):
    """Numbers of the objective, and what bounds the trace."""

    threshold: float
    trace_weight: float
    largest_trace: float = np.inf


class Value(NamedTuple):
    """The objective and its slopes by the squared distances of the pairs."""

    value: float
    slopes: Array  # (m,)


def objective(M: Floats, terms: Terms, model: Model, beliefs: Array | None = None) -> Value:
    """What is maximized.

    Parameters
    ----------
    M : array of shape (d, d)
    terms : Terms
    model : Model
    beliefs : array of shape (m,), optional
        That each pair is similar; then pairs that are not known count by the likelihood of these,
        in the place of their entropy.

    Examples
    --------
    One pair at distance 1, known to be similar:

    >>> ends = np.array([[0, 1]])
    >>> terms = Terms(np.array([[0.0], [1.0]]), ends, np.array([1]), np.ones(1), 0.0)
    >>> objective(np.eye(1), terms, Model(1.0, 0.0))
    Value(value=-0.6931471805599453, slopes=array([-0.5]))
    """
    logits = _logits(M, terms, model)
    p, known = expit(logits), terms.kinds != 0
    target = np.where(known, (terms.kinds + 1) / 2, p if beliefs is None else beliefs)
    value = target * log_expit(logits) + (1 - target) * log_expit(-logits)
    slope = np.where(known, p - target, -p * (1 - p) * logits if beliefs is None else p - target)
    scale = terms.counts * np.where(known, 1.0, terms.entropy_weight)
    return Value(float(scale @ value - model.trace_weight * np.trace(M)), scale * slope)


def gradient(slopes: Array, terms: Terms, model: Model) -> Floats:
    """That of the objective by M, from its slopes: the scatter of the pairs with these weights.

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
    return pair_scatter(terms.rows, half + half.T) - model.trace_weight * np.eye(d)


class Ascent(NamedTuple):
    """The point reached, the objective on the way, and whether it has ceased to rise."""

    M: Floats  # (d, d), positive semidefinite
    values: list[float]  # at the start and after each step, or turn
    converged: bool


def ascend(
    M: Floats,
    terms: Terms,
    model: Model,
    beliefs: Array | None = None,
    *,
    max_iter: int,
    tol: float,
) -> Ascent:
    """Projected gradients: steps of length 0.1 d / sqrt(t), halved until they do not go down.

    It has converged where no step goes up, or ten together rise by at most ``10 * tol`` of the
    objective: one alone that was halved says little.
    """
    found = objective(M, terms, model, beliefs)
    values = [found.value]
    for t in range(1, max_iter + 1):
        upwards = gradient(found.slopes, terms, model)
        length = np.linalg.norm(upwards)
        if not length > 0:
            return Ascent(M, values, True)
        step = 0.1 * len(M) / (length * np.sqrt(t))
        for _ in range(HALVINGS):
            moved = projected(M + step * upwards, model.largest_trace)
            there = objective(moved, terms, model, beliefs)
            if there.value >= found.value:
                break
            step /= 2
        else:
            return Ascent(M, values, True)
        M, found = moved, there
        values.append(found.value)
        if t >= TURN and _has_settled(values[-1 - TURN], values[-1], tol):
            return Ascent(M, values, True)
    return Ascent(M, values, False)


def alternate_beliefs(
    M: Floats, terms: Terms, model: Model, *, max_iter: int, tol: float
) -> Ascent:
    """In turn beliefs of the pairs that are not known, and ten steps of M under them.

    Its values are those of :func:`value_of_beliefs`, which no half of a turn lowers.
    """
    values = [value_of_beliefs(M, terms, model)]
    for _ in range(max_iter):
        q = sharpened(M, terms, model)
        M = ascend(M, terms, model, q, max_iter=TURN, tol=tol).M
        values.append(value_of_beliefs(M, terms, model))
        if _has_settled(values[-2], values[-1], tol):
            return Ascent(M, values, True)
    return Ascent(M, values, False)


def _has_settled(before: float, after: float, tol: float) -> bool:
    """Whether a turn of ten steps raised the objective by so little of itself a step."""
    return after - before <= TURN * tol * abs(after)


def value_of_beliefs(M: Floats, terms: Terms, model: Model) -> float:
    r"""What M comes to under the beliefs that are best for it, those of Eq. (9).

    .. math:: \frac{\mu}{1 + \mu} \max_q \Big[ H(q) + (1 + \mu) \sum_y q(y) \ln p(y) \Big]
        = \frac{\mu}{1 + \mu} \ln \sum_y p(y)^{1 + \mu}

    in the place of a pair's entropy: the maximum is at Eq. (9)'s q, and what is left of M is what
    its steps go up. It is Renyi's entropy of order 1 + μ, so the two solvers end apart.

    Examples
    --------
    >>> terms = Terms(np.zeros((1, 1)), np.array([[0, 0]]), np.array([0]), np.ones(1), 1.0)
    >>> round(value_of_beliefs(np.eye(1), terms, Model(0.0, 0.0)), 4)  # ln(1/4 + 1/4) / 2
    -0.3466
    """
    order = 1 + terms.entropy_weight
    logits = _logits(M, terms, model)
    known = log_expit(np.where(terms.kinds < 0, -logits, logits))
    unknown = np.logaddexp(order * log_expit(logits), order * log_expit(-logits)) / order
    values = np.where(terms.kinds != 0, known, terms.entropy_weight * unknown)
    return float(terms.counts @ values - model.trace_weight * np.trace(M))


def sharpened(M: Floats, terms: Terms, model: Model) -> Array:
    """Beliefs q with ``logit q = (1 + mu) logit p``, the paper's Eq. (9).

    Examples
    --------
    >>> terms = Terms(np.zeros((1, 1)), np.array([[0, 0]]), np.array([0]), np.ones(1), 1.0)
    >>> sharpened(np.eye(1), terms, Model(1.0, 0.0)).round(4)  # 1 / (1 + exp(-2))
    array([0.8808])
    """
    logits = _logits(M, terms, model)
    beliefs: Array = expit((1 + terms.entropy_weight) * logits)
    return beliefs


def _logits(M: Floats, terms: Terms, model: Model) -> Array:
    """Of the pairs being similar."""
    return model.threshold - squares_under(M, terms.rows, terms.ends)


def projected(M: Floats, largest_trace: float = np.inf) -> Floats:
    """Nearest positive semidefinite matrix, scaled down where its trace is too large.

    Examples
    --------
    >>> projected(np.diag([2.0, -1.0]))
    array([[2., 0.],
           [0., 0.]])
    """
    values, vectors = np.linalg.eigh(symmetrize(M))
    values = np.maximum(values, 0)
    values *= min(1.0, largest_trace / max(values.sum(), np.finfo(np.float64).tiny))
    return symmetrize((vectors * values) @ vectors.T)
