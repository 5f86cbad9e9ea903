"""Sums of losses, their parameter groups, and trainers that accept them."""

from __future__ import annotations

import re

import numpy as np
import pytest
import pytorch_metric_learning.losses as peers
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.reducers import SumReducer
from pytorch_metric_learning.regularizers import LpRegularizer
from pytorch_metric_learning.trainers import MetricLossOnly
from pytorch_metric_learning.utils.loss_and_miner_utils import (
    convert_to_weights,
    get_all_pairs_indices,
    get_all_triplets_indices,
)
from torch import nn

from ssdml.graphs import Triplets
from ssdml.losses import (
    AngularTripletLoss,
    BinomialDevianceLoss,
    DensityAdaptivity,
    EntropyRegularizer,
    GraphConsistency,
    Loss,
    LossSum,
    ProxyGMLLoss,
)
from ssdml.losses.batch import row_counts
from ssdml.networks.sampling import aligned_halves
from tests.losses import HELD, LOSSES, PAIRED, batch, gradient, make


def test_sum_is_the_weighted_sum_of_its_losses():
    z, labels, weights = batch()
    triplet, consistency = AngularTripletLoss(), GraphConsistency()
    loss = triplet + 0.001 * consistency
    expected = triplet(z, labels, weights=weights) + 0.001 * consistency(z, labels, weights=weights)
    torch.testing.assert_close(loss(z, labels, weights=weights), expected)
    torch.testing.assert_close((2 * loss * 3)(z, labels, weights=weights), 6 * expected)
    assert loss.weights == (1.0, 0.001)
    assert list(loss.losses) == [triplet, consistency]


def test_nested_sums_are_flattened_and_merged():
    a, b = EntropyRegularizer(), BinomialDevianceLoss()
    loss = LossSum([(2.0, a + b), 0.5 * a])
    assert loss.weights == (2.5, 2.0)
    assert list(loss.losses) == [a, b]
    assert list(sum([a, b]).losses) == [a, b]
    assert repr(loss) == (
        "2.5 * EntropyRegularizer(threshold=1.0) + "
        "2 * BinomialDevianceLoss(alpha=2.0, beta=0.5, negative_cost=25.0)"
    )


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


def test_row_weights_apply_with_mined_triplets(rng):
    z, labels, weights = batch()
    mined = Triplets(np.array([0]), np.array([3]), np.array([1]), np.array([0.5]))
    density, angular = DensityAdaptivity(3).double(), AngularTripletLoss()
    value = (angular + density)(z, labels, mined, weights=weights)
    expected = angular(z, indices_tuple=mined) + density(z, labels, weights=weights)
    torch.testing.assert_close(value, expected)  # one triplet: its weight is all of the mean's


def test_parameter_groups_have_their_learning_rate():
    network = nn.Linear(5, 5)
    softmax = peers.NormalizedSoftmaxLoss(3, 5)
    proxies, density = ProxyGMLLoss(3, 5, ratio=0.5, learning_rate=0.3), DensityAdaptivity(3)
    loss = softmax + proxies + 10 * density + EntropyRegularizer()
    groups = [{"params": list(network.parameters())}, *loss.parameter_groups()]
    optimizer = torch.optim.Adam(groups, lr=1e-4, weight_decay=1e-2)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-4, 1e-4, 0.3, 1e-4]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [1e-2, 1e-2, 1e-2, 0]
    before = [p.detach().clone() for group in groups for p in group["params"]]
    z, labels, _ = batch(torch.float32)
    loss(network(z), labels).backward()
    optimizer.step()
    for old, new in zip(before, [p for g in groups for p in g["params"]], strict=True):
        assert not torch.equal(old, new)
    assert EntropyRegularizer().parameter_groups() == []


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


def test_state_dict_of_a_sum_round_trips():
    z, labels, _ = batch(torch.float32)
    first, second = (
        BinomialDevianceLoss() + ProxyGMLLoss(3, 5, n_proxies=2, ratio=1.0) for _ in range(2)
    )
    assert first(z, labels) != second(z, labels)
    second.load_state_dict(first.state_dict())
    assert first(z, labels) == second(z, labels)


def test_sum_reports_takes_halves():
    assert (EntropyRegularizer() + GraphConsistency()).takes_halves
    assert not (EntropyRegularizer() + peers.TripletMarginLoss()).takes_halves


@pytest.mark.parametrize(
    ("terms", "error", "message"),
    [
        ([], ValueError, "LossSum: terms must hold a loss; got none"),
        ([3], TypeError, "LossSum: terms must be modules; got int"),
        ([(np.nan, EntropyRegularizer())], ValueError, "weights must be finite numbers; got nan"),
    ],
)
def test_invalid_terms_raise(terms, error, message):
    with pytest.raises(error, match=message):
        LossSum(terms)


def test_invalid_operands_raise():
    for wrong in (lambda loss: loss + 1, lambda loss: "x" + loss, lambda loss: loss * "x"):
        with pytest.raises(TypeError, match=r"unsupported operand|can't multiply|can only conc"):
            wrong(EntropyRegularizer())


def test_differences_and_tensors_as_factors():
    z, labels, _ = batch()
    one, other = BinomialDevianceLoss(), EntropyRegularizer()
    expected = one(z, labels) - 2 * other(z, labels)
    two = torch.tensor(2.0)
    for loss in (one - two * other, one - other * two, -(other / torch.tensor(0.5)) + one):
        torch.testing.assert_close(loss(z, labels), expected)
    for wrong in (lambda: 1 - one, lambda: one - 1, lambda: torch.ones(2) * one):
        with pytest.raises(TypeError, match="unsupported operand"):
            wrong()
    with pytest.raises(TypeError, match=r"requires a gradient. Scale the value instead: factor"):
        two.requires_grad_() * one


def separable(rng):
    """Rows of four classes with a wide nuisance column, a fifth of them unlabeled."""
    labels = np.repeat(np.arange(4), 25)
    X = rng.standard_normal((4, 6))[labels] + 0.3 * rng.standard_normal((100, 6))
    X[:, 0] = 5 * rng.standard_normal(100)
    partial = np.where(rng.random(100) < 0.2, -1, labels)
    return X.astype(np.float32), labels, partial


def test_training_loop_with_a_sum(rng):
    X, _, partial = separable(rng)
    torch.manual_seed(0)
    network = nn.Linear(6, 4)
    loss = BinomialDevianceLoss() + 0.002 * GraphConsistency() + 0.1 * ProxyGMLLoss(4, 4, 2, 0.5)
    groups = [{"params": network.parameters()}, *loss.parameter_groups()]
    optimizer, values = torch.optim.Adam(groups, lr=0.01), []
    for rows in aligned_halves(partial, 60, rng, n_classes=4, per_class=3):
        optimizer.zero_grad()
        value = loss(network(torch.from_numpy(X[rows])), torch.from_numpy(partial[rows]))
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert np.mean(values[-10:]) < 0.6 * np.mean(values[:10])


# Its progress bar prints the loss without detaching it.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning")
def test_pytorch_metric_learning_trainer_with_a_sum(rng):
    X, _, partial = separable(rng)
    torch.manual_seed(0)
    network, values = nn.Linear(6, 4), []
    loss = peers.TripletMarginLoss() + 0.001 * GraphConsistency() + 0.1 * ProxyGMLLoss(4, 4, 2, 0.5)
    batches = aligned_halves(partial, 60, rng, n_classes=4, per_class=3)
    trainer = MetricLossOnly(
        models={"trunk": network},
        optimizers={
            "trunk_optimizer": torch.optim.Adam(network.parameters(), lr=0.01),
            "metric_loss_optimizer": torch.optim.Adam(loss.parameter_groups()),
        },
        batch_size=24,
        loss_funcs={"metric_loss": loss},
        dataset=torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(partial)),
        sampler=batches.rows,
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
        end_of_iteration_hook=lambda t: values.append(float(t.losses["total_loss"])),
    )
    trainer.train(num_epochs=1)
    assert len(values) == 60
    assert np.mean(values[-10:]) < 0.8 * np.mean(values[:10])


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
    with pytest.raises(ValueError, match="ref_emb must be given with SelfSupervisedLoss; got None"):
        LossSum([views(peers.TripletMarginLoss())])(z, labels)


class Positional(nn.Module):
    """A loss with names of its own."""

    def forward(self, x, y):
        return x[y == 0].sum()


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


@pytest.mark.parametrize("name", ["density", "density, free", "consistency"])
def test_losses_of_whole_batches_ignore_tuples(name):
    z, labels, _ = batch()
    mined = get_all_triplets_indices(labels[:8])
    torch.testing.assert_close(make(name)(z, labels, mined), make(name)(z, labels))


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


def test_other_labels_of_the_same_rows_are_used():
    z, labels, weights = batch()
    other = labels.roll(1)
    loss = BinomialDevianceLoss()
    value = loss(z, labels, ref_emb=z, ref_labels=other, weights=weights)
    assert value != loss(z, labels, weights=weights)
    alone = loss(z, labels, ref_emb=z, ref_labels=other)
    torch.testing.assert_close(alone, loss(z, labels, ref_emb=z.clone(), ref_labels=other))
    with pytest.raises(ValueError, match=r"ref_labels must have shape \(16,\); got shape \(15,\)"):
        loss(z, labels, ref_emb=z, ref_labels=other[1:])
    with pytest.raises(ValueError, match=r"ref_labels must have shape \(9,\); got shape \(16,\)"):
        loss(z, labels, ref_emb=z[:9], ref_labels=labels)


def test_distributed_wrapper_accepts_each_loss():
    from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

    z, labels, _ = batch()
    loss = AngularTripletLoss() + EntropyRegularizer()
    wrapped = DistributedLossWrapper(loss)
    with pytest.warns(UserWarning, match=re.escape("non-distributed setting")):
        assert wrapped(z, labels) == loss(z, labels)


def test_large_labels_take_no_memory():
    labels = torch.tensor([0, 10**12])
    with pytest.warns(UserWarning, match="got 2 rows, 2 of them labeled, in 2 classes"):
        assert AngularTripletLoss()(torch.eye(2), labels).item() == 0


class OfRows(nn.Module):
    """A loss that is not averaged."""

    def forward(self, embeddings, labels):
        return embeddings.sum(dim=1)


class Nothing(Loss):
    """A loss whose formula was forgotten."""

    def of_batch(self, batch):
        return None


@pytest.mark.parametrize(
    ("loss", "found"), [(LossSum([OfRows()]), r"a tensor of shape \(3,\)"), (Nothing(), "NoneType")]
)
def test_losses_must_return_one_number(loss, found):
    message = f"must return a tensor of one number; got {found}. Return the mean"
    with pytest.raises(TypeError, match=message):
        loss(torch.eye(3), torch.tensor([0, 0, 1]))


def test_errors_of_foreign_losses_tell_what_they_were_called_with():
    loss = LossSum([peers.ArcFaceLoss(2, 5)])
    with pytest.raises(IndexError) as raised:
        loss(torch.eye(3), torch.tensor([0, 0, 2]))
    (note,) = raised.value.__notes__
    assert "ArcFaceLoss was called with embeddings of shape (3, 3) and classes below 3" in note


def test_weights_whose_products_overflow_are_refused():
    with pytest.raises(ValueError, match=r"at most 1e\+10; got 1e\+25\. Divide them by their max"):
        BinomialDevianceLoss()(torch.eye(2), torch.tensor([0, 1]), weights=[1.0, 1e25])
