"""Images that stay in their files, read, turned upright, resized and cropped on access."""

from __future__ import annotations

import hashlib
import io
import operator
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import numpy.typing as npt

from ssdml.datasets.pixels import as_bytes, opened_image
from ssdml.utils.files import as_path, open_regular, read_regular

if TYPE_CHECKING:
    from PIL.Image import Image

Bytes = npt.NDArray[np.uint8]

SIZE = 224  # side in pixels, as networks for ImageNet expect
ENLARGED = 256 / 224  # shorter side of the image over the side of the crop
THREADS = 8  # maximum; Pillow releases the GIL


class ImageFiles:
    """Images in files, as bytes (3, size, size): resized, then center-cropped.

    Behaves as an array (n, 3, size, size) that does not fit into memory: an integer returns an
    image; a slice, indices or a mask return ``ImageFiles``, still unread. It is also a map-style
    torch Dataset that reads batches on several threads.

    Parameters
    ----------
    folder : path
        May be a zip file.
    names : sequence of str
        Paths of the files in it.
    size : int
        Side of the crop in pixels.
    enlarged : float
        The shorter side is resized to ``enlarged * size`` before the crop.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("a.png", "b.png"):
    ...         Image.new("RGB", (60, 40), "red").save(f"{folder}/{name}")
    ...     images = ImageFiles(folder, ["a.png", "b.png"], size=32)
    ...     images.shape, images[0].shape, len(images[1:])
    ((2, 3, 32, 32), (3, 32, 32), 1)
    """

    def __init__(
        self,
        folder: str | Path,
        names: Sequence[str] | npt.NDArray[Any],
        *,
        size: int = SIZE,
        enlarged: float = ENLARGED,
    ) -> None:
        if size < 1 or enlarged < 1:
            raise ValueError(
                "ImageFiles: size and enlarged must be at least 1; got "
                f"size={size}, enlarged={enlarged}."
            )
        self.folder, self.names = as_path(folder), np.asarray(names, dtype=np.str_)
        self.size, self.enlarged = size, enlarged

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all images, (n, 3, size, size)."""
        return (len(self), 3, self.size, self.size)

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> Bytes: ...
    @overload
    def __getitem__(self, rows: slice | npt.NDArray[Any] | list[int]) -> Self: ...

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice | np.ndarray | list):
            names = self.names[rows]
            return type(self)(self.folder, names, size=self.size, enlarged=self.enlarged)
        return self._read(str(self.names[operator.index(rows)]))

    def __getitems__(self, rows: Iterable[int]) -> list[Bytes]:
        """Read a batch on several threads, for torch's DataLoader."""
        names = [str(self.names[row]) for row in rows]
        n_threads = min(THREADS, os.cpu_count() or 1, len(names))
        if n_threads < 2:
            return [self._read(name) for name in names]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(self._read, names))

    def resized(self, size: int, enlarged: float | None = None) -> Self:
        """Return the same files at another size."""
        enlarged = self.enlarged if enlarged is None else enlarged
        return type(self)(self.folder, self.names, size=size, enlarged=enlarged)

    def missing(self) -> list[str]:
        """Return the names of missing files."""
        if self.folder.is_file():
            inside = set(self._archive().namelist())
            return [name for name in self.names.tolist() if name not in inside]
        return [name for name in self.names.tolist() if not os.path.isfile(self.folder / name)]

    def fingerprint(self) -> bytes:
        """Compute the SHA-256 of names, file sizes, size and crop."""
        digest = hashlib.sha256(f"{self.size} {self.enlarged}".encode())
        for name in self.names.tolist():
            digest.update(f"\n{name} {self.n_bytes(name)}".encode())
        return digest.digest()

    def n_bytes(self, name: str) -> int:
        """Size of a file, unread."""
        if self.folder.is_file():
            return self._archive().getinfo(name).file_size
        return os.path.getsize(self.folder / name)

    def content(self, name: str) -> bytes:
        """Read the bytes of a file, in the folder or the zip file."""
        if self.folder.is_file():
            return self._archive().read(name)
        return read_regular(self.folder / name)

    def opened(self, name: str) -> AbstractContextManager[Image]:
        """Open an image, in the folder or the zip file."""
        if self.folder.is_file():
            return opened_image(io.BytesIO(self._archive().read(name)), f"{self.folder}: {name}")
        return _opened(self.folder / name)

    def _archive(self) -> zipfile.ZipFile:
        return _archive(self.folder, self.folder.stat().st_mtime_ns, os.getpid())

    def _read(self, name: str) -> Bytes:
        with self.opened(name) as image:
            square = center_crop(image, self.size, self.enlarged)
        return np.ascontiguousarray(square.transpose(2, 0, 1))


def center_crop(image: Image, size: int = SIZE, enlarged: float = ENLARGED) -> Bytes:
    """Return the middle of an image, upright, as bytes (size, size, 3).

    Examples
    --------
    >>> from PIL import Image
    >>> center_crop(Image.new("RGB", (60, 40), "red"), 2)[0, 0]
    array([255,   0,   0], dtype=uint8)
    """
    from PIL import Image as images

    enough = round(2 * enlarged * size)
    image.draft(None, (enough, enough))  # decode large JPEGs at a fraction of their size
    whole = as_bytes(image)
    side = min(whole.size) / enlarged  # of the crop
    left, top = ((length - side) / 2 for length in whole.size)
    square = whole.convert("RGB").resize(
        (size, size), images.Resampling.BILINEAR, box=(left, top, left + side, top + side)
    )
    return np.asarray(square)


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    with open_regular(path) as file, opened_image(file, path) as image:
        yield image


@lru_cache(maxsize=4)
def _archive(path: Path, changed: int, process: int) -> zipfile.ZipFile:
    """Open a zip file, once per process unless it changes."""
    return zipfile.ZipFile(path)
