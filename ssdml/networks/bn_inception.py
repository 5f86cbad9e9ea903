"""BN-Inception, the successor of GoogLeNet."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

# Channels per block: 1 x 1; 3 x 3 and its reduction; double 3 x 3 and its reduction; pooling.
# None: without that branch, and with stride 2.
BLOCKS: dict[str, tuple[int | None, tuple[int, int], tuple[int, int], int | None]] = {
    "3a": (64, (64, 64), (64, 96), 32),
    "3b": (64, (64, 96), (64, 96), 64),
    "3c": (None, (128, 160), (64, 96), None),
    "4a": (224, (64, 96), (96, 128), 128),
    "4b": (192, (96, 128), (96, 128), 128),
    "4c": (160, (128, 160), (128, 160), 128),
    "4d": (96, (128, 192), (160, 192), 128),
    "4e": (None, (128, 192), (192, 256), None),
    "5a": (352, (192, 320), (160, 224), 128),
    "5b": (352, (192, 320), (192, 224), 128),
}
MAX_POOLED = "5b"  # the other blocks pool by average


class BNInception(nn.Module):
    """BN-Inception without its classifier: 1,024 channels at 1/32 of the image size.

    Used by Chen et al. (2021) and Zhu et al. (2020). Layers have the names of the Caffe model that
    all published weights come from, so that :func:`ssdml.networks.fine_grained.load_weights` reads
    them. Batch normalization has torch's settings.

    References
    ----------
    .. [1] Ioffe, Szegedy, "Batch normalization: accelerating deep network training by reducing
       internal covariate shift", ICML 2015, Section 4.2 and Figure 5. The Caffe model differs from
       the figure in blocks 4c and 4d, which have 608 channels for 576.

    Examples
    --------
    >>> BNInception().eval()(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 1024, 2, 2])
    """

    n_features = 1024

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, 7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        n_channels = 192
        for block, (single, triple, double, pooled) in BLOCKS.items():
            name, stride = f"inception_{block}", 1 if single else 2
            if single:
                self._add(f"{name}_1x1", n_channels, single, 1)
            self._add(f"{name}_3x3_reduce", n_channels, triple[0], 1)
            self._add(f"{name}_3x3", *triple, 3, stride=stride)
            self._add(f"{name}_double_3x3_reduce", n_channels, double[0], 1)
            self._add(f"{name}_double_3x3_1", *double, 3)
            self._add(f"{name}_double_3x3_2", double[1], double[1], 3, stride=stride)
            if pooled:
                self._add(f"{name}_pool_proj", n_channels, pooled, 1)
            n_channels = (single or 0) + triple[1] + double[1] + (pooled or n_channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Maps (n, 1024, height / 32, width / 32) of images (n, 3, height, width)."""
        maps = _halved(self._apply_all(images, "conv1_7x7_s2"))
        maps = _halved(self._apply_all(maps, "conv2_3x3_reduce", "conv2_3x3"))
        for block, (single, *_, pooled) in BLOCKS.items():
            name = f"inception_{block}"
            branches = [self._apply_all(maps, f"{name}_1x1")] if single else []
            branches.append(self._apply_all(maps, f"{name}_3x3_reduce", f"{name}_3x3"))
            doubles = ("reduce", "1", "2")
            branches.append(self._apply_all(maps, *(f"{name}_double_3x3_{d}" for d in doubles)))
            if not pooled:
                branches.append(_halved(maps))
            else:
                around = (
                    functional.max_pool2d(maps, 3, 1, 1)
                    if block == MAX_POOLED
                    else functional.avg_pool2d(maps, 3, 1, 1)
                )
                branches.append(self._apply_all(around, f"{name}_pool_proj"))
            maps = torch.cat(branches, dim=1)
        return maps

    def _add(self, name: str, n_in: int, n_out: int, side: int, stride: int = 1) -> None:
        """Add a convolution, padded to keep the size, and its batch normalization."""
        self.add_module(name, nn.Conv2d(n_in, n_out, side, stride, padding=side // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(n_out))

    def _apply_all(self, maps: torch.Tensor, *names: str) -> torch.Tensor:
        for name in names:
            convolved = self.get_submodule(name)(maps)
            maps = torch.relu(self.get_submodule(f"{name}_bn")(convolved))
        return maps


def _halved(maps: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(maps, 3, 2, ceil_mode=True)
