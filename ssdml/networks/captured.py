"""Training steps captured as CUDA graphs: the CPU launches a whole step at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

Tensors: TypeAlias = tuple[torch.Tensor, ...]
WARMUP = 3  # steps before the capture: cuDNN and autograd allocate memory in the first ones


class CapturedStep:
    """A training step that is captured once and replayed on inputs of the same shapes.

    Small networks leave a GPU waiting for the CPU, which launches hundreds of kernels per step; a
    captured step is launched at once. It must not wait for the GPU, or draw random numbers.

    Parameters
    ----------
    step : callable
        Maps inputs on the device to the loss, and changes the tensors of ``state``.
    inputs : tuple of tensors
        Of the first step, on the CPU.
    state : callable
        Returns the tensors that a step changes, such as weights; they keep their values until the
        first call.
    device : str
        A CUDA device.
    """

    def __init__(
        self,
        step: Callable[[Tensors], torch.Tensor],
        inputs: Tensors,
        state: Callable[[], list[torch.Tensor]],
        device: str,
    ) -> None:
        self._inputs = tuple(part.to(device) for part in inputs)
        before = {id(part): part.detach().clone() for part in state()}
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARMUP):
                step(self._inputs)
        torch.cuda.current_stream(device).wait_stream(stream)
        with torch.no_grad():
            for part in state():  # the optimizer has made some of them, as zeros
                part.copy_(before[id(part)]) if id(part) in before else part.zero_()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = step(self._inputs)

    def takes(self, inputs: Tensors) -> bool:
        """Whether the inputs have the captured shapes."""
        pairs = zip(self._inputs, inputs, strict=True)
        return all(held.shape == given.shape for held, given in pairs)

    def __call__(self, inputs: Tensors) -> torch.Tensor:
        """Take the step on these inputs of the CPU; return the loss, which the GPU computes."""
        for held, given in zip(self._inputs, inputs, strict=True):
            held.copy_(given.pin_memory(), non_blocking=True)
        self._graph.replay()
        return self._loss.clone()
