"""What a network learns from, whatever it came as: batches of items by their numbers."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ssdml.graphs._tensors import to_device
from ssdml.image_shapes import has_channels_last
from ssdml.labels import encode_partial_labels

Indices = npt.NDArray[np.intp]

COMPARED = 200  # items of a data set that stand for all
FEWEST_FOR_SCALE = 10
SAMPLED = 2000  # items whose statistics stand for all
SAMPLED_NUMBERS = 2**27  # of which they are made, at most: 1 GB in double precision


class Items(Protocol):
    """Items of one shape; images have their channels first."""

    shape: tuple[int, ...]  # of one item

    def __len__(self) -> int:
        """How many."""

    def batch(self, indices: Indices) -> torch.Tensor:
        """Items of these numbers, (n, ...), floating point, on the device."""

    def compared(self) -> torch.Tensor:
        """What stands for all, where it is asked whether they are the same."""


class StoredItems:
    """Items in one tensor; bytes stay bytes until they are used.

    On the device once and for all, where they leave room for the rest; else they stay where they
    are, and batches travel.
    """

    def __init__(self, stored: torch.Tensor, device: str = "cpu") -> None:
        self._stored = stored.to(device) if has_room(device, stored.nbytes) else stored
        self._device, self.shape = device, tuple(stored.shape[1:])

    def __len__(self) -> int:
        return len(self._stored)

    def compared(self) -> torch.Tensor:
        """All of them."""
        return self._stored

    def batch(self, indices: Indices) -> torch.Tensor:
        """Items of these numbers."""
        batch = self._stored[to_device(torch.from_numpy(indices), self._stored.device)]
        return _floating(to_device(batch, self._device))


class LoadedItems:
    """Items of a map-style torch data set, read when they are asked for.

    A data set with torch's ``__getitems__(indices)`` is asked for a whole batch at once.
    """

    def __init__(self, dataset: Any, device: str = "cpu") -> None:
        self._dataset, self._device = dataset, device
        self.shape = tuple(self._as_tensor(dataset[0], 0).shape)

    def __len__(self) -> int:
        return len(self._dataset)

    def compared(self) -> torch.Tensor:
        """Some, for all would have to be read."""
        return self.batch(sampled_rows(self, 0, COMPARED))

    def batch(self, indices: Indices) -> torch.Tensor:
        """Items of these numbers."""
        numbers = [int(index) for index in indices]
        at_once = getattr(self._dataset, "__getitems__", None)
        entries = at_once(numbers) if at_once else [self._dataset[number] for number in numbers]
        read = [self._as_tensor(*pair) for pair in zip(entries, numbers, strict=True)]
        for item, number in zip(read, numbers, strict=True):
            _check_finite(item[None], "dataset", number)
        shapes = {tuple(item.shape) for item in read}
        if len(shapes) > 1:
            raise ValueError(
                f"dataset: items must have one shape; got {sorted(shapes)[:3]}. Resize them in the "
                "data set."
            )
        if len({item.dtype for item in read}) > 1:
            read = [_floating(item) for item in read]
        return _floating(torch.stack(read).to(self._device))  # bytes travel as bytes

    def _as_tensor(self, item: Any, index: int) -> torch.Tensor:
        if isinstance(item, (tuple, list)):
            item = item[0]  # beside a label, which comes as y
        if not isinstance(item, np.ndarray | torch.Tensor):
            raise TypeError(
                f"dataset: items must be tensors or arrays, or tuples that begin with one; got "
                f"{type(item).__name__} at {index}. Give the data set a transform, such as "
                "torchvision's ToTensor."
            )
        _check_numbers(item, item.ndim > 1, f"dataset: item {index}")
        return _from_numpy(item) if isinstance(item, np.ndarray) else item.detach()


def as_items(dataset: Any, who: str, device: str = "cpu") -> Items:
    """Items of an array, a tensor or a map-style torch data set.

    Parameters
    ----------
    dataset : array, tensor or table of shape (n, ...), or Dataset
        Features (n, d); images (n, height, width), (n, channels, height, width), or, as bytes,
        (n, height, width, channels). Bytes are divided by 255, other whole numbers become float32.
        A Dataset yields items as the backbone takes them, images with their channels first, or
        tuples that begin with one.
    who : str
        Beginning of messages.
    device : str
        Where batches are wanted.

    Returns
    -------
    items : Items

    Examples
    --------
    >>> images = np.zeros((5, 32, 32, 3), np.uint8)
    >>> as_items(images, "fit").batch(np.array([0, 2])).shape
    torch.Size([2, 3, 32, 32])
    """
    if hasattr(dataset, "to_numpy"):  # a table of pandas or polars
        dataset = dataset.to_numpy()
    if isinstance(dataset, np.ndarray | torch.Tensor):
        _check_numbers(dataset, dataset.ndim > 2, f"{who}: dataset")
    if isinstance(dataset, np.ndarray):
        dataset = _from_numpy(dataset)
    if isinstance(dataset, torch.Tensor):
        dataset = dataset.detach()
        if dataset.ndim < 2 or not dataset.numel():
            raise ValueError(
                f"{who}: dataset must have shape (n, ...) with at least one item of one number; "
                f"got {tuple(dataset.shape)}."
            )
        if dataset.ndim == 3:
            dataset = dataset[:, None]
        _check_finite(dataset, f"{who}: dataset")
        if dataset.dtype == torch.uint8 and has_channels_last(dataset.shape[1:]):
            dataset = dataset.movedim(-1, 1).contiguous()
        return StoredItems(dataset, device)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        if not len(dataset):
            raise ValueError(f"{who}: dataset must have at least one item; got none.")
        return LoadedItems(dataset, device)
    raise TypeError(
        f"{who}: dataset must be an array, a tensor or a torch Dataset with a length; got "
        f"{type(dataset).__name__}."
    )


def held_items(
    validation: Any, shape: tuple[int, ...], device: str
) -> tuple[Items, npt.NDArray[Any]]:
    """Items that are scored beside the training, and the class of each, numbered; -1: none.

    Raises
    ------
    ValueError
        If it is no pair; if they are of another shape than ``shape``, not as many as labels, or
        none is labelled.
    """
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise ValueError(
            "validation must be a pair, items and a label of each, as in fit(X, y, validation="
            f"(images, labels)); got {type(validation).__name__}."
        )
    dataset, y = validation
    items, labels = as_items(dataset, "validation", device), np.asarray(y)
    if items.shape != shape or labels.shape != (len(items),):
        raise ValueError(
            f"validation must be items of shape {shape} and a label of each; got "
            f"{len(items)} of shape {items.shape} and labels of shape {labels.shape}."
        )
    codes, classes = encode_partial_labels(labels)
    if not len(classes):
        raise ValueError(
            "validation must label some of its items; got no label. Leave it out, or label some."
        )
    return items, codes


def has_room(device: str, n_bytes: int) -> bool:
    """Whether so much takes at most half of what is free on a GPU; elsewhere it is there already.

    Examples
    --------
    >>> has_room("cpu", 10**15)
    True
    """
    if not device.startswith("cuda"):
        return True
    free, _ = torch.cuda.mem_get_info(torch.device(device).index)  # torch 2.4 wants a number
    return n_bytes <= free / 2


def _check_numbers(items: Any, are_images: bool, name: str) -> None:
    """Raise where an array or a tensor holds no numbers, or pixels whose range is not known."""
    if isinstance(items, np.ndarray):
        kind, way_out = items.dtype.kind, "astype('float32')"
    else:
        kind, way_out = _kind(items.dtype), "float()"
    is_bytes = items.dtype in (np.uint8, torch.uint8)
    if kind not in "uif" or (are_images and kind in "ui" and not is_bytes):
        raise TypeError(
            f"{name} must hold bytes or floating-point numbers; got dtype {items.dtype}. Convert "
            f"it, pixels to between 0 and 1: .{way_out}."
        )


def _kind(dtype: torch.dtype) -> str:
    """Kind of a number, by NumPy's letters.

    Examples
    --------
    >>> [_kind(dtype) for dtype in (torch.bfloat16, torch.uint8, torch.int64, torch.bool)]
    ['f', 'u', 'i', 'b']
    """
    if dtype.is_floating_point or dtype.is_complex:
        return "c" if dtype.is_complex else "f"
    if dtype == torch.bool:
        return "b"
    return "i" if dtype.is_signed else "u"


def _check_finite(items: torch.Tensor, name: str, first: int = 0) -> None:
    """Raise for the first item, counted from ``first``, that is not finite."""
    if not items.is_floating_point() or not items.numel():
        return
    if all(end.isfinite() for end in items.aminmax()):  # NaN is both ends
        return
    wrong = items.flatten(1).isfinite().logical_not()
    row = int(wrong.any(dim=1).nonzero()[0])
    value = items.flatten(1)[row][wrong[row]][0].item()
    raise ValueError(
        f"{name} must be finite; got {value} in item {first + row}. Leave such items out, or fill "
        "in what is missing."
    )


def _floating(items: torch.Tensor) -> torch.Tensor:
    """Bytes from 0 to 1; other numbers as they are.

    The divisor is a tensor of the device: by a number, CUDA multiplies with its inverse instead,
    and half of the bytes come out otherwise than on a CPU.
    """
    if items.dtype != torch.uint8:
        return items.float()
    return items.float() / torch.full((), 255.0, device=items.device)


def _from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """The array as a tensor: bytes as they are, other numbers in single precision.

    Torch takes neither another machine's order of bytes nor, in silence, what is read-only, which
    is copied.
    """
    single = array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
    return torch.from_numpy(np.require(single, requirements=["C", "W"]))


def sampled_rows(items: Items, seed: int, n_rows: int = SAMPLED) -> Indices:
    """Numbers of so many random items at most, fewer where they are large, in their order."""
    n_drawn = min(n_rows, max(1, SAMPLED_NUMBERS // int(np.prod(items.shape))))
    return np.sort(np.random.default_rng(seed).permutation(len(items))[:n_drawn])


def warn_of_scale(items: Items, scale: torch.Tensor, who: str) -> None:
    """Warn where items vary ten times as much as those of this scale, or a tenth as much.

    By some of them, and their middle channel; fewer than ten items say nothing.
    """
    if len(items) < FEWEST_FOR_SCALE:
        return
    sample = items.batch(sampled_rows(items, 0, COMPARED)).cpu().double()
    spread = sample.std((0, *range(2, sample.ndim)), correction=0)
    ratio = float((spread / scale.cpu().double().flatten()).median())
    if not 0.1 < ratio < 10:
        warnings.warn(
            f"{who}: items must be scaled as those that were fitted; got such as vary {ratio:.2g} "
            "times as much. Pixels are bytes, or numbers from 0 to 1: divide others by 255.",
            stacklevel=4,
        )


def mean_and_scale(items: Items, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each channel (of each feature), shaped to be broadcast.

    Of at most 2,000 random items, fewer where they are large; a constant one has scale 1.
    """
    sample = items.batch(sampled_rows(items, seed)).cpu().double()  # the same on every device
    axes = (0, *range(2, sample.ndim))
    mean, scale = (
        sample.mean(axes, keepdim=True)[0],
        sample.std(axes, correction=0, keepdim=True)[0],
    )
    return mean.float(), torch.where(scale > 0, scale, torch.ones_like(scale)).float()
