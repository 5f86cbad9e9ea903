"""Sums of losses, their parameter groups, and trainers that accept them."""

from __future__ import annotations

import re

import numpy as np
import pytest
import pytorch_metric_learning.losses as peers
import torch
from pytorch_metric_learning.trainers import MetricLossOnly
from pytorch_metric_learning.utils.loss_and_miner_utils import (
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
    LossSum,
    ProxyGMLLoss,
)
from ssdml.networks.sampling import aligned_halves
from tests.losses import batch, gradient


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
    proxies, density = ProxyGMLLoss(3, 5, learning_rate=0.3), DensityAdaptivity(3)
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
    loss = LossSum([softmax, Wrapped(ProxyGMLLoss(3, 5)), nca, Wrapped(DensityAdaptivity(3))])
    groups = loss.parameter_groups()
    assert [group.get("lr") for group in groups] == [0.5, 0.03, None, None]
    assert groups[3]["weight_decay"] == 0
    given = [parameter for group in groups for parameter in group["params"]]
    assert {id(p) for p in given} == {id(p) for p in loss.parameters()}


def test_state_dict_of_a_sum_round_trips():
    z, labels, _ = batch(torch.float32)
    first, second = (BinomialDevianceLoss() + ProxyGMLLoss(3, 5, n_proxies=2) for _ in range(2))
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
    for rows in aligned_halves(partial, 60, rng, n_classes=4, per_class=6):
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
    batches = aligned_halves(partial, 60, rng, n_classes=4, per_class=6)
    trainer = MetricLossOnly(
        models={"trunk": network},
        optimizers={
            "trunk_optimizer": torch.optim.Adam(network.parameters(), lr=0.01),
            "metric_loss_optimizer": torch.optim.Adam(loss.parameter_groups()),
        },
        batch_size=24,
        loss_funcs={"metric_loss": loss},
        dataset=torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(partial)),
        sampler=np.concatenate(list(batches)).tolist(),
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


def test_wrappers_by_name_reject_our_losses():
    wrappers = [peers.SelfSupervisedLoss, lambda loss: peers.CrossBatchMemory(loss, 5)]
    for wrapper in wrappers:
        with pytest.raises(Exception, match="not supported for BinomialDevianceLoss"):
            wrapper(BinomialDevianceLoss())


def test_distributed_wrapper_accepts_each_loss():
    from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

    z, labels, _ = batch()
    loss = AngularTripletLoss() + EntropyRegularizer()
    wrapped = DistributedLossWrapper(loss)
    with pytest.warns(UserWarning, match=re.escape("non-distributed setting")):
        assert wrapped(z, labels) == loss(z, labels)
