"""The network of a deep estimator: a standardized backbone, a metric and class proxies."""

from __future__ import annotations

import copy
import re
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from ssdml.datasets.pixels import has_channels_last
from ssdml.networks.backbones import Standardized, named_backbone
from ssdml.networks.data import Samples, mean_and_scale
from ssdml.networks.randomness import SeededDraws
from ssdml.networks.sampling import spaced
from ssdml.utils.distributed import broadcast_weights
from ssdml.utils.linalg import random_orthonormal
from ssdml.utils.persistence import Refusal
from ssdml.utils.torch_tools import (
    HALVES,
    batch_norms,
    check_state,
    evaluating,
    is_out_of_memory,
    load_whole_state,
    whole_state,
)
from ssdml.utils.validation import warn

TEMPERATURE = 0.1  # of the class proxies
COMPILED = "_orig_mod."  # in names of weights, by torch.compile
COUNTER = "backbone.backbone.n_averaged"  # of AveragedModel: a plain network has none
WRAPPERS = re.compile(r"^(module\.)+")  # of DataParallel, DistributedDataParallel, AveragedModel
TRIED = 16  # samples that the backbone is tested on


class MetricNetwork(nn.Module):
    """A backbone, a metric L and one proxy per class.

    Parameters
    ----------
    backbone : Module
        Returns (n, d) features.
    metric : tensor of shape (d, l)
        L.
    n_classes : int
    unit_features : bool
        Whether features are scaled to unit length before the metric, as in Dutta et al. (2021).
    free_metric : bool
        Whether L is an ordinary parameter; otherwise a buffer that others set.
    """

    metric: torch.Tensor
    mixed = False  # whether the backbone computes in bfloat16; see mixed_precision

    def __init__(
        self,
        backbone: nn.Module,
        metric: torch.Tensor,
        n_classes: int,
        *,
        unit_features: bool = False,
        free_metric: bool = False,
    ) -> None:
        super().__init__()
        self.backbone: nn.Module = backbone
        self.unit_features = unit_features
        if free_metric:
            self.metric = nn.Parameter(metric)
        else:
            self.register_buffer("metric", metric)
        self.proxies = nn.Parameter(torch.randn(n_classes, metric.shape[1], dtype=metric.dtype))

    @property
    def L(self) -> npt.NDArray[np.float32]:
        """The metric as an array."""
        return self.metric.detach().cpu().numpy()

    def outputs(self, samples: torch.Tensor) -> torch.Tensor:
        """Outputs of the backbone, (n, d), in float32."""
        if not self.mixed:
            outputs: torch.Tensor = self.backbone(samples)
        else:
            # The cache of converted weights is emptied by the outermost block alone, and that of a
            # fit is around all of its steps: they would never see the weights change.
            with torch.autocast(samples.device.type, torch.bfloat16, cache_enabled=False):
                outputs = _in_bfloat16(self.backbone, samples)
        if not isinstance(outputs, torch.Tensor):
            raise ValueError(_not_one_tensor(outputs, " also in training"))
        if outputs.ndim == 1:  # of a single sample, by a backbone that squeezes
            outputs = outputs[None]
        return outputs.float()

    def features(self, samples: torch.Tensor) -> torch.Tensor:
        """Features before the metric, (n, d)."""
        outputs = self.outputs(samples)
        return functional.normalize(outputs, dim=1) if self.unit_features else outputs

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Unit embedding, (n, l)."""
        return functional.normalize(self.features(samples) @ self.metric, dim=1)

    def logits(self, embedding: torch.Tensor) -> torch.Tensor:
        """Cosines to the proxies divided by a temperature, (n, n_classes)."""
        return embedding @ functional.normalize(self.proxies, dim=1).T / TEMPERATURE


def new_network(
    backbone: str | nn.Module,
    samples: Samples,
    n_components: int | None,
    n_classes: int,
    seed: int,
    device: str,
    *,
    orthogonal: bool = True,
) -> MetricNetwork:
    """Copy a backbone, standardize its input, and add a random orthonormal L and random proxies.

    Parameters
    ----------
    backbone : str or Module
    samples : Samples
        For mean and scale of the input, and to test the backbone on.
    n_components : int or None
        Columns of L; None: as many as the backbone has features.
    n_classes, seed, device
    orthogonal : bool
        Whether L is a buffer that its user keeps orthonormal; otherwise it is a parameter.
    """
    with SeededDraws(seed):
        if isinstance(backbone, str):
            backbone = named_backbone(backbone, samples.shape)
        if not isinstance(backbone, nn.Module):
            raise TypeError(
                f"backbone must be a name or a torch module; got {type(backbone).__name__}. Pass "
                "an instance, not a class or a function."
            )
        if isinstance(backbone, torch.jit.ScriptModule):
            raise TypeError(
                f"backbone must be a module of Python; got {type(backbone).__name__}, whose copy "
                "cannot be trained. Pass the module before torch.jit, or torch.compile it."
            )
        check_state(backbone, "backbone")
        if has_channels_last(samples.shape):
            warn(
                "samples must have their channels first; got shape "
                f"{samples.shape}, which looks as if they were last. Transpose the samples or "
                "pass bytes."
            )
        module = Standardized(_copied(backbone), *mean_and_scale(samples, seed)).to(device)
        _check_running_statistics(module)
        d = _n_features(module, samples)
        lay_channels_last(module, samples.shape)
        columns = n_components or d
        if columns > d:
            raise ValueError(
                f"n_components must be at most the {d} features of the backbone; got "
                f"{n_components}. Lower it, or pass None for all."
            )
        L = random_orthonormal(d, columns, np.random.default_rng(seed))
        metric = torch.from_numpy(L.astype(np.float32))
        network = MetricNetwork(
            module, metric, n_classes, unit_features=True, free_metric=not orthogonal
        ).to(device)
    broadcast_weights(network)  # each process may have made its own module
    return network


def restored_network(
    backbone: str | nn.Module, shape: tuple[int, ...], weights: dict[str, npt.NDArray[Any]]
) -> MetricNetwork:
    """Restore a network from saved weights, in evaluation mode, on the CPU."""
    state = {name: torch.from_numpy(value) for name, value in weights.items()}
    module = named_backbone(backbone, shape) if isinstance(backbone, str) else backbone
    standardized = Standardized(_copied(module), state["backbone.mean"], state["backbone.scale"])
    metric, n_classes = state["metric"], len(state["proxies"])
    network = MetricNetwork(standardized, metric, n_classes, unit_features=True)
    try:
        load_whole_state(network, _renamed(state, network))
    except RuntimeError as error:
        raise Refusal(f"backbone must be like the fitted one; {error}.") from error
    lay_channels_last(network.eval().backbone, shape)
    return network


def _renamed(state: dict[str, torch.Tensor], network: nn.Module) -> dict[str, torch.Tensor]:
    """Give weights their names in the network: compiled and parallel modules have prefixes."""
    before = whole_state(network)
    if before.keys() == state.keys():
        return state
    own = {_plain(name): name for name in before}
    renamed = {own.get(_plain(name), name): part for name, part in state.items()}
    counters = {COUNTER: before[COUNTER]} if COUNTER in before else {}
    return counters | {n: part for n, part in renamed.items() if n != COUNTER or n in before}


def _plain(name: str) -> str:
    """Return the name of a weight without prefixes of wrappers of the backbone.

    Examples
    --------
    >>> _plain("backbone.backbone.module._orig_mod.0.weight"), _plain("metric")
    ('backbone.backbone.0.weight', 'metric')
    """
    own, backbone, rest = name.replace(COMPILED, "").partition("backbone.backbone.")
    return own + backbone + WRAPPERS.sub("", rest)


def lay_channels_last(backbone: nn.Module, shape: tuple[int, ...]) -> None:
    """Store convolution weights with channels last, which halves the time for images.

    A module that fails in this layout, for instance because it calls ``view``, is left unchanged.
    ``shape`` is that of one sample.

    Examples
    --------
    >>> backbone = nn.Sequential(nn.Conv2d(3, 4, 5), nn.Flatten())
    >>> lay_channels_last(backbone, (3, 8, 8))
    >>> backbone[0].weight.is_contiguous(memory_format=torch.channels_last)
    True
    """
    device = next((part.device for part in backbone.state_dict().values()), None)
    for layout in (torch.channels_last, torch.contiguous_format):
        with suppress(RuntimeError), evaluating(backbone), torch.no_grad():
            backbone.to(memory_format=layout)  # type: ignore[call-overload]
            backbone(torch.zeros(2, *shape, device=device))
            break


def _copied(backbone: nn.Module) -> nn.Module:
    """Copy a backbone; errors tell what keeps a module from being copied."""
    try:
        return copy.deepcopy(backbone)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise TypeError(
            f"backbone must be a module that copy.deepcopy copies; got {type(error).__name__}: "
            f"{error}. Keep no tensors of a forward pass, files or locks in it; for weight_norm, "
            "use that of torch.nn.utils.parametrizations."
        ) from error


def _check_running_statistics(backbone: nn.Module) -> None:
    """Raise if a layer evaluates a sample by the others of its batch."""
    for layer in batch_norms(backbone):
        if layer.running_mean is None:
            raise ValueError(
                f"backbone must embed a sample alike in every batch; got {layer}. Create it with "
                "track_running_stats=True."
            )


def _n_features(backbone: nn.Module, samples: Samples) -> int:
    """Count the backbone's features; raise if they are unusable."""
    batch = samples.batch(spaced(np.arange(len(samples)), TRIED))
    features = _tried(backbone, batch)
    if not isinstance(features, torch.Tensor):
        raise ValueError(_not_one_tensor(features))
    if features.ndim != 2:
        raise ValueError(
            f"backbone must return features of shape (n, d); got {tuple(features.shape)}. Append "
            "torch.nn.Flatten() or a pooling layer."
        )
    if len(features) != len(batch) or not features.is_floating_point():
        raise ValueError(
            f"backbone must return one row of floating-point features per sample; got "
            f"{tuple(features.shape)} of {features.dtype} for {len(batch)} samples. Keep the first "
            "axis, and return features, not class numbers."
        )
    if not torch.isfinite(features).all():
        raise ValueError(
            "backbone must return finite features; got NaN or infinity before the first step. "
            "Check its weights and the samples."
        )
    trained = sum(weights.requires_grad for weights in backbone.parameters())
    if trained and not features.requires_grad:
        raise ValueError(
            f"backbone must return features with a gradient; got some without, though {trained} of "
            "its parameters are to be trained. Use no torch.no_grad() or detach() in it; to keep "
            "its weights, call backbone.requires_grad_(False)."
        )
    if not features.any():
        raise ValueError(
            f"backbone must return nonzero features; got only zeros for {len(batch)} samples. If a "
            "final ReLU is dead, initialize it differently."
        )
    return int(features.shape[1])


def _not_one_tensor(outputs: Any, when: str = "") -> str:
    return (
        f"backbone must return features of shape (n, d),{when} one tensor; got "
        f"{type(outputs).__name__}. Wrap it in a Module that returns one of its parts."
    )


def _in_bfloat16(backbone: nn.Module, samples: torch.Tensor) -> Any:
    try:
        return backbone(samples)
    except Exception as error:
        error.add_note("The backbone computed in bfloat16: try mixed_precision=False.")
        raise


def _tried(backbone: nn.Module, batch: torch.Tensor) -> Any:
    """Apply a backbone; errors name the input."""
    try:
        with evaluating(backbone):
            return backbone(batch)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        way_out = (
            "Pass samples as the backbone takes them, or begin it with a layer that does; they "
            "are standardized first."
        )
        if batch.ndim == 4 and batch.shape[1] == 1:
            way_out = "Arrays with three axes are gray images: pass others as a Dataset."
        if batch.ndim == 3:
            way_out = "Gray images of a Dataset or in a list need three axes: yield image[None]."
        if any(part.dtype in (torch.float64, *HALVES) for part in backbone.parameters()):
            way_out = "Pass backbone.float(): samples are float32."
        raise ValueError(
            f"backbone must take batches of samples, one tensor of shape {tuple(batch.shape)} and "
            f"{batch.dtype}; got {type(error).__name__}: {error}. {way_out}"
        ) from error
