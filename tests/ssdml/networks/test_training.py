"""Training, pretraining and embedding of backbones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from ssdml.losses.angular import batch_angular_loss, batch_triplets
from ssdml.metric.residual import _balanced_batches, train_backbone
from ssdml.networks.backbones import ResidualHead
from ssdml.networks.data import as_samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.training import Schedule, embed_samples, pretrain, rate_at
from ssdml.utils.torch_tools import evaluating, find_device, has_bfloat16, one_thread, seeded
from tests.losses import same_on_two_threads

SHORT = Schedule(n_steps=40, batch_size=32)


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


def trained(blobs, *, seed=0, schedule=SHORT, backbone=None, **options):
    X, classes = blobs
    return train_backbone(
        backbone or new_head(),
        np.eye(6, 4),
        X,
        classes,
        angle=40.0,
        seed=seed,
        device="cpu",
        schedule=schedule,
        **options,
    )


def parameters(module):
    return [parameter.detach().numpy().copy() for parameter in module.parameters()]


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_same_seed_gives_the_same_bits(blobs):
    (one, losses), (two, again) = trained(blobs, seed=3), trained(blobs, seed=3)
    assert losses == again
    assert same(parameters(one), parameters(two))


def test_another_seed_gives_another_head(blobs):
    (one, losses), (two, others) = trained(blobs, seed=3), trained(blobs, seed=4)
    assert losses != others
    assert not same(parameters(one), parameters(two))


@pytest.mark.parametrize("threads", [1, 2])
def test_training_keeps_torchs_generator_and_threads(blobs, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        state = torch.get_rng_state()
        _, losses = trained(blobs)
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.get_rng_state(), state)
        torch.rand(5)
        assert trained(blobs)[1] == losses  # and what it holds does not matter
    finally:
        torch.set_num_threads(before)


def test_threads_are_given_back_after_an_error():
    before = torch.get_num_threads()

    def fail():
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before


def test_loss_falls_on_separable_classes(blobs):
    X, classes = blobs
    apart = X + 5 * np.eye(3, 6, dtype=np.float32)[classes]
    _, losses = trained((apart, classes), schedule=Schedule(n_steps=120, batch_size=64))
    assert len(losses) == 120
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


def test_training_separates_classes_that_no_linear_map_separates(rng):
    """Two rings: the between-class share of the scatter grows from 0."""
    angle, classes = rng.uniform(0, 2 * np.pi, 400), np.arange(400) % 2
    X = ((1 + classes) * np.array([np.cos(angle), np.sin(angle)])).T
    X = np.hstack([X, np.zeros((400, 2))]).astype(np.float32)

    def share_between(head):
        with torch.no_grad():
            Z = torch.nn.functional.normalize(head.eval()(torch.from_numpy(X)), dim=1).numpy()
        between = np.var([Z[classes == c].mean(axis=0) for c in (0, 1)], axis=0).sum()
        return between / Z.var(axis=0).sum()

    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = ResidualHead(4, n_hidden=128, dropout=0.0)
    before = share_between(head)
    schedule = Schedule(n_steps=200, batch_size=64, learning_rate=1e-2)
    head, _ = train_backbone(
        head, np.eye(4), X, classes, angle=40.0, seed=0, device="cpu", schedule=schedule
    )
    assert before < 0.05
    assert share_between(head) > 0.6


def test_backbone_is_trained_in_place(blobs):
    backbone = new_head()
    before = parameters(backbone)
    learned, _ = trained(blobs, backbone=backbone)
    assert learned is backbone
    assert not learned.training
    assert not same(parameters(learned), before)
    assert all(parameter.device.type == "cpu" for parameter in learned.parameters())


def test_evaluating_restores_the_mode():
    network = torch.nn.Sequential(torch.nn.Dropout())
    for training in (True, False):
        network.train(training)
        with evaluating(network):
            assert not network[0].training
        assert network[0].training is training
        with pytest.raises(RuntimeError, match="stop"), evaluating(network):
            raise RuntimeError("stop")
        assert network[0].training is training


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


def test_a_gpu_has_bfloat16_since_ampere(monkeypatch):
    for capability, expected in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, c=capability: c)
        assert has_bfloat16("cuda:1") is expected
    assert not has_bfloat16("cpu")


def test_progress_reaches_the_end(blobs):
    heard = []
    _, losses = trained(blobs, progress=heard.append)
    np.testing.assert_allclose(heard, np.arange(1, len(losses) + 1) / len(losses))


def test_empty_classes_do_not_matter(blobs):
    X, classes = blobs
    _, losses = trained((X, 5 * classes))
    assert np.isfinite(losses).all()


def test_one_class_gives_zero_loss(blobs):
    X, classes = blobs
    _, losses = trained((X, np.zeros_like(classes)), schedule=SHORT._replace(n_steps=3))
    assert losses == [0.0, 0.0, 0.0]  # the cross-entropy with one proxy is 0 as well


def test_batches_draw_the_classes_equally_often():
    classes = np.random.default_rng(1).permutation(np.repeat([0, 2, 5], [900, 90, 10]))
    plan = Schedule(n_steps=60, batch_size=100)
    batches = np.array(list(_balanced_batches(classes, plan, seed=0)))
    assert batches.shape == (60, 100)
    shares = np.bincount(classes[batches].ravel(), minlength=6) / 6000
    # standard error: sqrt(2/9 / 6000) = 0.006
    np.testing.assert_allclose(shares[[0, 2, 5]], 1 / 3, atol=0.03)
    rare = np.bincount(batches.ravel(), minlength=1000)[classes == 5]
    assert rare.min() > 120  # 200 on average
    assert rare.max() < 280


def test_batches_follow_their_seed():
    classes = np.arange(50) % 3
    one, two, other = (
        np.array(list(_balanced_batches(classes, SHORT, seed))) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_learning_rate_warms_up_and_decays():
    plan = Schedule(n_steps=100, learning_rate=2.0)
    rates = [rate_at(step / 100, plan) for step in range(100)]
    np.testing.assert_allclose(rates[:10], 0.2 * np.arange(1, 11))
    assert (np.diff(rates[10:]) < 0).all()
    assert rates[55] == pytest.approx(1.0)  # half way down
    assert 0 < rates[-1] < 0.01


@pytest.fixture
def batch():
    """24 rows on 3 columns; class 3 has a single row."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 9 + [1] * 8 + [2] * 6 + [3])
    return torch.randn(24, 3, generator=generator), labels


def test_positives_share_the_class_and_negatives_do_not(batch):
    z, labels = batch
    anchor, positive, negative = batch_triplets(z, labels, 5)
    assert (labels[anchor] == labels[positive]).all()
    assert (anchor != positive).all()
    assert (labels[anchor] != labels[negative]).all()


def test_anchors_have_one_positive_and_nearest_negatives(batch):
    z, labels = batch
    anchor, positive, negative = batch_triplets(z, labels, 4)
    for i in range(23):
        (partner,) = set(positive[anchor == i].tolist())
        middle = (z[i] + z[partner]) / 2
        others = [j for j in range(24) if labels[j] != labels[i]]
        nearest = sorted(others, key=lambda j: float((z[j] - middle).norm()))[:4]
        assert negative[anchor == i].tolist() == nearest


def test_single_rows_are_negatives_only(batch):
    z, labels = batch
    anchor, _, negative = batch_triplets(z, labels, 24)
    assert 23 not in anchor
    assert 23 in negative


def test_a_batch_of_one_class_has_no_triplets(batch):
    z, _ = batch
    assert all(len(part) == 0 for part in batch_triplets(z, torch.zeros(24, dtype=int), 5))


def test_a_batch_of_single_rows_has_no_triplets(batch):
    z, _ = batch
    assert all(len(part) == 0 for part in batch_triplets(z, torch.arange(24), 5))


def test_takes_all_negatives_if_few():
    z, labels = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
    anchor, positive, negative = batch_triplets(z, labels, 5)
    assert (anchor.tolist(), positive.tolist(), negative.tolist()) == ([0, 1], [1, 0], [2, 2])


def test_every_positive_is_drawn_eventually(batch):
    z, labels = batch
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = torch.cat([batch_triplets(z, labels, 1)[1][:1] for _ in range(200)])
    counts = torch.bincount(drawn, minlength=9)[1:9]  # anchor 0, eight others of its class
    assert counts.min() > 10  # 25 on average
    assert counts.sum() == 200


def test_finds_the_named_device(monkeypatch):
    assert find_device("cpu", "SSDML") == "cpu"
    for found, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=found: found)
        assert find_device("auto", "SSDML") == expected


def test_rejects_an_unavailable_device(monkeypatch):
    with pytest.raises(ValueError, match="got 'meta'"):
        find_device("meta", "SSDML")
    for name in ("gpu", "mps", "xpu:3"):  # none of which this machine may have
        monkeypatch.setattr(torch, "zeros", lambda *shape, **options: _refuse())
        with pytest.raises(ValueError, match=rf"one that torch finds; got '{name}'. Pass 'auto'"):
            find_device(name, "SSDML")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [find_device(name, "SSDML") for name in ("cuda", "cuda:1")] == ["cuda", "cuda:1"]
    with pytest.raises(ValueError, match="got 'cuda:2'"):
        find_device("cuda:2", "SSDML")


def _refuse():
    raise RuntimeError("no such device")


def test_schedule_depends_on_the_number_of_rows(blobs, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "ssdml.metric.residual.schedule_for",
        lambda n_rows: asked.append(n_rows) or Schedule(n_steps=3, batch_size=32),
    )
    X, classes = blobs
    _, losses = train_backbone(new_head(), np.eye(6), X, classes, angle=40.0, seed=0, device="cpu")
    assert (asked, len(losses)) == ([len(X)], 3)


def test_first_loss_equals_the_formula():
    """Two orthogonal pairs, uniform proxies: an angular loss plus ln 2."""
    X, classes = np.eye(2, dtype=np.float32)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    plan = Schedule(n_steps=1, batch_size=64, temperature=1e9, n_negatives=1)
    head = ResidualHead(2, dropout=0.0)
    _, losses = train_backbone(
        head, np.eye(2), X, classes, angle=45.0, seed=0, device="cpu", schedule=plan
    )
    margin = -4 * 2  # a = p, and the negative is at squared distance 2
    expected = math.log1p(math.exp(margin)) + math.log(2)
    assert losses == pytest.approx([expected], rel=1e-6)


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


def test_gradients_are_equal_on_two_threads():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(256, 64, generator=generator)
    labels = torch.arange(256) % 10

    def gradient():
        rows = start.clone().requires_grad_()
        with seeded(0, "cpu"):
            loss = batch_angular_loss(functional.normalize(rows, dim=1), labels, 40.0, 5)
        return torch.autograd.grad(loss, rows)[0]

    assert same_on_two_threads(gradient, times=50)
