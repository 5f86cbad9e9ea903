"""Reader of CIFAR's pickled batches, by their opcodes: nothing that a file names is called."""

from __future__ import annotations

import math
import pickletools  # nosec B403
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems, stack_splits
from ssdml.utils.files import check_memory, check_regular, read_regular
from ssdml.utils.typing import Ints

PIXELS = 3 * 32 * 32  # per image
MOST_OPCODES = 2_000_000  # a batch of 10,000 images has about 60,000

# What NumPy pickles an array of bytes with; Python 3 adds the first for bytes in protocol 2.
ENCODE = "_codecs encode"
RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
ALLOWED = (ENCODE, *RECONSTRUCT, "numpy ndarray", "numpy dtype")

U1 = (("u1",), (b"u1",))
U1_STATES = [[(3, mark, None, None, None, -1, -1, 0)] for mark in ("|", b"|")]


class Name(NamedTuple):
    """A function or class that a pickle names."""

    text: str  # module and name


class Made(NamedTuple):
    """An object that a pickle would make by a call."""

    function: str
    arguments: tuple[Any, ...]
    state: list[Any]  # at most one entry


def read_cifar10(folder: Path) -> RawItems:
    """Read ``cifar-10-batches-py``: five training batches, a test batch, the class names."""
    classes = _class_names(folder / "batches.meta", "label_names")
    train = [_batch(folder / f"data_batch_{i}", classes) for i in range(1, 6)]
    joined = RawItems(
        np.concatenate([batch.items for batch in train]),
        np.concatenate([batch.labels for batch in train]),
        None,
    )
    return stack_splits(joined, _batch(folder / "test_batch", classes))


def read_cifar100(folder: Path) -> RawItems:
    """Read ``cifar-100-python``: training and test images, the names of the 100 classes."""
    classes = _class_names(folder / "meta", "fine_label_names")
    return stack_splits(
        *(_batch(folder / part, classes, "fine_labels") for part in ("train", "test"))
    )


class Classes(NamedTuple):
    """Names of the classes, and of the file that has them."""

    names: npt.NDArray[Any]
    file: str


def _batch(path: Path, classes: Classes, key: str = "labels") -> RawItems:
    """Read images, and their labels under a key as names."""
    content = _content(path, b"data", key.encode())
    try:
        pixels = _array(content[b"data"])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: not a batch of CIFAR ({error}).") from error
    codes = _codes(path, content[key.encode()], classes)
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS or len(codes) != len(pixels):
        raise ValueError(
            f"{path}: must hold rows of {PIXELS} bytes and a label for each; "
            f"got data of shape {pixels.shape} and {len(codes)} labels."
        )
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # channels last
    return RawItems(images, classes.names[codes], None)


def _class_names(path: Path, key: str) -> Classes:
    names = _content(path, key.encode())[key.encode()]
    if not (isinstance(names, list) and all(isinstance(name, bytes | str) for name in names)):
        raise ValueError(f"{path}: {key} must be a list of names; got {_brief(names)}.")
    try:
        texts = [name if isinstance(name, str) else name.decode() for name in names]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {key} must be text in UTF-8 ({error}).") from error
    return Classes(np.array(texts), path.name)


def _codes(path: Path, labels: Any, classes: Classes) -> Ints:
    n_classes = len(classes.names)
    if not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise ValueError(f"{path}: labels must be a list of integers; got {_brief(labels)}.")
    wrong = [place for place, label in enumerate(labels) if not 0 <= label < n_classes]
    if wrong:
        raise ValueError(
            f"{path}: labels must be from 0 to {n_classes - 1}, as {classes.file} names "
            f"{n_classes} classes; got {_brief(labels[wrong[0]])} for image {wrong[0]}. Download "
            "it again."
        )
    return np.array(labels, dtype=np.int64)


def _content(path: Path, *keys: bytes) -> dict[bytes, Any]:
    """Read a dictionary that has these keys, as bytes."""
    check_memory(path, check_regular(path), 0)
    try:
        content = read_pickle(read_regular(path))
    except Exception as error:  # pickletools raises many kinds on damaged files
        raise ValueError(
            f"{path}: not a batch of CIFAR ({type(error).__name__}: {error})."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a batch of CIFAR; it holds {_brief(content)}.")
    found = {key.encode() if isinstance(key, str) else key: content[key] for key in content}
    missing = [key.decode() for key in keys if key not in found]
    if missing:
        raise ValueError(f"{path}: not a batch of CIFAR; it has no {missing[0]}.")
    return found


class Machine:
    """What a pickle has made so far: a stack, those below its marks, and a memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[Any, Any] = {}

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self, count: int) -> list[Any]:
        """Take the last values off the stack."""
        if len(self.stack) < count:
            raise ValueError("an opcode lacks its arguments")
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def mark(self) -> None:
        """Begin a new stack."""
        self.outer.append(self.stack)
        self.stack = []

    def above_mark(self) -> list[Any]:
        """Take all values above the last mark, and the mark, off the stack."""
        values, self.stack = self.stack, self.outer.pop()
        return values

    def store(self, key: Any) -> None:
        """Keep the last value in the memo."""
        self.memo[key] = self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        """Append to the list on top."""
        _checked(self.stack[-1], list).extend(items)

    def add(self, pairs: list[Any]) -> None:
        """Add keys and values to the dictionary on top."""
        _checked(self.stack[-1], dict).update(_dictionary(pairs))

    def build(self, state: list[Any]) -> None:
        """Keep the state of the record on top."""
        _checked(self.stack[-1], Made).state[:] = state


STEPS: dict[str, Callable[[Machine, Any], None]] = {
    **dict.fromkeys(["PROTO", "FRAME", "STOP"], lambda machine, _: None),
    **dict.fromkeys(
        [
            *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
            *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
            *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        ],
        lambda machine, value: machine.push(value),
    ),
    **dict.fromkeys(  # of Python 2; pickletools decodes them
        ["STRING", "BINSTRING", "SHORT_BINSTRING"],
        lambda machine, text: machine.push(str(text).encode("latin-1")),
    ),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.pop(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.pop(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.pop(3))),
    "MARK": lambda machine, _: machine.mark(),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.above_mark())),
    "LIST": lambda machine, _: machine.push(machine.above_mark()),
    "DICT": lambda machine, _: machine.push(_dictionary(machine.above_mark())),
    "APPEND": lambda machine, _: machine.extend(machine.pop(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.above_mark()),
    "SETITEM": lambda machine, _: machine.add(machine.pop(2)),
    "SETITEMS": lambda machine, _: machine.add(machine.above_mark()),
    **dict.fromkeys(["PUT", "BINPUT", "LONG_BINPUT"], Machine.store),
    "MEMOIZE": lambda machine, _: machine.store(len(machine.memo)),
    **dict.fromkeys(
        ["GET", "BINGET", "LONG_BINGET"],
        lambda machine, key: machine.push(machine.memo[key]),
    ),
    "GLOBAL": lambda machine, text: machine.push(_name(str(text))),
    "STACK_GLOBAL": lambda machine, _: machine.push(_name("{} {}".format(*machine.pop(2)))),
    "REDUCE": lambda machine, _: machine.push(_made(*machine.pop(2))),
    "BUILD": lambda machine, _: machine.build(machine.pop(1)),
}


def read_pickle(content: bytes) -> Any:
    """Read a pickle of dictionaries, lists, tuples, integers, text, bytes and arrays of bytes.

    Opcodes are read, never executed: calls become records (`Made`). Python 2's strings are bytes.

    Raises
    ------
    ValueError
        If it names another function or class than NumPy needs for an array, has another opcode, or
        more than two million opcodes.
    Exception
        Any kind, from pickletools, if it is damaged.

    Examples
    --------
    >>> import pickle
    >>> read_pickle(pickle.dumps({"labels": [3, 1]}))
    {'labels': [3, 1]}
    """
    machine = Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if count == MOST_OPCODES:
            raise ValueError(f"it has more than {MOST_OPCODES} opcodes")
        if opcode.name not in STEPS:
            raise ValueError(f"it has the opcode {opcode.name}, which is not allowed")
        STEPS[opcode.name](machine, argument)
    return machine.stack[-1]


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"an opcode must change a {kind.__name__}; got {_brief(value)}")
    return value


def _dictionary(pairs: list[Any]) -> dict[Any, Any]:
    """Make a dictionary of keys and values; keys are text, whose hashes a file cannot choose."""
    if len(pairs) % 2:
        raise ValueError("a dictionary lacks a value")
    for key in pairs[::2]:
        if not isinstance(key, str | bytes):
            raise ValueError(f"keys must be text; got {_brief(key)}")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _name(text: str) -> Name:
    if text not in ALLOWED:
        raise ValueError(f"it contains {text.replace(' ', '.')}, which is not allowed")
    return Name(text)


def _made(function: Any, arguments: Any) -> Any:
    """Return the record of a call; the bytes themselves for their encoding."""
    name = _checked(function, Name).text
    if name != ENCODE:
        return Made(name, _checked(arguments, tuple), [])
    text, encoding = _checked(arguments, tuple)
    if encoding != "latin1" or not isinstance(text, str):
        raise ValueError(f"bytes must be encoded as latin1; got {_brief(encoding)}")
    return text.encode("latin-1")


def _array(made: Any) -> npt.NDArray[np.uint8]:
    """Make the array of bytes that a record describes."""
    if not isinstance(made, Made) or made.function not in RECONSTRUCT or not made.state:
        raise ValueError(f"data must be an array of bytes; got {_brief(made)}")
    _, shape, dtype, in_columns, content = made.state[0]
    if not isinstance(dtype, Made) or dtype.arguments[:1] not in U1 or dtype.state not in U1_STATES:
        raise ValueError("data must have the dtype uint8")
    if in_columns or not isinstance(content, bytes):
        raise ValueError("data must be bytes in C order")
    sizes = [size for size in shape if type(size) is int and size >= 0]
    if len(sizes) != len(shape) or math.prod(sizes) != len(content):
        raise ValueError(f"data must have a shape of {len(content)} bytes; got {_brief(shape)}")
    return np.frombuffer(content, np.uint8).reshape(sizes)


def _brief(value: Any) -> str:
    """Describe a value that may be very long."""
    if isinstance(value, list | dict) or (isinstance(value, tuple) and len(value) > 4):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) < 2**63:
        return repr(value)
    return f"a {type(value).__name__}" if not isinstance(value, str) else repr(value[:40])
