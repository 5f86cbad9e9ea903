"""Readers of images: IDX files, CIFAR batches, folders and zip files of classes."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems, stack_splits

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
    content = _unzipped(path) if path.suffix == ".gz" else path.read_bytes()
    header = 4 + 4 * n_axes
    if len(content) < header:
        raise ValueError(
            f"{path}: truncated; {len(content)} bytes, less than its header of {header}."
        )
    magic = content[:4]
    if magic[:2] != b"\0\0" or magic[2] not in IDX_DTYPES or magic[3] != n_axes:
        raise ValueError(
            f"{path}: wrong magic number 0x{magic.hex()}; an IDX file of bytes with {n_axes} axes "
            f"begins with 0x000008{n_axes:02x}."
        )
    shape = tuple(np.frombuffer(content, ">u4", count=n_axes, offset=4).tolist())
    dtype = np.dtype(IDX_DTYPES[magic[2]])
    wanted = header + int(np.prod(shape)) * dtype.itemsize
    if len(content) != wanted:
        wrong = "truncated" if len(content) < wanted else "too long"
        raise ValueError(
            f"{path}: {wrong}; {len(content)} bytes, its header announces {wanted} (shape {shape})."
        )
    return np.frombuffer(content, dtype, offset=header).reshape(shape)


def _unzipped(path: Path) -> bytes:
    try:
        with gzip.open(path) as file:
            return file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: truncated or damaged ({error}). Download it again.") from error


class _ArraysOnly(pickle.Unpickler):
    """Unpickler for dictionaries, lists, bytes and NumPy arrays only."""

    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it contains {module}.{name}, which is not allowed")
        if module == "numpy.core.multiarray":
            module = "numpy._core.multiarray"  # its name in NumPy 2
        return super().find_class(module, name)


def _unpickled(path: Path) -> dict[bytes, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing.")
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
        return {key.encode() if isinstance(key, str) else key: content[key] for key in content}
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{path}: not a batch of CIFAR ({error}).") from error


def read_cifar_batches(folder: Path) -> RawItems:
    """Read ``cifar-10-batches-py``: five training batches, a test batch, the class names."""
    names = _unpickled(folder / "batches.meta")[b"label_names"]
    classes = np.array([name.decode() for name in names])
    train = [_cifar_batch(folder / f"data_batch_{i}", classes) for i in range(1, 6)]
    joined = RawItems(
        np.concatenate([batch.items for batch in train]),
        np.concatenate([batch.labels for batch in train]),
        None,
    )
    return stack_splits(joined, _cifar_batch(folder / "test_batch", classes))


def _cifar_batch(path: Path, classes: npt.NDArray[Any]) -> RawItems:
    content = _unpickled(path)
    pixels, codes = np.asarray(content[b"data"]), np.asarray(content[b"labels"])
    if pixels.ndim != 2 or pixels.shape[1] != 3072 or len(codes) != len(pixels):
        raise ValueError(
            f"{path}: must hold rows of 3072 bytes and a label for each; "
            f"got data of shape {pixels.shape} and {len(codes)} labels."
        )
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # channels last
    return RawItems(images, classes[codes], None)


def read_image_folder(folder: Path) -> RawItems:
    """Read ``[{train,test}/]class/image.png``; images in ``unlabeled`` have no label."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES]
    names = [PurePosixPath(path.relative_to(folder).as_posix()) for path in files]
    return _read_images(folder, names, lambda name: (folder / name).read_bytes())


def read_image_zip(path: Path) -> RawItems:
    """Read the same tree from a zip file."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = map(PurePosixPath, sorted(archive.namelist()))
            names = [name for name in inside if name.suffix.lower() in IMAGE_SUFFIXES]
            return _read_images(path, names, lambda name: archive.read(str(name)))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path}: truncated or damaged ({error}). Download it again.") from error


def _read_images(
    root: Path, names: list[PurePosixPath], read: Callable[[PurePosixPath], bytes]
) -> RawItems:
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
    items = _stack_images(root, names, _all_decoded(root, names, read))
    test = np.array([name.parts[0] == "test" for name in names]) if "test" in tops else None
    folders = [name.parts[-2] for name in names]
    labels = np.array(["" if name.lower() in UNLABELED_FOLDERS else name for name in folders])
    return RawItems(items, labels, test)


def _outline(names: list[PurePosixPath]) -> str:
    return f"{len(names)} images, the first {str(names[0])!r}" if names else "no images"


def _all_decoded(
    root: Path, names: list[PurePosixPath], read: Callable[[PurePosixPath], bytes]
) -> Iterator[Bytes]:
    """Yield the images; raise at the end if some cannot be read."""
    damaged = []
    for name in names:
        image = _decoded(read(name))
        if image is None:
            damaged.append(str(name))
        elif not damaged:
            yield image
    if damaged:
        more = f" and {len(damaged) - MAX_NAMED} more" if len(damaged) > MAX_NAMED else ""
        raise ValueError(
            f"{root}: {len(damaged)} of {len(names)} files are not images that Pillow can read: "
            f"{', '.join(damaged[:MAX_NAMED])}{more}. Replace or remove them."
        )


def _decoded(content: bytes) -> Bytes | None:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ImportError("Reading images needs Pillow: pip install pillow") from error
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError):
        return None


def _stack_images(root: Path, names: list[PurePosixPath], images: Iterable[Bytes]) -> Bytes:
    """Stack images of one size; convert gray images to RGB if there are color images."""
    gray = True
    stacked: list[Bytes] = []
    for name, image in zip(names, images, strict=True):
        gray = gray and image.ndim == 2
        if stacked and image.shape[:2] != stacked[0].shape[:2]:
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
