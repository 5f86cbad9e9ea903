"""Reader of IDX files, the format of MNIST and Fashion-MNIST."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems, stack_splits
from ssdml.utils.files import check_memory, check_regular, open_regular, refuse_damage

IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


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
        damage = (EOFError, gzip.BadGzipFile, zlib.error)
        with refuse_damage(path, "Download it again.", *damage), gzip.open(file) as unzipped:
            return _read_idx(path, unzipped, n_axes)


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
