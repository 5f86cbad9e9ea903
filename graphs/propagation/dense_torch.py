r"""``P = (1 - decay) (I - decay Q)^-1`` from one dense factorization on a torch device.

Columns are solved for in blocks. Factors are in single precision, residuals in double: each
refinement reduces the error by some four digits. The residual bounds it, since
:math:`|(I - \gamma Q)^{-1}|_\infty \le 1 / (1 - \gamma)` for rows of Q that sum to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from ssdml.utils.parallel import row_blocks
from ssdml.utils.torch_tools import find_device, free_memory, full_precision
from ssdml.utils.typing import Array

if TYPE_CHECKING:
    import torch

BLOCK_ENTRIES = 2**23  # entries of a block of columns: 67 MB
HELD_BLOCKS = 8  # blocks on the device at a time
MAX_SOLVES = 5  # of one block: the first, and refinements
SINGLE_CONDITION = 1e5  # beyond this condition number, single precision does not refine


class TorchInverse:
    """Factors of ``I - decay * transition`` on a device; the rows of a transition sum to 1."""

    def __init__(self, transition: sparse.csr_array, decay: float, device: str) -> None:
        import torch

        self._device = torch.device(find_device(device, "propagate_affinities", torch.float64))
        self._decay, n = decay, transition.shape[0]
        single = (1 + decay) / (1 - decay) <= SINGLE_CONDITION
        dtype = torch.float32 if single else torch.float64
        _check_room(n, dtype.itemsize, self._device)
        counts = np.diff(transition.indptr)
        # A residual sums this many rounded terms, and entries of P are at most 1.
        self._rounding = (int(counts.max()) + 8) * float(np.finfo(np.float64).eps)
        self._starts, self._columns, self._weights = (
            torch.tensor(part, device=self._device)
            for part in (
                transition.indptr.astype(np.int64),
                transition.indices.astype(np.int64),
                transition.data,
            )
        )
        with torch.inference_mode(), full_precision():
            system = torch.zeros((n, n), dtype=dtype, device=self._device)
            rows = torch.tensor(np.repeat(np.arange(n), counts), device=self._device)
            steps = (-decay * self._weights).to(dtype)
            system.index_put_((rows, self._columns), steps, accumulate=True)
            system.diagonal().add_(1)
            self._factors = torch.linalg.lu_factor(system)

    def solve(self, right_hand_sides: Array, *, tol: float) -> tuple[Array, Array]:
        """Compute ``P @ right_hand_sides``, and the largest error in each column.

        The errors are at most ``tol`` for entries between -1 and 1, unless rounding prevents it.
        """
        import torch

        values, errors = np.empty(right_hand_sides.shape), np.empty(right_hand_sides.shape[1])
        with torch.inference_mode(), full_precision():
            for block in row_blocks(len(errors), BLOCK_ENTRIES // len(values)):
                given = torch.tensor(right_hand_sides[:, block], device=self._device)
                found, bounds = self._refined(given.to(torch.float64), tol)
                values[:, block], errors[block] = found.cpu().numpy(), bounds.cpu().numpy()
        return values, errors

    def _refined(self, given: torch.Tensor, tol: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute P times a block in double precision, and a bound of the errors per column."""
        import torch

        scaled = given.mul_(1 - self._decay)
        values, residual = torch.zeros_like(scaled), scaled
        for _ in range(MAX_SOLVES):
            values += torch.linalg.lu_solve(*self._factors, residual.to(self._factors[0].dtype))
            residual = self._walk(values).mul_(self._decay).sub_(values).add_(scaled)
            rounding = self._rounding * values.abs().amax(0)
            bounds = (residual.abs().amax(0) + rounding) / (1 - self._decay)
            if bounds.max() <= tol:
                break
        return values, bounds

    def _walk(self, values: torch.Tensor) -> torch.Tensor:
        """Compute ``transition @ values``, summed in a fixed order."""
        from torch.nn.functional import embedding_bag

        return embedding_bag(
            self._columns,
            values,
            self._starts,
            mode="sum",
            per_sample_weights=self._weights,
            include_last_offset=True,
        )


def _check_room(n_rows: int, itemsize: int, device: torch.device) -> None:
    """Raise unless the system, its factors and the blocks fit into the device's memory."""
    room = free_memory(device) - HELD_BLOCKS * 8 * min(BLOCK_ENTRIES, n_rows**2)
    if 2 * itemsize * n_rows**2 > room:
        most = int((max(room, 0) / (2 * itemsize)) ** 0.5)
        raise ValueError(
            f"propagate_affinities: n must be at most {most} for solver='torch' on '{device}', "
            f"whose free memory must hold two n x n arrays; got {n_rows}. "
            "Use solver='auto', or a device with more memory."
        )
