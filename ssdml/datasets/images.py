"""Readers of images: IDX files, folders and zip files of classes."""

from __future__ import annotations

import gzip
import io
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems, stack_splits
from ssdml.utils.files import (
    MemoryLimitError,
    check_inside,
    check_memory,
    check_names,
    check_regular,
    open_regular,
    read_regular,
)

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # of Pillow; others are not tried
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
UNLABELED_FOLDERS = ("unlabeled", "unlabelled")  # hold images without a class
MAX_NAMED = 5  # files in a message
IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

Bytes = npt.NDArray[np.uint8]


def read_idx_folder(folder: Path) -> RawItems:
    """Read the four IDX files of MNIST or Fashion-MNIST, gzipped or plain."""
    splits = []
    for prefix in ("train", "t10k"):
        images = read_idx(_idx_file(folder, f"{prefix}-images-idx3-ubyte"), n_axes=3)
        path = _idx_file(folder, f"{prefix}-labels-idx1-ubyte")
        labels = read_idx(path, n_axes=1)
        if len(labels) != len(images):
            raise ValueError(f"{path}: must hold {len(images)} labels; got {len(labels)}.")
        splits.append(RawItems(images, labels.astype(np.int64), None))
    return stack_splits(*splits)


def _idx_file(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder / name}[.gz] is missing.")


def read_idx(path: Path, n_axes: int) -> npt.NDArray[Any]:
    """Read an IDX file: two zero bytes, type, number of axes, sizes, values."""
    with open_regular(path) as file:
        if path.suffix != ".gz":
            return _read_idx(path, file, n_axes)
        try:
            with gzip.open(file) as unzipped:
                return _read_idx(path, unzipped, n_axes)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path}: truncated or damaged ({error}). Download it again."
            ) from error


def _read_idx(path: Path, file: Any, n_axes: int) -> npt.NDArray[Any]:
    """Read the header, and then as many bytes as it announces."""
    size = 4 + 4 * n_axes
    header = file.read(size)
    if len(header) < size:
        raise ValueError(f"{path}: truncated; {len(header)} bytes, less than its header of {size}.")
    magic = header[:4]
    if magic[:2] != b"\0\0" or magic[2] not in IDX_DTYPES or magic[3] != n_axes:
        raise ValueError(
            f"{path}: wrong magic number 0x{magic.hex()}; an IDX file of bytes with {n_axes} axes "
            f"begins with 0x000008{n_axes:02x}."
        )
    shape = tuple(np.frombuffer(header, ">u4", offset=4).tolist())
    dtype = np.dtype(IDX_DTYPES[magic[2]])
    wanted = math.prod(shape) * dtype.itemsize
    check_memory(path, wanted, check_regular(path))
    content = file.read(wanted)
    if len(content) != wanted or file.read(1):
        got = f"{size + len(content)}" if len(content) < wanted else f"more than {size + wanted}"
        raise ValueError(
            f"{path}: {'truncated' if len(content) < wanted else 'too long'}; {got} bytes, its "
            f"header announces {size + wanted} (shape {shape})."
        )
    return np.frombuffer(content, dtype).reshape(shape)


def read_image_folder(folder: Path) -> RawItems:
    """Read ``[{train,test}/]class/image.png``; images in ``unlabeled`` have no label."""
    files = [path for path in sorted(folder.rglob("*")) if _is_image(path)]
    names = [path.relative_to(folder).as_posix() for path in files]
    check_inside(folder, names)
    sizes = [check_regular(path) for path in files]
    check_memory(folder, max(sizes, default=0), 0)
    on_disk = sum(sizes)
    return _read_images(folder, names, on_disk, lambda name: read_regular(folder / name))


def read_image_zip(path: Path) -> RawItems:
    """Read the same tree from a zip file."""
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _read_archive(path, archive)
        except ZIP_ERRORS as error:
            raise ValueError(
                f"{path}: truncated or damaged ({error}). Download it again."
            ) from error


# Of a damaged file, an encrypted one, and one with a compression that zipfile lacks.
ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(NotImplementedError, RuntimeError, struct.error, UnicodeDecodeError),
)


def _read_archive(path: Path, archive: zipfile.ZipFile) -> RawItems:
    entries = {PurePosixPath(info.filename).as_posix(): info for info in archive.infolist()}
    names = sorted(name for name in entries if _is_image(PurePosixPath(name)))
    check_names(path, names)
    on_disk = check_regular(path)
    check_memory(path, sum(entries[name].file_size for name in names), on_disk)
    return _read_images(path, names, on_disk, lambda name: archive.read(entries[name]))


def _is_image(path: PurePath) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES


def _read_images(
    root: Path, files: list[str], on_disk: int, read: Callable[[str], bytes]
) -> RawItems:
    names = list(map(PurePosixPath, files))
    tops = {name.parts[0] for name in names if len(name.parts) == 3}
    deep = len(tops) > 0 and all(len(name.parts) == 3 for name in names)
    if not names or not (deep or all(len(name.parts) == 2 for name in names)):
        raise ValueError(
            f"{root}: must contain class/image files, or train/class/image and test/class/image; "
            f"got {_outline(names)}."
        )
    if deep and not tops <= {"train", "test"}:
        raise ValueError(
            f"{root}: the folders above the classes must be train and test; got {sorted(tops)}."
        )
    items = _stack_images(root, names, on_disk, _all_decoded(root, files, read))
    test = np.array([name.parts[0] == "test" for name in names]) if "test" in tops else None
    folders = [name.parts[-2] for name in names]
    labels = np.array(["" if name.lower() in UNLABELED_FOLDERS else name for name in folders])
    return RawItems(items, labels, test)


def _outline(names: list[PurePosixPath]) -> str:
    return f"{len(names)} images, the first {str(names[0])!r}" if names else "no images"


def _all_decoded(root: Path, names: list[str], read: Callable[[str], bytes]) -> Iterator[Bytes]:
    """Yield the images; raise at the end if some cannot be read."""
    damaged = []
    for name in names:
        image = _decoded(read(name), f"{root}: {name}")
        if image is None:
            damaged.append(name)
        elif not damaged:
            yield image
    if damaged:
        more = f" and {len(damaged) - MAX_NAMED} more" if len(damaged) > MAX_NAMED else ""
        raise ValueError(
            f"{root}: {len(damaged)} of {len(names)} files are not images that Pillow can read: "
            f"{', '.join(damaged[:MAX_NAMED])}{more}. Replace or remove them."
        )


def _decoded(content: bytes, name: str) -> Bytes | None:
    try:
        with opened_image(io.BytesIO(content), name) as image:
            return np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except MemoryLimitError:
        raise
    except ValueError:
        return None


@contextmanager
def opened_image(file: BinaryIO, name: object) -> Iterator[Image]:
    """Open an image in one of `FORMATS`; errors within the block, while decoding, name it.

    Raises MemoryLimitError if it has more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``, and
    ValueError if Pillow cannot read it.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Reading images needs Pillow: pip install pillow") from error
    limit = Image.MAX_IMAGE_PIXELS or math.inf
    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > limit:
                raise Image.DecompressionBombError(f"it has {image.width} x {image.height}")
            yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MemoryLimitError(
            f"{name}: must have at most {limit:.0f} pixels ({error}). Resize it, or set "
            "PIL.Image.MAX_IMAGE_PIXELS."
        ) from error
    except Exception as error:  # decoders raise many kinds on damaged files
        raise ValueError(f"{name} is not an image that Pillow can read ({error}).") from error


def _stack_images(
    root: Path, names: list[PurePosixPath], on_disk: int, images: Iterable[Bytes]
) -> Bytes:
    """Stack images of one size; convert gray images to RGB if there are color images."""
    gray = True
    stacked: list[Bytes] = []
    for name, image in zip(names, images, strict=True):
        gray = gray and image.ndim == 2
        if not stacked:
            check_memory(root, len(names) * image.nbytes, on_disk)
        elif image.shape[:2] != stacked[0].shape[:2]:
            raise ValueError(
                f"{root}: all images must be of one size, {stacked[0].shape[:2]} as "
                f"{names[0]}; got {image.shape[:2]} in {name}. Resize them first."
            )
        stacked.append(image)
    if not gray:
        stacked = [
            np.broadcast_to(i[..., None], (*i.shape, 3)) if i.ndim == 2 else i for i in stacked
        ]
    return np.stack(stacked)
