"""Reader of IDX files, the format of MNIST and data sets in its place."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems, stack_splits
from ssdml.utils.files import check_memory, check_regular, open_regular, refuse_damage

IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
IMAGES = re.compile(r"(.+)-images[-.]idx3-ubyte(\.gz)?")
TEST_PARTS = ("test", "t10k")


def read_idx_folder(folder: Path, parts: Sequence[str] = ("train", "t10k")) -> RawItems:
    """Read the IDX files of training and test images, or of one part, gzipped or plain."""
    splits = []
    for part in parts:
        images = read_idx(_idx_file(folder, f"{part}-images", "idx3-ubyte"), n_axes=3)
        path = _idx_file(folder, f"{part}-labels", "idx1-ubyte")
        labels = read_idx(path, n_axes=1)
        if len(labels) != len(images):
            raise ValueError(f"{path}: must hold {len(images)} labels; got {len(labels)}.")
        splits.append(RawItems(images, labels.astype(np.int64), None))
    return stack_splits(*splits) if len(splits) > 1 else splits[0]


def idx_parts(folder: Path) -> list[str]:
    """Name the parts of a folder of IDX files: that of training images, and of test images if any.

    Raises
    ------
    ValueError
        If there are several of a kind.
    """
    matches = (IMAGES.fullmatch(path.name) for path in folder.iterdir())
    names = sorted({match[1] for match in matches if match})
    tests = [name for name in names if name.endswith(TEST_PARTS)]
    trains = [name for name in names if name not in tests]
    if max(len(tests), len(trains)) > 1:
        raise ValueError(
            f"{folder}: must hold one data set; got images of {', '.join(names)}. Name one of the "
            "files of images, or move one data set into a folder of its own."
        )
    return trains + tests


def _idx_file(folder: Path, name: str, kind: str) -> Path:
    for written in (f"{name}-{kind}", f"{name}.{kind}"):
        for path in (folder / f"{written}.gz", folder / written):
            if path.is_file():
                return path
    raise FileNotFoundError(f"{folder / name}-{kind}[.gz] is missing.")


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
