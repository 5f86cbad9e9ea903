"""Pair losses against loops over the pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as peers
from pytorch_metric_learning.distances import DotProductSimilarity, LpDistance
from pytorch_metric_learning.reducers import MeanReducer

from ssdml.losses import (
    BinomialDevianceLoss,
    ContrastiveLoss,
    EntropyRegularizer,
    GlobalOrthogonalRegularizer,
    NPairBatchLoss,
)
from tests.losses import batch

AXES = torch.eye(3, dtype=torch.float64)


@pytest.fixture(params=["plain", "weighted"])
def given(request):
    """Rows, labels and weights as arrays, and the arguments of a loss."""
    z, labels, weights = batch()
    if request.param == "plain":
        return z.numpy(), labels.tolist(), np.ones(16), (z, labels)
    return z.numpy(), labels.tolist(), weights.numpy(), (z, labels, None, None, None, weights)


def pairs(labels, weights):
    """Ordered pairs of labeled rows: both rows, whether similar, the product of weights."""
    known = [i for i, label in enumerate(labels) if label != -1]
    return [
        (i, j, labels[i] == labels[j], weights[i] * weights[j])
        for i in known
        for j in known
        if i != j
    ]


def mean(values, weights):
    return sum(w * v for v, w in zip(values, weights, strict=True)) / sum(weights)


def cosine(x, y):
    return x @ y / np.linalg.norm(x) / np.linalg.norm(y)


@pytest.mark.parametrize(
    ("rows", "labels", "expected"),
    [
        ([0, 0], [1, 1], math.log1p(math.exp(-1))),  # a positive pair with cosine 1
        ([0, 0], [0, 1], math.log1p(math.exp(25))),  # a negative one
        ([0, 1], [0, 1], math.log1p(math.exp(-25))),  # a negative one at right angles
    ],
)
def test_deviance_known_values(rows, labels, expected):
    value = BinomialDevianceLoss()(AXES[rows], torch.tensor(labels))
    assert value.item() == pytest.approx(expected, rel=1e-9)


def test_deviance_matches_a_slow_version(given):
    z, labels, weights, arguments = given
    values = {True: ([], []), False: ([], [])}
    for i, j, alike, weight in pairs(labels, weights):
        sign, cost = (1, 1) if alike else (-1, 7)
        exponent = -sign * 3 * (cosine(z[i], z[j]) - 0.2) * cost
        values[alike][0].append(np.logaddexp(0, exponent))
        values[alike][1].append(weight)
    expected = mean(*values[True]) + mean(*values[False])
    loss = BinomialDevianceLoss(alpha=3, beta=0.2, negative_cost=7)
    assert loss(*arguments).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("rows", "labels", "expected"),
    [([0, 1], [0, 0], 2.0), ([0, 0], [0, 1], 1.0), ([0, 1], [0, 1], 0.0), ([0, 0], [0, 0], 0.0)],
)
def test_contrastive_known_values(rows, labels, expected):
    assert ContrastiveLoss()(7 * AXES[rows], torch.tensor(labels)).item() == pytest.approx(expected)


@pytest.mark.parametrize("normalize", [True, False])
def test_contrastive_matches_a_slow_version(given, normalize):
    """Eq. (2), with a mean in the place of either sum."""
    z, labels, weights, arguments = given
    if normalize:
        z = z / np.linalg.norm(z, axis=1, keepdims=True)
    values = {True: ([], []), False: ([], [])}
    for i, j, alike, weight in pairs(labels, weights):
        D = ((z[i] - z[j]) ** 2).sum()
        values[alike][0].append(D if alike else max(0.0, 2.5 - D))
        values[alike][1].append(weight)
    assert min(values[False][0]) == 0 < max(values[False][0])
    expected = mean(*values[True]) + mean(*values[False])
    loss = ContrastiveLoss(margin=2.5, normalize=normalize)
    assert loss(*arguments).item() == pytest.approx(expected, rel=1e-9)


def test_contrastive_matches_pytorch_metric_learning():
    z, labels, _ = batch()
    squared = LpDistance(power=2)
    theirs = peers.ContrastiveLoss(0, 1, distance=squared, reducer=MeanReducer())
    rows = z, labels.clamp_min(0)
    torch.testing.assert_close(ContrastiveLoss()(*rows), theirs(*rows))


def test_n_pair_known_value():
    value = NPairBatchLoss()(AXES[[0, 0, 1]], torch.tensor([0, 0, 1]))
    assert value.item() == pytest.approx(0.313262, abs=1e-6)


@pytest.mark.parametrize("normalize", [False, True])
def test_n_pair_matches_a_slow_version(given, normalize):
    z, labels, weights, arguments = given
    if normalize:
        z = z / np.linalg.norm(z, axis=1, keepdims=True)
    values, products = [], []
    for i, p, alike, weight in pairs(labels, weights):
        if alike:
            others = [n for n in range(16) if labels[n] not in (-1, labels[i])]
            terms = [weights[n] * math.exp(z[i] @ z[n] - z[i] @ z[p]) for n in others]
            values.append(math.log1p(sum(terms)))
            products.append(weight)
    value = NPairBatchLoss(normalize)(*arguments)
    assert value.item() == pytest.approx(mean(values, products), rel=1e-9)


def test_n_pair_matches_pytorch_metric_learning(rng):
    z = torch.from_numpy(rng.standard_normal((8, 5)))
    labels, anchors = torch.arange(4).repeat(2), torch.arange(4)
    theirs = peers.NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False))(z, labels)
    negative = (~torch.eye(4, dtype=torch.bool)).nonzero().T
    ours = NPairBatchLoss()(
        z[:4],
        indices_tuple=(anchors, anchors, *negative),
        ref_emb=z[4:],
    )
    torch.testing.assert_close(ours, theirs)


def test_repeated_pair_counts_once():
    z = batch()[0]
    once, twice = [[0, 1], [2, 3], [4, 5]], [[0, 1, 0], [2, 3, 2], [4, 5, 4]]
    for loss in (NPairBatchLoss(), BinomialDevianceLoss()):
        torch.testing.assert_close(loss(z, indices_tuple=once), loss(z, indices_tuple=twice))


def test_pair_weights_start_with_positive_pairs():
    z, tuples = batch()[0], ([0, 1], [2, 3], [4, 5, 6], [7, 8, 9])
    weights = np.array([1.0, 0.0, 0.0, 2.0, 0.0])
    value = BinomialDevianceLoss()(z, indices_tuple=tuples, weights=weights)
    alone = BinomialDevianceLoss()(z, indices_tuple=([0], [2], [5], [8]))
    torch.testing.assert_close(value, alone)


def test_entropy_at_the_threshold():
    z = (AXES / math.sqrt(2)).requires_grad_()  # all squared distances are 1
    value = EntropyRegularizer(threshold=1.0)(z)
    value.backward()
    assert value.item() == pytest.approx(-math.log(2), rel=1e-12)
    assert z.grad.abs().max() < 1e-15


def test_entropy_matches_a_slow_version(given):
    z, labels, weights, arguments = given
    values, products = [], []
    for i, j, _, weight in pairs(labels, weights):
        p = 1 / (1 + math.exp(((z[i] - z[j]) ** 2).sum() - 2.5))
        values.append(p * math.log(p) + (1 - p) * math.log(1 - p))
        products.append(weight)
    value = EntropyRegularizer(threshold=2.5)(*arguments)
    assert value.item() == pytest.approx(mean(values, products), rel=1e-9)


def test_entropy_without_labels_uses_all_pairs():
    z = batch()[0]
    one_class = torch.zeros(16, dtype=torch.long)
    torch.testing.assert_close(EntropyRegularizer()(z), EntropyRegularizer()(z, one_class))


def test_entropy_of_distant_pairs_is_zero():
    z = torch.tensor([[0.0], [1e3]], requires_grad=True)
    value = EntropyRegularizer()(z)
    value.backward()
    assert value == 0
    assert (z.grad == 0).all()


def test_orthogonality_known_values():
    loss, labels = GlobalOrthogonalRegularizer(), torch.arange(3)
    assert loss(AXES, labels) == 0
    assert loss(torch.ones_like(AXES), labels).item() == pytest.approx(5 / 3, rel=1e-12)
    with pytest.warns(UserWarning, match="GlobalOrthogonal.*: the batch must have a negative pair"):
        assert loss(torch.ones_like(AXES), labels * 0) == 0


def test_orthogonality_matches_a_slow_version(given):
    z, labels, weights, arguments = given
    z = np.abs(z)  # or the hinge would be at rest
    found = [(cosine(z[i], z[j]), w) for i, j, alike, w in pairs(labels, weights) if not alike]
    values, products = np.array(found).T
    first, second = mean(values, products), mean(values**2, products)
    assert second > 1 / 5
    value = GlobalOrthogonalRegularizer()(arguments[0].abs(), *arguments[1:])
    assert value.item() == pytest.approx(first**2 + second - 1 / 5, rel=1e-9)


def test_nonpositive_margin_raises():
    with pytest.raises(ValueError, match="ContrastiveLoss: margin must be above 0; got 0"):
        ContrastiveLoss(margin=0)


@pytest.mark.parametrize("name", ["alpha", "negative_cost"])
def test_nonpositive_slope_or_cost_raises(name):
    with pytest.raises(ValueError, match=f"BinomialDevianceLoss: {name} must be above 0; got 0"):
        BinomialDevianceLoss(**{name: 0})


def test_n_pair_without_negatives_is_zero():
    z, labels = batch()[0], torch.zeros(16, dtype=torch.long)
    with pytest.warns(UserWarning, match="must have an anchor with a positive and a negative; got"):
        assert NPairBatchLoss()(z, labels) == 0
    deviance = BinomialDevianceLoss()(z, labels)  # of the positive pairs alone
    cosines = torch.nn.functional.cosine_similarity(z[:, None], z[None], dim=2)
    values = torch.nn.functional.softplus(1 - 2 * cosines)[~torch.eye(16, dtype=torch.bool)]
    torch.testing.assert_close(deviance, values.mean())
