"""Serve arrays, tensors and Datasets as batches."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset

from ssdml.datasets.pixels import has_channels_last
from ssdml.utils.dask_arrays import is_dask
from ssdml.utils.labels import as_labels, check_order, encode_column
from ssdml.utils.torch_tools import to_device
from ssdml.utils.typing import Array, Indices
from ssdml.utils.validation import (
    as_array,
    check_table,
    check_tensor,
    is_table,
    warn,
    without_container,
)

COMPARED = 200  # samples of a Dataset that identify it
FEWEST_FOR_SCALE = 10
SAMPLED = 2000  # samples that estimate mean and scale
SAMPLED_NUMBERS = 2**27  # in all of them, at most: 1 GB in double precision


class Samples(Protocol):
    """Samples of one shape; images have their channels first."""

    shape: tuple[int, ...]  # of one sample

    def __len__(self) -> int:
        """Number of samples."""

    def batch(self, indices: Indices | torch.Tensor) -> torch.Tensor:
        """Return the samples at these indices, (n, ...), floating point, on the device."""

    def compared(self) -> torch.Tensor:
        """Return the samples that identify the data."""


class StoredSamples:
    """Samples in one tensor; bytes are converted per batch.

    The tensor lives on the device if it takes at most half of the free memory there.
    """

    def __init__(self, stored: torch.Tensor, device: str = "cpu") -> None:
        self._stored = stored.to(device) if has_room(device, stored.nbytes) else stored
        self._device, self.shape = device, tuple(stored.shape[1:])

    def __len__(self) -> int:
        return len(self._stored)

    def compared(self) -> torch.Tensor:
        """Return all samples."""
        return self._stored

    @property
    def is_on_device(self) -> bool:
        """Whether the tensor is on the device of the batches."""
        return self._stored.device.type == torch.device(self._device).type

    def batch(self, indices: Indices | torch.Tensor) -> torch.Tensor:
        """Return the samples at these indices."""
        batch = self._stored[to_device(torch.as_tensor(indices), self._stored.device)]
        return _floating(to_device(batch, self._device))


class LoadedSamples:
    """Samples of a map-style torch Dataset, read on demand.

    A Dataset with torch's ``__getitems__(indices)`` is asked for a whole batch at once.
    """

    def __init__(self, dataset: Any, device: str = "cpu") -> None:
        self._dataset, self._device = dataset, device
        first, again = (self._as_tensor(self._entry(0), 0) for _ in range(2))
        self.shape = tuple(first.shape)
        if not torch.equal(first, again):
            warn(
                "dataset must return the same sample at each read; got two versions of sample 0. "
                "Leave out random transforms: augment makes views."
            )

    def __len__(self) -> int:
        return len(self._dataset)

    def compared(self) -> torch.Tensor:
        """Return 200 random samples: reading all would take too long."""
        return self.batch(sampled_rows(self, 0, COMPARED))

    def batch(self, indices: Indices | torch.Tensor) -> torch.Tensor:
        """Return the samples at these indices."""
        numbers = [int(index) for index in indices]
        entries = zip(self._entries(numbers), numbers, strict=True)
        read = [self._as_tensor(*entry) for entry in entries]
        for sample, number in zip(read, numbers, strict=True):
            _check_finite(sample[None], "dataset", number)
        shapes = {self.shape, *(tuple(sample.shape) for sample in read)}
        if len(shapes) > 1:
            raise ValueError(
                f"dataset: samples must have one shape; got {sorted(shapes)[:3]}. Resize them in "
                "the Dataset."
            )
        if len({sample.dtype for sample in read}) > 1:
            read = [_floating(sample) for sample in read]
        return _floating(torch.stack(read).to(self._device))  # bytes travel as bytes

    def _entries(self, numbers: list[int]) -> Any:
        at_once = getattr(self._dataset, "__getitems__", None)
        if not at_once:
            return map(self._entry, numbers)
        try:
            entries = at_once(numbers)
        except Exception:
            for number in numbers:
                self._entry(number)  # tells which one raises
            raise
        if len(entries) != len(numbers):
            raise ValueError(
                "dataset: __getitems__ must return a list with one sample per index; got "
                f"{type(entries).__name__} of {len(entries)} for {len(numbers)} indices. Return "
                "samples before they are collated."
            )
        return entries

    def _entry(self, number: int) -> Any:
        try:
            return self._dataset[number]
        except Exception as error:
            error.add_note(f"dataset: sample {number} cannot be read.")
            raise

    def _as_tensor(self, sample: Any, index: int) -> torch.Tensor:
        if isinstance(sample, (tuple, list)):
            sample = sample[0]  # the rest is a label
        if not isinstance(sample, np.ndarray | torch.Tensor) or not sample.ndim:
            kind = "one number in a " * (getattr(sample, "ndim", 1) == 0) + type(sample).__name__
            raise TypeError(
                "dataset: samples must be tensors or arrays, or tuples that begin with one; got "
                f"{kind} at index {index}. {_way_to_tensor(sample)}"
            )
        if isinstance(sample, torch.Tensor):
            check_tensor(sample, "dataset", "samples")
        _check_numbers(sample, sample.ndim > 1, f"dataset: sample {index}")
        return _channels_first(
            _from_numpy(sample) if isinstance(sample, np.ndarray) else sample.detach()
        )


def _way_to_tensor(sample: Any) -> str:
    """Tell how a Dataset can yield a tensor in place of a sample."""
    if isinstance(sample, Mapping):
        return f"Wrap the Dataset in one that returns an entry of it, among {[*sample][:5]}."
    holds = sample[0] if isinstance(sample, list | tuple) and sample else sample
    if isinstance(sample, list | tuple) and not isinstance(holds, Real):
        return "Return one view of each sample: augment makes others."
    if isinstance(holds, Real) or getattr(holds, "ndim", 1) == 0:
        return "Return the sample first, as numpy.asarray or torch.as_tensor makes it."
    if hasattr(sample, "convert"):  # an image of PIL
        return "Convert it, for instance by numpy.asarray(image.convert('RGB'))."
    return "Give the Dataset a transform, such as torchvision's ToTensor."


def as_samples(dataset: Any, who: str, device: str = "cpu") -> Samples:
    """Serve an array, a tensor or a map-style torch Dataset as batches.

    Parameters
    ----------
    dataset : array, tensor or table of shape (n, ...), or Dataset
        Features (n, d); images (n, height, width), (n, channels, height, width), or, as bytes,
        (n, height, width, channels). Bytes are divided by 255, other integers become float32.
        A Dataset yields samples as the backbone takes them, images with three axes and, unless
        they are bytes, their channels first, or tuples that begin with one.
    who : str
        Beginning of error messages.
    device : str
        Device of the batches.

    Returns
    -------
    samples : Samples

    Examples
    --------
    >>> images = np.zeros((5, 32, 32, 3), np.uint8)
    >>> as_samples(images, "fit").batch(np.array([0, 2])).shape
    torch.Size([2, 3, 32, 32])
    """
    if isinstance(dataset, torch.Tensor):
        check_tensor(dataset, who, "dataset")
    elif is_dask(dataset):
        raise TypeError(
            f"{who}: dataset must be in memory, or a torch Dataset that reads samples on demand; "
            "got a dask array. Pass dataset.compute()."
        )
    else:
        dataset = without_container(dataset, who, "dataset")
    if isinstance(dataset, list) and dataset and _is_row(dataset[0]):
        dataset = as_array(dataset, who, "dataset")
    if is_table(dataset):
        table = check_table(dataset, who, "dataset")
        dataset = table.astype(np.float32) if table.dtype == bool else table  # of get_dummies
    if hasattr(dataset, "to_numpy"):  # an array of xarray
        dataset = dataset.to_numpy()
    if isinstance(dataset, np.ndarray | torch.Tensor):
        return _stored(dataset, who, device)
    is_map = hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset)
    if is_map and hasattr(dataset, "__len__"):
        if not len(dataset):
            raise ValueError(f"{who}: dataset must have at least one sample; got none.")
        return LoadedSamples(dataset, device)
    inside = "its dataset" if hasattr(dataset, "dataset") else "numpy.stack of its samples"
    raise TypeError(
        f"{who}: dataset must be an array, a tensor or a map-style torch Dataset with a length; "
        f"got {type(dataset).__name__}. Pass {inside}."
    )


def _stored(dataset: Array | torch.Tensor, who: str, device: str) -> StoredSamples:
    """Serve an array of shape (n, ...), in which images of three axes have no channels."""
    _check_numbers(dataset, dataset.ndim > 2, f"{who}: dataset")
    dataset = _from_numpy(dataset) if isinstance(dataset, np.ndarray) else dataset.detach()
    if dataset.ndim < 2 or not dataset.numel():
        way_out = " Pass X[None] for one sample." if dataset.ndim == 1 else ""
        raise ValueError(
            f"{who}: dataset must have shape (n, ...) with at least one sample of one number; "
            f"got {tuple(dataset.shape)}.{way_out}"
        )
    if dataset.ndim == 3:
        dataset = dataset[:, None]
    _check_finite(dataset, f"{who}: dataset")
    return StoredSamples(_channels_first(dataset), device)


def _is_row(sample: Any) -> bool:
    """Whether a sample is a list of numbers, or of such lists."""
    return isinstance(sample, list) and all(isinstance(s, Real) or _is_row(s) for s in sample)


def validation_samples(
    validation: Any, shape: tuple[int, ...], device: str
) -> tuple[Samples, npt.NDArray[Any]]:
    """Read the validation data of a fit: samples of this shape, and class codes, -1 if unlabeled.

    Raises ValueError if it is not a pair of samples and labels, or has no label.
    """
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise ValueError(
            "validation must be a pair of samples and labels, as in fit(X, y, validation=(images, "
            f"labels)); got {type(validation).__name__}."
        )
    dataset, y = validation
    check_order(dataset, y, "fit", ("validation[0]", "validation[1]"))
    samples, labels = as_samples(dataset, "validation", device), as_labels(y, "validation")
    if samples.shape != shape or labels.shape != (len(samples),):
        raise ValueError(
            f"validation must be samples of shape {shape} and one label per sample; got "
            f"{len(samples)} of shape {samples.shape} and labels of shape {labels.shape}."
        )
    codes, classes = encode_column(labels, "validation")
    if not len(classes):
        raise ValueError(
            "validation must label some of its samples; got no label. Label some or omit it."
        )
    return samples, codes


def has_room(device: str, n_bytes: int) -> bool:
    """Whether the bytes take at most half of the free memory of a GPU; True on other devices.

    Examples
    --------
    >>> has_room("cpu", 10**15)
    True
    """
    if not device.startswith("cuda"):
        return True
    free, _ = torch.cuda.mem_get_info(torch.device(device).index)  # torch 2.4 needs an index
    return n_bytes <= free / 2


def _check_numbers(samples: Any, are_images: bool, name: str) -> None:
    """Raise if there are no numbers, or integer pixels of unknown range."""
    dtype = samples.dtype
    if isinstance(samples, np.ndarray):
        is_float, is_integer, way_out = dtype.kind == "f", dtype.kind in "ui", "astype('float32')"
    else:
        is_float, way_out = dtype.is_floating_point, "float()"
        is_integer = not (is_float or dtype.is_complex or dtype == torch.bool)
    is_bytes = dtype in (np.uint8, torch.uint8)
    if not (is_float or (is_integer and (is_bytes or not are_images))):
        raise TypeError(
            f"{name} must hold bytes or floating-point numbers; got dtype {dtype}. Convert it, "
            f"pixels to between 0 and 1: .{way_out}."
        )


def _check_finite(samples: torch.Tensor, name: str, first: int = 0) -> None:
    """Raise for the first sample, counted from ``first``, that is not finite."""
    if not samples.is_floating_point() or not samples.numel():
        return
    if all(end.float().isfinite() for end in samples.aminmax()):  # NaN is both ends
        return
    wrong = samples.flatten(1).float().isfinite().logical_not()
    row = int(wrong.any(dim=1).nonzero()[0])
    value = samples.flatten(1)[row][wrong[row]][0].item()
    where, fix = " in float32", "scale them down"
    if np.isnan(value):
        where, fix = "", "impute the missing values"
    raise ValueError(
        f"{name} must be finite{where}; got {value} in sample {first + row}. Drop such samples or "
        f"{fix}."
    )


def _channels_first(images: torch.Tensor) -> torch.Tensor:
    """Move the last axis of bytes, one image or a batch, if it holds the channels."""
    if images.dtype == torch.uint8 and has_channels_last(images.shape[-3:]):
        return images.movedim(-1, -3).contiguous()
    return images


def _floating(samples: torch.Tensor) -> torch.Tensor:
    """Scale bytes to between 0 and 1; convert other numbers to float32.

    The divisor is a tensor on the device: CUDA multiplies by the inverse of a Python number, which
    gives other bits than a CPU for half of the bytes.
    """
    if samples.dtype != torch.uint8:
        return samples.float()
    return samples.float() / torch.full((), 255.0, device=samples.device)


def _from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """Convert an array; numbers other than bytes become float32.

    Foreign byte orders and read-only arrays are copied, since torch does not take them.
    """
    with np.errstate(over="ignore"):  # _check_finite tells
        single = array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
    return torch.from_numpy(np.require(single, requirements=["C", "W"]))


def sampled_rows(samples: Samples, seed: int, n_rows: int = SAMPLED) -> Indices:
    """Draw at most ``n_rows`` sorted indices, fewer if the samples are large."""
    n_drawn = min(n_rows, max(1, SAMPLED_NUMBERS // int(np.prod(samples.shape))))
    return np.sort(np.random.default_rng(seed).permutation(len(samples))[:n_drawn])


def warn_of_scale(samples: Samples, scale: torch.Tensor, who: str) -> None:
    """Warn if samples are scaled differently from the fitted ones, by a factor of 10 or more.

    The factor is the root mean square over the channels, to which rare values count as often as
    they occur. Fewer than ten samples are not judged, nor are equal ones.
    """
    if len(samples) < FEWEST_FOR_SCALE:
        return
    drawn = samples.batch(sampled_rows(samples, 0, COMPARED)).cpu().double()
    spread = drawn.std((0, *range(2, drawn.ndim)), correction=0)
    ratio = float((spread / scale.cpu().double().flatten()).square().mean().sqrt())
    if ratio and not 0.1 < ratio < 10:
        warn(
            f"{who}: samples must have the scale of the fitted ones; got {ratio:.2g} times their "
            "standard deviation. Pass pixels as bytes, or as numbers from 0 to 1."
        )


def mean_and_scale(samples: Samples, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimate mean and standard deviation per channel or feature, in a shape that broadcasts.

    Uses at most 2,000 random samples; the scale of a constant channel is 1.
    """
    drawn = samples.batch(sampled_rows(samples, seed)).cpu().double()  # equal on every device
    axes = (0, *range(2, drawn.ndim))
    mean = drawn.mean(axes, keepdim=True)[0]
    scale = drawn.std(axes, correction=0, keepdim=True)[0]
    return mean.float(), torch.where(scale > 0, scale, torch.ones_like(scale)).float()
