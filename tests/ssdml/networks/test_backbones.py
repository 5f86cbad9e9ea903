"""Backbones against their published layers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from ssdml.networks.backbones import CifarNet, MnistNet, ResidualHead, Standardized, named_backbone
from ssdml.networks.wide_resnet import WideResNet


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_an_untrained_head_returns_its_input(generator, mode):
    x = torch.randn(20, 5, generator=generator)
    head = getattr(ResidualHead(5), mode)()
    torch.testing.assert_close(head(x), x, rtol=0, atol=0)


def test_output_is_the_documented_formula(generator):
    head = ResidualHead(4, n_hidden=7).eval()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    A, a, B, b = (parameter.detach() for parameter in head.parameters())
    x = torch.randn(4, generator=generator)
    hidden = torch.tensor([max(0.0, float(row @ x + bias)) for row, bias in zip(A, a, strict=True)])
    torch.testing.assert_close(head(x[None])[0].detach(), x + B @ hidden + b)


def test_units_are_dropped_in_training_only(generator):
    head = ResidualHead(4, n_hidden=64, dropout=0.5)
    torch.nn.init.ones_(head.output.weight)
    x = torch.randn(3, 4, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head.train()
        assert not torch.equal(head(x), head(x))
    head.eval()
    assert torch.equal(head(x), head(x))


def test_first_step_reaches_the_last_layer(generator):
    head = ResidualHead(4).eval()
    head(torch.randn(6, 4, generator=generator)).square().sum().backward()
    assert head.output.weight.grad.abs().sum() > 0
    assert head.hidden.weight.grad.abs().sum() == 0  # the last layer is still zero


NETWORKS = [(MnistNet, (1, 28, 28)), (CifarNet, (3, 32, 32))]
both = pytest.mark.parametrize(("network", "shape"), NETWORKS, ids=["mnist", "cifar"])


def new(network, *arguments):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return network(*arguments).eval()


def mnist_features(images, w1, b1, w2, b2, w3, b3, w4, b4):
    """The published layers."""
    hidden = functional.max_pool2d(functional.conv2d(images, w1, b1), 2, 2)
    hidden = functional.max_pool2d(functional.conv2d(hidden, w2, b2), 2, 2)
    hidden = functional.conv2d(hidden, w3.view(500, 50, 4, 4), b3).relu()
    return functional.linear(hidden[:, :, 0, 0], w4, b4)


def cifar_features(images, w1, b1, w2, b2, w3, b3, w4, b4):
    """The published layers; windows over the edge average what is inside."""

    def average(maps):  # sums over sums of ones, on maps that are one row and column larger
        ones = functional.pad(torch.ones_like(maps), (0, 1, 0, 1))
        sums = [
            functional.avg_pool2d(part, 3, 2) for part in (functional.pad(maps, (0, 1, 0, 1)), ones)
        ]
        return sums[0] / sums[1]

    lowest = functional.pad(functional.conv2d(images, w1, b1, padding=2), (0, 1, 0, 1), value=-1e9)
    hidden = functional.max_pool2d(lowest, 3, 2).relu()
    hidden = average(functional.conv2d(hidden, w2, b2, padding=2).relu())
    hidden = average(functional.conv2d(hidden, w3, b3, padding=2).relu())
    return functional.conv2d(hidden, w4.view(-1, 64, 4, 4), b4).relu()[:, :, 0, 0]


@pytest.mark.parametrize(
    ("network", "shape", "formula"),
    [(MnistNet, (1, 28, 28), mnist_features), (CifarNet, (3, 32, 32), cifar_features)],
    ids=["mnist", "cifar"],
)
def test_features_equal_the_published_layers(generator, network, shape, formula):
    model, images = new(network), torch.randn(3, *shape, generator=generator)
    with torch.no_grad():
        features = model(images)
        expected = formula(images, *model.parameters())
    assert features.shape == (3, model.n_features)
    torch.testing.assert_close(features, expected)


@pytest.mark.parametrize(
    ("network", "n_channels", "expected"),
    [
        # inputs x outputs x window, and a bias for each output
        (MnistNet, 1, (1 * 20 * 25 + 20) + (20 * 50 * 25 + 50) + (50 * 500 * 16 + 500) + 64128),
        (MnistNet, 3, 520 + 1000 + 25050 + 400500 + (500 * 128 + 128)),
        (CifarNet, 3, (3 * 32 * 25 + 32) + (32 * 32 * 25 + 32) + (32 * 64 * 25 + 64) + 65600),
        (CifarNet, 1, 832 + 25632 + 51264 + (64 * 64 * 16 + 64)),
    ],
)
def test_parameter_count_matches_the_published_layers(network, n_channels, expected):
    model = new(network, n_channels)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert not list(model.buffers())


@both
def test_features_do_not_depend_on_the_batch(generator, network, shape):
    """Nor on the mode: there is no dropout and no batch normalization."""
    model, images = new(network), torch.randn(5, *shape, generator=generator)
    whole = model(images)
    parts = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(whole, parts, rtol=1e-5, atol=1e-6)
    assert torch.equal(model.train()(images), whole)


@both
def test_every_parameter_has_a_gradient(generator, network, shape):
    model = new(network)
    model(torch.randn(8, *shape, generator=generator)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_only_cifar_features_are_nonnegative(generator):
    cifar, mnist = (
        new(network)(torch.randn(8, *shape, generator=generator))
        for network, shape in reversed(NETWORKS)
    )
    assert cifar.min() == 0 < cifar.max()
    assert mnist.min() < 0 < mnist.max()


def test_standardized_backbone_sees_standardized_samples(generator):
    mean, scale = torch.tensor([[[1.0]], [[-2.0]]]), torch.tensor([[[0.5]], [[4.0]]])
    samples = mean + scale * torch.randn(6, 2, 3, 3, generator=generator)
    seen = Standardized(torch.nn.Identity(), mean, scale)(samples)
    expected = [(samples[:, 0] - 1) / 0.5, (samples[:, 1] + 2) / 4]
    torch.testing.assert_close(seen, torch.stack(expected, 1))
    flat = Standardized(torch.nn.Flatten(), mean, scale)(samples)
    assert torch.equal(flat, seen.flatten(1))


def test_mean_and_scale_are_saved_and_not_learned(generator):
    mean, scale = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    model = Standardized(torch.nn.Linear(2, 3), mean, scale)
    assert [name for name, _ in model.named_parameters()] == ["backbone.weight", "backbone.bias"]
    other = Standardized(torch.nn.Linear(2, 3), torch.zeros(2), torch.ones(2))
    other.load_state_dict(model.state_dict())
    samples = torch.randn(4, 2, generator=generator)
    assert torch.equal(other(samples), model(samples))
    assert model.double()(samples.double()).dtype == torch.float64  # they move with the module


@pytest.mark.parametrize(
    ("name", "shape", "network"),
    [
        ("mnist", (1, 28, 28), MnistNet),
        ("mnist", (3, 28, 28), MnistNet),
        ("cifar", (3, 32, 32), CifarNet),
        ("cifar", (4, 32, 32), CifarNet),
        ("wide-resnet", (1, 28, 28), WideResNet),
        ("wide-resnet", (3, 48, 32), WideResNet),
    ],
)
def test_named_backbones_take_their_image_size(name, shape, network):
    backbone = named_backbone(name, shape)
    assert type(backbone) is network
    assert backbone(torch.zeros(2, *shape)).shape == (2, network.n_features)


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [("mnist", (1, 32, 32), 28), ("cifar", (3, 28, 28), 32), ("mnist", (784,), 28)],
)
def test_items_of_another_shape_are_told(name, shape, size):
    with pytest.raises(ValueError) as error:
        named_backbone(name, shape)
    assert str(error.value) == (
        f"backbone='{name}' needs images of {size} x {size} pixels; got samples of "
        f"shape {shape}. Resize them, use 'wide-resnet' for any size, or pass a torch module."
    )


@pytest.mark.parametrize("name", ["cifar", "wide-resnet"])
def test_rejects_channels_last(name):
    message = rf"backbone='{name}' needs .* channels first; got samples of shape \(32, 32, 3\)"
    with pytest.raises(ValueError, match=message):
        named_backbone(name, (32, 32, 3))


def test_wide_resnet_rejects_features():
    with pytest.raises(ValueError, match="'wide-resnet' needs images; got samples of shape"):
        named_backbone("wide-resnet", (784,))


def test_unknown_name_suggests_the_nearest():
    names = "'mnist', 'cifar', 'wide-resnet'"
    message = rf"backbone must be one of {names}; got 'cifra'\. Did you mean 'cifar'\?"
    with pytest.raises(ValueError, match=message):
        named_backbone("cifra", (3, 32, 32))


class TestWideResNet:
    def test_wide_resnet_has_the_known_parameter_count(self):
        """1,467,610 in other implementations, 1,290 of them in a softmax of ten classes."""
        model = new(WideResNet)
        assert sum(part.numel() for part in model.parameters()) == 1_467_610 - 1_290
        convolutions = [part for part in model.modules() if isinstance(part, torch.nn.Conv2d)]
        assert sum(part.kernel_size == (3, 3) for part in convolutions) == 25  # 28 with 3 shortcuts

    def test_wide_resnet_features_equal_its_layers(self, generator):
        model, images = new(WideResNet), torch.randn(3, 3, 32, 32, generator=generator)
        with torch.no_grad():
            for name, part in [*model.named_parameters(), *model.named_buffers()]:
                if part.ndim == 1:  # of batch normalization; a variance is positive
                    part.copy_(torch.rand(part.shape, generator=generator) + 0.5 * ("var" in name))
            parts = iter([part for name, part in model.state_dict().items() if "num" not in name])

            def activated(maps):
                weight, bias, mean, var = (next(parts) for _ in range(4))
                return functional.batch_norm(maps, mean, var, weight, bias).relu()

            maps = functional.conv2d(images, next(parts), padding=1)
            for stage in range(3):
                for block in range(4):
                    stride = 2 if stage and not block else 1
                    before = activated(maps)
                    changed = functional.conv2d(before, next(parts), stride=stride, padding=1)
                    changed = functional.conv2d(activated(changed), next(parts), padding=1)
                    if not block:
                        maps = functional.conv2d(before, next(parts), stride=stride)
                    maps = maps + changed
            expected = activated(maps).mean(dim=(2, 3))
            assert not list(parts)
            torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-5)

    def test_every_parameter_has_a_gradient(self, generator):
        model = new(WideResNet).train()
        model(torch.randn(8, 3, 16, 16, generator=generator)).square().mean().backward()
        assert all(part.grad.abs().sum() > 0 for part in model.parameters())

    def test_initial_weights_have_kaiming_variance(self):
        for part in new(WideResNet).modules():
            if isinstance(part, torch.nn.Conv2d):
                n_to = part.out_channels * part.kernel_size[0] ** 2
                few = 4 / part.weight.numel() ** 0.5  # standard errors, of the deviation
                assert part.weight.std().item() == pytest.approx((2 / n_to) ** 0.5, rel=few)
