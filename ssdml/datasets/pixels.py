"""Pixels of image files as they are meant to be seen: upright, opaque, without clipping."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ssdml.utils.files import MemoryLimitError

if TYPE_CHECKING:
    from PIL.Image import Image

# Formats of Pillow that call another program, or that it recognizes but cannot decode.
NOT_DECODED = ("EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG", "PDF")
HEIF = (".heic", ".heif", ".hif")
DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")  # modes of more than 8 bits
DEEPEST = 65535  # of 16 bits
CHANNELS = (1, 3, 4)  # gray, RGB, RGBA
HIDDEN = ("__MACOSX", "@eaDir", "$RECYCLE.BIN")  # of macOS, Synology and Windows
WITH_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")

Pixels = npt.NDArray[Any]  # uint8 or float32


class UnitError(ValueError):
    """The numbers of an image cannot be shades."""


@cache
def image_formats() -> tuple[str, ...]:
    """Return the formats that Pillow decodes by itself, with HEIF if pillow-heif is installed.

    Examples
    --------
    >>> "PNG" in image_formats(), "EPS" in image_formats()
    (True, False)
    """
    from PIL import Image

    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    Image.init()
    decoded = [name for name in Image.OPEN if name not in NOT_DECODED]
    # Formats without a signature are tried last: each trial takes as long as opening an image.
    return tuple(sorted(decoded, key=lambda name: Image.OPEN[name][1] is None))


@cache
def image_suffixes() -> frozenset[str]:
    """Return the suffixes of these formats, and those of HEIF even if it cannot be read.

    Examples
    --------
    >>> {".png", ".jfif", ".heic"} <= image_suffixes(), ".pdf" in image_suffixes()
    (True, False)
    """
    formats = set(image_formats())
    from PIL import Image

    known = {suffix for suffix, name in Image.registered_extensions().items() if name in formats}
    return frozenset({*known, ".mpo", *HEIF})  # the former are JPEGs of several images


def is_hidden(name: str) -> bool:
    """Whether a file is one of those that systems and editors put beside others.

    Examples
    --------
    >>> is_hidden("cat/._1.png"), is_hidden("../cat/1.png"), is_hidden("~$table.xlsx")
    (True, False, True)
    """
    return any(
        part in HIDDEN or (part.startswith((".", "~$")) and part != "..")
        for part in PurePosixPath(name).parts
    )


@contextmanager
def opened_image(file: BinaryIO, name: object) -> Iterator[Image]:
    """Open an image in one of :func:`image_formats`; errors within the block name it.

    Raises MemoryLimitError if it has more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``, and
    ValueError if Pillow cannot read it.
    """
    formats = image_formats()
    from PIL import Image, UnidentifiedImageError

    limit = Image.MAX_IMAGE_PIXELS or math.inf
    try:
        with Image.open(file, formats=formats) as image:
            if image.width * image.height > limit:
                raise Image.DecompressionBombError(f"it has {image.width} x {image.height}")
            yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MemoryLimitError(
            f"{name}: must have at most {limit:.0f} pixels ({error}). Resize it, or set "
            "PIL.Image.MAX_IMAGE_PIXELS."
        ) from error
    except UnitError as error:
        raise ValueError(f"{name}: {error}.") from error
    except Exception as error:  # decoders raise many kinds on damaged files
        reason = "" if isinstance(error, UnidentifiedImageError) else f" ({error})"
        raise ValueError(
            f"{name} is not an image that Pillow can read{reason}. Replace or remove it."
        ) from error


def upright_size(image: Image) -> tuple[int, int]:
    """Return width and height once the image is turned as its EXIF data say."""
    turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    return (image.height, image.width) if turned else image.size


def upright(image: Image) -> Image:
    """Turn an image as EXIF says, in gray, RGB or a deep mode; what is transparent is white.

    Examples
    --------
    >>> from PIL import Image
    >>> upright(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    from PIL import Image as images, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode in DEEP or (image.mode == "L" and "transparency" not in image.info):
        return image
    if image.mode in WITH_ALPHA or "transparency" in image.info:
        gray = image.mode in ("L", "LA", "La")
        rgba = image.convert("RGBA")
        opaque = images.alpha_composite(images.new("RGBA", image.size, "white"), rgba)
        return opaque.convert("L" if gray else "RGB")
    return image.convert("L" if image.mode == "1" else "RGB")


def pixels(image: Image) -> tuple[Pixels, bool]:
    """Return the pixels, (height, width[, 3]), and whether they are in units of their own.

    They are bytes, or for 16 bits float32 from 0 to 1. Floating-point pixels and integers of 32
    bits have their own units.
    """
    is_16_bit = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG")
    image = upright(image)
    if image.mode not in DEEP:
        return np.asarray(image), False
    values = np.asarray(image).astype(np.float32)
    if not np.isfinite(values).all():
        raise UnitError("its pixels must be finite")
    return (values / np.float32(DEEPEST), False) if is_16_bit else (values, True)


def stack_images(
    root: Path, names: Sequence[str], images: list[Pixels], in_own_units: list[int]
) -> tuple[Pixels, str]:
    """Stack images of one size: in RGB if one has colors, from 0 to 1 if one is no bytes.

    Those in units of their own are scaled together; the text says from what to what.
    """
    unit = ""
    if in_own_units:
        least = min(float(images[i].min()) for i in in_own_units)
        most = max(float(images[i].max()) for i in in_own_units)
        if least < 0 or most > 1:
            if len(in_own_units) < len(images):
                raise ValueError(
                    f"{root}: {names[in_own_units[0]]} has pixels from {least:g} to {most:g}, "
                    "other images bytes. Save all in one format."
                )
            images = [(image - least) / np.float32(most - least or 1) for image in images]
            unit = f", scaled from {least:g} to {most:g}"
    if any(image.dtype != np.uint8 for image in images):
        images = [i / np.float32(255) if i.dtype == np.uint8 else i for i in images]
    if any(image.ndim == 3 for image in images):
        images = [
            np.broadcast_to(i[..., None], (*i.shape, 3)) if i.ndim == 2 else i for i in images
        ]
    return np.stack(images), unit


def as_bytes(image: Image) -> Image:
    """Return an upright image in gray or RGB bytes; raise ValueError if its units are unknown."""
    from PIL import Image as images

    if image.mode not in DEEP:
        return upright(image)
    values, own_units = pixels(image)
    unit = DEEPEST if own_units and image.mode == "I" else 1
    least, most = float(values.min()), float(values.max())
    if least < 0 or most > unit:
        raise UnitError(
            f"its pixels are from {least:g} to {most:g}; scale them to 0 to 1, or save bytes"
        )
    return images.fromarray(np.rint(values * np.float32(255 / unit)).astype(np.uint8))


def has_channels_last(shape: Sequence[int]) -> bool:
    """Whether the shape is that of an image with its channels last.

    Examples
    --------
    >>> has_channels_last((32, 32, 3)), has_channels_last((3, 32, 32)), has_channels_last((3, 9, 3))
    (True, False, False)
    """
    return len(shape) == 3 and shape[-1] in CHANNELS and shape[0] not in CHANNELS


def has_channels_first(shape: Sequence[int]) -> bool:
    """Whether the shape is that of an image with its channels first.

    Examples
    --------
    >>> has_channels_first((3, 32, 32)), has_channels_first((32, 32, 3))
    (True, False)
    """
    return has_channels_last(shape[::-1])
