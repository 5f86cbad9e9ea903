"""Zheng et al. (2019): normalize-scale layer, decorrelated centers, center ranking."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ssdml.losses import DecorrelatedCentersLoss, GlobalCenterRankingLoss, NormalizeScale
from ssdml.losses.centers import center_correlation, center_distances
from tests.losses import batch


def with_centers(loss, centers):
    loss = loss.double()
    with torch.no_grad():
        loss.centers.copy_(torch.as_tensor(centers))
    return loss


@pytest.fixture(params=["plain", "weighted"])
def given(request):
    z, labels, weights = batch()
    weights = weights if request.param == "weighted" else torch.ones_like(weights)
    return z, labels, weights


def test_rows_have_one_length_except_zeros(rng):
    rows = torch.from_numpy(rng.standard_normal((6, 4)))
    rows[2] = 0
    scaled = NormalizeScale(16.0)(rows.requires_grad_())
    expected = torch.full((6,), 16.0, dtype=torch.float64)
    expected[2] = 0
    torch.testing.assert_close(scaled.norm(dim=1), expected)
    torch.testing.assert_close(scaled[0] / 16, rows[0] / rows[0].norm())
    scaled.sum().backward()
    assert rows.grad.isfinite().all()
    assert torch.autograd.gradcheck(NormalizeScale(3.0), (rows.detach()[:2].requires_grad_(),))
    assert NormalizeScale(2.0)(torch.full((1, 4), 3e4).half()).tolist() == [[1.0] * 4]


@pytest.mark.parametrize("normalize", [True, False])
def test_decorrelated_loss_matches_a_slow_version(given, normalize, rng):
    z, labels, weights = given
    W = rng.standard_normal((3, 5))
    options = {"scale": 3.0, "decorrelation": 0.7, "normalize": normalize}
    loss = with_centers(DecorrelatedCentersLoss(3, 5, **options), W)
    used = W / np.linalg.norm(W, axis=1, keepdims=True) if normalize else W
    total = norm = penalty = 0.0
    for x, label, weight in zip(z.numpy(), labels.tolist(), weights.tolist(), strict=True):
        if label != -1:
            f = 3.0 * used @ x / np.linalg.norm(x)
            total += weight * (math.log(np.exp(f).sum()) - f[label])
            norm += weight
    for i in range(3):
        for j in range(i):
            penalty += 0.5 * (used[i] @ used[j]) ** 2 / 3  # K (K - 1) / 2 pairs
    value = loss(z, labels, weights=weights)
    assert value.item() == pytest.approx(total / norm + 0.7 * penalty, rel=1e-9)


@pytest.mark.parametrize("K", [2, 5])
def test_decorrelated_loss_known_value(K):
    loss = with_centers(DecorrelatedCentersLoss(K, K, scale=1.0), np.eye(K))
    value = loss(torch.eye(K).double(), torch.arange(K))
    assert value.item() == pytest.approx(math.log1p((K - 1) * math.exp(-1)), rel=1e-12)


@pytest.mark.parametrize(("K", "d"), [(4, 6), (6, 4)])
def test_correlation_gradient(K, d, rng):
    """Eq. (13), read as the sum over j of <w_i, w_j> w_j, averaged over the pairs."""
    W = torch.from_numpy(rng.standard_normal((K, d))).requires_grad_()
    value = center_correlation(W)
    value.backward()
    G = (W @ W.T).detach()
    G.fill_diagonal_(0)
    torch.testing.assert_close(value.detach(), G.square().sum() / 4 / (K * (K - 1) / 2))
    torch.testing.assert_close(W.grad, G @ W.detach() / (K * (K - 1) / 2))


def test_orthogonal_centers_stay_and_others_part(rng):
    W = torch.eye(4, 6, dtype=torch.float64).requires_grad_()
    center_correlation(W).backward()
    assert (W.grad == 0).all()
    W = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64, requires_grad=True)
    loss = with_centers(DecorrelatedCentersLoss(2, 2, decorrelation=1.0), W.detach())
    penalty = center_correlation(torch.nn.functional.normalize(loss.centers))
    (slope,) = torch.autograd.grad(penalty, loss.centers)
    unit = torch.nn.functional.normalize((loss.centers - 0.1 * slope).detach())
    assert abs(unit[0] @ unit[1]) < 0.8


def test_many_centers_reach_the_welch_bound():
    K, d = 7, 3
    torch.manual_seed(0)
    W = torch.randn(K, d, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([W], max_iter=200, tolerance_grad=1e-12)

    def closure():
        optimizer.zero_grad()
        value = center_correlation(torch.nn.functional.normalize(W))
        value.backward()
        return value

    optimizer.step(closure)
    least = K * (K - d) / d / 4 / (K * (K - 1) / 2)
    assert closure().item() == pytest.approx(least, rel=1e-6)


def test_one_center_has_zero_correlation():
    assert center_correlation(torch.ones(1, 3)) == 0


def test_tangent_gradient_keeps_the_value(rng):
    z, labels, _ = batch()
    W, slopes, values = rng.standard_normal((3, 5)), [], []
    for tangent in (False, True):
        options = {"normalize": False, "tangent": tangent, "scale": 2.0}
        loss = with_centers(DecorrelatedCentersLoss(3, 5, **options), W)
        value = loss(z, labels)
        value.backward()
        values.append(value.item())
        slopes.append(loss.centers.grad.numpy())
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    along = (slopes[0] * unit).sum(axis=1, keepdims=True)
    assert np.abs(along).min() > 1e-3
    np.testing.assert_allclose(slopes[1], slopes[0] - along * unit, atol=1e-12)


def test_ranking_loss_matches_a_slow_version(given, rng):
    z, labels, weights = given
    W = rng.standard_normal((3, 5))
    loss = with_centers(GlobalCenterRankingLoss(3, 5, margin=0.5), W)
    total = norm = 0.0
    hinges = []
    for x, label, weight in zip(z.numpy(), labels.tolist(), weights.tolist(), strict=True):
        if label != -1:
            far = [np.linalg.norm(x - w) for w in W]
            others = sum(far[j] for j in range(3) if j != label) / 2
            hinges.append(max(0.0, 0.5 + far[label] - others))
            total += weight * hinges[-1]
            norm += weight
    assert min(hinges) == 0 < max(hinges)
    assert loss(z, labels, weights=weights).item() == pytest.approx(total / norm, rel=1e-9)


def test_hinge_around_the_mean_is_eq_2(given, rng):
    z, labels, weights = given
    W, known = rng.standard_normal((3, 5)), labels != -1
    far = np.linalg.norm(z.numpy()[:, None] - W, axis=2)
    own = far[np.arange(16), labels.clamp_min(0)]
    terms = own - (far.sum(axis=1) - own) / 2
    mean = np.average(terms[known], weights=weights[known])
    for margin in (0.5, -9.0):
        loss = with_centers(GlobalCenterRankingLoss(3, 5, margin, hinge="batch"), W)
        expected = max(0.0, margin + mean)
        assert loss(z, labels, weights=weights).item() == pytest.approx(expected, rel=1e-9)
    per_row = with_centers(GlobalCenterRankingLoss(3, 5, 0.5), W)(z, labels, weights=weights)
    assert per_row > max(0.0, 0.5 + mean)  # some rows are within the margin


def near_centers(distance):
    """Rows at one distance of their centers, which have length 1, in float32."""
    torch.manual_seed(0)
    loss, labels = GlobalCenterRankingLoss(20, 64), torch.arange(20).repeat(3)
    step = torch.nn.functional.normalize(torch.randn(60, 64))
    return loss, (loss.centers.detach()[labels] + distance * step).requires_grad_(), labels


@pytest.mark.parametrize(
    ("distance", "rtol"), [(1e-1, 1e-6), (1e-2, 1e-6), (1e-3, 1e-5), (1e-4, 1e-5), (1e-5, 1e-4)]
)
def test_gradient_close_to_a_center_is_exact_in_float32(distance, rtol):
    """torch.cdist is wrong by up to two thirds at a thousandth of the lengths."""
    loss, z, labels = near_centers(distance)
    loss(z, labels).backward()
    twin = with_centers(GlobalCenterRankingLoss(20, 64), loss.centers.detach().double())
    x = z.detach().double().requires_grad_()
    twin(x, labels).backward()
    for found, exact in ((z.grad, x.grad), (loss.centers.grad, twin.centers.grad)):
        errors = (found - exact).norm(dim=1) / exact.norm(dim=1)
        assert errors.max() < rtol
    found = center_distances(z, loss.centers).detach().double()
    exact = torch.cdist(x, twin.centers).detach()
    torch.testing.assert_close(found, exact, rtol=max(1e-6, 1e-10 / distance), atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_on_its_center_is_pushed_by_the_others_alone(dtype):
    loss, z, labels = near_centers(0.0)
    loss, z = loss.to(dtype), z.detach().to(dtype).requires_grad_()
    loss(z, labels).backward()
    W = loss.centers.detach()
    away = torch.nn.functional.normalize(z.detach()[:, None] - W, dim=2)  # 0 for the own
    expected = -away.sum(dim=1) / 19 / 60
    torch.testing.assert_close(z.grad, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("hinge", ["row", "batch"])
def test_second_derivatives_of_the_ranking_loss(hinge, rng):
    z, labels, _ = batch()
    loss = with_centers(GlobalCenterRankingLoss(3, 5, hinge=hinge), rng.standard_normal((3, 5)))

    def value(z, centers):
        return torch.func.functional_call(loss, {"centers": centers}, (z, labels))

    given = z.requires_grad_(), loss.centers.detach().requires_grad_()
    assert torch.autograd.gradcheck(value, given)
    assert torch.autograd.gradgradcheck(value, given)
    jacrev, whole = torch.func.jacrev, lambda *given: value(*given).sum()
    expected = torch.autograd.functional.hessian(whole, given)
    torch.testing.assert_close(jacrev(jacrev(whole))(*given), expected[0][0])


def test_a_single_class_warns():
    with pytest.warns(UserWarning, match="DecorrelatedCentersLoss: num_classes must be at least 2"):
        loss = DecorrelatedCentersLoss(1, 5)
    assert loss(torch.ones(2, 5), torch.zeros(2, dtype=torch.long)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GlobalCenterRankingLoss(3, 5, hinge="sum"), "hinge must be one of 'row', 'batch'"),
        (lambda: GlobalCenterRankingLoss(1, 5), "num_classes must be at least 2; got 1"),
        (lambda: DecorrelatedCentersLoss(0, 5), "num_classes must be at least 1; got 0"),
        (lambda: DecorrelatedCentersLoss(3, 5, scale=0), "scale must be above 0; got 0"),
        (lambda: DecorrelatedCentersLoss(3, 5, decorrelation=-1), "decorrelation must be at least"),
        (lambda: NormalizeScale(-1.0), "NormalizeScale: scale must be above 0; got -1"),
    ],
)
def test_invalid_parameters_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_torch_func_has_the_gradient_of_backward():
    z, labels, _ = batch()
    loss = GlobalCenterRankingLoss(int(labels.max()) + 1, z.shape[1]).to(z)
    rows = z.detach().requires_grad_()
    loss(rows, labels).backward()
    found = torch.func.grad(lambda embeddings: loss(embeddings, labels))(z.detach())
    torch.testing.assert_close(found, rows.grad)
