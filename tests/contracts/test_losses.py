"""Contract of all losses."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction

import ssdml.losses
from ssdml.losses import LossSum
from ssdml.utils.labels import confidences
from tests.losses import HELD, LOSSES, OF_ROWS, C, D, batch, gradient, make, same_on_two_threads

ROOT = Path(__file__).parents[2]
every_loss = pytest.mark.parametrize("name", LOSSES)


def test_every_exported_loss_is_tested():
    public = {getattr(ssdml.losses, name) for name in ssdml.losses.__all__}
    losses = {x for x in public if isinstance(x, type) and issubclass(x, ssdml.losses.Loss)}
    assert losses - {type(make(name)) for name in LOSSES} == {ssdml.losses.Loss}


@every_loss
def test_is_a_pytorch_metric_learning_loss(name):
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
def test_torch_func_agrees_with_autograd(name):
    loss, (z, labels, weights) = make(name), batch()
    found = torch.func.grad(lambda rows: loss(rows, labels, weights=weights))(z)
    torch.testing.assert_close(found, gradient(loss, z, labels, weights=weights)[1])


@every_loss
@pytest.mark.parametrize("rows", [0, 16])
def test_empty_batch_warns_and_gives_a_differentiable_zero(name, rows):
    loss, z = make(name), batch()[0][:rows]
    message = f"the batch must have .*; got {rows} rows, 0 of them labeled, in 0 classes. The loss"
    with pytest.warns(UserWarning, match=message):
        value, slope = gradient(loss, z, torch.full((rows,), -1))
    assert value == 0
    assert slope is not None
    assert (slope == 0).all()
    for parameter in loss.parameters():
        assert (parameter.grad == 0).all()


@every_loss
def test_weights_of_zero_are_told_from_missing_labels(name):
    z, labels, weights = batch()
    message = "got 16 rows, 0 of them labeled with a weight above 0, in 0 classes"
    with pytest.warns(UserWarning, match=message):
        assert make(name)(z, labels, weights=0 * weights) == 0


@every_loss
def test_unlabeled_rows_are_ignored(name):
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
def test_rows_of_weight_zero_are_ignored(name):
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
def test_unit_weights_equal_no_weights(name):
    loss, (z, labels, weights) = make(name), batch()
    plain = loss(z, labels).item()
    ones = pd.Series(1.0, index=range(16, 0, -1))
    assert loss(z, labels, weights=torch.ones(16)).item() == pytest.approx(plain)
    assert loss(z, labels, weights=ones).item() == pytest.approx(plain)
    assert loss(z, labels, weights=weights).item() != pytest.approx(plain, rel=1e-4)


@every_loss
def test_propagated_labels_and_confidences_are_accepted(name, rng):
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
def test_precision_follows_the_embeddings(name, dtype):
    z, labels, _ = batch()
    value = make(name, dtype)(z.to(dtype), labels)
    assert value.dtype == dtype
    assert value.item() == pytest.approx(make(name)(z, labels).item(), rel=1e-4, abs=1e-5)


@every_loss
def test_row_order_does_not_matter(name, rng):
    loss, (z, labels, weights) = make(name), batch()
    half = torch.from_numpy(rng.permutation(8))  # the same in both halves
    order = torch.cat([half, half + 8])
    shuffled = loss(z[order], labels[order], weights=weights[order])
    torch.testing.assert_close(shuffled, loss(z, labels, weights=weights))


@every_loss
def test_rotation_invariance(name, rng):
    loss, (z, labels, _) = make(name), batch()
    R = torch.from_numpy(np.linalg.qr(rng.standard_normal((D, D)))[0])
    before = loss(z, labels).item()
    with torch.no_grad():
        for parameter in loss.parameters():
            if parameter.dim() == 2:
                parameter.copy_(parameter @ R)
    assert loss(z @ R, labels).item() == pytest.approx(before, rel=1e-9)


@every_loss
def test_class_permutation_invariance(name):
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
def test_arguments_are_not_modified(name):
    loss, given = make(name), batch()
    before = [part.clone() for part in given]
    gradient(loss, given[0], given[1], weights=given[2])
    for part, kept in zip(given, before, strict=True):
        assert torch.equal(part, kept)


@every_loss
def test_minus_one_cast_to_an_unsigned_type_is_doubted(name):
    z, labels, _ = batch()
    with (
        pytest.warns(UserWarning, match="labels must be signed for -1 .* got 255 in uint8"),
        suppress(ValueError),  # of losses that know the number of classes
    ):
        make(name)(z, labels.to(torch.uint8))


NEED_NEGATIVES = ("angular", "n-pair", "n-pair, unit", "orthogonality")


@every_loss
@pytest.mark.parametrize("labels", [[0] * 16, [*range(C), *[-1] * 5] * 2])
def test_one_class_or_one_row_per_class(name, labels):
    one_class = max(labels) == 0
    warned = pytest.warns(UserWarning, match="must have .*; got 16 rows, 16 of them .* 1 classes")
    with warned if one_class and name in NEED_NEGATIVES else nullcontext():
        value, slope = gradient(make(name), batch()[0], torch.tensor(labels))
    assert value.isfinite()
    assert slope.isfinite().all()


@every_loss
def test_zero_and_equal_rows_have_finite_second_derivatives(name):
    """For gradient penalties."""
    z, labels, _ = batch()
    z[0], z[1] = 0, z[2]
    z.requires_grad_()
    (slope,) = torch.autograd.grad(make(name)(z, labels), z, create_graph=True)
    (second,) = torch.autograd.grad(slope.square().sum(), z)
    assert second.isfinite().all()


@every_loss
def test_zero_and_equal_rows_have_finite_gradients(name):
    z, labels, _ = batch()
    for dtype, scales in (
        (torch.float64, (1e-200, 1e-150)),
        (torch.float32, (1e-30, 1e-18, 1e-14)),
    ):
        for rows in (0 * z, torch.ones_like(z), *(scale * z for scale in scales)):
            value, slope = gradient(make(name, dtype), rows.to(dtype), labels)
            assert value.isfinite()
            assert slope.isfinite().all()


OF_DISTANCES = (
    *("angular", "contrastive, free", "consistency of graphs", "density, free", "entropy"),
    *("ranking", "ranking, batch"),
)


@pytest.mark.parametrize("name", OF_DISTANCES)
def test_distances_far_from_the_origin_keep_their_digits(name):
    z, labels, _ = batch()
    rows = (z + 1000).float()
    value, slope = gradient(make(name, torch.float32), rows, labels)
    expected, expected_slope = gradient(make(name), rows.double(), labels)
    torch.testing.assert_close(value.double(), expected, rtol=1e-3, atol=0)
    scale = expected_slope.abs().max()
    torch.testing.assert_close(
        slope / scale, expected_slope / scale, rtol=0, atol=1e-3, check_dtype=False
    )


@every_loss
def test_tensors_of_inference_mode_have_the_same_value(name):
    """As of an evaluation under ``torch.inference_mode()``, whose loss is computed after it."""
    loss, given = make(name), batch()
    with torch.inference_mode():
        z, labels, weights = (part.clone() for part in given)
        inside = loss(z, labels, weights=weights)
    outside = loss(z, labels, weights=weights)
    assert outside == inside == loss(given[0], given[1], weights=given[2])
    torch.autograd.grad(loss(given[0].requires_grad_() * 1, labels, weights=weights), given[0])


@every_loss
def test_result_is_deterministic(name):
    z, labels, _ = batch()
    assert make(name)(z, labels) == make(name)(z, labels)


@every_loss
def test_gradient_is_identical_on_two_threads(name):
    # Torch shares work of 32,768 numbers and more: 192 rows have 36,864 pairs.
    z = torch.randn(192, D, generator=torch.Generator().manual_seed(0))
    labels = (torch.arange(96) % C).repeat(2)
    loss = make(name, torch.float32)
    assert same_on_two_threads(lambda: gradient(loss, z, labels)[1], times=3)


def huge(z):
    """Scale rows so that their squares overflow."""
    return torch.sign(z) * torch.finfo(z.dtype).max ** 0.6


@every_loss
def test_bad_input_raises(name):
    loss, (z, labels, weights) = make(name), batch()
    who = "(LossSum|Binomial)" if name == "sum" else type(loss).__name__
    integers, indicators = "labels must be a tensor of integers; got", torch.eye(4)[labels]
    nested = torch.nested.as_nested_tensor([z], layout=torch.jagged)
    refused = [
        (ValueError, "embeddings must be finite; got nan", (z * torch.nan, labels)),
        (ValueError, "embeddings must have finite squares; got .*Lower", (huge(z), labels)),
        (TypeError, r"embeddings must be .*; got torch.int64\. Pass .*float", (z.long(), labels)),
        (TypeError, r"embeddings must be .*; got ndarray\. Pass a tensor", (z.numpy(), labels)),
        (TypeError, "embeddings must be .*float8_e5m2. Pass", (z.to(torch.float8_e5m2), labels)),
        (TypeError, "embeddings must be dense; got a nested tensor", (nested, labels)),
        (TypeError, "embeddings must be dense; got .*to_dense", (z.to_sparse(), labels)),
        (TypeError, "embeddings must .*device 'meta'", (z.to("meta"), labels.to("meta"))),
        (ValueError, r"embeddings must have two dim.* Pass embeddings\[None\]", (z[0], labels)),
        (ValueError, r"embeddings .* Pass embeddings\.flatten", (z[:, :, None], labels)),
        (TypeError, "labels must hold data; .*device 'meta'", (z, labels.to("meta"))),
        (ValueError, r"labels must have shape \(16,\)", (z, labels[1:])),
        (ValueError, r"labels .*\(16, 1\)\. Pass labels\.squeeze", (z, labels[:, None])),
        (ValueError, r"labels .*\(16, 4\)\. Pass .*argmax", (z, indicators.long())),
        (TypeError, rf"{integers} torch.float64\. Pass labels\.long", (z, labels.double())),
        (TypeError, rf"{integers} torch.float32\. Pass labels\.argmax", (z, indicators)),
        (TypeError, rf"{integers} list\. Pass torch\.as_tensor\(la", (z, labels.tolist())),
        (TypeError, rf"{integers} Series\. .*\(labels\.to_numpy", (z, pd.Series(labels))),
        (TypeError, rf"{integers} list\. .*encode_partial_labels", (z, ["a"] * len(labels))),
        (ValueError, r"labels must be -1 \(unlabeled\) or at least 0; got -2", (z, labels * 2)),
        (ValueError, r"labels must be .* -100\. Pass labels\.masked_fill", (z, labels - 99)),
        (ValueError, "weights must have one entry per row", (z, labels, *[None] * 3, weights[1:])),
        (
            TypeError,
            "weights must be an array of numbers",
            (z, labels, *[None] * 3, ["a"]),
        ),
        (ValueError, "weights must be finite and not n", (z, labels, *[None] * 3, -weights)),
        (ValueError, "weights must be finite", (z, labels, *[None] * 3, torch.nan * weights)),
        (TypeError, "weights must be dense", (z, labels, *[None] * 3, weights.to_sparse())),
    ]
    with pytest.raises(TypeError, match=f"^{who}.*: embeddings must hold data; got .* torch.vmap"):
        torch.func.vmap(lambda one: loss(one, labels))(z[None])
    for error, message, arguments in refused:
        with pytest.raises(error, match=f"^{who}.*: {message}"):
            loss(*arguments)


@pytest.mark.parametrize("name", OF_ROWS)
def test_class_out_of_range_raises(name):
    z, labels, _ = batch()
    message = "labels must lie below num_classes = 3; got 3. Number the classes from 0, or raise"
    with pytest.raises(ValueError, match=message):
        make(name)(z, labels + (labels == 2))


@pytest.mark.parametrize("name", OF_ROWS)
def test_row_losses_need_labels_and_no_reference(name):
    z, labels, _ = batch()
    with pytest.raises(ValueError, match="labels must be given; got None"):
        make(name)(z)
    with pytest.raises(ValueError, match="ref_emb must be None; got shape"):
        make(name)(z, labels, ref_emb=z + 1, ref_labels=labels)


@pytest.mark.parametrize("name", OF_ROWS)
def test_nonfinite_parameters_raise(name):
    loss, (z, labels, _) = make(name), batch()
    for parameter, wrong in itertools.product(loss.parameters(), (torch.nan, -torch.inf)):
        kept = parameter.detach().clone()
        parameter.data[1] = wrong
        with pytest.raises(ValueError, match=f"must be finite; got {wrong}. Lower the learning ra"):
            loss(z, labels)
        parameter.data = kept
    assert loss(z, labels).isfinite()


@pytest.mark.parametrize("name", HELD)
def test_wrong_embedding_size_raises(name):
    message = (
        rf"embeddings must have embedding_size = {D} columns; got 4\. Create the loss "
        "with embedding_size=4, the n_components of DeepSSDML"
    )
    z, labels, _ = batch()
    for loss in (make(name), LossSum([make(name)])):
        with pytest.raises(ValueError, match=message):
            loss(z[:, :4], labels)


FLAGS = [
    (name, of.name)
    for name in LOSSES
    for of in inspect.signature(type(make(name)).__init__).parameters.values()
    if "bool" in str(of.annotation)
]


def constructed(name, **options):
    kind, sizes = type(make(name)), {"num_classes": C, "embedding_size": D}
    needed = {key: sizes[key] for key in inspect.signature(kind).parameters if key in sizes}
    return kind(**needed, **options)


@pytest.mark.parametrize(("name", "flag"), FLAGS)
def test_bad_constructor_flag_raises(name, flag):
    """Such as the margin of pytorch-metric-learning in second place."""
    for value in (1, "no", None):
        with pytest.raises(TypeError, match=f"{flag} must be True or False; got {value!r}"):
            constructed(name, **{flag: value})
    constructed(name, **{flag: np.False_})


NUMBERS = [
    (name, of.name)
    for name in LOSSES
    for of in inspect.signature(type(make(name)).__init__).parameters.values()
    if "float" in str(of.annotation)
]


@pytest.mark.parametrize(("name", "number"), NUMBERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_constructor_number_raises(name, number, value):
    with pytest.raises(ValueError, match=f"{number} must .*; got {value}"):
        constructed(name, **{number: value})
    with pytest.raises(TypeError, match=f"{number} must be a number; got '1'"):
        constructed(name, **{number: "1"})


@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.parametrize("size", ["num_classes", "embedding_size"])
def test_zero_classes_or_columns_raise(name, size):
    kind, sizes = type(make(name)), {"num_classes": C, "embedding_size": D}
    needed = {key: sizes[key] for key in inspect.signature(kind).parameters if key in sizes}
    if size in needed:
        with pytest.raises(ValueError, match=rf"{size} must be at least \d; got 0"):
            kind(**needed | {size: 0})
        with pytest.raises(TypeError, match=rf"{size} must be a whole number; got 2\.5"):
            kind(**needed | {size: 2.5})
        with pytest.raises(TypeError, match=rf"{size} must .*; got tensor\(4\)\. Pass 4\."):
            kind(**needed | {size: torch.tensor([1, 3]).max() + 1})


@pytest.mark.parametrize("name", OF_ROWS)
def test_parameters_on_another_device_raise(name):
    z, labels, _ = batch()
    with pytest.raises(ValueError, match=r"must have the dtype of embeddings, torch\.float64; got"):
        make(name, torch.float32)(z, labels)
    with pytest.raises(ValueError, match=r"must have the device of embeddings, cpu; got meta"):
        make(name).to("meta")(z, labels)


def graphs_of(loss, *given, fullgraph=False, **options):
    """Count the graphs of torch.compile; check value and gradient."""
    graphs = []

    def counted(graph, _):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(loss, backend=counted, fullgraph=fullgraph)
    found = gradient(compiled, *given, **options)
    torch.testing.assert_close(found, gradient(loss, *given, **options))
    return len(graphs)


BROKEN = ("angular", "proxies", "proxies, no mask")


# Dynamo takes half a second to trace each, and instantiates functions with an own derivative.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", [name for name in LOSSES if name not in BROKEN])
def test_it_compiles_to_one_graph(name):
    z, labels, weights = batch()
    assert graphs_of(make(name), z, labels, weights=weights) == 1


# Where a graph breaks, dynamo itself asks a tensor within for its gradient.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_documented_losses_compile_under_conditions():
    loss, (z, labels, weights) = make("angular"), batch()
    triplets = torch.arange(15).view(3, 5).unbind()
    assert graphs_of(loss, z, labels, triplets) == 1
    assert graphs_of(loss, z, labels, weights=weights) > 1  # as many pairs as the labels say
    assert graphs_of(loss, z, labels, weights=weights, fullgraph=True) == 1
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert graphs_of(loss, z, labels, weights=weights) == 1
    assert graphs_of(make("proxies"), z, labels, weights=weights) > 1


@every_loss
def test_copy_and_pickle_preserve_the_loss(name):
    loss, (z, labels, _) = make(name), batch()
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert twin(z, labels) == loss(z, labels)


@every_loss
def test_value_may_be_changed_in_place(name):
    """``total += loss(...)`` begins with a loss, and trainers multiply it by a weight."""
    loss, (z, labels, _) = make(name), batch()
    expected, slope = gradient(loss, z, labels)
    z.requires_grad_()
    value = loss(z, labels)
    value *= 2
    value.backward()
    torch.testing.assert_close((value.detach(), z.grad), (2 * expected, 2 * slope))


@every_loss
def test_default_device_of_the_caller_is_ignored(name):
    loss, (z, labels, weights) = make(name), batch()
    expected = gradient(loss, z, labels, weights=weights)
    with torch.device("meta"):
        found = gradient(loss, z, labels, weights=weights.numpy())
    torch.testing.assert_close(found, expected)


@every_loss
def test_a_loss_made_without_data_takes_a_state(name):
    loss, (z, labels, _) = make(name), batch()
    with torch.device("meta"):
        twin = LOSSES[name]()
    twin = twin.to_empty(device="cpu").double()
    twin.load_state_dict(loss.state_dict())
    assert twin(z, labels) == loss(z, labels)


LIGHT = """
import sys
import ssdml.losses
assert "torch" not in sys.modules
import ssdml.deep.trainer  # a fit without losses of one's own
assert "pytorch_metric_learning" not in sys.modules
sys.modules["pytorch_metric_learning"] = None
from tests.losses import LOSSES, batch, make
z, labels, weights = batch()
print(*(make(name)(z, labels, weights=weights).item() for name in LOSSES))
"""


def test_losses_need_no_pytorch_metric_learning():
    command = [sys.executable, "-c", LIGHT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    z, labels, weights = batch()
    expected = [make(name)(z, labels, weights=weights).item() for name in LOSSES]
    assert [float(value) for value in done.stdout.split()] == pytest.approx(expected, rel=1e-12)
