"""Sums of losses, their parameter groups and training, and what a loss refuses."""

from __future__ import annotations

import numpy as np
import pytest
import pytorch_metric_learning.losses as peers
import torch
from pytorch_metric_learning.trainers import MetricLossOnly
from pytorch_metric_learning.utils.loss_and_miner_utils import get_all_triplets_indices
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
from ssdml.networks.sampling import aligned_halves
from tests.losses import batch, make


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
        (AngularTripletLoss(), TypeError, "LossSum: terms must be a sequence of losses; got Ang"),
        ([(np.nan, EntropyRegularizer())], ValueError, "weights must be finite numbers; got nan"),
    ],
)
def test_invalid_terms_raise(terms, error, message):
    with pytest.raises(error, match=message):
        LossSum(terms)


def test_pairs_may_be_lists_and_weights_tensors():
    """As a file of settings and a schedule give them."""
    z, labels, _ = batch()
    one, other = BinomialDevianceLoss(), EntropyRegularizer()
    expected = 0.5 * one(z, labels) + 2 * other(z, labels)
    found = LossSum([[0.5, one], (torch.tensor([2.0]), other)])(z, labels)
    torch.testing.assert_close(found, expected)
    with pytest.raises(TypeError, match=r"must be modules; got float. Pass the weight first: \("):
        LossSum([(one, 0.5)])


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


@pytest.mark.parametrize("name", ["density", "density, free", "consistency"])
def test_losses_of_whole_batches_ignore_tuples(name):
    z, labels, _ = batch()
    mined = get_all_triplets_indices(labels[:8])
    torch.testing.assert_close(make(name)(z, labels, mined), make(name)(z, labels))


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


def test_arrays_of_any_layout_are_taken():
    """Reversed and read-only ones as weights and tuples; compiled without a warning."""
    z, labels, weights = batch()
    weights, tuples = weights.numpy(), np.arange(15).reshape(3, 5)
    weights.flags.writeable = tuples.flags.writeable = False
    loss = AngularTripletLoss()
    expected = loss(z, labels, weights=torch.tensor(weights[::-1].tolist()))
    torch.testing.assert_close(loss(z, labels, weights=weights[::-1]), expected)
    expected = loss(z, labels, torch.tensor(tuples))
    torch.testing.assert_close(loss(z, labels, tuples[:, ::-1]), expected)
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    weights, tuples = weights.copy(), tuples.copy()
    for given in (tuples, tuple(tuples), [[*part] for part in tuples]):
        torch.testing.assert_close(
            compiled(z, labels, given, weights=weights[:5]),
            loss(z, labels, tuples, weights=weights[:5]),
        )


def test_weights_whose_products_overflow_are_refused():
    with pytest.raises(ValueError, match=r"at most 1e\+10; got 1e\+25\. Divide them by their max"):
        BinomialDevianceLoss()(torch.eye(2), torch.tensor([0, 1]), weights=[1.0, 1e25])


@pytest.mark.parametrize("largest", [1e-46, 1e-40])
def test_weights_that_lose_their_digits_are_refused(largest):
    weights = np.array([largest, 0.0])
    with pytest.raises(ValueError, match=r"above 1\.2e-38 in one row; got 1e-4.*by their max"):
        BinomialDevianceLoss()(torch.eye(2), torch.tensor([0, 1]), weights=weights)


def test_tiny_weights_keep_their_digits_in_float64():
    rows, labels = torch.eye(3, dtype=torch.float64), torch.tensor([0, 1, 0])
    weights = torch.tensor([1.0, 2, 3], dtype=torch.float64)
    loss = BinomialDevianceLoss()
    value = loss(rows, labels, weights=1e-40 * weights)
    torch.testing.assert_close(value, loss(rows, labels, weights=weights))


@pytest.mark.parametrize("scale", [1e-14, 1e-30, 1e9])
@pytest.mark.parametrize("pairs", ["labels", "references", "triplets", "tuples"])
@pytest.mark.parametrize("kind", [AngularTripletLoss, BinomialDevianceLoss, EntropyRegularizer])
def test_weights_of_any_scale_give_the_same_mean(kind, pairs, scale):
    """The product of two or three weights neither underflows nor overflows."""
    loss, (z, labels, weights) = kind(), batch()
    options = {}
    if pairs == "references":
        options = {"ref_emb": z.detach().clone(), "ref_labels": labels.clone()}
    if pairs == "triplets":
        options, weights = {"indices_tuple": torch.arange(15).view(3, 5)}, weights[:5]
    if pairs == "tuples":
        options, weights = {"indices_tuple": torch.arange(16).view(4, 4)}, weights[:8]
    found = []
    for factor in (1, scale):
        rows = z.detach().float().clone().requires_grad_()
        refs = {n: v.float() if n == "ref_emb" else v for n, v in options.items()}
        value = loss(rows, labels, weights=factor * weights.float(), **refs)
        found.append((value, *torch.autograd.grad(value, rows)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        assert one.any() or pairs == "tuples"
