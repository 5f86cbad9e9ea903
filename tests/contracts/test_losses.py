"""What every loss promises, run over all of them."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction

import ssdml.losses
from ssdml.sampling import confidences
from tests.losses import LOSSES, C, D, batch, make
from tests.ssdml.test_ranks import run
from tests.two_ranks_losses import steps

ROOT = Path(__file__).parents[2]
every_loss = pytest.mark.parametrize("name", LOSSES)
PAIRED = ("angular", "binomial", "n-pair", "n-pair, unit", "entropy", "orthogonality")
OF_ROWS = ("density", "density, free", "proxies", "centers", "centers, free", "ranking")


def gradient(loss, z, *args, **options):
    z = z.clone().requires_grad_()
    value = loss(z, *args, **options)
    value.backward()
    return value.detach(), z.grad


def test_every_loss_of_the_package_is_here():
    public = {getattr(ssdml.losses, name) for name in ssdml.losses.__all__}
    losses = {x for x in public if isinstance(x, type) and issubclass(x, ssdml.losses.Loss)}
    assert losses - {type(make(name)) for name in LOSSES} == {ssdml.losses.Loss}


@every_loss
def test_it_is_one_of_pytorch_metric_learning(name):
    loss = make(name)
    z, labels, _ = batch()
    assert isinstance(loss, BaseMetricLossFunction)
    value = loss(z, labels, None, None, None)
    assert value.shape == ()
    assert value == loss(embeddings=z, labels=labels, indices_tuple=None, weights=None)
    assert repr(loss).startswith(type(loss).__name__) or name == "sum"


@every_loss
def test_autograd_agrees_with_finite_differences(name):
    loss, (z, labels, weights) = make(name), batch()
    parameters = tuple(loss.parameters())

    def value(z, *parameters):
        return loss(z, labels, weights=weights)

    assert torch.autograd.gradcheck(value, (z.requires_grad_(), *parameters), atol=1e-5)


@every_loss
@pytest.mark.parametrize("rows", [0, 16])
def test_with_nothing_to_do_it_is_a_zero_tied_to_the_graph(name, rows):
    loss, z = make(name), batch()[0][:rows]
    value, slope = gradient(loss, z, torch.full((rows,), -1))
    assert value == 0
    assert slope is not None
    assert (slope == 0).all()
    for parameter in loss.parameters():
        assert (parameter.grad == 0).all()


@every_loss
def test_an_unlabelled_row_is_as_if_it_were_not_there(name):
    loss, (z, labels, weights) = make(name), batch()
    known = labels != -1
    for given in ({}, {"weights": weights}):
        kept = {key: value[known] for key, value in given.items()}
        value, slope = gradient(loss, z, labels, **given)
        expected, expected_slope = gradient(loss, z[known], labels[known], **kept)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(slope[known], expected_slope)
        assert (slope[~known] == 0).all()


@every_loss
def test_a_row_of_weight_zero_is_as_if_it_were_not_there(name):
    loss, (z, labels, weights) = make(name), batch()
    out = torch.zeros(16, dtype=torch.bool)
    out[[0, 8]] = True  # of both halves
    weights = weights.masked_fill(out, 0)
    value, slope = gradient(loss, z, labels, weights=weights)
    expected, expected_slope = gradient(loss, z[~out], labels[~out], weights=weights[~out])
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(slope[~out], expected_slope)
    assert (slope[out] == 0).all()


@every_loss
def test_weights_of_one_are_none_and_others_are_felt(name):
    loss, (z, labels, weights) = make(name), batch()
    plain = loss(z, labels).item()
    assert loss(z, labels, weights=torch.ones(16)).item() == pytest.approx(plain)
    assert loss(z, labels, weights=weights).item() != pytest.approx(plain, rel=1e-4)


@every_loss
def test_propagated_labels_and_their_confidences_can_be_fed(name, rng):
    loss, (z, _, _) = make(name), batch()
    distributions = rng.dirichlet(np.ones(C), size=8)
    labels = torch.from_numpy(distributions.argmax(axis=1)).repeat(2)
    trusted = np.tile(confidences(distributions), 2)
    trusted.flags.writeable = False
    value, slope = gradient(loss, z, labels, weights=trusted)
    assert value.isfinite()
    assert (slope != 0).any()


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_computed_in_float32(name, dtype, autocast):
    loss, (z, labels, weights) = make(name, torch.float32), batch(torch.float32)
    z = (100 * z).to(dtype)  # squares beyond the largest float16
    expected, expected_slope = gradient(loss, z.float(), labels, weights=weights)
    z.requires_grad_()
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        value = loss(z, labels, weights=weights)
    value.backward()
    assert value.dtype == torch.float32
    assert value == expected
    assert value.isfinite()
    torch.testing.assert_close(z.grad, expected_slope.to(dtype))


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_is_that_of_the_embeddings(name, dtype):
    z, labels, _ = batch()
    value = make(name, dtype)(z.to(dtype), labels)
    assert value.dtype == dtype
    assert value.item() == pytest.approx(make(name)(z, labels).item(), rel=1e-4, abs=1e-5)


@every_loss
def test_the_order_of_the_rows_does_not_matter(name, rng):
    loss, (z, labels, weights) = make(name), batch()
    half = torch.from_numpy(rng.permutation(8))  # the same in both halves
    order = torch.cat([half, half + 8])
    shuffled = loss(z[order], labels[order], weights=weights[order])
    torch.testing.assert_close(shuffled, loss(z, labels, weights=weights))


@every_loss
def test_a_rotation_of_rows_and_of_what_the_loss_holds_does_not_matter(name, rng):
    loss, (z, labels, _) = make(name), batch()
    R = torch.from_numpy(np.linalg.qr(rng.standard_normal((D, D)))[0])
    before = loss(z, labels).item()
    with torch.no_grad():
        for parameter in loss.parameters():
            if parameter.dim() == 2:
                parameter.copy_(parameter @ R)
    assert loss(z @ R, labels).item() == pytest.approx(before, rel=1e-9)


@every_loss
def test_classes_may_be_renamed_with_what_the_loss_holds_of_them(name):
    loss, (z, labels, _) = make(name), batch()
    before, renamed = loss(z, labels).item(), torch.tensor([2, 0, 1])
    state = {
        key: value.view(C, -1, *value.shape[1:])[renamed.argsort()].view_as(value)
        for key, value in loss.state_dict().items()
    }
    loss.load_state_dict(state)
    labels = torch.where(labels == -1, -1, renamed[labels])
    assert loss(z, labels).item() == pytest.approx(before, rel=1e-9)


@every_loss
def test_arguments_are_not_written_to(name):
    loss, given = make(name), batch()
    before = [part.clone() for part in given]
    gradient(loss, given[0], given[1], weights=given[2])
    for part, kept in zip(given, before, strict=True):
        assert torch.equal(part, kept)


@every_loss
@pytest.mark.parametrize("labels", [[0] * 16, [*range(C), *[-1] * 5] * 2])
def test_one_class_and_one_row_a_class_are_no_accident(name, labels):
    value, slope = gradient(make(name), batch()[0], torch.tensor(labels))
    assert value.isfinite()
    assert slope.isfinite().all()


@every_loss
def test_rows_of_zeros_and_rows_that_are_the_same_have_finite_gradients(name):
    z, labels, _ = batch()
    for rows in (torch.zeros_like(z), torch.ones_like(z), 1e-30 * z):
        value, slope = gradient(make(name), rows, labels)
        assert value.isfinite()
        assert slope.isfinite().all()


@every_loss
def test_the_result_is_the_same_each_time(name):
    z, labels, _ = batch()
    assert make(name)(z, labels) == make(name)(z, labels)


@every_loss
def test_bad_input_is_refused_with_a_way_out(name):
    loss, (z, labels, weights) = make(name), batch()
    who = "Binomial" if name == "sum" else type(loss).__name__
    refused = [
        (ValueError, "embeddings must be finite; got nan", (z * torch.nan, labels)),
        (TypeError, "embeddings must be a floating tensor; got torch.int64", (z.long(), labels)),
        (ValueError, "embeddings must have two dimensions", (z[0], labels)),
        (ValueError, r"labels must have shape \(16,\)", (z, labels[1:])),
        (TypeError, "labels must be a tensor of integers", (z, labels.double())),
        (ValueError, r"labels must be -1 \(unlabelled\) or at least 0; got -2", (z, labels * 2)),
        (ValueError, "weights must have one entry a row", (z, labels, *[None] * 3, weights[1:])),
        (ValueError, "weights must be finite and not n", (z, labels, *[None] * 3, -weights)),
        (ValueError, "weights must be finite", (z, labels, *[None] * 3, torch.nan * weights)),
    ]
    for error, message, arguments in refused:
        with pytest.raises(error, match=f"^{who}.*: {message}"):
            loss(*arguments)


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_class_beyond_the_last_is_refused(name):
    z, labels, _ = batch()
    message = "labels must lie below num_classes = 3; got 3. Number the classes from 0, or raise"
    with pytest.raises(ValueError, match=message):
        make(name)(z, labels + (labels == 2))


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_loss_of_rows_asks_for_labels_and_takes_no_reference(name):
    z, labels, _ = batch()
    with pytest.raises(ValueError, match="labels must be given; got None"):
        make(name)(z)
    with pytest.raises(ValueError, match="ref_emb must be None; got a tensor"):
        make(name)(z, labels, ref_emb=z + 1, ref_labels=labels)


@pytest.mark.parametrize("name", OF_ROWS)
def test_parameters_elsewhere_are_refused(name):
    z, labels, _ = batch()
    with pytest.raises(ValueError, match=r"must have the dtype of embeddings, torch\.float64; got"):
        make(name, torch.float32)(z, labels)
    with pytest.raises(ValueError, match=r"must have the device of embeddings, cpu; got meta"):
        make(name).to("meta")(z, labels)


@pytest.mark.parametrize("name", PAIRED)
def test_reference_rows_are_compared_with_and_must_be_alike(name):
    loss, (z, labels, _) = make(name), batch()
    value, slope = gradient(loss, z[:8], labels[:8], ref_emb=z[8:], ref_labels=labels[8:])
    assert value.isfinite()
    assert (slope != 0).any()
    with pytest.raises(ValueError, match="ref_emb must have as many columns as embeddings = 5"):
        loss(z, labels, ref_emb=z[:, :3], ref_labels=labels)
    with pytest.raises(ValueError, match="ref_emb must have the dtype of embeddings"):
        loss(z, labels, ref_emb=z.float(), ref_labels=labels)
    with pytest.raises(ValueError, match="ref_emb must have the device of embeddings"):
        loss(z, labels, ref_emb=z.to("meta"), ref_labels=labels)


@pytest.mark.parametrize("name", PAIRED)
def test_all_tuples_of_a_batch_are_what_its_labels_say(name):
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


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("count", [3, 40])
def test_autograd_agrees_on_tuples_and_reference_rows(name, count, rng):
    loss, (z, _, _) = make(name), batch()
    other = torch.from_numpy(rng.standard_normal((9, D))).requires_grad_()
    ends = [torch.from_numpy(rng.integers(n, size=count)) for n in (16, 9, 9)]
    weights = torch.from_numpy(rng.random(count))

    def value(z, other):
        return loss(z, indices_tuple=ends, ref_emb=other, weights=weights)

    assert torch.autograd.gradcheck(value, (z.requires_grad_(), other), atol=1e-5)


@pytest.mark.parametrize("name", PAIRED)
def test_no_tuple_is_nothing_to_do(name):
    none = torch.zeros(0, dtype=torch.long)
    for tuples in ((none,) * 3, (none,) * 4):
        value, slope = gradient(make(name), batch()[0], indices_tuple=tuples)
        assert value == 0
        assert (slope == 0).all()


@pytest.mark.parametrize("name", PAIRED)
def test_tuples_that_are_none_are_refused(name):
    loss, z = make(name), batch()[0]
    a, beyond = torch.arange(3), torch.tensor([0, 1, 16])
    with pytest.raises(ValueError, match="indices_tuple must lie from 0 to 15, rows of the batch"):
        loss(z, indices_tuple=(a, a, beyond))
    with pytest.raises(ValueError, match=r"indices_tuple must have shape \(3,\)"):
        loss(z, indices_tuple=(a, a, a[:2]))
    with pytest.raises(ValueError, match=r"must be \(anchors, positives, negatives\) or"):
        loss(z, indices_tuple=(a, a))
    with pytest.raises(ValueError, match=r"weights must have one entry a triplet, shape \(3,\)"):
        loss(z, indices_tuple=(a, a, a), weights=torch.ones(16))
    if name != "entropy":
        with pytest.raises(ValueError, match="labels must be given where indices_tuple is not"):
            loss(z)


# Dynamo takes half a second to trace each.
@pytest.mark.parametrize("name", [name for name in LOSSES if name not in ("proxies",)])
def test_it_compiles_to_one_graph(name):
    loss, (z, labels, weights) = make(name), batch()
    expected = gradient(loss, z, labels, weights=weights)
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    for one, other in zip(gradient(compiled, z, labels, weights=weights), expected, strict=True):
        torch.testing.assert_close(one, other)


@every_loss
def test_a_copy_and_what_was_pickled_are_the_same_loss(name):
    loss, (z, labels, _) = make(name), batch()
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert twin(z, labels) == loss(z, labels)


LIGHT = """
import sys
import ssdml.losses
assert "torch" not in sys.modules
import ssdml.losses.angular  # what training needs
assert "pytorch_metric_learning" not in sys.modules
"""


# Two fresh interpreters that import torch: some seconds each.
def test_what_is_not_used_is_not_loaded():
    done = subprocess.run([sys.executable, "-c", LIGHT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


WITHOUT = """
import sys
sys.modules["pytorch_metric_learning"] = None
from tests.losses import LOSSES, batch, make
z, labels, weights = batch()
print(*(make(name)(z, labels, weights=weights).item() for name in LOSSES))
"""


def test_without_pytorch_metric_learning_each_has_the_same_value():
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    z, labels, weights = batch()
    expected = [make(name)(z, labels, weights=weights).item() for name in LOSSES]
    assert [float(value) for value in done.stdout.split()] == pytest.approx(expected, rel=1e-12)


# Two processes that meet: some ten seconds.
def test_two_ranks_have_the_loss_and_the_gradients_of_one(tmp_path):
    one, two = steps(), run(2, tmp_path / "two", script="tests.two_ranks_losses")
    assert set(two.files) == set(one) == set(LOSSES)
    for name in LOSSES:
        assert np.abs(one[name][1:]).max() > 0
        np.testing.assert_allclose(two[name], one[name], rtol=1e-9, atol=1e-12)
