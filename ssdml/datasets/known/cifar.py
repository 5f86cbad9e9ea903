"""Reader of CIFAR-10's pickled batches, by their opcodes: nothing that a file names is called."""

from __future__ import annotations

import math
import pickletools  # nosec B403
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

BYTES = {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # of Python 2; pickletools decodes them
PLAIN = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
NEW = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
LAST = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
MARKED = {"LIST": list, "TUPLE": tuple}
STORES, FETCHES = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}


class Name(NamedTuple):
    """A function or class that a pickle names."""

    text: str  # module and name


class Made(NamedTuple):
    """An object that a pickle would make by a call."""

    function: str
    arguments: tuple[Any, ...]
    state: list[Any]  # at most one entry


def read_cifar_batches(folder: Path) -> RawItems:
    """Read ``cifar-10-batches-py``: five training batches, a test batch, the class names."""
    path = folder / "batches.meta"
    names = _content(path, b"label_names")[b"label_names"]
    if not (isinstance(names, list) and all(isinstance(name, bytes | str) for name in names)):
        raise ValueError(f"{path}: label_names must be a list of names; got {_brief(names)}.")
    try:
        texts = [name if isinstance(name, str) else name.decode() for name in names]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: label_names must be text in UTF-8 ({error}).") from error
    classes = np.array(texts)
    train = [_batch(folder / f"data_batch_{i}", classes) for i in range(1, 6)]
    joined = RawItems(
        np.concatenate([batch.items for batch in train]),
        np.concatenate([batch.labels for batch in train]),
        None,
    )
    return stack_splits(joined, _batch(folder / "test_batch", classes))


def _batch(path: Path, classes: npt.NDArray[Any]) -> RawItems:
    content = _content(path, b"data", b"labels")
    try:
        pixels = _array(content[b"data"])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: not a batch of CIFAR ({error}).") from error
    codes = _codes(path, content[b"labels"], len(classes))
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS or len(codes) != len(pixels):
        raise ValueError(
            f"{path}: must hold rows of {PIXELS} bytes and a label for each; "
            f"got data of shape {pixels.shape} and {len(codes)} labels."
        )
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # channels last
    return RawItems(images, classes[codes], None)


def _codes(path: Path, labels: Any, n_classes: int) -> Ints:
    if not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise ValueError(f"{path}: labels must be a list of integers; got {_brief(labels)}.")
    wrong = [place for place, label in enumerate(labels) if not 0 <= label < n_classes]
    if wrong:
        raise ValueError(
            f"{path}: labels must be from 0 to {n_classes - 1}, as batches.meta names {n_classes} "
            f"classes; got {_brief(labels[wrong[0]])} for image {wrong[0]}. Download it again."
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
    stack: list[Any] = []
    outer: list[list[Any]] = []  # stacks below the marks
    memo: dict[Any, Any] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        name = opcode.name
        if count == MOST_OPCODES:
            raise ValueError(f"it has more than {MOST_OPCODES} opcodes")
        if name == "MARK":
            outer.append(stack)
            stack = []
        elif name in PLAIN:
            stack.append(argument)
        elif name in BYTES:
            stack.append(str(argument).encode("latin-1"))
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in NEW:
            stack.append(NEW[name]())
        elif name in LAST:
            stack[-LAST[name] :] = [tuple(_top(stack, LAST[name]))]
        elif name in MARKED:
            stack = [*outer.pop(), MARKED[name](stack)]
        elif name in STORES:
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in FETCHES:
            stack.append(memo[argument])
        elif name in ("APPEND", "APPENDS"):
            items, stack = ([stack.pop()], stack) if name == "APPEND" else (stack, outer.pop())
            _checked(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS", "DICT"):
            if name == "SETITEM":
                pairs = _top(stack, 2)
                del stack[-2:]
            else:
                pairs, stack = stack, outer.pop()
            if name == "DICT":
                stack.append({})
            _add(_checked(stack[-1], dict), pairs)
        elif name == "GLOBAL":
            stack.append(_name(str(argument)))
        elif name == "STACK_GLOBAL":
            stack[-2:] = [_name("{} {}".format(*_top(stack, 2)))]
        elif name == "REDUCE":
            function, arguments = _top(stack, 2)
            made = _made(_checked(function, Name).text, _checked(arguments, tuple))
            stack[-2:] = [made]
        elif name == "BUILD":
            state = stack.pop()
            _checked(stack[-1], Made).state[:] = [state]
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it has the opcode {name}, which is not allowed")
    return stack[-1]


def _top(stack: list[Any], count: int) -> list[Any]:
    if len(stack) < count:
        raise ValueError("an opcode lacks its arguments")
    return stack[-count:]


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"an opcode must change a {kind.__name__}; got {_brief(value)}")
    return value


def _add(content: dict[Any, Any], pairs: list[Any]) -> None:
    """Add keys and values; keys are text, whose hashes a file cannot choose."""
    if len(pairs) % 2:
        raise ValueError("a dictionary lacks a value")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(key, str | bytes):
            raise ValueError(f"keys must be text; got {_brief(key)}")
        content[key] = value


def _name(text: str) -> Name:
    if text not in ALLOWED:
        raise ValueError(f"it contains {text.replace(' ', '.')}, which is not allowed")
    return Name(text)


def _made(function: str, arguments: tuple[Any, ...]) -> Any:
    """Return the record of a call; the bytes themselves for their encoding."""
    if function != ENCODE:
        return Made(function, arguments, [])
    text, encoding = arguments
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
