"""Wide residual network for small images."""

from __future__ import annotations

import torch
from torch import nn

N_BLOCKS = 4  # per stage, of two convolutions: 28 layers with the first and the shortcuts
FIRST = 16  # channels before the stages


class WideResNet(nn.Sequential):
    """WRN-28-2 [1]_: 128 nonnegative features of small images, from 1.5 million weights.

    Three stages of residual blocks, at full, half and quarter resolution with 32, 64 and 128
    channels, then average pooling.

    Parameters
    ----------
    n_channels : int

    Notes
    -----
    Batch normalization mixes the samples of a batch in training. An image of 32 x 32 pixels takes
    0.21 billion multiplications, 17 times those of ``CifarNet``: use a GPU.

    References
    ----------
    .. [1] Zagoruyko, Komodakis, "Wide residual networks", BMVC 2016, Table 1 with N = 4, k = 2 and
       the activation before each convolution; the weights begin as in [2]_.
    .. [2] He, Zhang, Ren, Sun, "Delving deep into rectifiers", ICCV 2015, Eq. (14).

    Examples
    --------
    >>> WideResNet()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """

    n_features = 128

    def __init__(self, n_channels: int = 3) -> None:
        widths = [self.n_features // 4, self.n_features // 2, self.n_features]
        inputs = [FIRST, *widths[:-1]]
        stages = [
            _stage(n_in, n_out, stride=1 if n_in == FIRST else 2)
            for n_in, n_out in zip(inputs, widths, strict=True)
        ]
        super().__init__(
            _convolution(n_channels, FIRST, 3),
            *stages,
            *_activation(self.n_features),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")


class Block(nn.Module):
    """Residual block with pre-activation.

    If the size or the channels change, the shortcut is a 1 x 1 convolution of the first activation.

    Examples
    --------
    >>> Block(16, 32, 2)(torch.zeros(1, 16, 8, 8)).shape
    torch.Size([1, 32, 4, 4])
    """

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.activation = nn.Sequential(*_activation(n_in))
        self.convolutions = nn.Sequential(
            _convolution(n_in, n_out, 3, stride), *_activation(n_out), _convolution(n_out, n_out, 3)
        )
        same = n_in == n_out and stride == 1
        self.shortcut = None if same else _convolution(n_in, n_out, 1, stride)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps (n, n_out, height / stride, width / stride) of (n, n_in, height, width)."""
        activated = self.activation(maps)
        kept = maps if self.shortcut is None else self.shortcut(activated)
        return kept + self.convolutions(activated)


def _stage(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    first = Block(n_in, n_out, stride)
    return nn.Sequential(first, *(Block(n_out, n_out, 1) for _ in range(N_BLOCKS - 1)))


def _activation(n_channels: int) -> tuple[nn.Module, nn.Module]:
    return nn.BatchNorm2d(n_channels), nn.ReLU()


def _convolution(n_in: int, n_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)
