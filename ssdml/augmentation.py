"""Random views of images: what may change without changing the class."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch.nn import functional

from ssdml.graphs._tensors import to_device

WEAK = 0.25  # of what strong views change, in weak ones


class Augment(Protocol):
    """Makes a view of each item of a batch; every random number comes from the CPU's generator."""

    def __call__(self, items: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Views of the items, of the same shape."""


@dataclass(frozen=True)
class RandomViews:
    """Affine maps, a flip, colours and a hole, each drawn anew for every image.

    Parameters
    ----------
    rotation : float
        Largest angle, in degrees, either way.
    scale, stretch : float
        Largest change of the size, and of the height alone, as shares of it.
    shift : float
        Largest shift, as a share of the side.
    shear : float
        Largest shear, as a share of the side.
    flip : bool
        Whether left and right change places, in half of the images.
    brightness, contrast, saturation, tint : float
        Largest changes, in units of the images' range; of three channels the last two.
    hole : float
        Side of a square that is painted in the image's mean, as a share of the side.
    border : bool
        Whether the border's pixels go on beyond it; otherwise there is 0.

    Examples
    --------
    >>> views = RandomViews(rotation=15.0, shift=0.1)
    >>> images, generator = torch.rand(8, 1, 28, 28), torch.Generator().manual_seed(0)
    >>> views(images, generator).shape
    torch.Size([8, 1, 28, 28])
    >>> bool((RandomViews()(images, generator) - images).abs().max() < 1e-5)
    True
    """

    rotation: float = 0.0
    scale: float = 0.0
    stretch: float = 0.0
    shift: float = 0.0
    shear: float = 0.0
    flip: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    tint: float = 0.0
    hole: float = 0.0
    border: bool = False

    def __call__(self, items: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Views of images (n, channels, height, width), floating point."""

        def draw(width: int) -> torch.Tensor:
            """Uniform between -1 and 1, (n, width), drawn on the CPU: the same on every device."""
            return (2 * torch.rand(len(items), width, generator=generator) - 1).to(items.dtype)

        maps, colours, tints, holes = map(draw, (7, 3, items.shape[1], 2))
        # Some thirty operations on a few numbers each: a GPU takes longer to start them.
        maps = to_device(self._maps(maps, *items.shape[2:]), items.device)
        views = self._coloured(_moved(items, maps, self.border), colours, tints)
        return self._pierced(views, holes)

    def weaker(self, share: float) -> Self:
        """The same views, changed by so much of it, without a hole."""
        ranges = "rotation scale stretch shift shear brightness contrast saturation tint".split()
        changed = {name: share * getattr(self, name) for name in ranges}
        return replace(self, hole=0.0, **changed)

    def _maps(self, drawn: torch.Tensor, n_rows: int, n_columns: int) -> torch.Tensor:
        """Affine maps (n, 2, 3) of coordinates from -1 to 1, across and down."""
        turn, size, height, slant, flip, across, down = drawn.T
        turn, slant = math.radians(self.rotation) * turn, self.shear * slant
        width = 1 + self.scale * size
        height = width * (1 + self.stretch * height)
        one = torch.ones_like(flip)
        sign = torch.where(flip < 0, -one, one) if self.flip else one
        sine, tall = turn.sin(), n_rows / n_columns  # so that an angle is one of pixels
        upper = [sign * width * turn.cos(), slant - height * sine * tall, 2 * self.shift * across]
        lower = [sign * width * sine / tall, height * turn.cos(), 2 * self.shift * down]
        return torch.stack([torch.stack(upper, 1), torch.stack(lower, 1)], 1)

    def _coloured(
        self, images: torch.Tensor, drawn: torch.Tensor, tints: torch.Tensor
    ) -> torch.Tensor:
        """Images in other colours, within the range that they span together."""
        if not (self.brightness or self.contrast or self.saturation or self.tint):
            return images
        numbers = to_device(torch.cat([drawn, tints], dim=1), images.device)
        low, high = images.amin(), images.amax()
        span = high - low
        light, contrast, saturation = (part[:, None, None, None] for part in numbers[:, :3].T)
        gray = images.mean(dim=1, keepdim=True)
        images = gray + (1 + self.saturation * saturation) * (images - gray)
        middle = images.mean(dim=(1, 2, 3), keepdim=True)
        images = middle + (1 + self.contrast * contrast) * (images - middle)
        offsets = self.brightness * light + self.tint * numbers[:, 3:, None, None]
        return (images + span * offsets).clamp(low, high)

    def _pierced(self, images: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Images with a square of their mean colour, part of which may lie outside."""
        if not self.hole:
            return images
        drawn = to_device(drawn, images.device)
        places = [torch.linspace(-1, 1, side, device=images.device) for side in images.shape[2:]]
        inside = [
            (place - center[:, None]).abs() < self.hole
            for place, center in zip(places, drawn.T, strict=True)
        ]
        square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
        return torch.where(square, images.mean(dim=(2, 3), keepdim=True), images)


def unchanged(items: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The items as they are."""
    return items


def default_views(shape: tuple[int, ...]) -> RandomViews | None:
    """Views for items of a shape: none unless (channels, height, width).

    One channel is taken for signs and shapes, whose mirror image is another thing; three for
    photographs.

    Examples
    --------
    >>> default_views((1, 28, 28)).flip, default_views((3, 32, 32)).flip
    (False, True)
    """
    if len(shape) != 3:
        return None
    drawn = RandomViews(rotation=15.0, scale=0.15, stretch=0.07, shift=0.1, shear=0.15)
    if shape[0] == 1:
        return drawn
    return replace(
        drawn,
        flip=True,
        border=True,
        brightness=0.3,
        contrast=0.6,
        saturation=0.8,
        tint=0.1,
        hole=0.5,
    )


def strong_and_weak(augment: Any, shape: tuple[int, ...]) -> tuple[Augment, Augment]:
    """Views to learn from, and those by which classes are told: a quarter as strong.

    Parameters
    ----------
    augment : "auto", None or Augment
        The weak views of one without a method ``weaker(share)`` are the items as they are.
    shape : tuple of int
        Of an item.

    Examples
    --------
    >>> strong, weak = strong_and_weak("auto", (1, 28, 28))
    >>> strong.rotation, weak.rotation
    (15.0, 3.75)
    """
    views = default_views(shape) if augment == "auto" else augment
    if views is None:
        return unchanged, unchanged
    return views, views.weaker(WEAK) if hasattr(views, "weaker") else unchanged


def _moved(images: torch.Tensor, maps: torch.Tensor, border: bool) -> torch.Tensor:
    """Images seen through affine maps of the coordinates, bilinear."""
    return functional.grid_sample(
        images,
        _places(maps, *images.shape[2:]),
        padding_mode="border" if border else "zeros",
        align_corners=False,
    )


def _places(maps: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Where each pixel is looked up, (n, height, width, 2).

    As torch's ``affine_grid``, which multiplies image by image: that took four times as long as to
    look them up.
    """
    across, down = (
        torch.arange(1 - side, side, 2, device=maps.device, dtype=maps.dtype) / side
        for side in (width, height)
    )
    by_across, by_down, shift = maps[:, :, None, None].unbind(-1)
    return (by_across * across + (by_down * down[:, None] + shift)).permute(0, 2, 3, 1)
