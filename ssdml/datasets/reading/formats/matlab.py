"""Reader of MATLAB 5 files in plain Python: text, numbers, cells and structures.

SciPy's reader trusts the sizes and types that a file announces, and crashes or hangs on a wrong
one. Here each is compared with the bytes that are left before it is used.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ssdml.utils.files import MemoryLimitError, check_memory, check_regular, read_regular
from ssdml.utils.typing import Array

HEADER = 128
DEEPEST = 8  # cells in cells
BYTES_OF_VALUE = 8  # in memory at most, of a byte in the file

MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8"}
NUMBERS |= {13: "u8"}
ENCODINGS = {1: "ascii", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
CELL, STRUCTURE, TEXT = 1, 2, 4
NUMERIC = dict(zip(range(6, 16), "f8 f4 i1 u1 i2 u2 i4 u4 i8 u8".split(), strict=True))
LOGICAL, COMPLEX = 0x200, 0x800
OBJECT = 17  # of a class of which only its name is read
OTHERS = {3: "an object", 5: "a sparse matrix", 16: "a function"}
IN_MATLAB = {  # ways out
    "a sparse matrix": "full({0})",
    "complex numbers": "real({0}) or abs({0})",
    "an object of class categorical": "cellstr({0})",
    "an object of class string": "cellstr({0})",
    "an object of class table": "table2array({0}) and its labels, or writetable({0}, 'table.csv')",
    "a structure": "its fields: save(FILE, '-struct', '{0}', '-v7')",
    "structures": "a matrix of each field, such as vertcat({0}.FIELD)",
    "a cell array": "a matrix, such as {0}{{1}}",
    "text": "cellstr({0})",
}
IN_PYTHON = (
    "In Python, load it with scipy.io.loadmat, or h5py for version 7.3, and use numpy.savez."
)


class Unread(NamedTuple):
    """A variable of a kind that is not read."""

    kind: str


def is_structure(value: Any) -> bool:
    """Whether a variable is a single structure, not an array of them."""
    return isinstance(value, dict) and all(len(entries) == 1 for entries in value.values())


def refuse(path: Path, name: str, value: Any) -> NoReturn:
    """Raise ValueError for a variable that is not of the kind that is needed."""
    kind = "a cell array" if isinstance(value, list) else "text"
    if isinstance(value, Unread):
        kind = value.kind
    elif isinstance(value, dict):
        kind = "a structure" if is_structure(value) else "structures"
    fix = f"In MATLAB, save {IN_MATLAB[kind].format(name)}. " if kind in IN_MATLAB else ""
    raise ValueError(
        f"{path}: {name} must be numbers or a list of texts; got {kind}. {fix}{IN_PYTHON}"
    )


def read_mat(path: Path, *names: str) -> dict[str, Any]:
    """Read variables of a MATLAB 5 file.

    Parameters
    ----------
    path : Path
    *names : str
        Variables, all by default; the file must have them.

    Returns
    -------
    variables : dict
        Numbers are an array of at least two axes, but a single one in a cell or a field is an int
        or a float. Text is a str, and its rows a list of them without final spaces. A cell array is
        a list, and a structure array a dict with one list per field. Other kinds are an `Unread`,
        and raise an error if they are named.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If it is damaged, of another version or too large, or lacks a variable or holds it in a kind
        that is not read.
    """
    on_disk = check_regular(path)
    content = read_regular(path)
    is_4 = 0 in content[:4]  # where version 5 has text
    if is_4 or content[:4] == b"\x89HDF" or content[:19] == b"MATLAB 7.3 MAT-file":
        raise ValueError(
            f"{path}: must be a MATLAB 5 file; got version {4 if is_4 else 7.3}. In MATLAB, save "
            f"it by -v7. {IN_PYTHON}"
        )
    try:
        found = dict(_variables(path, content, on_disk))
        if not found:
            raise ValueError("it ends after its header")
    except MemoryLimitError:
        raise
    except (ValueError, IndexError, OverflowError, zlib.error) as error:
        raise ValueError(f"{path}: damaged, or not a MATLAB file ({error}).") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path}: must contain {', '.join(names)}; {missing[0]} is missing.")
    for name in names:
        if isinstance(found[name], Unread):
            refuse(path, name, found[name])
    return {name: found[name] for name in names or found if name}  # objects are in one without


def _variables(path: Path, content: bytes, on_disk: int) -> Iterator[tuple[str, Any]]:
    order = {b"IM": "<", b"MI": ">"}.get(content[126:HEADER])
    if order is None:
        raise ValueError("its header names no byte order")
    elements = Elements(content[HEADER:], order)
    while elements.n_left:
        kind, body = elements.next()
        if kind == COMPRESSED:
            kind, body = _decompressed(path, body, order, on_disk).next()
        if kind == MATRIX:
            yield Elements(body, order).matrix()


def _decompressed(path: Path, body: bytes, order: str, on_disk: int) -> Elements:
    """Decompress one element, whose first 8 bytes tell its size."""
    stream = zlib.decompressobj()
    tag = stream.decompress(body, 8)
    size = int.from_bytes(tag[4:8], "little" if order == "<" else "big")
    check_memory(path, BYTES_OF_VALUE * size, on_disk)
    return Elements(tag + stream.decompress(stream.unconsumed_tail, size), order)


class Elements:
    """Data elements in a buffer, read one after another."""

    def __init__(self, content: bytes, order: str) -> None:
        self._content, self._place, self._order = content, 0, order

    @property
    def n_left(self) -> int:
        """Number of bytes that are left."""
        return len(self._content) - self._place

    def next(self) -> tuple[int, bytes]:
        """Return type and body of the next element."""
        kind, size = (self._integer(4), self._integer(4))
        if kind >> 16:  # size and type in one word, and up to 4 bytes in the other
            kind, size, start = kind & 0xFFFF, kind >> 16, self._place - 4
            if size > 4:
                raise ValueError(f"a small element has {size} bytes")
        else:
            start = self._place
            # All but compressed elements are padded to 8 bytes; the last padding may lack.
            self._place += size if kind == COMPRESSED else -(-size // 8) * 8
        body = self._content[start : start + size]
        if len(body) < size:
            raise ValueError(f"an element of {size} bytes ends after {len(body)}")
        self._place = min(self._place, len(self._content))
        return kind, body

    def _integer(self, size: int) -> int:
        word = self._content[self._place : self._place + size]
        if len(word) < size:
            raise ValueError("it ends within an element")
        self._place += size
        return int.from_bytes(word, "little" if self._order == "<" else "big")

    def _numbers(self) -> Array:
        kind, body = self.next()
        if kind not in NUMBERS:
            raise ValueError(f"numbers have the type {kind}")
        return np.frombuffer(body, f"{self._order}{NUMBERS[kind]}")

    def matrix(self, depth: int = 0) -> tuple[str, Any]:
        """Return name and value of the array in this buffer; an empty buffer is an empty list."""
        if not self.n_left:
            return "", []
        if depth > DEEPEST:
            raise ValueError(f"cells lie in each other, more than {DEEPEST} deep")
        flags = int(self._numbers()[0])
        kind = flags & 0xFF
        if kind == OBJECT:
            name, _, of_class = (self.next()[1].decode("ascii") for _ in range(3))
            return name, Unread(f"an object of class {of_class}")
        shape = self._numbers().tolist()
        if not all(isinstance(length, int) and length >= 0 for length in shape):
            raise ValueError("an array has no shape")
        size, name = math.prod(shape), self.next()[1].decode("ascii")
        if kind == TEXT:
            return name, self._text(shape)
        if kind in NUMERIC and not flags & COMPLEX:
            return name, self._values(shape, "?" if flags & LOGICAL else NUMERIC[kind])
        if kind == CELL:
            return name, self._children(size, depth)
        if kind == STRUCTURE:
            return name, self._structure(size, depth)
        other = "complex numbers" if kind in NUMERIC else OTHERS.get(kind)
        if other is None:
            raise ValueError(f"it contains the class {kind}")
        return name, Unread(other)

    def _text(self, shape: list[int]) -> str | list[str]:
        size = math.prod(shape)
        if not size:
            return ""
        kind, body = self.next()
        if kind not in ENCODINGS:
            raise ValueError(f"text has the type {kind}")
        encoding = ENCODINGS[kind]
        if encoding in ("utf-16", "utf-32"):
            encoding += "-le" if self._order == "<" else "-be"
        text = body.decode(encoding)
        if len(shape) != 2 or shape[0] == 1:
            return text
        if len(text) != size:
            raise ValueError(f"a text of {size} characters has {len(text)}")
        return [text[row :: shape[0]].rstrip() for row in range(shape[0])]

    def _values(self, shape: list[int], dtype: str) -> Array:
        """Return numbers in the precision of their class: a file stores small ones in less."""
        values, size = self._numbers(), math.prod(shape)
        if len(values) != size:
            raise ValueError(f"an array of {size} numbers has {len(values)}")
        return values.astype(dtype, copy=False).reshape(shape, order="F")

    def _children(self, count: int, depth: int) -> list[Any]:
        if 8 * count > self.n_left:
            raise ValueError(f"{count} entries do not fit into {self.n_left} bytes")
        return [self._child(depth) for _ in range(count)]

    def _child(self, depth: int) -> Any:
        kind, body = self.next()
        if kind != MATRIX:
            raise ValueError(f"an entry has the type {kind}")
        value = Elements(body, self._order).matrix(depth + 1)[1]
        is_number = isinstance(value, np.ndarray) and value.size == 1
        return value.item() if is_number else value

    def _structure(self, size: int, depth: int) -> dict[str, list[Any]]:
        (width,) = self._numbers().tolist()
        text = self.next()[1]
        if not isinstance(width, int) or width < 1:
            raise ValueError("a structure has no length of names")
        names = [
            text[start : start + width].split(b"\0")[0].decode("ascii")
            for start in range(0, len(text), width)
        ]
        if not names or len(set(names)) < len(names):
            raise ValueError("a structure has no names of its own")
        entries = self._children(size * len(names), depth)
        return {name: entries[place :: len(names)] for place, name in enumerate(names)}
