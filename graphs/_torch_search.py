"""Candidates of the exact search by torch, on a graphics card or elsewhere."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from ssdml.graphs._blocks import row_blocks
from ssdml.graphs._rows import Rows
from ssdml.graphs._search import QUERY_BLOCK, Find
from ssdml.graphs._torch_device import full_precision, torch_device
from ssdml.utils.typing import Array, Ints

if TYPE_CHECKING:
    import torch

SCORE_ENTRIES = 2**26  # scores on the device at a time: 256 MB


def torch_find(points: Rows, inner_product: bool, device: str) -> Find:
    """Finder of candidates, as a Searcher takes it, that multiplies on a device of torch.

    The points stay there, 4 n d bytes.
    """
    import torch

    target = torch_device(device, "knn_graph")
    blocks = [
        (block.start, torch.from_numpy(points[block]).to(target))
        for block in row_blocks(len(points), SCORE_ENTRIES // QUERY_BLOCK)
    ]
    one_at_a_time = Lock()  # while a thread uses the device, the others rank

    def find(queries: Array, width: int) -> tuple[Array, Ints]:
        with one_at_a_time, torch.inference_mode(), full_precision():
            left = torch.from_numpy(np.ascontiguousarray(queries)).to(target)
            best: list[torch.Tensor] = []
            for start, right in blocks:
                scores = _scores(left, right, inner_product)
                found, numbers = scores.topk(min(width, len(right)), largest=False)
                parts = [*best, found, numbers + start]
                scores, numbers = torch.hstack(parts[::2]), torch.hstack(parts[1::2])
                kept = scores.topk(min(width, scores.shape[1]), largest=False)
                best = [kept.values, numbers.gather(1, kept.indices)]
            return best[0].cpu().numpy(), best[1].cpu().numpy()

    return find


def _scores(left: torch.Tensor, right: torch.Tensor, inner_product: bool) -> torch.Tensor:
    import torch

    products = left @ right.T
    if inner_product:
        return products.neg_().add_(1)
    products.mul_(-2).add_(torch.einsum("nd,nd->n", left, left)[:, None])
    return products.add_(torch.einsum("nd,nd->n", right, right))
