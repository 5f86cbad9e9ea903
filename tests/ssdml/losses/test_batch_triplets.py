"""Triplets within a batch, with the nearest negatives."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from ssdml.losses.angular import batch_angular_loss, batch_triplets
from tests.losses import same_on_two_threads


@pytest.fixture
def batch():
    """24 rows on 3 columns; class 3 has a single row."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 9 + [1] * 8 + [2] * 6 + [3])
    return torch.randn(24, 3, generator=generator), labels


def triplets(z, labels, n_negatives):
    *ends, kept = batch_triplets(z, labels, n_negatives, torch.rand(len(z), len(z)))
    return [rows[kept] for rows in ends]


def test_positives_share_the_class_and_negatives_do_not(batch):
    z, labels = batch
    anchor, positive, negative = triplets(z, labels, 5)
    assert (labels[anchor] == labels[positive]).all()
    assert (anchor != positive).all()
    assert (labels[anchor] != labels[negative]).all()


def test_anchors_have_one_positive_and_nearest_negatives(batch):
    z, labels = batch
    anchor, positive, negative = triplets(z, labels, 4)
    for i in range(23):
        (partner,) = set(positive[anchor == i].tolist())
        middle = (z[i] + z[partner]) / 2
        others = [j for j in range(24) if labels[j] != labels[i]]
        nearest = sorted(others, key=lambda j: float((z[j] - middle).norm()))[:4]
        assert negative[anchor == i].tolist() == nearest


def test_single_rows_are_negatives_only(batch):
    z, labels = batch
    anchor, _, negative = triplets(z, labels, 24)
    assert 23 not in anchor
    assert 23 in negative


def test_a_batch_of_one_class_has_no_triplets(batch):
    z, _ = batch
    assert all(len(part) == 0 for part in triplets(z, torch.zeros(24, dtype=int), 5))


def test_a_batch_of_single_rows_has_no_triplets(batch):
    z, _ = batch
    assert all(len(part) == 0 for part in triplets(z, torch.arange(24), 5))


def test_takes_all_negatives_if_few():
    z, labels = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
    anchor, positive, negative = triplets(z, labels, 5)
    assert (anchor.tolist(), positive.tolist(), negative.tolist()) == ([0, 1], [1, 0], [2, 2])


def test_every_positive_is_drawn_eventually(batch):
    z, labels = batch
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = torch.cat([triplets(z, labels, 1)[1][:1] for _ in range(200)])
    counts = torch.bincount(drawn, minlength=9)[1:9]  # anchor 0, eight others of its class
    assert counts.min() > 10  # 25 on average
    assert counts.sum() == 200


def test_gradients_are_equal_on_two_threads():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(256, 64, generator=generator)
    drawn = torch.rand(256, 256, generator=generator)
    labels = torch.arange(256) % 10

    def gradient():
        rows = start.clone().requires_grad_()
        loss = batch_angular_loss(functional.normalize(rows, dim=1), labels, 40.0, 5, drawn)
        return torch.autograd.grad(loss, rows)[0]

    assert same_on_two_threads(gradient, times=5)
