"""SUML: objective, five cases, gradient and minimization."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from ssdml.baselines.deep.suml import cases, minimized, objective, random_triplets


@pytest.fixture(autouse=True)
def seeded():
    """Seed torch's generator, which draws triplets."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def posed():
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    features = functional.normalize(draw(9, 4), dim=1)
    return features, draw(4, 4) / 2, draw(4, 3) / 2, random_triplets(9, 7), draw(4, 4)


def twin(features, S, L, triplets, angle, penalty):
    """The paper's formula: synthetic rows of two rows, S of shape (2 d, d)."""
    F, S, L = features.numpy(), S.numpy(), L.numpy()
    factor = 4 * np.tan(np.radians(angle)) ** 2
    total = 0.0
    for a, p, n in triplets.tolist():
        row = lambda i, j: S.T @ np.concatenate([F[i], F[j]])  # noqa: E731
        ways = [(a, p, n), (a, n, p), (p, n, a)]
        sets = [(row(i, i), row(i, j), row(i, k)) for i, j, k in ways]
        for case in range(5):
            values = []
            for map_ in (L.T, np.eye(len(L))):
                if case < 3:
                    s, near, far = (map_ @ part for part in sets[case])
                    middle = (s + near) / 2
                    f = np.sum((s - near) ** 2) - factor * np.sum((far - middle) ** 2)
                else:
                    gap = map_ @ (row(a, p) - row(a, n))
                    f = (1 if case == 3 else -1) * np.sum(gap**2)
                values.append(f)
            m, s = np.log1p(np.exp(values[0])), np.log1p(np.exp(-values[1]))
            p_case = 1 / (1 + np.exp(s + m))
            total -= p_case * np.log(p_case)
    apart = np.sum((L.T @ L - np.eye(L.shape[1])) ** 2)
    return (total + penalty * apart) / len(triplets)


def test_objective_ignores_the_upper_half_of_s(posed):
    features, B, L, triplets, upper = posed
    value = objective(features, B, L, triplets, angle=40.0, penalty=0.5).item()
    for half in (upper, 0 * upper):
        S = torch.cat([half, B])
        assert value == pytest.approx(twin(features, S, L, triplets, 40.0, 0.5))


def test_gradient_matches_finite_differences(posed):
    features, B, L, triplets, _ = posed
    inputs = tuple(part.clone().requires_grad_() for part in (features, B, L))
    assert torch.autograd.gradcheck(
        lambda *parts: objective(*parts, triplets, angle=40.0, penalty=0.5), inputs
    )


def test_margins_of_the_five_cases(posed):
    """Two close rows and one apart: of the first three, the matching case is the smallest."""
    rows = torch.tensor([[0.0], [0.0], [1.0]])
    for case, order in enumerate(([0, 1, 2], [0, 2, 1], [2, 0, 1])):
        found = cases(rows, torch.tensor([order]), 45.0)[:, 0]
        assert found[:3].argmin() == case
    same, different = cases(rows, torch.tensor([[0, 1, 2]]), 45.0)[3:, 0]
    assert (same, different) == (1.0, -1.0)


def test_random_triplets_are_uniform():
    triplets = random_triplets(4, 24_000)
    kinds, counts = triplets.unique(dim=0, return_counts=True)
    assert len(kinds) == 24
    assert (counts - 1000).abs().max() < 150


def test_conjugate_gradients_move_both_matrices(posed):
    features, B, L, triplets, _ = posed
    function = lambda B, L: objective(features, B, L, triplets, angle=40.0, penalty=0.5)  # noqa: E731
    found = minimized(function, (B.numpy(), L.numpy()), 10)
    after = function(*(torch.from_numpy(part) for part in found))
    assert after < function(B, L) - 0.01
    assert all(
        np.abs(part - start.numpy()).max() > 1e-3 for part, start in zip(found, (B, L), strict=True)
    )
