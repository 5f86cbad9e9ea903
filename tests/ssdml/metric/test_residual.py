"""Training of residual backbones on propagated classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ssdml.metric.residual import _balanced_batches, train_backbone
from ssdml.networks.backbones import ResidualHead
from ssdml.networks.training import Schedule

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
