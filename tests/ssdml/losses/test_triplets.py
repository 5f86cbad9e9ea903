"""Angular loss over mined triplets and over all that labels allow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ssdml.graphs import Triplets
from ssdml.losses import AngularTripletLoss, angular
from tests.losses import batch


def slow(z, triplets, weights, angle=40.0):
    """Weighted mean of Eq. (3), triplet by triplet."""
    factor, total = 4 * math.tan(math.radians(angle)) ** 2, 0.0
    for (i, j, k), weight in zip(triplets, weights, strict=True):
        a, p, n = z[i], z[j], z[k]
        m = ((a - p) ** 2).sum() - factor * ((n - (a + p) / 2) ** 2).sum()
        total += weight * np.logaddexp(0, m)
    return total / sum(weights)


def all_triplets(labels):
    known = [i for i, label in enumerate(labels) if label != -1]
    return [
        (i, j, k)
        for i in known
        for j in known
        for k in known
        if i != j and labels[i] == labels[j] != labels[k]
    ]


@pytest.fixture
def mined(rng):
    """Ten triplets of 16 rows as ``mine_triplets`` returns them: NumPy, with weights."""
    ends = np.array([rng.choice(16, 3, replace=False) for _ in range(10)]).T
    triplets = Triplets(*ends, rng.random(10) + 0.1)
    for part in triplets:
        part.flags.writeable = False
    return triplets


def test_known_value():
    z = torch.tensor([[0.0], [0.0], [1.0]], dtype=torch.float64)  # m = -4 at 45 degrees
    ends = tuple(torch.tensor([i]) for i in range(3))
    value = AngularTripletLoss(angle=45.0)(z, indices_tuple=ends)
    assert value.item() == pytest.approx(math.log1p(math.exp(-4)), rel=1e-12)


@pytest.mark.parametrize("angle", [30.0, 40.0, 55.0])
@pytest.mark.parametrize("d", [5, 500])  # by all differences, and by all pairs
def test_mined_triplets_match_a_slow_version(mined, angle, d, rng):
    z = torch.from_numpy(rng.standard_normal((16, d)) / math.sqrt(d))
    loss, ends = AngularTripletLoss(angle), tuple(torch.tensor(part) for part in mined[:3])
    triplets = list(zip(*mined[:3], strict=True))
    expected = slow(z.numpy(), triplets, mined.weight, angle)
    weights = torch.tensor(mined.weight)
    assert loss(z, indices_tuple=ends, weights=weights).item() == pytest.approx(expected, rel=1e-9)
    assert loss(z, indices_tuple=mined).item() == pytest.approx(expected, rel=1e-9)
    plain = slow(z.numpy(), triplets, np.ones(10), angle)
    for given in (ends, np.stack(ends), torch.from_numpy(np.stack(ends))):
        assert loss(z, indices_tuple=given).item() == pytest.approx(plain, rel=1e-9)


def test_labels_give_all_triplets_with_product_weights():
    z, labels, weights = batch()
    triplets = all_triplets(labels.tolist())
    products = [float(weights[list(triplet)].prod()) for triplet in triplets]
    loss = AngularTripletLoss()
    expected = slow(z.numpy(), triplets, products)
    assert loss(z, labels, weights=weights).item() == pytest.approx(expected, rel=1e-9)
    expected = slow(z.numpy(), triplets, np.ones(len(triplets)))
    assert loss(z, labels).item() == pytest.approx(expected, rel=1e-9)


def test_row_and_triplet_weights_multiply(mined):
    z, _, weights = batch()
    triplets = list(zip(*mined[:3], strict=True))
    products = [w * float(weights[list(t)].prod()) for w, t in zip(mined[3], triplets, strict=True)]
    value = AngularTripletLoss()(z, indices_tuple=mined, weights=weights)
    assert value.item() == pytest.approx(slow(z.numpy(), triplets, products), rel=1e-9)


@pytest.mark.parametrize("count", [2, 200])  # by all differences, and by all pairs
def test_reference_rows_as_positives_and_negatives(count, rng):
    z, other = batch()[0], torch.from_numpy(rng.standard_normal((20, 5)))
    ends = torch.from_numpy(np.stack([rng.integers(n, size=count) for n in (16, 20, 20)]))
    both = np.concatenate([z.numpy(), other.numpy()])
    triplets = [(i, 16 + j, 16 + k) for i, j, k in ends.T.tolist()]
    value = AngularTripletLoss()(z, indices_tuple=tuple(ends), ref_emb=other)
    assert value.item() == pytest.approx(slow(both, triplets, np.ones(count)), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [5, 500])  # by triplets, and by all pairs
def test_pairs_form_triplets_with_equal_anchors_once(d, weighted, rng):
    """A repeated pair counts once, with its largest weight."""
    z = torch.from_numpy(rng.standard_normal((16, d)) / math.sqrt(d))
    near, far = rng.integers(16, size=(2, 12)), rng.integers(16, size=(2, 20))
    near[0], far[0] = near[0] % 6, far[0] % 6
    near[:, 1], far[:, 1] = near[:, 0], far[:, 0]
    weights = rng.random(32) if weighted else np.ones(32)
    of_near, of_far = {}, {}
    for pairs, given, kept in ((near, weights[:12], of_near), (far, weights[12:], of_far)):
        for pair, weight in zip(pairs.T.tolist(), given, strict=True):
            kept[tuple(pair)] = max(weight, kept.get(tuple(pair), 0.0))
    triplets = [(i, j, k) for i, j in of_near for anchor, k in of_far if anchor == i]
    products = [of_near[i, j] * of_far[i, k] for i, j, k in triplets]
    tuples = tuple(torch.from_numpy(part) for part in (*near, *far))
    value = AngularTripletLoss()(z, None, tuples, weights=weights if weighted else None)
    assert value.item() == pytest.approx(slow(z.numpy(), triplets, products), rel=1e-9)


class LargestTensor(TorchDispatchMode):
    """Records the number of entries of the largest tensor that torch makes."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for part in made if isinstance(made, tuple | list) else (made,):
            if isinstance(part, torch.Tensor):
                self.largest = max(self.largest, part.numel())
        return made


@pytest.mark.parametrize("by", ["triplets", "mined pairs", "pairs"])
def test_many_references_take_memory_of_the_triplets(by, rng):
    """Not of all pairs of references, of which there are nine millions."""
    n, m, d, T = 20, 3000, 16, 400
    z, other = (torch.from_numpy(rng.standard_normal((k, d))).requires_grad_() for k in (n, m))
    if by == "triplets":
        ends = torch.from_numpy(np.stack([rng.integers(k, size=T) for k in (n, m, m)]))
        given, most = {"indices_tuple": tuple(ends)}, max(T, m) * d
    elif by == "mined pairs":
        anchor = torch.arange(T) % n
        near, far = torch.from_numpy(rng.integers(m, size=(2, T)))
        given, most = {"indices_tuple": (anchor, near, anchor, far)}, T * T // n * d
    else:  # one positive each
        labels = torch.arange(n), torch.arange(m)
        given, most = {"labels": labels[0], "ref_labels": labels[1]}, max(n * m, m * d)
    with LargestTensor() as seen:
        AngularTripletLoss()(z, ref_emb=other, **given).backward()
    assert seen.largest <= most


@pytest.mark.parametrize("weighted", [False, True])
def test_few_negatives_take_memory_of_their_triplets(weighted, rng):
    """By labels: one row of another class, and 9,900 positive pairs of 100 rows."""
    z = torch.from_numpy(rng.standard_normal((101, 4)) / 4).requires_grad_()
    labels, weights = (
        (torch.arange(101) == 50).long(),
        rng.random(101) if weighted else np.ones(101),
    )
    with LargestTensor() as seen:
        value = AngularTripletLoss()(z, labels, weights=weights)
        value.backward()
    assert seen.largest <= 9900 * 4
    triplets = [(i, j, 50) for i in range(101) for j in range(101) if 50 not in (i, j) and i != j]
    products = [weights[list(triplet)].prod() for triplet in triplets]
    assert value.item() == pytest.approx(slow(z.detach().numpy(), triplets, products), rel=1e-9)


@pytest.mark.parametrize("by", ["labels", "pairs"])
@pytest.mark.parametrize("own", [True, False])  # or with references
def test_blocks_match_all_pairs_at_once(by, own, rng, monkeypatch):
    """Values and first two derivatives, with weights, and with several anchors per block."""
    z, labels, weights = batch()
    other = z if own else torch.from_numpy(rng.standard_normal((20, 5)))
    ends = labels if own else torch.arange(20) % 4
    tuples = None
    if by == "pairs":
        draw = (rng.integers(n, size=40) for n in (16, len(other), 16, len(other)))
        tuples, weights = tuple(torch.from_numpy(part) for part in draw), rng.random(80)

    def loss(rows, reference):
        given = {} if own else {"ref_emb": reference, "ref_labels": ends}
        return AngularTripletLoss()(rows, labels, tuples, weights=weights, **given)

    given = z.clone().requires_grad_(), other.clone().requires_grad_(not own)
    found = {}
    for way in ("pairs", "blocks"):
        monkeypatch.setattr(angular, "_cheapest_way", lambda batch, who, way=way: way)
        monkeypatch.setattr(angular, "BLOCK", 50)
        value = loss(*given)
        kept = [end for end in given if end.requires_grad]
        found[way] = [value, *torch.autograd.grad(value, kept)]
    torch.testing.assert_close(found["blocks"], found["pairs"])
    slopes = torch.func.grad(loss, (0,) if own else (0, 1))(z, other)
    torch.testing.assert_close([*slopes], found["blocks"][1:])
    assert torch.autograd.gradcheck(loss, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(loss, given, fast_mode=True)


def test_blocks_sum_all_triplets_of_labels(monkeypatch):
    z, labels, weights = batch()
    monkeypatch.setattr(angular, "_cheapest_way", lambda batch, who: "blocks")
    triplets = all_triplets(labels.tolist())
    for given, products in (
        ({}, np.ones(len(triplets))),
        ({"weights": 9e9 * weights}, [float(weights[list(t)].prod()) for t in triplets]),
    ):
        value = AngularTripletLoss()(z.float(), labels, **given)
        assert value.item() == pytest.approx(slow(z.numpy(), triplets, products), rel=1e-5)
    one = torch.zeros(16, dtype=torch.long)
    z.requires_grad_()
    with pytest.warns(UserWarning, match="must have an anchor with a positive and a negative"):
        value = AngularTripletLoss()(z, one)
    value.backward()
    assert value == 0
    assert (z.grad == 0).all()


@pytest.mark.parametrize("mined", [True, False])
def test_millions_of_triplets_take_bounded_memory(mined, rng):
    """24 million triplets of 16 rows with 2,000 references of four classes."""
    z, other = (torch.from_numpy(rng.standard_normal((k, 8))).float() for k in (16, 2000))
    labels, ends = torch.arange(16) % 4, torch.arange(2000) % 4
    same = labels[:, None] == ends
    tuples = (*same.nonzero().T, *(~same).nonzero().T) if mined else None
    z.requires_grad_()
    with LargestTensor() as seen:
        value = AngularTripletLoss()(z, labels, tuples, ref_emb=other, ref_labels=ends)
        with torch.autocast("cpu", torch.bfloat16):  # the backward pass, too, is in float32
            slope, *_ = torch.autograd.grad(value, z)
    assert seen.largest <= angular.BLOCK
    alone = [
        AngularTripletLoss()(z[[i]], labels[[i]], ref_emb=other, ref_labels=ends) for i in range(16)
    ]
    mean = torch.stack(alone).mean()
    torch.testing.assert_close(value, mean)
    torch.testing.assert_close(slope, *torch.autograd.grad(mean, z))


def test_translation_invariance():
    z, labels, _ = batch(torch.float32)
    near, far = (AngularTripletLoss()(rows, labels) for rows in (z, z + 100))
    torch.testing.assert_close(far, near, rtol=1e-4, atol=1e-5)


def test_row_outside_triplets_has_no_gradient():
    z = batch()[0].requires_grad_()
    AngularTripletLoss()(z, indices_tuple=([0, 1], [2, 3], [4, 5])).backward()
    assert (z.grad[:6] != 0).any(dim=1).all()
    assert (z.grad[6:] == 0).all()


def test_angle_out_of_range_raises():
    message = "AngularTripletLoss: angle must lie strictly between 0 and 90; got 90"
    with pytest.raises(ValueError, match=message):
        AngularTripletLoss(90.0)
    with pytest.raises(TypeError, match="AngularTripletLoss: angle must be a number; got '40'"):
        AngularTripletLoss("40")
