"""Backbones: torch modules that compute the features under a metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from ssdml.datasets.pixels import has_channels_last
from ssdml.networks.wide_resnet import WideResNet
from ssdml.utils.validation import choose


class ResidualHead(nn.Module):
    """One hidden layer with a skip connection, ``x + B relu(A x + a) + b``.

    B and b start at zero, so an untrained head returns its input.

    Parameters
    ----------
    n_features : int
    n_hidden : int
    dropout : float
        Of the inputs and of the hidden units.

    Examples
    --------
    >>> ResidualHead(3, n_hidden=8)(torch.ones(1, 3))
    tensor([[1., 1., 1.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, n_features: int, *, n_hidden: int = 512, dropout: float = 0.2) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_features, n_hidden)
        self.output = nn.Linear(n_hidden, n_features)
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (n, n_features) of inputs (n, n_features)."""
        hidden = torch.relu(self.hidden(self.dropout(features)))
        return features + self.output(self.dropout(hidden))


class MnistNet(nn.Sequential):
    """The network of [1]_ for images of 28 x 28 pixels: 128 features.

    The last convolution covers the whole map, and is written as a linear layer: a training step
    takes a quarter less time.

    Parameters
    ----------
    n_channels : int

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, implementation details.

    Examples
    --------
    >>> MnistNet()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 128])
    """

    n_features = 128

    def __init__(self, n_channels: int = 1) -> None:
        super().__init__(
            nn.Conv2d(n_channels, 20, 5),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(50 * 4 * 4, 500),
            nn.ReLU(),
            nn.Linear(500, self.n_features),
        )


class CifarNet(nn.Sequential):
    """The network of [1]_ for images of 32 x 32 pixels: 64 nonnegative features.

    The last convolution is written as a linear layer. Pooling windows are 3 wide with stride 2, as
    in the network that [1]_ adapted.

    Parameters
    ----------
    n_channels : int

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, implementation details.

    Examples
    --------
    >>> CifarNet()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    n_features = 64

    def __init__(self, n_channels: int = 3) -> None:
        super().__init__(
            nn.Conv2d(n_channels, 32, 5, padding=2),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.ReLU(),
            nn.Conv2d(32, 32, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(3, 2, ceil_mode=True),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, self.n_features),
            nn.ReLU(),
        )


class Standardized(nn.Module):
    """A backbone on standardized samples.

    Parameters
    ----------
    backbone : Module
    mean, scale : tensor
        They broadcast to a sample.
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, backbone: nn.Module, mean: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Features of samples."""
        return self.backbone((samples - self.mean) / self.scale)


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "mnist": MnistNet,
    "cifar": CifarNet,
    "wide-resnet": WideResNet,
}


class PaperNetwork(NamedTuple):
    """Protocol of a network of Dutta et al. (2021), implementation details."""

    image_size: tuple[int, int]
    n_components: int  # columns of L
    pretrain_epochs: int  # of softmax on the labeled images


PAPER_NETWORKS = {
    "mnist": PaperNetwork((28, 28), 64, 0),
    "cifar": PaperNetwork((32, 32), 32, 30),
}


def paper_network(backbone: Any) -> PaperNetwork:
    """Return the published protocol of a backbone; that of "mnist" for other backbones."""
    name = backbone if isinstance(backbone, str) else ""
    return PAPER_NETWORKS.get(name, PAPER_NETWORKS["mnist"])


def named_backbone(name: str, shape: tuple[int, ...]) -> nn.Module:
    """Make a network by name, for samples of shape (channels, height, width)."""
    if has_channels_last(shape):
        raise ValueError(
            f"backbone={name!r} needs images with their channels first; got samples of shape "
            f"{shape}. Transpose them, or pass bytes, whose channels may be last."
        )
    network, of_paper = choose(NETWORKS, name, "backbone"), PAPER_NETWORKS.get(name)
    sizes, fix = "", "Reshape them"
    if of_paper is not None:
        sizes = " of {} x {} pixels".format(*of_paper.image_size)
        fix = "Resize them, use 'wide-resnet' for any size"
    if len(shape) != 3 or (of_paper is not None and shape[1:] != of_paper.image_size):
        raise ValueError(
            f"backbone={name!r} needs images{sizes}; got samples of shape {shape}. {fix}, or "
            "pass a torch module."
        )
    return network(shape[0]).float()  # whatever torch's default dtype is
