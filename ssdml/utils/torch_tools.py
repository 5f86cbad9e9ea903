"""Checks of tensors, rows of tensors, devices, memory errors and temporary states of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from ssdml.utils.parallel import SharedSetting
from ssdml.utils.validation import check_tensor, warn

HALVES = (torch.float16, torch.bfloat16)
NUMPY_FLOATS = (torch.float16, torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_float_matrix(value: Any, name: str, who: str) -> None:
    """Raise unless ``value`` is a 2-D floating tensor with values and at least one column."""
    is_tensor = isinstance(value, torch.Tensor)
    if is_tensor:
        check_tensor(value, who, name)
        if torch._C._functorch.is_batchedtensor(value):
            raise TypeError(
                f"{who}: {name} must hold data; got a tensor of torch.vmap. Call it for one batch "
                "after the other."
            )
    if not is_tensor or not value.is_floating_point() or value.itemsize < 2:
        way_out = f"{name}.float()" if isinstance(value, torch.Tensor) else "a tensor"
        raise TypeError(
            f"{who}: {name} must be a floating tensor; got {_kind(value)}. Pass {way_out}."
        )
    if value.dim() != 2 or value.shape[1] == 0:
        way_outs = {0: "", 1: f" Pass {name}[None] for one row.", 2: ""}
        way_out = way_outs.get(value.dim(), f" Pass {name}.flatten(1).")
        raise ValueError(
            f"{who}: {name} must have two dimensions and a column; got shape "
            f"{tuple(value.shape)}.{way_out}"
        )


def check_integers(value: Any, shape: torch.Size, name: str, who: str) -> None:
    """Raise unless ``value`` is an integer tensor of this shape."""
    is_tensor = isinstance(value, torch.Tensor)
    if is_tensor:
        check_tensor(value, who, name)
    are_indicators = is_tensor and value.dim() == 2 == len(shape) + 1 and value.shape[1] > 1
    way_out = f"{name}.argmax(dim=1)" if are_indicators else f"{name}.long()"
    if not is_tensor or value.dtype not in INTEGERS:
        of_names = f"torch.as_tensor(ssdml.datasets.encode_partial_labels({name})[0])"
        are_names = not is_tensor and np.asarray(value).dtype.kind in "OUST"
        values = f"{name}.to_numpy()" if hasattr(value, "to_numpy") else name
        way_out = way_out if is_tensor else of_names if are_names else f"torch.as_tensor({values})"
        raise TypeError(
            f"{who}: {name} must be a tensor of integers; got {_kind(value)}. Pass {way_out}."
        )
    if value.shape != shape:
        is_column = value.dim() == len(shape) + 1 and value.shape[-1] == 1
        way_out = f"{name}.squeeze(-1)" if is_column else way_out if are_indicators else ""
        raise ValueError(
            f"{who}: {name} must have shape {tuple(shape)}; got shape {tuple(value.shape)}."
            f"{way_out and f' Pass {way_out}.'}"
        )


def raise_if_any(wrong: torch.Tensor, condition: str, way_out: str) -> None:
    """Raise if there are wrong entries, naming the first."""
    if len(wrong):
        raise ValueError(f"{condition}; got {wrong[0].item()}. {way_out}")


def _kind(value: Any) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def to_device(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy a CPU tensor to a device, to CUDA through pinned memory.

    A copy from memory that is not pinned waits until the GPU has finished everything before it.
    """
    if torch.device(device).type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def unit_rows(rows: torch.Tensor) -> torch.Tensor:
    """Scale rows to length 1; rows of zeros stay zero, with finite derivatives."""
    # Multiply, don't divide: the gradient of a quotient needs three more passes over the rows.
    return rows * inverse_lengths(rows)[:, None]


def inverse_lengths(rows: torch.Tensor) -> torch.Tensor:
    """Compute one over the length of each row, (n,); 1 for a row of zeros or nearly so."""
    # Of a norm, the second derivative at a row of zeros is NaN.
    squares = torch.linalg.vecdot(rows, rows)
    least = torch.finfo(rows.dtype).tiny ** (2 / 3)  # the derivative is the power -3/2
    return squares.masked_fill(squares < least, 1).rsqrt()


def take_rows(rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return ``rows[indices]``, with a reproducible gradient.

    The gradient of plain indexing adds up repeated rows on several threads in any order.
    """
    return functional.embedding(indices, rows)


def find_device(device: str | torch.device, who: str, dtype: torch.dtype | None = None) -> str:
    """Return the name of a device that exists and holds ``dtype``; "auto": CUDA if available.

    Examples
    --------
    >>> find_device("cpu", "SSDML")
    'cpu'
    """
    name = str(device)
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    way_out = "Pass 'auto' or 'cpu'."
    try:
        device = torch.device(name)
        if device.type == "cuda":  # by its index: a tensor would take memory in each process
            n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
            found = (device.index or 0) < n_gpus
            if not n_gpus:
                way_out = "It finds no GPU: pass 'auto' or 'cpu', or install torch built for yours."
        else:
            torch.zeros(1, device=device, dtype=dtype)
            found = device.type != "meta"
    except (RuntimeError, NotImplementedError, AssertionError, ImportError, TypeError):
        found = False
    if not found:
        raise ValueError(f"{who}: device must be one that torch finds; got {name!r}. {way_out}")
    return name


def has_bfloat16(device: str) -> bool:
    """Whether the device is a GPU with fast bfloat16 (NVIDIA Ampere or later).

    Examples
    --------
    >>> has_bfloat16("cpu")
    False
    """
    return device.startswith("cuda") and torch.cuda.get_device_capability(device) >= (8, 0)


def trains_in_bfloat16(mixed_precision: bool | str, device: str) -> bool:
    """Whether a network trains in bfloat16; warn where the GPU has no arithmetic for it.

    Examples
    --------
    >>> trains_in_bfloat16("auto", "cpu"), trains_in_bfloat16(True, "cpu")
    (False, True)
    """
    if mixed_precision == "auto":
        return has_bfloat16(device)
    if mixed_precision and device.startswith("cuda") and not has_bfloat16(device):
        warn(
            "mixed_precision must be False or 'auto' on a GPU without bfloat16, where steps are "
            f"slow and layers may fail; got True on {device!r}. Pass mixed_precision='auto'."
        )
    return bool(mixed_precision)


def free_memory(device: torch.device) -> float:
    """Bytes that a new array on the device can take; infinity if unknown."""
    import psutil

    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device.index)[0] + kept)
    return float(psutil.virtual_memory().available) if device.type == "cpu" else float("inf")


# Plain RuntimeErrors of torch on a CPU, of cuBLAS and cuDNN, and of CUDA on a card that was full
# before this process put anything on it.
OUT_OF_MEMORY = re.compile("can't allocate memory|ALLOC_FAILED|out of memory")

# Errors of CUDA and HIP after which the process cannot use the device.
LOST = re.compile(
    "launch failure|launch timed out|illegal memory access|illegal instruction|misaligned address"
    "|device-side assert|ECC error|unknown error|device is lost"
)


def is_out_of_memory(error: Exception) -> bool:
    """Whether the error is out-of-memory, in main memory or on a device.

    Examples
    --------
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not match"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(OUT_OF_MEMORY.search(str(error)))


@contextmanager
def device_hints(settings: Any) -> Iterator[None]:
    """Add to errors of full memory which parameter to lower, and of a lost GPU how to go on.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> with device_hints(SimpleNamespace(batch_size=160)):
    ...     raise torch.cuda.OutOfMemoryError("20 GiB")
    Traceback (most recent call last):
    MemoryError: Out of memory (20 GiB). Lower batch_size=160, shrink the network or free memory.
    """
    try:
        yield
    except MemoryError as error:  # NumPy's: the graphs, or arrays as long as the data
        without = ", or set input_edges=0 and input_weight=0" * hasattr(settings, "input_edges")
        raise MemoryError(f"Out of main memory ({error}). Pass fewer samples{without}.") from error
    except RuntimeError as error:
        folder = getattr(settings, "checkpoint_dir", None)
        if is_out_of_memory(error):
            elsewhere = " in another folder" * (folder is not None)
            raise MemoryError(
                f"Out of memory ({error}). Lower batch_size={settings.batch_size}{elsewhere}, "
                "shrink the network or free memory."
            ) from error
        if LOST.search(str(error)):
            resumed = "fits with checkpoint_dir" if folder is None else f"the fit in {folder}"
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise RuntimeError(
                f"The GPU failed ({reason}), and this process cannot use it any more. Start "
                f"another one, where {resumed} can be resumed. If it fails there too, run it with "
                "device='cpu' to see an error of the network."
            ) from error
        raise


def _refuse_tf32() -> Callable[[], None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    return partial(torch.set_float32_matmul_precision, before)


@contextmanager
def own_settings(device: str | torch.device) -> Iterator[None]:
    """Within the block, ignore the caller's autocast, default device and modes without gradients.

    Examples
    --------
    >>> with torch.no_grad(), torch.device("meta"), own_settings("cpu"):
    ...     torch.is_grad_enabled(), torch.zeros(1).device.type
    (True, 'cpu')
    """
    # torch.device as a context slows each operation.
    is_cpu = torch.get_default_device().type == "cpu"
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(torch.device(device).type, enabled=False),
        nullcontext() if is_cpu else torch.device("cpu"),
    ):
        yield


full_precision = SharedSetting(_refuse_tf32)  # multiply in full float32


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put the network into evaluation mode; restore its mode afterwards."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


LEFT_OUT = "left out: "  # prefix of buffers that are not persistent; no module has such a name


def whole_state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the state of a module with the buffers that its ``state_dict`` leaves out.

    Examples
    --------
    >>> module = nn.Module()
    >>> module.register_buffer("scale", torch.ones(1), persistent=False)
    >>> whole_state(module)
    {'left out: scale': tensor([1.])}
    """
    state = module.state_dict()
    left_out = {LEFT_OUT + n: part for n, part in module.named_buffers() if n not in state}
    return dict(state) | left_out


def check_state(module: nn.Module, name: str) -> None:
    """Raise unless the state of a module can be copied and saved."""
    for key, part in whole_state(module).items():
        if not torch.is_tensor(part):
            raise TypeError(
                f"{name} must keep its state in tensors; {key} is none, as in quantized modules. "
                "Pass the module before it is quantized, or without get_extra_state."
            )
        if is_lazy(part):
            raise TypeError(
                f"{name} must have weights; {key} has no shape yet, as in lazy modules. Call the "
                "module on a batch once."
            )
        if part.is_meta:
            raise ValueError(
                f"{name} must have weights; {key} is on the meta device. Create the module outside "
                "of torch.device('meta'), or load its weights with assign=True."
            )
        if part.layout != torch.strided:
            raise TypeError(
                f"{name} must keep its state in dense tensors; {key} is {part.layout}. Register "
                "its indices and values as two buffers, or keep it dense."
            )


def load_whole_state(module: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Load what :func:`whole_state` returned.

    A buffer that states leave out keeps its values if it has another shape, as a growing cache.
    """
    left_out = {name for name in state if name.startswith(LEFT_OUT)}
    module.load_state_dict({name: part for name, part in state.items() if name not in left_out})
    with torch.no_grad():
        for name, own in module.named_buffers():
            given = state.get(LEFT_OUT + name)
            if given is None or given.shape != own.shape:
                continue
            if not torch.equal(as_bytes(given.to(own)), as_bytes(own)):  # expanded ones are equal
                own.copy_(given)


def plain_numbers(module: nn.Module) -> dict[str, float]:
    """Return the attributes of a module and its parts that are numbers, such as counters.

    Examples
    --------
    >>> plain_numbers(nn.Sequential(nn.Dropout(0.5)))
    {'0.p': 0.5, '0.inplace': False}
    """
    return {
        f"{name}.{key}".lstrip("."): value
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, int | float) and not key.startswith("_") and key != "training"
    }


def set_numbers(module: nn.Module, numbers: Mapping[str, float]) -> None:
    """Set what :func:`plain_numbers` returned."""
    for name, value in numbers.items():
        path, _, key = name.rpartition(".")
        setattr(module.get_submodule(path), key, value)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor, one after another, whatever its dtype and layout.

    Examples
    --------
    >>> as_bytes(torch.tensor(1.0, dtype=torch.bfloat16))
    tensor([128,  63], dtype=torch.uint8)
    """
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def as_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a tensor as an array; floats that NumPy lacks, such as bfloat16, become float32.

    Examples
    --------
    >>> as_numpy(torch.ones(1, dtype=torch.bfloat16))
    array([1.], dtype=float32)
    """
    if tensor.is_floating_point() and tensor.dtype not in NUMPY_FLOATS:
        tensor = tensor.float()
    return tensor.detach().cpu().numpy()


def batch_norms(network: nn.Module) -> list[_BatchNorm]:
    """Return the layers of batch normalization."""
    return [part for part in network.modules() if isinstance(part, _BatchNorm)]


@contextmanager
def batch_norm_hints(settings: Any) -> Iterator[None]:
    """Name the parameter to raise if batch normalization is given a single sample.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> with batch_norm_hints(SimpleNamespace(batch_size=1)):
    ...     nn.BatchNorm1d(2)(torch.zeros(1, 2))
    Traceback (most recent call last):
    ValueError: batch_size must be at least 2 per process with batch normalization; got 1. Raise it.
    """
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            "batch_size must be at least 2 per process with batch normalization; got "
            f"{settings.batch_size}. Raise it."
        ) from error


@contextmanager
def normalizing_by_batch(network: nn.Module) -> Iterator[None]:
    """Evaluation mode, except that batches are normalized and counted as in training.

    Examples
    --------
    >>> network = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout())
    >>> with normalizing_by_batch(network):
    ...     network(torch.tensor([[1.0], [3.0]])).tolist()
    [[-0.9999949932098389], [0.9999949932098389]]
    >>> network[0].running_mean
    tensor([0.2000])
    """
    with evaluating(network), counting(network, True):
        for layer in batch_norms(network):
            layer.train()
        yield


@contextmanager
def counting(network: nn.Module, wanted: bool) -> Iterator[None]:
    """Choose whether batches join the averages that batch normalization evaluates with.

    Examples
    --------
    >>> layer = nn.BatchNorm1d(1)
    >>> with counting(layer, False):
    ...     _ = layer(torch.tensor([[1.0], [3.0]]))
    >>> layer.running_mean
    tensor([0.])
    """
    layers = [part for part in batch_norms(network) if part.track_running_stats is not wanted]
    for layer in layers:
        layer.track_running_stats = wanted
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = not wanted


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Run torch on one CPU thread: batches are small, and sums do not depend on the machine.

    Other threads of the program keep their number.
    """
    if not wanted:
        yield
        return
    before = torch.get_num_threads()
    _set_threads(1)
    try:
        yield
    finally:
        _set_threads(before)


def _set_threads(count: int) -> None:
    """Set the number of CPU threads of the calling thread.

    torch sets that of threads that begin later as well: another one sets it back at once.
    """
    with _SETTING_THREADS, ThreadPoolExecutor(1) as later:
        default = later.submit(torch.get_num_threads).result()
        torch.set_num_threads(count)
        later.submit(torch.set_num_threads, default).result()


_SETTING_THREADS = Lock()
