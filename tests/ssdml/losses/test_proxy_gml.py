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
    C, k = loss.num_classes, math.ceil(loss.ratio * len(P))
    total = norm = 0.0
    for x, label, weight in zip(z, labels, weights, strict=True):
        if label == -1:
            continue
        S = P @ x / np.linalg.norm(x)
        ranked = sorted(range(len(P)), key=lambda j: -S[j] - 1000 * (classes[j] == label))
        sums = {}
        for j in ranked[:k]:
            sums[classes[j]] = sums.get(classes[j], 0) + S[j]
        total -= weight * (sums[label] - math.log(sum(map(math.exp, sums.values()))))
        norm += weight
    one_hot = np.eye(C)[classes]
    logits = P @ P.T @ one_hot
    regular = np.mean(np.log(np.exp(logits).sum(axis=1)) - (logits * one_hot).sum(axis=1))
    return total / norm + loss.regularization * regular


@pytest.mark.parametrize("ratio", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_matches_a_slow_version(ratio, weighted):
    z, labels, weights = batch()
    weights = weights if weighted else torch.ones_like(weights)
    torch.manual_seed(0)
    loss = ProxyGMLLoss(3, 5, n_proxies=4, ratio=ratio).double()
    expected = slow(z.numpy(), labels.tolist(), weights.tolist(), loss)
    assert loss(z, labels, weights=weights).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 0.0), (1.0, math.log1p(math.exp(-1)))])
def test_known_values(ratio, expected):
    """With the mask by edges an orthogonal class counts if an edge leads to it."""
    loss = known(2, 2, np.eye(2), n_proxies=1, ratio=ratio, regularization=0.0)
    x = torch.tensor([[1.0, 0.0]]).double()
    assert loss(x, torch.tensor([0])).item() == pytest.approx(expected, abs=1e-12)


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
