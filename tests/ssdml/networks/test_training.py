"""Training, pretraining and embedding of backbones."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from ssdml.networks.backbones import ResidualHead
from ssdml.networks.data import as_samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.training import Stepper, embed_samples, pretrain, rate_at


@pytest.fixture
def blobs(rng):
    """150 rows in 6 columns, three unequal, overlapping classes."""
    classes = np.repeat(np.arange(3), [100, 40, 10])
    X = rng.standard_normal((3, 6))[classes] + 0.5 * rng.standard_normal((150, 6))
    X = X.astype(np.float32)
    X.flags.writeable = False
    return X, classes


def new_head(d=6):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ResidualHead(d, n_hidden=32)


@pytest.mark.parametrize("kind", ["features", "embedding"])
def test_embeds_in_evaluation_mode(kind):
    backbone = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 4))
    network = MetricNetwork(backbone, torch.eye(4, 2), 2)
    X = np.random.default_rng(0).random((20, 3)).astype(np.float32)
    with torch.no_grad():
        rows = backbone[1](torch.from_numpy(X))
        expected = rows if kind == "features" else torch.nn.functional.normalize(rows[:, :2])
    found = embed_samples(network, as_samples(X, "test"), kind)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert network.training


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, partial(torch.optim.SGD, momentum=0.9)])
@pytest.mark.parametrize(
    "strides", [(3, 1), (1, 4), (6, 2)], ids=["rows", "columns", "every other number"]
)
def test_steps_take_parameters_of_any_layout(optimizer, strides):
    """Fused optimizers of torch misread parameters with gaps."""
    target = torch.arange(12.0).view(4, 3)
    networks = [MetricNetwork(torch.nn.Linear(3, 4), torch.eye(4, 2), 2) for _ in range(2)]
    with torch.no_grad():
        networks[1].load_state_dict(networks[0].state_dict())
    weight = torch.empty_strided((4, 3), strides).copy_(networks[0].backbone.weight.detach())
    networks[1].backbone.weight = torch.nn.Parameter(weight)
    for network in networks:
        stepper = Stepper(network, weight_decay=0.1, optimizer=partial(optimizer, lr=0.0))
        for _ in range(3):
            stepper.step((network.backbone.weight - target).square().sum(), 0.01)
    torch.testing.assert_close(networks[1].backbone.weight, networks[0].backbone.weight)


def test_learning_rate_warms_up_and_decays():
    rates = [rate_at(step, 100, 2.0) for step in range(100)]
    np.testing.assert_allclose(rates[:10], 0.2 * np.arange(1, 11))
    assert (np.diff(rates[10:]) < 0).all()
    assert rates[55] == pytest.approx(1.0)  # half way down
    assert 0 < rates[-1] < 0.01


def test_pretraining_trains_the_backbone_alone(blobs):
    X, classes = blobs
    rows = np.flatnonzero(np.arange(150) % 5 == 0)
    network = MetricNetwork(new_head(), torch.eye(6, 4), 3)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    rng = np.random.default_rng(0)
    losses = list(
        pretrain(network, as_samples(X, "test"), rows, classes[rows], epochs=300, rng=rng)
    )
    assert len(losses) == 300
    assert losses[-1] < losses[0] / 2
    after = network.state_dict()
    assert torch.equal(after["metric"], before["metric"])
    assert torch.equal(after["proxies"], before["proxies"])
    assert not torch.equal(after["backbone.hidden.weight"], before["backbone.hidden.weight"])


def test_pretraining_shuffles_every_epoch(blobs):
    X, classes = blobs
    seen, samples = [], as_samples(X, "test")
    batch = samples.batch
    samples.batch = lambda rows: (seen.append(rows), batch(rows))[1]
    network = MetricNetwork(new_head(), torch.eye(6, 4), 3)
    rng = np.random.default_rng(0)
    list(pretrain(network, samples, np.arange(20, 60), classes[20:60], epochs=2, rng=rng))
    first, second = np.concatenate(seen).reshape(2, 40)
    for order in (first, second):
        np.testing.assert_array_equal(np.sort(order), np.arange(20, 60))
    assert (first != second).any()
    assert (first != np.sort(first)).any()
