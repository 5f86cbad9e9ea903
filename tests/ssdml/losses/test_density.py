"""Density adaptivity: class variances, targets and penalty, Li et al. (2020)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssdml.losses import DensityAdaptivity, class_densities
from ssdml.losses.density import class_variances, correlation_penalty
from tests.losses import DENSITIES, batch

EVERYWHERE = torch.ones(6, dtype=torch.bool)


def slow(z, labels, weights, targets, densities, exponent):
    """Eqs. (5), (6) and (8) over the classes with two rows, in loops."""
    classes = [c for c in range(len(targets)) if labels.count(c) > 1]
    fit = spread = crossed = 0.0
    for c in classes:
        rows = [i for i, label in enumerate(labels) if label == c]
        share = weights[rows] / weights[rows].sum()
        mu = share @ z[rows]
        D = share @ ((z[rows] - mu) ** 2).sum(axis=1)
        fit += (D - targets[c]) ** 2
        spread += targets[c]
        for other in classes:
            b, b_other = densities[c] ** exponent, densities[other] ** exponent
            crossed += (b_other * targets[c] - b * targets[other]) ** 2
    return (fit - spread) / len(classes) + crossed / len(classes) ** 2


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_matches_a_slow_version(normalize, weighted, rng):
    z, labels, weights = batch()
    weights = weights if weighted else torch.ones_like(weights)
    labels = labels.masked_fill(labels == 2, -1)
    labels[3] = 2  # one row: it has no variance
    loss = DensityAdaptivity(3, DENSITIES, exponent=0.7, normalize=normalize).double()
    targets = rng.random(3)
    with torch.no_grad():
        loss.targets.copy_(torch.from_numpy(targets))
    rows = (z / z.norm(dim=1, keepdim=True) if normalize else z).numpy()
    densities = loss.densities.numpy()
    expected = slow(rows, labels.tolist(), weights.numpy(), targets, densities, 0.7)
    assert loss(z, labels, weights=weights).item() == pytest.approx(expected, rel=1e-9)


def test_known_values():
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    pair = torch.tensor([0, 0])
    assert class_variances(rows, pair, None, 1)[0] == 1  # antipodal
    assert class_variances(rows[[0, 0]], pair, None, 1)[0] == 0  # the same
    cosine = 1 - 2 * 0.3  # D = 1 - |mean|² = (1 - cos) / 2 = 0.3
    apart = torch.tensor([[1.0, 0.0], [cosine, (1 - cosine**2) ** 0.5]], dtype=torch.float64)
    value = DensityAdaptivity(1).double()(apart, pair)
    assert value.item() == pytest.approx(-0.46, abs=1e-12)  # 0.04 - 0.5


def test_almost_collapsed_classes_are_spread():
    """In float32 a variance of 1e-8 is less than rounding of the unit lengths."""
    z, labels, _ = batch()
    rows = (torch.ones(5) / 5**0.5 + 1e-4 * z).float().requires_grad_()
    (slope,) = torch.autograd.grad(DensityAdaptivity(3)(rows, labels), rows)
    (expected,) = torch.autograd.grad(DensityAdaptivity(3).double()(rows.double(), labels), rows)
    torch.testing.assert_close(slope, expected, rtol=0, atol=float(1e-2 * expected.abs().max()))


def test_penalty_equals_the_double_sum(rng):
    a, b = (torch.from_numpy(rng.random(6)) for _ in range(2))
    expected = (a[:, None] * b - b[:, None] * a).square().mean()
    torch.testing.assert_close(correlation_penalty(a, b, EVERYWHERE), expected)


def test_penalty_is_zero_for_proportional_targets(rng):
    b = torch.from_numpy(rng.random(6)).requires_grad_(False)
    a = (3 * b).requires_grad_()
    value = correlation_penalty(a, b, EVERYWHERE)
    value.backward()
    assert value.item() < 1e-28
    assert a.grad.abs().max() < 1e-13


def test_optimal_targets_without_the_penalty():
    z, labels, _ = batch()
    loss = DensityAdaptivity(3).double()
    variances, _ = class_variances(z / z.norm(dim=1, keepdim=True), labels, None, 3)
    with torch.no_grad():
        loss.targets.copy_(variances + 0.5)
    value = loss(z, labels)
    value.backward()
    assert value.item() == pytest.approx(-variances.mean().item() - 0.25)
    assert loss.targets.grad.abs().max() < 1e-12


def test_class_densities_are_variances_of_unit_features(rng):
    features = torch.from_numpy(rng.standard_normal((10, 4)) + 1)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, -1, -1, -1])
    found = class_densities(features, labels, 4)
    unit = features / features.norm(dim=1, keepdim=True)
    expected = [np.var(unit[i : i + 3].numpy(), axis=0).sum() for i in (0, 3)]
    rest = np.mean(expected)  # of one row, and of none
    np.testing.assert_allclose(found.numpy(), [*expected, rest, rest], rtol=1e-12)


@pytest.mark.parametrize("densities", [None, DENSITIES])
def test_fixed_targets_keep_the_proportions_of_the_densities(densities):
    z, labels, _ = batch()
    loss = DensityAdaptivity(3, densities, initial=0.4, learned=False).double()
    assert loss.parameter_groups() == []
    b = torch.ones(3) if densities is None else torch.tensor(DENSITIES).sqrt()
    torch.testing.assert_close(loss.targets, (0.4 * b / b.mean()).double())
    everywhere = torch.ones(3, dtype=torch.bool)
    assert correlation_penalty(loss.targets, b.double(), everywhere) < 1e-14
    unit = z / z.norm(dim=1, keepdim=True)
    D, _ = class_variances(unit, labels, None, 3)
    expected = (D - loss.targets).square().mean() - loss.targets.mean()
    torch.testing.assert_close(loss(z, labels), expected)
    assert "targets" in loss.state_dict()


def test_targets_have_no_weight_decay():
    (group,) = DensityAdaptivity(3, learning_rate=0.1).parameter_groups()
    assert group["weight_decay"] == 0
    assert group["lr"] == 0.1
    assert "lr" not in DensityAdaptivity(3).parameter_groups()[0]


def test_invalid_densities_raise():
    with pytest.raises(ValueError, match=r"densities must have shape \(3,\), one per class; got"):
        DensityAdaptivity(3, [0.1, 0.2])
    for wrong in ("abc", [None, 1, 1], ["a", "b", "c"], [1j, 1, 1]):
        kind = type(wrong).__name__
        message = f"DensityAdaptivity: densities must be an array of numbers; got {kind}"
        with pytest.raises(TypeError, match=message):
            DensityAdaptivity(3, wrong)
    with pytest.raises(ValueError, match=r"densities must be finite and not negative; got -1\.0"):
        DensityAdaptivity(2, [0.1, -1.0])
    with pytest.raises(ValueError, match="labels must lie from -1 to num_classes - 1 = 1; got 2"):
        class_densities(torch.ones(3, 2), torch.arange(3), 2)
    rows, labels = torch.ones(3, 2), torch.tensor([0, 0, 1])
    with pytest.raises(ValueError, match="class_densities: features must be finite; got nan"):
        class_densities(rows * torch.nan, labels, 2)
    for weights, message in (
        (torch.ones(2), r"weights must have one entry per row, shape \(3,\); got shape \(2,\)"),
        (-torch.ones(3), r"weights must be finite and not negative; got -1\.0"),
    ):
        with pytest.raises(ValueError, match=f"class_densities: {message}"):
            class_densities(rows, labels, 2, weights=weights)
    with pytest.raises(ValueError, match="labels must give some class two rows"):
        class_densities(torch.ones(3, 2), torch.arange(3), 3)
