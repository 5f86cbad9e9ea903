"""Angular loss of triplets, against the NumPy objective."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ssdml.graphs.triplets import Triplets
from ssdml.losses.angular import angular_triplet_loss
from ssdml.metric.stiefel import angular_objective


@pytest.fixture
def ends():
    """Anchors, positives and negatives of 12 triplets in 4 columns, in float64."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(3, 12, 4, generator=generator, dtype=torch.float64)
    return [part.requires_grad_() for part in points]


@pytest.mark.parametrize("angle", [30.0, 40.0, 50.0])
def test_losses_match_the_numpy_objective(ends, angle):
    losses = angular_triplet_loss(*ends, angle=angle)
    X = torch.cat(ends).detach().numpy()
    ids = np.arange(36).reshape(3, 12)
    for i, loss in enumerate(losses.tolist()):
        alone = Triplets(*ids[:, i : i + 1], np.ones(1))
        assert loss == pytest.approx(angular_objective(X, alone, angle=angle)(np.eye(4))[0])
    everything = angular_objective(X, Triplets(*ids, np.ones(12)), angle=angle)
    assert losses.mean().item() == pytest.approx(everything(np.eye(4))[0], rel=1e-12)


def test_metric_gradient_matches_the_numpy_objective(ends):
    L = torch.eye(4, 2, dtype=torch.float64).requires_grad_()
    angular_triplet_loss(*(part.detach() @ L for part in ends)).mean().backward()
    triplets = Triplets(*np.arange(36).reshape(3, 12), np.ones(12))
    _, expected = angular_objective(torch.cat(ends).detach().numpy(), triplets)(np.eye(4, 2))
    np.testing.assert_allclose(L.grad.numpy(), expected, atol=1e-12)


def test_autograd_agrees_with_finite_differences(ends):
    assert torch.autograd.gradcheck(lambda *parts: angular_triplet_loss(*parts), ends)


def test_anchor_equal_to_its_positive(ends):
    anchor, _, negative = (part.detach() for part in ends)
    margins = -4 * math.tan(math.radians(45)) ** 2 * (anchor - negative).square().sum(dim=1)
    losses = angular_triplet_loss(anchor, anchor, negative, angle=45.0)
    torch.testing.assert_close(losses, torch.log1p(margins.exp()))


def test_losses_keep_the_dtype(ends):
    losses = angular_triplet_loss(*(part.detach().float() for part in ends))
    assert losses.dtype == torch.float32
    torch.testing.assert_close(
        losses.double(), angular_triplet_loss(*ends).detach(), rtol=1e-4, atol=1e-5
    )


def test_no_triplets_give_no_losses():
    none = torch.zeros(0, 4)
    assert angular_triplet_loss(none, none, none).shape == (0,)


def test_angle_out_of_range_raises(ends):
    with pytest.raises(ValueError, match=r"angle must lie between 0 and 90 degrees; got 95\.0"):
        angular_triplet_loss(*ends, angle=95.0)
