"""Pooling of feature maps of any size into one vector per image."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

OVERLAP = 0.4  # of neighboring regions, as nearly as possible


class RMAC(nn.Module):
    """Regional maximum activations: the normalized sum of unit maxima over square regions.

    At scale l the regions are 2 min(height, width) / (l + 1) wide: one at the first scale of a
    square map, then 4, then 9. A longer side has more regions, so that those of the first scale
    overlap by 40% as nearly as possible.

    Parameters
    ----------
    n_scales : int

    Notes
    -----
    As [1]_, without its whitening, which is learned from other images. Dutta et al. (2021) pool so
    inside their network; they give neither the whitening nor the number of scales, 3 in [1]_.
    Regions are whole cells wide, rounded down to at least one.

    References
    ----------
    .. [1] Tolias, Sicre, Jégou, "Particular object retrieval with integral max-pooling of CNN
       activations", ICLR 2016, Section 3.2.

    Examples
    --------
    >>> maps = torch.rand(2, 16, 7, 7)
    >>> pooled = RMAC()(maps)
    >>> pooled.shape, bool((pooled.norm(dim=1) - 1).abs().max() < 1e-5)
    (torch.Size([2, 16]), True)
    """

    def __init__(self, n_scales: int = 3) -> None:
        super().__init__()
        if n_scales < 1:
            raise ValueError(f"RMAC: n_scales must be at least 1; got {n_scales}.")
        self.n_scales = n_scales

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Unit rows (n, channels) of maps (n, channels, height, width)."""
        precise = torch.promote_types(maps.dtype, torch.float32)  # half precision adds up badly
        total = maps.new_zeros(maps.shape[:2], dtype=precise)
        for side, tops, lefts in regions(maps.shape[2], maps.shape[3], self.n_scales):
            maxima = functional.max_pool2d(maps, side, stride=1)[:, :, tops][:, :, :, lefts]
            total = total + functional.normalize(maxima.to(precise), dim=1).sum(dim=(2, 3))
        return functional.normalize(total, dim=1)


def regions(height: int, width: int, n_scales: int) -> list[tuple[int, list[int], list[int]]]:
    """Square regions of a map: side, rows and columns of the upper left corners, per scale.

    Examples
    --------
    >>> regions(6, 6, 2)
    [(6, [0], [0]), (4, [0, 2], [0, 2])]
    >>> regions(6, 10, 1)
    [(6, [0], [0, 4])]
    """
    short = min(height, width)
    down, across = (_along(length, short) for length in (height, width))
    found = []
    for scale in range(1, n_scales + 1):
        side = max(1, 2 * short // (scale + 1))
        tops, lefts = (
            _starts(length, side, scale + more - 1)
            for length, more in ((height, down), (width, across))
        )
        found.append((side, tops, lefts))
    return found


def _along(length: int, side: int) -> int:
    """Number of squares along a side whose overlap is nearest to 40%."""
    if length == side:
        return 1
    # m squares are (length - side) / (m - 1) apart.
    most = 2 + int((length - side) / (side * (1 - OVERLAP)))
    return min(
        range(2, most + 1), key=lambda m: abs(1 - (length - side) / (m - 1) / side - OVERLAP)
    )


def _starts(length: int, side: int, count: int) -> list[int]:
    """Evenly spaced starts of ``count`` regions, in whole cells."""
    return [i * (length - side) // max(count - 1, 1) for i in range(count)]


class MaxAveragePooling(nn.Module):
    """Concatenate maximum and mean of each channel.

    Examples
    --------
    >>> MaxAveragePooling()(torch.tensor([[[[0.0, 4.0], [0.0, 0.0]]]]))
    tensor([[4., 1.]])
    """

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Rows (n, 2 channels) of maps (n, channels, height, width)."""
        return torch.cat([maps.amax(dim=(2, 3)), maps.mean(dim=(2, 3))], dim=1)


class SelectivePooling(nn.Module):
    """Concatenate maximum and mean of each channel over the cells of the main object (SCDA).

    The cells are the largest connected component of those whose activations, summed over the
    channels, exceed their mean over the map. No gradient flows through the selection.

    Notes
    -----
    As in [1]_; Zheng et al. (2019) pool the last maps of ResNet-50 so. A cell is connected to all
    eight neighbors, and a map without a cell above the mean is pooled as a whole. Further layers
    and the mirrored image, which extend [1]_, are left to the caller.

    References
    ----------
    .. [1] Wei, Luo, Wu, Zhou, "Selective convolutional descriptor aggregation for fine-grained
       image retrieval", IEEE TIP 26(6), 2017.

    Examples
    --------
    >>> maps = torch.tensor([[[[9.0, 0.0, 0.0, 6.0], [0.0, 0.0, 0.0, 8.0]]]])
    >>> SelectivePooling()(maps)  # of the two cells at the right
    tensor([[8., 7.]])
    """

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Rows (n, 2 channels) of maps (n, channels, height, width)."""
        chosen = main_component(maps.detach().sum(dim=1))[:, None]
        maxima = maps.masked_fill(~chosen, -torch.inf).amax(dim=(2, 3))
        means = (maps * chosen).sum(dim=(2, 3)) / chosen.sum(dim=(2, 3))
        return torch.cat([maxima, means], dim=1)


def main_component(activations: torch.Tensor) -> torch.Tensor:
    """Find the largest connected component of the cells above the mean of each map.

    Parameters
    ----------
    activations : tensor of shape (n, height, width)

    Returns
    -------
    chosen : tensor of shape (n, height, width), bool
        All cells if none exceeds the mean; of components of one size the first in reading order.

    Examples
    --------
    >>> main_component(torch.tensor([[[9.0, 0.0, 6.0], [0.0, 0.0, 8.0]]])).int()
    tensor([[[0, 0, 1],
             [0, 0, 1]]], dtype=torch.int32)
    """
    n, height, width = activations.shape
    above = activations > activations.mean(dim=(1, 2), keepdim=True)
    above = above | ~above.flatten(1).any(dim=1)[:, None, None]
    # Every cell takes the largest number of its component; 0 outside.
    numbers = torch.arange(height * width, 0, -1, device=activations.device, dtype=torch.float32)
    numbers = numbers.view(height, width) * above
    while True:
        spread = functional.max_pool2d(numbers[:, None], 3, stride=1, padding=1)[:, 0] * above
        if torch.equal(spread, numbers):
            break
        numbers = spread
    of_cells = numbers.flatten(1).long()
    counts = torch.zeros(n, height * width + 1, dtype=torch.long, device=activations.device)
    counts.scatter_add_(1, of_cells, (of_cells > 0).long())
    first = counts.flip(1).argmax(dim=1, keepdim=True)  # the largest number comes first
    return (of_cells == height * width - first).view_as(above)


class AveragePooling(nn.Module):
    """Mean activation of each channel.

    Examples
    --------
    >>> AveragePooling()(torch.tensor([[[[0.0, 4.0], [0.0, 0.0]]]]))
    tensor([[1.]])
    """

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Rows (n, channels) of maps (n, channels, height, width)."""
        return maps.mean(dim=(2, 3))


POOLINGS = {
    "rmac": RMAC,
    "scda": SelectivePooling,
    "max+average": MaxAveragePooling,
    "average": AveragePooling,
}
