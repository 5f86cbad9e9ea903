"""Contract of pair and triplet losses: tuples and reference rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_metric_learning.miners import TripletMarginMiner
from pytorch_metric_learning.utils.loss_and_miner_utils import get_all_pairs_indices

from ssdml.graphs import Triplets
from tests.losses import PAIRED, D, batch, gradient, make

every_loss_of_pairs = pytest.mark.parametrize("name", PAIRED)


@every_loss_of_pairs
def test_reference_rows_must_match_the_embeddings(name):
    loss, (z, labels, _) = make(name), batch()
    value, slope = gradient(loss, z[:8], labels[:8], ref_emb=z[8:], ref_labels=labels[8:])
    assert value.isfinite()
    assert (slope != 0).any()
    with pytest.raises(ValueError, match="ref_emb must have as many columns as embeddings = 5"):
        loss(z, labels, ref_emb=z[:, :3], ref_labels=labels)
    with pytest.raises(ValueError, match="ref_emb must have the dtype of embeddings"):
        loss(z, labels, ref_emb=z.float(), ref_labels=labels)
    with pytest.raises(TypeError, match=r"ref_emb must hold data; .* the device 'meta'"):
        loss(z, labels, ref_emb=z.to("meta"), ref_labels=labels)


@every_loss_of_pairs
def test_all_tuples_equal_the_labels(name):
    loss, (z, labels, _) = make(name), batch()
    known = (labels[:, None] != -1) & (labels != -1)
    same, eye = labels[:, None] == labels, torch.eye(16, dtype=torch.bool)
    pairs = (known & same & ~eye).nonzero().T, (known & ~same).nonzero().T
    by_labels = loss(z, labels)
    torch.testing.assert_close(loss(z, indices_tuple=(*pairs[0], *pairs[1])), by_labels)
    triplets = (known & same & ~eye)[:, :, None] & (known & ~same)[:, None, :]
    torch.testing.assert_close(loss(z, indices_tuple=triplets.nonzero().T.unbind()), by_labels)
    reference = {"ref_emb": z.clone(), "ref_labels": labels}
    tuples = (*pairs[0], *pairs[1])
    torch.testing.assert_close(loss(z, indices_tuple=tuples, **reference), by_labels)


@every_loss_of_pairs
@pytest.mark.parametrize("count", [3, 40])
def test_gradcheck_with_tuples_and_reference_rows(name, count, rng):
    loss, (z, _, _) = make(name), batch()
    other = torch.from_numpy(rng.standard_normal((9, D))).requires_grad_()
    ends = [torch.from_numpy(rng.integers(n, size=count)) for n in (16, 9, 9)]
    weights = torch.from_numpy(rng.random(count))

    def value(z, other):
        return loss(z, indices_tuple=ends, ref_emb=other, weights=weights)

    assert torch.autograd.gradcheck(value, (z.requires_grad_(), other), atol=1e-5)


@every_loss_of_pairs
def test_empty_tuples_give_zero(name):
    none = torch.zeros(0, dtype=torch.long)
    for tuples in ((none,) * 3, (none,) * 4):
        value, slope = gradient(make(name), batch()[0], indices_tuple=tuples)
        assert value == 0
        assert (slope == 0).all()


@every_loss_of_pairs
def test_malformed_tuples_raise(name):
    loss, z = make(name), batch()[0]
    a, beyond = torch.arange(3), torch.tensor([0, 1, 16])
    with pytest.raises(ValueError, match="indices_tuple must lie from 0 to 15, rows of the batch"):
        loss(z, indices_tuple=(a, a, beyond))
    mask = torch.ones(16, dtype=torch.bool)
    with pytest.raises(TypeError, match=r"rows of the batch; got a mask, .*mask\.nonzero\(\)"):
        loss(z, indices_tuple=(mask, mask, ~mask))
    with pytest.raises(ValueError, match=r"indices_tuple must have shape \(3,\)"):
        loss(z, indices_tuple=(a, a, a[:2]))
    for wrong in ((a, a), "abc", 3):
        with pytest.raises(ValueError, match=r"must be \(anchors, positives, negatives\) or"):
            loss(z, indices_tuple=wrong)
    with pytest.raises(ValueError, match=r"indices_tuple must have shape \(1,\); got shape \(\)"):
        loss(z, indices_tuple=(0, 3, 1))
    for wrong in (None, "x", [[0], [1, 2]], 1j):
        with pytest.raises(TypeError, match="indices_tuple must be an array of numbers; got "):
            loss(z, indices_tuple=(a, a, wrong))
    with pytest.raises(TypeError, match="indices_tuple must hold data; got"):
        loss(z, indices_tuple=(a, a, a.to("meta")))
    with pytest.raises(ValueError, match=r"weights must have one entry per triplet, shape \(3,\)"):
        loss(z, indices_tuple=(a, a, a), weights=torch.ones(16))
    if name != "entropy":
        with pytest.raises(ValueError, match="labels must be given without indices_tuple"):
            loss(z)


MINERS = {
    "triplets": TripletMarginMiner(margin=1.0),
    "pairs": lambda rows, labels: get_all_pairs_indices(labels),
}


# The miners of pytorch-metric-learning take -1 for a class.
@every_loss_of_pairs
@pytest.mark.parametrize("kind", MINERS)
def test_tuples_with_unlabeled_rows_are_ignored(name, kind):
    loss, mine, (z, labels, _) = make(name), MINERS[kind], batch()
    known = labels != -1
    mined = mine(z, labels)
    assert all((labels[ends] == -1).any() for ends in mined)
    value, slope = gradient(loss, z, labels, mined)
    rows = z[known], labels[known]
    expected, expected_slope = gradient(loss, *rows, mine(*rows))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(slope[known], expected_slope)
    assert (slope[~known] == 0).all()


@every_loss_of_pairs
def test_tuples_with_unlabeled_references_are_ignored(name, rng):
    loss, (z, labels, _) = make(name), batch()
    ends = torch.from_numpy(rng.integers(8, size=(3, 60)))
    weights = torch.from_numpy(rng.random(60))
    reference = {"ref_emb": z[8:], "ref_labels": labels[8:]}
    a, p, n = labels[:8][ends[0]] != -1, labels[8:][ends[1]] != -1, labels[8:][ends[2]] != -1
    for given, whole in ((labels[:8], a & p & n), (None, p & n)):
        assert not whole.all()
        value, slope = gradient(loss, z[:8], given, ends.unbind(), **reference, weights=weights)
        expected = gradient(
            loss, z[:8], None, ends[:, whole].unbind(), z[8:], weights=weights[whole]
        )
        torch.testing.assert_close((value, slope), expected)


@every_loss_of_pairs
def test_mined_triplets_keep_unlabeled_rows(name, rng):
    loss, (z, labels, _) = make(name), batch()
    mined = Triplets(
        *np.array([rng.choice(16, 3, replace=False) for _ in range(30)]).T, rng.random(30)
    )
    assert any((labels[torch.from_numpy(ends)] == -1).any() for ends in mined[:3])
    torch.testing.assert_close(gradient(loss, z, labels, mined), gradient(loss, z, None, mined))
