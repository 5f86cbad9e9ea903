"""Losses, wrappers and miners of pytorch-metric-learning, with ours."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import pytorch_metric_learning.losses as peers
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.reducers import SumReducer
from pytorch_metric_learning.regularizers import LpRegularizer
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from pytorch_metric_learning.utils.loss_and_miner_utils import (
    convert_to_weights,
    get_all_pairs_indices,
    get_all_triplets_indices,
)
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ssdml.graphs import Triplets
from ssdml.losses import (
    AngularTripletLoss,
    BinomialDevianceLoss,
    DensityAdaptivity,
    EntropyRegularizer,
    GraphConsistency,
    Loss,
    LossSum,
    NormalizeScale,
    ProxyGMLLoss,
)
from ssdml.losses.batch import row_counts
from tests.losses import HELD, LOSSES, PAIRED, batch, gradient, make


def test_foreign_losses_add_on_either_side():
    z, labels, _ = batch()
    known = labels != -1
    theirs, ours = peers.TripletMarginLoss(), EntropyRegularizer()
    expected = theirs(z[known], labels[known]) + 0.1 * ours(z, labels)
    for loss in (theirs + 0.1 * ours, 0.1 * ours + theirs, LossSum([theirs, (0.1, ours)])):
        torch.testing.assert_close(loss(z, labels), expected)


def test_foreign_losses_see_labeled_rows_only():
    z, labels, weights = batch()
    loss = LossSum([peers.ContrastiveLoss()])
    z.requires_grad_()
    with pytest.warns(UserWarning, match="must have a labeled row; got 16 rows, none of them"):
        value = loss(z, torch.full_like(labels, -1))
    value.backward()
    assert value == 0
    assert (z.grad == 0).all()
    with pytest.raises(ValueError, match="weights must be None with ContrastiveLoss, which takes"):
        loss(z, labels, weights=weights)


OTHERS = {
    "triplet": lambda: peers.TripletMarginLoss(),
    "contrastive": lambda: peers.ContrastiveLoss(),
    "softmax": lambda: peers.NormalizedSoftmaxLoss(3, 5),
    "proxy-nca": lambda: peers.ProxyNCALoss(3, 5),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", ["triplets", "pairs"])
def test_foreign_losses_see_labeled_tuples_only(name, kind):
    mine = {"triplets": get_all_triplets_indices, "pairs": get_all_pairs_indices}[kind]
    theirs, (z, labels, _) = OTHERS[name]().double(), batch()
    known = labels != -1
    value, slope = gradient(LossSum([theirs]), z, labels, mine(labels))
    rows = z[known], labels[known]
    expected, expected_slope = gradient(theirs, *rows, mine(labels[known]))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(slope[known], expected_slope)
    assert (slope[~known] == 0).all()


def test_foreign_tuples_use_labeled_references():
    z, labels, _ = batch()
    theirs, known = peers.TripletMarginLoss(), labels[8:] != -1
    tuples = get_all_triplets_indices(labels[:8], labels[8:])
    value = LossSum([theirs])(z[:8], labels[:8].clamp_min(1), tuples, z[8:], labels[8:])
    ends = known[tuples[1]] & known[tuples[2]]
    assert not ends.all()
    plain = tuple(part[ends] for part in tuples)
    torch.testing.assert_close(value, theirs(z[:8], None, plain, z[8:]))


def test_foreign_tuples_must_index_the_batch():
    z, labels, _ = batch()
    with pytest.raises(ValueError, match="LossSum: indices_tuple must lie from 0 to 15, rows of"):
        LossSum([peers.TripletMarginLoss()])(z, labels, ([0], [3], [16]))


def test_row_losses_ignore_mined_triplets(rng):
    z, labels, _ = batch()
    mined = Triplets(*np.array([rng.choice(16, 3, replace=False) for _ in range(6)]).T, np.ones(6))
    for theirs in (peers.NormalizedSoftmaxLoss(3, 5).double(), peers.SoftTripleLoss(3, 5).double()):
        loss = LossSum([theirs])
        torch.testing.assert_close(gradient(loss, z, labels, mined), gradient(loss, z, labels))


def test_mined_triplets_reach_every_pair_loss(rng):
    z, labels, _ = batch()
    ends = np.array([rng.choice(16, 3, replace=False) for _ in range(6)]).T
    mined = Triplets(*ends, rng.random(6))
    plain = tuple(torch.from_numpy(part) for part in ends)
    theirs, ours = peers.TripletMarginLoss(), AngularTripletLoss()
    expected = theirs(z, indices_tuple=plain) + ours(z, indices_tuple=mined)
    torch.testing.assert_close((theirs + ours)(z, labels, mined), expected)


class Wrapped(nn.Module):
    """A loss on scaled rows with its own parameter groups."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, embeddings, *others):
        return self.loss(2 * embeddings, *others)

    def parameter_groups(self):
        return self.loss.parameter_groups()


def test_foreign_loss_may_have_a_learning_rate():
    softmax, nca = peers.NormalizedSoftmaxLoss(3, 5), peers.ProxyNCALoss(3, 5)
    softmax.learning_rate = 0.5
    loss = LossSum(
        [softmax, Wrapped(ProxyGMLLoss(3, 5, ratio=0.5)), nca, Wrapped(DensityAdaptivity(3))]
    )
    groups = loss.parameter_groups()
    assert [group.get("lr") for group in groups] == [0.5, 0.03, None, None]
    assert groups[3]["weight_decay"] == 0
    given = [parameter for group in groups for parameter in group["params"]]
    assert {id(p) for p in given} == {id(p) for p in loss.parameters()}


def test_losses_in_wrappers_keep_their_parameter_groups():
    softmax, proxies = peers.NormalizedSoftmaxLoss(3, 5), ProxyGMLLoss(3, 5, ratio=0.5)
    several = peers.MultipleLosses([softmax, 2 * proxies, DensityAdaptivity(3)])
    anchors = peers.ProxyAnchorLoss(3, 5)
    anchors.learning_rate = 0.3
    loss = LossSum([several, peers.MultipleLosses([anchors]), proxies])
    groups = loss.parameter_groups()
    assert [(group.get("lr"), group.get("weight_decay")) for group in groups] == [
        (0.03, None),
        (None, 0),
        (None, None),
        (0.3, None),
    ]
    given = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(given) == sorted(map(id, loss.parameters()))
    several.learning_rate = 0.2
    assert [group["lr"] for group in loss.parameter_groups()] == [0.2, 0.2, 0.2, 0.3]
    loss.learning_rate = 0.5
    assert [group["lr"] for group in loss.parameter_groups()] == [0.5, 0.5, 0.5, 0.5]


def test_losses_in_wrappers_are_asked_whether_they_take_halves():
    inner = peers.MultipleLosses([GraphConsistency(), BinomialDevianceLoss()])
    assert (peers.TripletMarginLoss() + inner).takes_halves
    assert not (0.5 * peers.MultipleLosses([BinomialDevianceLoss()])).takes_halves


def test_multiple_losses_wrapper_accepts_each_loss():
    z, labels, _ = batch()
    ours, theirs = BinomialDevianceLoss(), peers.TripletMarginLoss()
    rows = z, labels.clamp_min(0)
    value = peers.MultipleLosses([ours, theirs], weights=[1, 0.1])(*rows)
    torch.testing.assert_close(value, ours(*rows) + 0.1 * theirs(*rows))


MEMORY = [name for name in PAIRED if "free" not in name]


@pytest.mark.parametrize("name", [*MEMORY, "sum of pairs"])
def test_cross_batch_memory_accepts_our_losses(name, rng):
    """The second batch is compared with both, and not with itself."""
    make_it = {"sum of pairs": lambda: BinomialDevianceLoss() + 0.5 * EntropyRegularizer()}
    loss = (make_it | LOSSES)[name]().double()
    memory = peers.CrossBatchMemory(loss, embedding_size=5, memory_size=24)
    z, labels = torch.from_numpy(rng.standard_normal((24, 5))), torch.arange(4).repeat(6)
    memory(z[:12], labels[:12])
    rows = z[12:].clone().requires_grad_()
    value = memory(rows, labels[12:])
    value.backward()
    positive = labels[12:, None] == labels
    pairs = positive & (torch.arange(12)[:, None] + 12 != torch.arange(24)), ~positive
    tuples = [end for kind in pairs for end in kind.nonzero().T]
    torch.testing.assert_close(value, loss(z[12:], None, tuples, z))
    assert (rows.grad != 0).any()


def test_a_memory_skips_unlabeled_rows(rng):
    z, labels, _ = batch()
    known = labels != -1
    ours, theirs = (peers.CrossBatchMemory(BinomialDevianceLoss(), 5, 32) for _ in range(2))
    torch.testing.assert_close(ours(z, labels), theirs(z[known], labels[known]))


def test_row_losses_have_no_memory():
    with pytest.raises(Exception, match="CrossBatchMemory not supported for ProxyGMLLoss"):
        peers.CrossBatchMemory(ProxyGMLLoss(3, 5, ratio=0.5), 5)


def test_sums_with_a_row_loss_are_refused_by_wrappers():
    loss = BinomialDevianceLoss() + DensityAdaptivity(3)
    message = r"the sum must hold losses of pairs only; got DensityAdaptivity\. Add it beside"
    with pytest.raises(ValueError, match=f"CrossBatchMemory: {message}"):
        peers.CrossBatchMemory(loss, 5)
    with pytest.raises(ValueError, match=f"SelfSupervisedLoss: {message}"):
        peers.SelfSupervisedLoss(loss)
    with pytest.raises(ValueError, match="got ProxyAnchorLoss"):
        peers.CrossBatchMemory(BinomialDevianceLoss() + peers.ProxyAnchorLoss(3, 5), 5)


@pytest.mark.filterwarnings("ignore:DistributedLossWrapper is being used in a non-distributed")
def test_distributed_wrappers_are_scaled_and_added():
    z, labels, _ = batch()
    rows, triplet = (z, labels.clamp_min(0)), peers.TripletMarginLoss()
    for loss in (0.5 * DistributedLossWrapper(triplet), DistributedLossWrapper(triplet) / 2):
        torch.testing.assert_close(loss(*rows), 0.5 * triplet(*rows))


def test_importing_the_losses_lets_those_of_the_library_be_scaled():
    code = (
        "from pytorch_metric_learning.losses import TripletMarginLoss as T; import ssdml.losses; "
        "assert type(0.5 * T()).__name__ == 'LossSum'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["ours", "in a sum", "scaled", "in a memory"])
def test_batches_without_a_label_warn_although_tuples_are_given(name):
    """At the line of the caller, through sums and wrappers."""
    z = batch()[0]
    labels, tuples = torch.full((16,), -1), tuple(torch.zeros(3, 1, dtype=torch.int64))
    losses = {
        "ours": lambda: BinomialDevianceLoss()(z, labels, tuples),
        "in a sum": lambda: (2 * BinomialDevianceLoss())(z, labels, tuples),
        "scaled": lambda: (0.5 * peers.TripletMarginLoss())(z, labels, tuples),
        "in a memory": lambda: peers.CrossBatchMemory(BinomialDevianceLoss(), 5, 32)(z, labels),
    }
    with pytest.warns(
        UserWarning, match="the batch must have .*; got 16 rows, .* The loss is 0"
    ) as caught:
        value = losses[name]()
    assert caught[0].filename == __file__
    assert value == 0


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", MEMORY)
def test_self_supervised_loss_accepts_our_losses(name, symmetric, rng):
    one, other = torch.from_numpy(rng.standard_normal((2, 8, 5)))
    loss = LOSSES[name]().double()
    value = peers.SelfSupervisedLoss(loss, symmetric=symmetric)(one, other)
    labels = torch.arange(8)
    rows = (torch.cat([one, other]), labels.repeat(2)), (one, labels, None, other, labels.clone())
    torch.testing.assert_close(value, loss(*rows[not symmetric]))
    assert value != 0


def test_a_sum_takes_the_wrappers_as_terms(rng):
    z, labels, _ = batch()
    known, triplet = labels != -1, peers.TripletMarginLoss()
    rows, tuples = (z[known], labels[known]), get_all_triplets_indices(labels)
    several = peers.MultipleLosses([triplet, peers.ContrastiveLoss()], weights=[1, 0.5])
    ours = BinomialDevianceLoss()
    for given in ((), (tuples,)):
        plain = () if not given else (get_all_triplets_indices(labels[known]),)
        expected = ours(z, labels, *given) + 2 * several(*rows, *plain)
        torch.testing.assert_close((ours + 2 * several)(z, labels, *given), expected)
    memory, twin = (peers.CrossBatchMemory(triplet, 5, 32) for _ in range(2))
    for _ in range(2):
        expected = ours(z, labels) + twin(*rows)
        torch.testing.assert_close((ours + memory)(z, labels), expected)
    other = torch.from_numpy(rng.standard_normal((16, 5)))
    views = peers.SelfSupervisedLoss(triplet)
    loss = LossSum([(0.1, views), EntropyRegularizer()])
    torch.testing.assert_close(
        loss(z, ref_emb=other), 0.1 * views(z, other) + EntropyRegularizer()(z, ref_emb=other)
    )


def test_a_sum_takes_regularizers_of_embeddings():
    z, labels, _ = batch()
    ours, theirs = BinomialDevianceLoss(), LpRegularizer()
    expected = ours(z, labels) + 0.1 * theirs(z)
    torch.testing.assert_close((ours + 0.1 * theirs)(z, labels), expected)
    reference = {"ref_emb": z + 1, "ref_labels": labels}
    expected = ours(z, labels, **reference) + 0.1 * theirs(z)
    torch.testing.assert_close((ours + 0.1 * theirs)(z, labels, **reference), expected)


def test_wrappers_refuse_what_they_do_not_take():
    z, labels, _ = batch()
    memory, views = peers.CrossBatchMemory(peers.TripletMarginLoss(), 5), peers.SelfSupervisedLoss
    with pytest.raises(ValueError, match="ref_emb must be None with CrossBatchMemory, which does"):
        LossSum([memory])(z, labels, ref_emb=z + 1, ref_labels=labels)
    with pytest.raises(ValueError, match=r"ref_emb must be given .*DeepSSDML passes none"):
        LossSum([views(peers.TripletMarginLoss())])(z, labels)


@pytest.mark.filterwarnings("ignore:DistributedLossWrapper is being used in a non-distributed")
def test_losses_without_labels_get_all_rows(rng):
    z, labels, _ = batch()
    views = {"ref_emb": torch.from_numpy(rng.standard_normal((16, 5))), "ref_labels": labels}
    vicreg, tuples = peers.VICRegLoss(), get_all_triplets_indices(labels)
    ours = BinomialDevianceLoss()
    for given in (None, tuples, Triplets(*tuples, np.ones(len(tuples[0])))):
        for theirs in (vicreg, DistributedLossWrapper(vicreg)):
            value = (ours + 0.1 * theirs)(z, labels, given, **views)
            expected = ours(z, labels, given, **views) + 0.1 * vicreg(z, ref_emb=views["ref_emb"])
            torch.testing.assert_close(value, expected)
    manifold = peers.ManifoldLoss(5, K=3).double()
    loss, expected = ours + manifold, ours(z, labels)
    torch.manual_seed(0)
    expected = expected + manifold(z)
    torch.manual_seed(0)
    torch.testing.assert_close(loss(z, labels), expected)


def test_notes_name_what_a_loss_refuses():
    z, labels, _ = batch()
    given = {
        "labels, indices_tuple. Call the losses one by one.": (
            *(peers.InstanceLoss(), z, labels, get_all_triplets_indices(labels)),
        ),
        "embeddings of torch.bfloat16. Pass embeddings.float().": (
            *(peers.TripletMarginLoss(), z.bfloat16(), labels),
        ),
        "embeddings of shape (14, 5) and classes below 3. Create it for 5 columns and 3 classes.": (
            *(peers.ProxyAnchorLoss(3, 4), z, labels),
        ),
    }
    for note, (theirs, *rows) in given.items():
        with pytest.raises(Exception, match=r".") as caught:
            LossSum([theirs])(*rows)
        assert caught.value.__notes__ == [
            f"LossSum: {type(theirs).__name__} was called with {note}"
        ]
    with pytest.raises(ValueError, match="must have the same number of elements") as caught:
        LossSum([peers.SmoothAPLoss()])(z, labels)
    assert caught.value.__notes__[0].endswith("(14, 5) and classes below 3.")


WRAPPED = {
    "compiled": lambda loss: torch.compile(loss, backend="eager"),
    "parallel": nn.DataParallel,
    "averaged": AveragedModel,
}


# Where a graph breaks, dynamo itself asks a tensor within for its gradient.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize("name", ["angular", "consistency", "proxies", "sum"])
def test_wrappers_of_torch_count_as_the_losses_in_them(name, wrap):
    """Also with weights, with labels of -1 in one half, and for their learning rate."""
    z, labels, weights = batch()
    labels[5] = -1
    loss = make(name)
    wrapped = LossSum([WRAPPED[wrap](loss)])
    torch.testing.assert_close(
        gradient(wrapped, z, labels, weights=weights), gradient(loss, z, labels, weights=weights)
    )
    assert wrapped.takes_halves == loss.takes_halves
    rates, expected = (
        [group.get("lr") for group in one.parameter_groups()] for one in (wrapped, loss)
    )
    assert rates == expected


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("wrap", WRAPPED)
def test_mined_triplets_reach_wrapped_losses_with_their_weights(wrap, rng):
    z, labels, _ = batch()
    ends = np.array([rng.choice(16, 3, replace=False) for _ in range(6)]).T
    mined, loss = Triplets(*ends, rng.random(6)), AngularTripletLoss()
    value = LossSum([WRAPPED[wrap](loss)])(z, labels, mined)
    torch.testing.assert_close(value, loss(z, labels, mined))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("wrap", WRAPPED)
def test_wrapped_losses_of_others_are_called_as_before(wrap):
    z, labels, _ = batch()
    for theirs in (peers.TripletMarginLoss(), peers.VICRegLoss(), LpRegularizer()):
        value = (BinomialDevianceLoss() + WRAPPED[wrap](theirs))(z, labels)
        torch.testing.assert_close(value, (BinomialDevianceLoss() + theirs)(z, labels))


class Positional(nn.Module):
    """A loss with names of its own."""

    def forward(self, x, y):
        return x[y == 0].sum()


def test_terms_of_embeddings_alone_must_be_numbers():
    with pytest.raises(TypeError, match=r"NormalizeScale: the loss must return .*shape \(16, 5\)"):
        LossSum([NormalizeScale()])(*batch()[:2])


def test_terms_may_name_their_arguments_otherwise():
    z, labels, _ = batch()
    torch.testing.assert_close(LossSum([Positional()])(z, labels), z[labels == 0].sum())


def test_losses_of_pytorch_metric_learning_can_be_scaled():
    z, labels, _ = batch()
    ours, theirs = BinomialDevianceLoss(), peers.TripletMarginLoss()
    rows = z, labels.clamp_min(0)
    expected = ours(*rows) / 2 + 0.5 * theirs(*rows)
    for loss in (ours / 2 + 0.5 * theirs, theirs / 2 + 0.5 * ours, (theirs + ours) / 2.0):
        torch.testing.assert_close(loss(*rows), expected)
    torch.testing.assert_close((theirs + theirs)(*rows), 2 * theirs(*rows))
    with pytest.raises(TypeError, match="unsupported operand"):
        ours / "x"


REFUSED = {
    "distance": (CosineSimilarity(), "CosineSimilarity. The formula of the loss has its own"),
    "reducer": (SumReducer(), "SumReducer. The loss is a weighted mean: multiply it, or pass wei"),
    "embedding_regularizer": (LpRegularizer(), r"LpRegularizer. Add it: LossSum\(\[loss, "),
    "embedding_reg_weight": (0.5, r"0\.5. Add it: LossSum\(\[loss, \(weight, regularizer"),
    "collect_stats": (True, "True. The loss collects none"),
}


@pytest.mark.parametrize("option", REFUSED)
@pytest.mark.parametrize("name", LOSSES)
def test_options_without_effect_are_refused(option, name):
    value, message = REFUSED[option]
    loss = LOSSES[name]()
    who = type(loss).__name__
    with pytest.raises(TypeError, match=f"{who}: {option} must not be given; got {message}"):
        type(loss)(**{option: value})
    with pytest.raises(TypeError, match=f"{who}: {option} must not be given; got {message}"):
        setattr(loss, option, value)
    assert not hasattr(loss, option)


def test_a_loss_may_have_a_distance_of_its_own():
    class Own(Loss):
        def __init__(self, distance):
            super().__init__()
            self.distance = distance

    assert Own(distance=2).distance == 2
    with pytest.raises(TypeError, match="Own: reducer must not be given; got SumReducer"):
        Own(distance=2).reducer = SumReducer()


MINERS = {"triplets": get_all_triplets_indices, "pairs": get_all_pairs_indices}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("kind", MINERS)
def test_losses_with_proxies_or_centers_follow_a_miner(name, kind):
    z, labels, weights = batch()
    loss, mined = make(name), MINERS[kind](labels[:8])
    counts = torch.bincount(torch.cat(mined), minlength=16)
    named = counts / counts.max()
    for given in ({}, {"weights": weights}):
        product = {"weights": named * given.get("weights", 1)}
        found = gradient(loss, z, labels, mined, **given)
        torch.testing.assert_close(found, gradient(loss, z, labels, **product))
    assert (found[1][8:] == 0).all()
    none = torch.zeros(0, dtype=torch.long)
    torch.testing.assert_close(loss(z, labels, (none,) * 3), loss(z, labels))


def test_weights_of_a_miner_are_those_of_pytorch_metric_learning():
    labels = batch()[1]
    for mine in MINERS.values():
        mined = mine(labels[:9])
        expected = convert_to_weights(mined, labels, torch.float32)
        torch.testing.assert_close(row_counts(mined, 16), expected)
        # The softmax of both, up to the mean over all rows there.
    softmax, ours = peers.NormalizedSoftmaxLoss(3, 5, temperature=0.25), make("centers")
    ours.decorrelation = 0.0
    softmax = softmax.double()
    with torch.no_grad():
        softmax.W.copy_(ours.centers.T)
    z, labels, _ = batch()
    z, labels = z[labels != -1], labels[labels != -1]
    mined = get_all_triplets_indices(labels[:7])
    share = row_counts(mined, len(z)).mean()
    torch.testing.assert_close(share * ours(z, labels, mined), softmax(z, labels, mined))


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("own_rows", [True, False])
@pytest.mark.parametrize("own_labels", [True, False])
def test_self_pairs_follow_pytorch_metric_learning(name, own_rows, own_labels):
    """A row and its reference are a pair by labels if the labels are two tensors."""
    z, labels, _ = batch()
    labels = labels.clamp_min(0)
    rows = z if own_rows else z.clone()
    of_rows = labels if own_labels else labels.clone()
    pairs = get_all_pairs_indices(labels, of_rows)
    diagonal = (pairs[0] == pairs[1]).sum()
    assert diagonal == (0 if own_labels else 16)
    value = make(name)(z, labels, ref_emb=rows, ref_labels=of_rows)
    torch.testing.assert_close(value, make(name)(z, None, pairs, ref_emb=rows))


def test_distributed_wrapper_accepts_each_loss():
    from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

    z, labels, _ = batch()
    loss = AngularTripletLoss() + EntropyRegularizer()
    wrapped = DistributedLossWrapper(loss)
    with pytest.warns(UserWarning, match=re.escape("non-distributed setting")):
        assert wrapped(z, labels) == loss(z, labels)


def test_errors_of_foreign_losses_tell_what_they_were_called_with():
    loss = LossSum([peers.ArcFaceLoss(2, 5)])
    with pytest.raises(IndexError) as raised:
        loss(torch.eye(3), torch.tensor([0, 0, 2]))
    (note,) = raised.value.__notes__
    assert "ArcFaceLoss was called with embeddings of shape (3, 3) and classes below 3" in note
