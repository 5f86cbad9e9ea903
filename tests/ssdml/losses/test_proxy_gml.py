"""ProxyGML on the subgraph of ``graphs.proxies``, Zhu et al. (2020)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ssdml.losses import ProxyGMLLoss, proxy_gml as module
from tests.losses import batch, make


def known(C, d, proxies, **options):
    loss = ProxyGMLLoss(C, d, **options).double()
    with torch.no_grad():
        loss.proxies.copy_(torch.as_tensor(proxies))
    return loss


def slow(z, labels, weights, loss):
    """The paper's code for one row and proxy at a time, with the mask by edges."""
    P, classes = loss.proxies.detach().numpy(), loss.proxy_classes.tolist()
    P = P / np.linalg.norm(P, axis=1, keepdims=True)
    C, k = loss.num_classes, loss.k
    total = norm = 0.0
    for x, label, weight in zip(z, labels, weights, strict=True):
        if label == -1:
            continue
        S = P @ x / np.linalg.norm(x)
        lift = 1000 * loss.positive_mask
        ranked = sorted(range(len(P)), key=lambda j: -S[j] - lift * (classes[j] == label))
        sums = {} if loss.mask_softmax else dict.fromkeys(range(C), 0.0)
        for j in ranked[:k]:
            sums[classes[j]] = sums.get(classes[j], 0) + S[j]
        p = math.exp(sums[label]) / sum(map(math.exp, sums.values())) if label in sums else 0
        total -= weight * math.log(p + 1e-20)
        norm += weight
    one_hot = np.eye(C)[classes]
    logits = P @ P.T @ one_hot
    regular = np.mean(np.log(np.exp(logits).sum(axis=1)) - (logits * one_hot).sum(axis=1))
    return total / norm + loss.regularization * regular


SWITCHES = [(True, True), (False, True), (True, False), (False, False)]


@pytest.mark.filterwarnings("ignore:ProxyGMLLoss. ratio must connect:UserWarning")
@pytest.mark.parametrize("ratio", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("positive", "mask"), SWITCHES)
def test_loss_matches_a_slow_version(ratio, weighted, positive, mask):
    z, labels, weights = batch()
    weights = weights if weighted else torch.ones_like(weights)
    torch.manual_seed(0)
    switches = {"positive_mask": positive, "mask_softmax": mask}
    loss = ProxyGMLLoss(3, 5, n_proxies=4, ratio=ratio, **switches).double()
    expected = slow(z.numpy(), labels.tolist(), weights.tolist(), loss)
    assert loss(z, labels, weights=weights).item() == pytest.approx(expected, rel=1e-9)


def test_known_value():
    """With the mask by edges an orthogonal class counts if an edge leads to it."""
    loss = known(2, 2, np.eye(2), n_proxies=1, ratio=1.0, regularization=0.0)
    x = torch.tensor([[1.0, 0.0]]).double()
    expected = math.log1p(math.exp(-1))
    assert loss(x, torch.tensor([0])).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("num_classes", [2, 10, 20])
def test_defaults_give_a_gradient_with_few_classes(num_classes, rng):
    """By the ratio a row would be connected to at most 12 proxies, those of its own class."""
    message = rf"n_proxies=12 proxies, .* got ratio=0\.05 of {12 * num_classes} proxies"
    with pytest.warns(UserWarning, match=f"ProxyGMLLoss: ratio must connect a row .* {message}"):
        loss = ProxyGMLLoss(num_classes, 8)
    assert loss.k == 13
    z = torch.from_numpy(rng.standard_normal((16, 8))).float().requires_grad_()
    loss.regularization = 0.0  # of the proxies alone
    loss(z, torch.arange(16) % num_classes).backward()
    assert (z.grad.norm(dim=1) > 1e-3).all()


def test_suggested_ratio_is_silent_and_connects_60():
    with pytest.warns(UserWarning, match=r"Uses k=13; pass ratio=0\.5\."):
        ProxyGMLLoss(10, 8)
    assert ProxyGMLLoss(10, 8, ratio=0.5).k == 60
    with pytest.warns(UserWarning, match=r"Uses k=151; pass ratio=0\.051\."):
        ProxyGMLLoss(20, 8, n_proxies=150)
    assert ProxyGMLLoss(20, 8, n_proxies=150, ratio=0.051).k > 150


@pytest.mark.parametrize(
    ("C", "N", "ratio", "k"), [(98, 12, 0.05, 59), (100, 1, 0.07, 8), (50, 12, 0.29, 174)]
)
def test_k_is_rounded_as_in_the_published_code(C, N, ratio, k):
    assert ProxyGMLLoss(C, 4, N, ratio).k == k == math.ceil(ratio * C * N)


def test_a_single_class_warns():
    with pytest.warns(UserWarning, match="ProxyGMLLoss: num_classes must be at least 2 for a grad"):
        ProxyGMLLoss(1, 5)


def test_without_the_positive_mask_a_missed_class_has_no_gradient():
    """As in the published code: -log 1e-20."""
    switches = {"ratio": 0.5, "regularization": 0.0, "positive_mask": False}
    loss = known(2, 2, np.eye(2), n_proxies=1, **switches)
    x = torch.tensor([[1.0, 0.1]], dtype=torch.float64, requires_grad=True)
    value = loss(x, torch.tensor([1]))
    value.backward()
    assert value.item() == pytest.approx(-math.log(1e-20))
    assert (x.grad == 0).all()
    loss.mask_softmax = False
    value = loss(x, torch.tensor([1]))
    value.backward()
    assert value.item() == pytest.approx(math.log1p(math.exp(1 / math.hypot(1, 0.1))))
    assert (x.grad != 0).any()


def test_unselected_proxies_have_no_gradient():
    torch.manual_seed(0)
    loss = ProxyGMLLoss(3, 5, n_proxies=4, ratio=0.5, regularization=0.0).double()
    z = batch()[0]
    loss(z[:1], torch.tensor([1])).backward()
    touched = (loss.proxies.grad != 0).any(dim=1)
    assert touched.sum() == 6
    assert touched[4:8].all()


def test_regularizer_blocks_change_nothing(monkeypatch):
    z, labels, _ = batch()
    found = []
    for block in (2**22, 8):
        monkeypatch.setattr(module, "BLOCK", block)
        loss = make("proxies")
        value = loss(z, labels)
        value.backward()
        found.append((value.detach(), loss.proxies.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_learned_proxies_separate_the_classes(rng):
    centers = torch.from_numpy(rng.standard_normal((3, 5))).float()
    labels = torch.arange(3).repeat(20)
    z = centers[labels] + 0.1 * torch.from_numpy(rng.standard_normal((60, 5))).float()
    torch.manual_seed(0)
    loss = ProxyGMLLoss(3, 5, n_proxies=2, ratio=1.0)
    optimizer = torch.optim.Adam(loss.parameter_groups())
    assert optimizer.param_groups[0]["lr"] == 0.03
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        values.append(loss(z, labels))
        values[-1].backward()
        optimizer.step()
    assert values[-1] < 0.6 * values[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 20}, "ratio must be above 0 and at most 1; got 20"),
        ({"regularization": -1}, "regularization must be at least 0; got -1"),
        ({"n_proxies": 0}, "n_proxies must be at least 1; got 0"),
    ],
)
def test_invalid_parameters_raise(options, message):
    with pytest.raises(ValueError, match=message):
        ProxyGMLLoss(3, 5, **options)
