"""Random augmentations of images."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch.nn import functional

from ssdml.utils.torch_tools import to_device
from ssdml.utils.validation import check_finite

WEAK = 0.25  # strength of weak views
LEVELS = 256  # of tones
NODES = 4  # of a warp, along each side
HANDWRITING, WARP = "handwriting", 0.06


class Augment(Protocol):
    """Make one view per sample of a batch, with random numbers from a CPU generator."""

    def __call__(self, samples: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return views of the same shape as the samples."""


@dataclass(frozen=True)
class RandomViews:
    """Random affine maps, warps, flips, colors, tone curves and holes, drawn per image.

    Parameters
    ----------
    rotation : float
        Largest angle in degrees, in either direction.
    scale, stretch : float
        Largest relative change of the size, and of the height alone.
    shift, shear : float
        Largest shift and shear, relative to the image side.
    warp : float
        Largest shift, in each direction, of the nodes of a 4 x 4 grid, relative to the image side;
        between them, pixels move smoothly (bicubic interpolation), as in [2]_.
    flip : bool
        Whether to flip half of the images horizontally.
    brightness, contrast, saturation, tint : float
        Largest changes, in units of the images' range; saturation and tint need three channels.
    tones : int
        Number of operations on the tones, one after another, each drawn among solarize, posterize,
        autocontrast, equalize, gamma and none, as in RandAugment [1]_.
    hole : float
        Side of a square filled with the image's mean, relative to the image side.
    border : bool
        Whether to repeat border pixels beyond the border; otherwise pad with 0.

    References
    ----------
    .. [1] Cubuk, Zoph, Shlens, Le, "RandAugment: practical automated data augmentation with a
       reduced search space", NeurIPS 2020.
    .. [2] Simard, Steinkraus, Platt, "Best practices for convolutional neural networks applied to
       visual document analysis", ICDAR 2003, whose displacements are filtered noise.

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
    warp: float = 0.0
    flip: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    tint: float = 0.0
    tones: int = 0
    hole: float = 0.0
    border: bool = False

    def __call__(self, samples: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Augment images (n, channels, height, width), floating point."""
        _check_images(samples)
        if not len(samples):
            return samples.clone()
        return self.views(samples, self.draw(len(samples), samples.shape[1], generator))

    def draw(self, count: int, n_channels: int, generator: torch.Generator) -> torch.Tensor:
        """Draw the numbers of each view, uniform in [-1, 1], (count, 12 + n_channels or more).

        They are drawn on the CPU: equal on every device. A warp takes 32 more, a tone operation 2.
        """
        widths = self._widths(n_channels)
        drawn = 2 * torch.rand(count * sum(widths), generator=generator) - 1
        parts = torch.split(drawn, [count * width for width in widths])
        blocks = [part.view(count, width) for part, width in zip(parts, widths, strict=True)]
        return torch.cat(blocks, dim=1)

    def views(self, samples: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Make the views of images that were drawn, by numbers of the CPU or of their device."""
        widths = self._widths(samples.shape[1])
        parts = torch.split(drawn.to(samples.dtype), widths, dim=1)
        maps, colors, tints, holes, tones, bends = parts
        # Thirty operations on a few numbers each: a GPU takes longer to launch them.
        maps = to_device(self._maps(maps, *samples.shape[2:]), samples.device)
        shifts = to_device(2 * self.warp * bends, samples.device) if self.warp else None
        views = self._colored(_moved(samples, maps, self.border, shifts), colors, tints)
        return self._pierced(_toned(views, tones) if self.tones else views, holes)

    def _widths(self, n_channels: int) -> list[int]:
        """Count the numbers per view of maps, colors, tints, holes, tones and warps."""
        return [7, 3, n_channels, 2, 2 * self.tones, 2 * NODES**2 * bool(self.warp)]

    def weaker(self, share: float) -> Self:
        """Views of this share of the strength, without tone curves and holes."""
        ranges = (
            "rotation scale stretch shift shear warp brightness contrast saturation tint".split()
        )
        changed = {name: share * getattr(self, name) for name in ranges}
        return replace(self, tones=0, hole=0.0, **changed)

    def _maps(self, drawn: torch.Tensor, n_rows: int, n_columns: int) -> torch.Tensor:
        """Make affine maps (n, 2, 3) of coordinates (x, y) from -1 to 1."""
        turn, size, height, slant, flip, across, down = drawn.T
        turn, slant = math.radians(self.rotation) * turn, self.shear * slant
        width = 1 + self.scale * size
        height = width * (1 + self.stretch * height)
        one = torch.ones_like(flip)
        sign = torch.where(flip < 0, -one, one) if self.flip else one
        sine, tall = turn.sin(), n_rows / n_columns  # so that angles hold in pixels
        upper = [sign * width * turn.cos(), slant - height * sine * tall, 2 * self.shift * across]
        lower = [sign * width * sine / tall, height * turn.cos(), 2 * self.shift * down]
        return torch.stack([torch.stack(upper, 1), torch.stack(lower, 1)], 1)

    def _colored(
        self, images: torch.Tensor, drawn: torch.Tensor, tints: torch.Tensor
    ) -> torch.Tensor:
        """Change the colors within the range of the batch."""
        if not (self.brightness or self.contrast or self.saturation or self.tint):
            return images
        numbers = to_device(torch.cat([drawn, tints], dim=1), images.device)
        low, high = images.amin(), images.amax()
        light, contrast, saturation = (part[:, None, None, None] for part in numbers[:, :3].T)
        gray = images.mean(dim=1, keepdim=True)
        middle = gray.mean(dim=(2, 3), keepdim=True)
        contrast, saturation = 1 + self.contrast * contrast, 1 + self.saturation * saturation
        offsets = self.brightness * light + self.tint * numbers[:, 3:, None, None]
        # middle + contrast * (gray + saturation * (images - gray) - middle) + offsets
        constant = (1 - contrast) * middle + (high - low) * offsets
        views = torch.addcmul(constant, images, contrast * saturation)
        return views.addcmul_(gray, contrast * (1 - saturation)).clamp_(low, high)

    def _pierced(self, images: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Fill a square, partly outside perhaps, with the mean color of the image."""
        if not self.hole:
            return images
        drawn = to_device(drawn, images.device)
        places = [torch.linspace(-1, 1, side, device=images.device) for side in images.shape[2:]]
        inside = [
            (place - center[:, None]).abs() < self.hole
            for place, center in zip(places, drawn.T, strict=True)
        ]
        square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
        mean = images.mean(dim=(2, 3), keepdim=True)
        return images.lerp(mean, square.to(images.dtype))  # exact at 0 and 1, faster than where


def _check_images(samples: Any) -> None:
    """Raise unless these are finite images in floating point, (n, channels, height, width)."""
    is_tensor = isinstance(samples, torch.Tensor)
    if not is_tensor or not samples.is_floating_point():
        way_out = "torch.as_tensor(samples)"
        if is_tensor:
            way_out = "samples / 255" if samples.dtype == torch.uint8 else "samples.float()"
        raise TypeError(
            "RandomViews: samples must be a floating tensor; got "
            f"{samples.dtype if is_tensor else type(samples).__name__}. Pass {way_out}."
        )
    if samples.ndim != 4 or 0 in samples.shape[1:]:
        raise ValueError(
            "RandomViews: samples must have shape (n, channels, height, width); got "
            f"{tuple(samples.shape)}.{' Pass samples[None] for one image.' * (samples.ndim == 3)}"
        )
    # A GPU would have to finish all earlier work first.
    if samples.device.type == "cpu" and not samples.sum().isfinite():
        check_finite(samples.detach().flatten(1).float().numpy(), "RandomViews", "samples")


def unchanged(samples: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the samples unchanged."""
    return samples


def default_views(shape: tuple[int, ...]) -> RandomViews | None:
    """Views for samples of shape (channels, height, width); None for other shapes.

    Images with one channel are taken for characters and shapes, which are not flipped.

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
        tones=2,
        hole=0.5,
    )


def strong_and_weak(augment: Any, shape: tuple[int, ...]) -> tuple[Augment, Augment]:
    """Strong views for training, and weak views, a quarter as strong, for targets.

    Parameters
    ----------
    augment : "auto", "handwriting", None or Augment
        "handwriting": default views with warps. Weak views are the unchanged samples unless it has
        a method ``weaker(share)``.
    shape : tuple of int
        Of a sample.

    Examples
    --------
    >>> strong, weak = strong_and_weak("auto", (1, 28, 28))
    >>> strong.rotation, weak.rotation
    (15.0, 3.75)
    """
    needs_images = augment == HANDWRITING or isinstance(augment, RandomViews)
    if needs_images and len(shape) != 3:
        raise ValueError(
            f"augment={augment!r} needs images of shape (channels, height, width); got samples "
            f"of shape {shape}. Pass 'auto'."
        )
    views: Any = default_views(shape) if augment in ("auto", HANDWRITING) else augment
    if augment == HANDWRITING:
        views = replace(views, warp=WARP)
    if views is None:
        return unchanged, unchanged
    _check_arguments(views)
    return views, views.weaker(WEAK) if hasattr(views, "weaker") else unchanged


def _check_arguments(augment: Any) -> None:
    """Raise if a function of the user takes other arguments than samples and a generator."""
    try:
        inspect.signature(getattr(augment, "forward", augment)).bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"augment must take samples and a generator; got {type(augment).__name__}, for which "
            f"{error}. Wrap it: lambda samples, generator: augment(samples)."
        ) from error
    except ValueError:  # compiled functions may have no signature
        pass


def custom_views(
    augment: Augment, samples: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Make views by a function of the user, in the precision of the samples; check them.

    Images may change their size.

    Examples
    --------
    >>> samples, generator = torch.zeros(3, 2), torch.Generator()
    >>> custom_views(lambda samples, generator: samples.double(), samples, generator).dtype
    torch.float32
    """
    views = augment(samples, generator)
    if not isinstance(views, torch.Tensor):
        raise TypeError(
            f"augment must return a tensor with one view per sample; got {type(views).__name__}."
        )
    if views.shape[:1] != samples.shape[:1]:
        raise ValueError(
            f"augment must return one view per sample; got shape {tuple(views.shape)} for "
            f"{len(samples)} samples."
        )
    if views.ndim != samples.ndim or views.shape[1] != samples.shape[1]:
        raise ValueError(
            f"augment must return views of shape {tuple(samples.shape)}, images of any size; got "
            f"{tuple(views.shape)}."
        )
    return views.to(samples.dtype)


def _moved(
    images: torch.Tensor, maps: torch.Tensor, border: bool, bends: torch.Tensor | None = None
) -> torch.Tensor:
    """Sample images at affine maps of the coordinates, and at shifts of nodes, bilinearly."""
    places = _places(maps, *images.shape[2:])
    if bends is not None:
        shifts = functional.interpolate(
            bends.view(-1, 2, NODES, NODES), images.shape[2:], mode="bicubic", align_corners=True
        )
        places = places + shifts.permute(0, 2, 3, 1)
    return functional.grid_sample(
        images,
        places,
        padding_mode="border" if border else "zeros",
        align_corners=False,
    )


def _toned(images: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Apply a curve to the tones of each image, in steps of the range of the batch.

    The curve is composed of operations, each by two numbers: which one, and its strength.
    """
    low, high = images.amin(), images.amax()
    span = torch.where(high > low, high - low, 1)
    levels = ((images - low) * ((LEVELS - 1) / span)).round_().long().flatten(1)
    # In float32: half of it does not count beyond 256.
    curves = torch.linspace(0, 1, LEVELS, device=images.device).repeat(len(images), 1)
    # Integers: torch has no deterministic cumsum of other numbers on CUDA.
    counts = torch.zeros_like(curves, dtype=torch.int32)
    counts.scatter_add_(1, levels, counts.new_ones(()).expand_as(levels))
    numbers = (to_device(drawn, images.device).float() / 2 + 0.5).T
    for number, strength in torch.split(numbers, 2):
        curves = _next_curves(curves, counts, number, strength[:, None])
    tones = torch.addcmul(low, curves.to(images.dtype), high - low)
    return tones.gather(1, levels).view(images.shape)


def _next_curves(
    curves: torch.Tensor, counts: torch.Tensor, number: torch.Tensor, strength: torch.Tensor
) -> torch.Tensor:
    """Apply one operation to the curves (n, LEVELS) of images with these counts of pixels."""
    used = counts > 0
    least = curves.where(used, 1).amin(dim=1, keepdim=True)
    most = curves.where(used, 0).amax(dim=1, keepdim=True)
    tones = (curves * (LEVELS - 1)).round().long()
    shares = torch.zeros_like(counts).scatter_add_(1, tones, counts).cumsum(dim=1).float()
    step = 2 ** (4 * strength).round() / (LEVELS - 1)
    operations = [
        curves,
        torch.where(curves < strength, curves, 1 - curves),  # solarize
        (curves / step + 1e-3).floor() * step,  # posterize: keep 4 to 8 bits
        (curves - least) / (most - least).clamp_min(1 / LEVELS),  # autocontrast
        shares.gather(1, tones) / shares[:, -1:],  # equalize
        curves ** (0.5 + 1.5 * strength),  # gamma
    ]
    chosen = (number * len(operations)).long().clamp_max(len(operations) - 1)
    rows = torch.arange(len(curves), device=curves.device)
    return torch.stack(operations)[chosen, rows].clamp(0, 1)


def _places(maps: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Sampling coordinates of each pixel, (n, height, width, 2).

    Equals torch's ``affine_grid``, whose batched matrix product takes four times as long as the
    sampling itself.
    """
    across, down = (
        torch.arange(1 - side, side, 2, device=maps.device, dtype=maps.dtype) / side
        for side in (width, height)
    )
    by_across, by_down, shift = maps[:, :, None, None].unbind(-1)
    return (by_across * across + (by_down * down[:, None] + shift)).permute(0, 2, 3, 1)
