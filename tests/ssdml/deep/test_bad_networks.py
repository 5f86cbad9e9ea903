"""Degenerate data, unusual backbones and bad arguments of DeepSSDML."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from ssdml import DeepSSDML
from ssdml.losses import BinomialDevianceLoss, GraphConsistency
from ssdml.networks.backbones import named_backbone
from ssdml.networks.metric_network import lay_channels_last
from tests.deep import small_model, small_network, small_published_model

ROOT = Path(__file__).parents[3]


class TestDegenerate:
    def test_fits_one_label_per_class(self, digits):
        X, y, _ = digits
        labels = np.full(len(X), -1)
        labels[[int(np.flatnonzero(y == c)[0]) for c in range(10)]] = np.arange(10)
        for model in (
            small_model(epochs=3, epochs_per_partition=1),
            small_model(epochs=3, epochs_per_partition=1, input_edges=0),
            small_published_model(partition_size=100),
        ):
            model.fit(X, labels)
            known = labels >= 0
            np.testing.assert_array_equal(model.transduction_[known], labels[known])
            right = (model.transduction_ == y)[~known].mean()
            assert right > 0.2, model  # chance is 0.1

    def test_given_labels_stay_though_neighbors_disagree(self, digits):
        X, y, _ = digits
        labels = np.where(np.arange(len(y)) % 2 == 0, y, -1)
        wrong = np.flatnonzero(labels == 3)[:5]
        labels[wrong] = 8
        model = small_model(epochs=2).fit(X, labels)
        known = labels >= 0
        np.testing.assert_array_equal(model.transduction_[known], labels[known])

    def test_fits_fully_labeled_data(self, digits):
        X, y, _ = digits
        model = small_model(epochs=2).fit(X, y)
        assert (model.predict(X) == y).mean() > 0.8

    def test_rejects_a_single_sample(self, digits):
        X, y, _ = digits
        message = "DeepSSDML: X must have at least 2 samples for a neighbor graph; got 1"
        with pytest.raises(ValueError, match=message):
            small_model().fit(X[:1], y[:1])

    @pytest.mark.parametrize("new", [DeepSSDML, DeepSSDML.paper])
    def test_warns_of_fewer_samples_than_neighbors(self, digits, new):
        X, y, _ = digits
        few = np.concatenate([np.flatnonzero(y == c)[:4] for c in (0, 1)])
        model = new(small_network(), 8, epochs=2, epochs_per_partition=1, random_state=0)
        with pytest.warns(UserWarning, match="n_neighbors must be below n_samples = 8") as told:
            model.fit(X[few], y[few])
        assert {warning.filename for warning in told} == {__file__}
        np.testing.assert_array_equal(model.transduction_, y[few])
        assert np.isfinite(model.transform(X)).all()

    def test_published_method_rejects_a_frozen_backbone(self, digits):
        """DeepSSDML still trains its proxies and L."""
        X, _, labels = digits
        fixed = small_network().requires_grad_(False)
        small_model(backbone=fixed, epochs=2).fit(X, labels)
        with pytest.raises(ValueError, match="backbone must have a trainable parameter; got"):
            DeepSSDML.paper(fixed, 16, epochs=1, epochs_per_partition=1).fit(X, labels)

    @pytest.mark.parametrize("options", [{}, {"consistency": 0}, {"learn_from": "labeled"}])
    def test_batches_of_one_sample_have_no_variance(self, digits, options):
        X, _, labels = digits
        network = nn.Sequential(*small_network(), nn.BatchNorm1d(32))
        message = "batch_size must be at least 2 per process with batch normalization; got 1"
        with pytest.raises(ValueError, match=message):
            small_model(backbone=network, batch_size=1, epochs=1, **options).fit(X, labels)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_features_may_have_any_precision(self, digits, dtype):
        X, y, labels = digits
        options = {"epochs": 2, "pretrain_epochs": 1}
        model = small_model(backbone=Converted(dtype), **options).fit(X, labels)
        assert model.transform(X).dtype == np.float32
        assert (model.predict(X) == y).mean() > 0.6

    def test_rejects_batch_normalization_without_running_statistics(self, digits):
        X, _, labels = digits
        layer = nn.BatchNorm1d(32, track_running_stats=False)
        with pytest.raises(
            ValueError, match=r"alike in every batch; got BatchNorm1d\(.* Create it"
        ):
            small_model(backbone=nn.Sequential(*small_network(), layer)).fit(X, labels)

    def test_the_default_dtype_of_torch_does_not_matter(self, digits):
        X, _, labels = digits
        options = {"epochs": 2, "pretrain_epochs": 1}
        usual = small_model(**options).fit(X, labels)
        wide = small_model(**options)
        torch.set_default_dtype(torch.float64)
        try:
            wide.fit(X, labels)
            assert wide.predict_proba(X).dtype == np.float32
            named = named_backbone("mnist", (1, 28, 28))
            assert {weights.dtype for weights in named.parameters()} == {torch.float32}
        finally:
            torch.set_default_dtype(torch.float32)
        assert (wide.predict(X) == usual.predict(X)).mean() > 0.6  # others are drawn


class Converted(nn.Module):
    """A network whose features have another precision than its weights."""

    def __init__(self, dtype):
        super().__init__()
        self.inner, self.dtype = small_network(), dtype

    def forward(self, samples):
        return self.inner(samples).to(self.dtype)


class InTraining(nn.Module):
    """A second output in training alone, as the auxiliary classifiers of GoogLeNet."""

    def __init__(self):
        super().__init__()
        self.inner = small_network()

    def forward(self, samples):
        features = self.inner(samples)
        return (features, features) if self.training else features


def test_rejects_several_outputs_in_training(digits):
    X, _, labels = digits
    with pytest.raises(ValueError, match=r"also in training one tensor; got tuple\. Wrap it"):
        small_model(backbone=InTraining()).fit(X, labels)


class Single(nn.Module):
    """Fails in bfloat16, as torch's TransformerEncoderLayer in evaluation mode on a CPU."""

    def __init__(self):
        super().__init__()
        self.inner = small_network()

    def forward(self, samples):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("expected m1 and m2 to have the same dtype")
        return self.inner(samples)


def test_errors_in_bfloat16_name_the_parameter(digits):
    X, _, labels = digits
    with pytest.raises(RuntimeError, match="m1 and m2") as raised:
        small_model(backbone=Single(), epochs=1, mixed_precision=True).fit(X, labels)
    assert "The backbone computed in bfloat16: try mixed_precision=False." in raised.value.__notes__


class Flat(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(75, 16))


def test_warns_of_channels_last(rng):
    X, labels = rng.random((60, 5, 5, 3)).astype(np.float32), np.arange(60) % 3
    message = r"shape \(5, 5, 3\), which looks as if .* Transpose"
    with pytest.warns(UserWarning, match=message) as caught:
        small_model(backbone=Flat(), epochs=1).fit(X, labels)
    assert caught[0].filename == __file__


def test_warns_of_samples_on_another_scale(digits):
    X, _, labels = digits
    model = small_model(epochs=1).fit(X, labels)
    for factor, told in ((255, "2.5e\\+02|2.6e\\+02"), (1 / 255, "0.003.")):
        with pytest.warns(UserWarning, match=f"got ({told}) times their standard .* Pass pixels"):
            model.transform(factor * X)
    model.transform(3 * X)
    model.transform(255 * X[:9])
    model.transform(0 * X)


def test_rare_values_are_on_the_scale_of_the_fit(rng):
    rows = ((rng.random((200, 64)) < 0.02) * rng.random((200, 64))).astype(np.float32)
    labels = np.where(np.arange(200) < 30, np.arange(200) % 3, -1)
    model = small_model(epochs=1, backbone=nn.Linear(64, 16)).fit(rows, labels)
    model.transform(rows[:20])  # most of its columns are constant
    with pytest.warns(UserWarning, match="Pass pixels"):
        model.transform(rows[:20] / 100)


class Blind(nn.Module):
    """All-zero features of every sample whose first pixel is bright."""

    def __init__(self):
        super().__init__()
        self.inner = small_network()

    def forward(self, samples):
        return self.inner(samples) * (samples[:, 0, 0, :1] < 0)


class TestItemsThatAreSorted:
    """The first samples do not represent the others."""

    def test_warns_of_all_zero_features_with_their_share(self, digits):
        X, y, _ = digits
        X = X.copy()
        X[:, 0, 0] = np.arange(len(X)) < 2 / 3 * len(X)
        model = small_model(backbone=Blind(), epochs=1, partition_size=None, batch_size=200)
        with pytest.warns(RuntimeWarning, match="all zero for 6[67]% of the samples"):
            model.fit(X, y)

    def test_first_samples_may_have_zero_features(self, digits):
        X, _, labels = digits
        X = X.copy()
        X[:, 0, 0] = np.arange(len(X)) < 40
        small_model(backbone=Blind(), epochs=1, partition_size=None).fit(X, labels)


class TestItemsThatABackboneDoesNotTake:
    @pytest.mark.parametrize(
        ("backbone", "told"),
        [
            (nn.Sequential(nn.Conv1d(8, 4, 3), nn.Flatten()), "RuntimeError"),
            (nn.Bilinear(8, 8, 4), "TypeError"),
            (nn.Embedding(9, 4), "RuntimeError"),
        ],
    )
    def test_error_names_the_batch(self, digits, backbone, told):
        X, _, labels = digits
        message = rf"one tensor of shape \(16, 1, 8, 8\) and torch.float32; got {told}: "
        with pytest.raises(ValueError, match=message):
            small_model(backbone=backbone).fit(X, labels)

    def test_gray_images_of_a_list_need_a_channel(self, digits):
        X, _, labels = digits
        for images in (list(X), TensorDataset(torch.tensor(X))):
            with pytest.raises(ValueError, match=r"Gray images .* yield image\[None\]\."):
                small_model().fit(images, labels)

    def test_out_of_memory_does_not_blame_the_samples(self, digits):
        class Large(nn.Module):
            def forward(self, samples):
                raise torch.cuda.OutOfMemoryError("20 GiB")

        X, _, labels = digits
        with pytest.raises(MemoryError, match="Lower batch_size=40"):
            small_model(backbone=Large()).fit(X, labels)

    def test_dataset_may_yield_series(self, digits):
        X, _, labels = digits
        network = nn.Sequential(nn.Conv1d(8, 4, 3), nn.ReLU(), nn.Flatten())
        few = {"epochs": 1, "augment": None, "input_edges": 0.2}
        model = small_model(backbone=network, **few).fit(TensorDataset(torch.tensor(X)), labels)
        assert model.item_shape_ == (8, 8)


class Viewing(nn.Module):
    """Flattens by ``view``, which fails with channels last."""

    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3))
        self.last = nn.Linear(128, 32)

    def forward(self, samples):
        return self.last(self.convolutions(samples).view(len(samples), -1))


class TestChannelsLast:
    @pytest.mark.parametrize("backbone", [small_network(), Viewing()])
    def test_channels_last_keeps_the_features(self, backbone):
        samples = torch.rand(9, 1, 8, 8)
        before = backbone(samples)
        lay_channels_last(backbone, (1, 8, 8))
        torch.testing.assert_close(backbone(samples), before)
        assert backbone.training

    def test_volumes_keep_their_layout(self, digits):
        _, _, labels = digits
        volumes = np.random.default_rng(0).random((len(labels), 1, 4, 5, 5)).astype(np.float32)
        backbone = nn.Sequential(nn.Conv3d(1, 2, 3), nn.Flatten(), nn.Linear(36, 32))
        model = small_model(backbone=backbone, epochs=1, epochs_per_partition=1)
        assert model.fit(volumes, labels).components_.shape == (16, 32)

    def test_modules_that_view_keep_their_layout(self, digits):
        X, _, labels = digits
        model = small_model(backbone=Viewing(), epochs=2).fit(X, labels)
        layers = model.network_.backbone.backbone.convolutions
        assert all(layer.weight.is_contiguous() for layer in layers)
        layers.to(memory_format=torch.channels_last)
        with pytest.raises(RuntimeError, match="view"):
            model.transform(X)


class Wrong(nn.Module):
    """Applies a function to flat samples."""

    def __init__(self, function):
        super().__init__()
        self.function, self.inner = function, nn.Flatten()

    def forward(self, samples):
        return self.function(self.inner(samples))


class Detached(nn.Module):
    """Passes no gradient to its weights."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32))

    def forward(self, samples):
        return self.layers(samples).detach()


class Squeezing(nn.Module):
    """Drops the axis of a batch of one sample, too."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Unflatten(1, (32, 1, 1)))

    def forward(self, samples):
        return self.layers(samples).squeeze()


class TestBadInput:
    @pytest.mark.parametrize(
        ("backbone", "message"),
        [
            (nn.Conv2d(1, 4, 3), r"features of shape \(n, d\); got \(16, 4, 6, 6\).*Flatten"),
            (
                Wrong(lambda rows: rows[1:]),
                r"one row .* per sample; got \(15, 64\) of torch.float32",
            ),
            (Wrong(lambda rows: rows.int()), r"floating-point .* got \(16, 64\) of torch.int32"),
            (Wrong(lambda rows: (rows,)), r"one tensor; got tuple\. Wrap it in a Module"),
            (Wrong(lambda rows: {"features": rows}), r"one tensor; got dict\. Wrap it"),
            (small_network().double(), r"torch\.float32; got .* Pass backbone\.float\(\)"),
            (Wrong(lambda rows: rows / 0), "must return finite features"),
            (
                Wrong(lambda rows: 0 * rows),
                "must return nonzero features; got only zeros for 16 samples",
            ),
            (
                Detached(),
                r"features with a gradient; .* though 2 .*requires_grad_\(False\)",
            ),
            (nn.Linear(64, 4, device="meta"), "must have weights; weight is on the meta device"),
            ("mnist", r"backbone='mnist' needs images of 28 x 28 pixels; got .*\(1, 8, 8\)"),
            ("mnits", r"backbone must be one of 'mnist', 'cifar'.*Did you mean 'mnist'\?"),
        ],
        ids=[
            "4-D",
            "another length",
            "integers",
            "tuple",
            "dict",
            "float64",
            "NaN",
            "zeros",
            "detached",
            "meta",
            "size",
            "name",
        ],
    )
    def test_rejects_unusable_features(self, digits, backbone, message):
        X, _, labels = digits
        with pytest.raises(ValueError, match=message):
            small_model().set_params(backbone=backbone).fit(X, labels)

    def test_weights_without_gradient_may_be_kept_on_purpose(self, digits):
        X, _, labels = digits
        frozen = Detached().requires_grad_(False)
        small_model(backbone=frozen, epochs=1, epochs_per_partition=1).fit(X, labels)

    def test_backbones_may_squeeze_a_single_sample(self, digits):
        X, _, labels = digits
        model = small_model(backbone=Squeezing(), epochs=1, epochs_per_partition=1).fit(X, labels)
        np.testing.assert_allclose(model.transform(X[:1]), model.transform(X)[:1], atol=1e-5)
        assert model.predict(X[:1]) == model.predict(X)[:1]

    @pytest.mark.parametrize(
        ("name", "value"),
        [("decay", 1.0), ("angle", 90), ("epochs", 0), ("augment", "flips"), ("triplets", -1.0)],
    )
    def test_rejects_parameters_out_of_range(self, digits, name, value):
        X, _, labels = digits
        with pytest.raises(ValueError, match=f"The '{name}' parameter of DeepSSDML must be"):
            small_model(**{name: value}).fit(X, labels)

    def test_rejects_a_backbone_that_is_no_module(self, digits):
        X, _, labels = digits
        with pytest.raises(TypeError, match="a name or a torch module; got type"):
            small_model().set_params(backbone=nn.Flatten).fit(X, labels)

    @pytest.mark.filterwarnings("ignore:.*torch.jit")
    def test_rejects_a_scripted_backbone(self, digits):
        X, _, labels = digits
        with pytest.raises(TypeError, match="module of Python; got RecursiveScriptModule, whose"):
            small_model().set_params(backbone=torch.jit.script(nn.Linear(64, 4))).fit(X, labels)

    def test_rejects_a_backbone_without_tensors(self, digits):
        class Packed(nn.Sequential):
            def get_extra_state(self):
                return {"scale": 3}

        network, message = Packed(small_network()), "must keep its state in tensors; _extra_state"
        with pytest.raises(TypeError, match=f"backbone {message}"):
            small_model(backbone=network).fit(digits[0], digits[2])

    @pytest.mark.parametrize("persistent", [True, False])
    def test_rejects_sparse_state(self, digits, persistent):
        network, loss = small_network(), BinomialDevianceLoss()
        for module in (network, loss):
            module.register_buffer("links", torch.eye(4).to_sparse(), persistent=persistent)
        message = r"must keep its state in dense tensors; .*links is torch\.sparse_coo\. Register"
        for options in ({"backbone": network}, {"losses": loss}):
            with pytest.raises(TypeError, match=f"{next(iter(options))} {message}"):
                small_model(**options).fit(digits[0], digits[2])

    def test_rejects_a_lazy_backbone(self, digits):
        network = nn.Sequential(nn.Flatten(), nn.LazyLinear(32))
        message = r"must have weights; 1\.weight has no shape yet, .* Call the module on a batch"
        with pytest.raises(TypeError, match=f"backbone {message}"):
            small_model(backbone=network).fit(digits[0], digits[2])
        network(torch.zeros(2, 1, 8, 8))
        small_model(backbone=network, epochs=1).fit(digits[0], digits[2])

    def test_rejects_a_backbone_that_cannot_be_copied(self, digits):
        network, message = small_network(), r"that copy\.deepcopy copies; got .* Keep no tensors"
        network.features = network(torch.zeros(2, 1, 8, 8))  # kept from a forward pass
        with pytest.raises(TypeError, match=f"backbone .*{message}"):
            small_model(backbone=network).fit(digits[0], digits[2])

    def test_rejects_more_components_than_features(self, digits):
        X, _, labels = digits
        with pytest.raises(ValueError, match="at most the 32 features of the backbone; got 33"):
            small_model().set_params(n_components=33).fit(X, labels)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"backbone": nn.Flatten},
            {"backbone": None},
            {"n_components": 33},
            {"losses": [len]},
            {"losses": GraphConsistency(), "batch_size": 1},
            {"n_neighbors": 0},
        ],
        ids=lambda wrong: ", ".join(wrong),
    )
    def test_bad_arguments_fail_before_the_input_graph(self, digits, monkeypatch, wrong):
        X, _, labels = digits
        monkeypatch.setattr(
            DeepSSDML, "_read_input", lambda *_: pytest.fail("it came to the graph")
        )
        with pytest.raises((TypeError, ValueError), match="must"):
            small_model(**wrong).fit(X, labels)

    def test_rejects_missing_or_mismatched_labels(self, digits):
        X, _, labels = digits
        with pytest.raises(ValueError, match=r"400.*399|399.*400"):
            small_model().fit(X, labels[:-1])
        with pytest.raises(ValueError, match="Label some samples"):
            small_model().fit(X, np.full(len(X), -1))

    def test_rejects_new_samples_of_another_shape(self, fitted):
        with pytest.raises(
            ValueError, match=r"shape \(1, 8, 8\) of the fitted ones; got \(1, 9, 8\)\.$"
        ):
            fitted.transform(np.zeros((2, 9, 8), np.float32))
        with pytest.raises(ValueError, match=r"got \(8,\)\. Pass X\[None\] for one sample"):
            fitted.transform(np.zeros((8, 8), np.float32))

    def test_rejects_an_unavailable_gpu(self, digits, monkeypatch):
        X, _, labels = digits
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(
            ValueError, match=r"DeepSSDML: device must .* got 'cuda'. It finds no GPU: pass 'auto'"
        ):
            small_model(device="cuda").fit(X, labels)
