"""SUML, "Synthetic": a metric from random triplets and synthetic rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, from_numpy, nn
from torch.nn import functional

from ssdml.baselines.deep.recipe import Recipe, UnsupervisedTrainer
from ssdml.metric.fitted.base import ANGLE, COUNT, NOT_NEGATIVE
from ssdml.utils.linalg import angular_factor
from ssdml.utils.typing import Array, Indices


@dataclass(eq=False, repr=False)
class SUML(Recipe):
    r"""Learn from random triplets under five hypotheses about their classes.

    .. math:: \min_{B, L} \; \frac1T \Big( -\sum_{i=1}^T \sum_{c=1}^5 p_c \log p_c
        + w \, |L^\top L - I|^2 \Big), \qquad p_c = \frac{1}{1 + \exp(s_c + m_c)}

    with :math:`m_c = \log(1 + e^{f_c})` of the synthetic rows under L, and
    :math:`s_c = \log(1 + e^{-f_c})` of the synthetic rows themselves: the synthesis opposes L.

    Parameters
    ----------
    n_triplets : int
        Random triplets per batch.
    angle : float
        Of the angular loss, in degrees.
    penalty : float
        w, which keeps the columns of L nearly orthonormal.
    max_iter : int
        Conjugate gradient steps per batch.

    Notes
    -----
    The paper synthesizes :math:`S^\top [x; x']` of two rows. Under each hypothesis, these share
    their first row, so the upper half of S drops out of every difference; the lower half B, of
    shape (d, d), starts as half the identity. B and L are unconstrained and learned by SciPy's
    conjugate gradients. Ours: the network takes one step per batch on the same objective with B and
    L fixed, as in Algorithm 1 of Dutta et al. (2021); the paper uses fixed features.

    The five p do not sum to 1, and :math:`-p \log p` rises up to p = 1/e: below it, descent makes
    a hypothesis less likely. That is the objective as published.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Unsupervised metric learning with synthetic examples",
       AAAI 2020.
    """

    n_triplets: int = 1000
    angle: float = 40.0
    penalty: float = 0.5
    max_iter: int = 10

    _parameter_constraints = {  # noqa: RUF012
        "n_triplets": COUNT,
        "angle": ANGLE,
        "penalty": NOT_NEGATIVE,
        "max_iter": COUNT,
    }
    learns_metric = True

    def new_head(self, n_items: int, d: int, n_components: int) -> nn.Module:
        """Return a module with B as a buffer."""
        head = nn.Module()
        head.register_buffer("synthesis", torch.eye(d) / 2)
        return head

    def loss(self, run: UnsupervisedTrainer, batch: Indices) -> Tensor:
        """Update B and L on the batch; return its objective, for the network."""
        features = run.network.features(run.views(batch))
        triplets = random_triplets(len(batch), self.n_triplets)
        synthesis = run.head.get_buffer("synthesis")
        if features.isfinite().all():
            fixed = features.detach().cpu().double()
            start = synthesis.cpu().double().numpy(), run.network.L.astype(np.float64)
            with run.draws.suspended():
                B, L = minimized(
                    lambda B, L: self._objective(fixed, B, L, triplets), start, self.max_iter
                )
            synthesis.copy_(from_numpy(B))
            run.place_metric(L)
        return self._objective(features, synthesis, run.network.metric, triplets)

    def _objective(self, features: Tensor, B: Tensor, L: Tensor, triplets: Tensor) -> Tensor:
        return objective(features, B, L, triplets, angle=self.angle, penalty=self.penalty)


def objective(
    features: Tensor, B: Tensor, L: Tensor, triplets: Tensor, *, angle: float, penalty: float
) -> Tensor:
    """Compute the entropies of the cases and the penalty, over the number of triplets.

    Examples
    --------
    >>> rows, none = torch.zeros(3, 2), torch.tensor([[0, 1, 2]])
    >>> value = objective(rows, torch.eye(2), torch.eye(2), none, angle=45.0, penalty=1.0)
    >>> round(value.item(), 4)  # p = 1/5 in each of the five cases: log 5
    1.6094
    """
    synthetic = features @ B
    metric = functional.softplus(cases(synthetic @ L, triplets, angle))
    synthesis = functional.softplus(-cases(synthetic, triplets, angle))
    logits = -(synthesis + metric)
    entropies = -logits.sigmoid() * functional.logsigmoid(logits)
    apart = L.T @ L - torch.eye(L.shape[1]).to(L)
    return (entropies.sum() + penalty * apart.square().sum()) / len(triplets)


def cases(rows: Tensor, triplets: Tensor, angle: float) -> Tensor:
    """Compute the margins f_c (5, n_triplets) of the five hypotheses about each triplet (a, p, n).

    1 to 3: the last of (a, p, n), (a, n, p) or (p, n, a) is of another class; 4: all are of one
    class; 5: all are of different classes.

    Examples
    --------
    >>> rows, one = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[0, 1, 2]])
    >>> cases(rows, one, 45.0).T.tolist()
    [[-24.0, 8.0, -12.0, 4.0, -4.0]]
    """
    products = rows @ rows.T
    lengths = products.diagonal()
    squares = lengths[:, None] + lengths - 2 * products
    a, p, n = triplets.T
    ap, an, pn = squares[a, p], squares[a, n], squares[p, n]
    factor = angular_factor(angle)

    def margin(near: Tensor, far: Tensor, other: Tensor) -> Tensor:
        """Compute the angular margin; the distance to the midpoint follows from Apollonius."""
        return near - factor * ((far + other) / 2 - near / 4)

    return torch.stack([margin(ap, an, pn), margin(an, ap, pn), margin(pn, ap, an), pn, -pn])


def random_triplets(n: int, count: int) -> Tensor:
    """Draw triplets of different rows (count, 3) by torch's generator; n < 3 repeats rows.

    Examples
    --------
    >>> triplets = random_triplets(5, 100)
    >>> bool((triplets.sort(dim=1).values.diff(dim=1) > 0).all()), triplets.shape
    (True, torch.Size([100, 3]))
    """
    first = torch.randint(n, (count,))
    steps = torch.rand(count, max(2, n - 1)).topk(2).indices + 1
    return torch.stack([first, *((first + step) % n for step in steps.T)], dim=1)


def minimized(
    function: Callable[[Tensor, Tensor], Tensor], start: tuple[Array, Array], max_iter: int
) -> tuple[Array, Array]:
    """Minimize a function of two matrices by conjugate gradients.

    Examples
    --------
    >>> start = np.ones((1, 2)), np.ones((2, 1))
    >>> B, L = minimized(lambda B, L: (B - 2).square().sum() + L.square().sum(), start, 10)
    >>> bool(np.allclose(B, 2, atol=1e-4)), bool(np.allclose(L, 0, atol=1e-4))
    (True, True)
    """
    shapes, size = [part.shape for part in start], start[0].size

    def parts(vector: Array) -> list[Tensor]:
        return [
            torch.tensor(part.reshape(shape), requires_grad=True)
            for part, shape in zip((vector[:size], vector[size:]), shapes, strict=True)
        ]

    def value_and_gradient(vector: Array) -> tuple[float, Array]:
        point = parts(vector)
        value = function(point[0], point[1])
        gradients = torch.autograd.grad(value, point)
        return value.item(), np.concatenate([g.numpy().ravel() for g in gradients])

    whole = np.concatenate([part.ravel() for part in start])
    options = {"maxiter": max_iter}
    found = minimize(value_and_gradient, whole, jac=True, method="CG", options=options)
    B, L = (part.detach().numpy() for part in parts(found.x))
    return B, L
