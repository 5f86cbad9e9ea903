"""Export ``transform`` to ONNX."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from ssdml.classification.forms import FARTHEST
from ssdml.classification.new_rows import FAR, ROUNDING, ClassInterpolator
from ssdml.classification.trees import FLOOR, Trees
from ssdml.graphs.laplacian import WEIGHT_FLOOR
from ssdml.graphs.neighbors.exact import SLACK
from ssdml.metric.features import ClassRepresentation
from ssdml.utils.files import as_path
from ssdml.utils.persistence import atomic_write
from ssdml.utils.torch_tools import own_settings
from ssdml.utils.typing import Array

INPUT, OUTPUT = "X", "embedding"  # names in the graph
INSTALL = "pip install 'ssdml[onnx]'"
OTHERS = ("trees", "n_neighbors", "power")  # the last is not part of the embedding
ARRAYS = tuple(name for name in ClassInterpolator._fields if name not in OTHERS)
MOST_BYTES = 2**31 - 2**20  # of weights: the format is limited to 2 GB per file


class RowEmbedding(nn.Module):
    """Compute ``R(X) @ components.T`` in float32, with R the identity for None.

    Examples
    --------
    >>> import numpy as np
    >>> RowEmbedding(np.array([[3.0, 0.0]]), None)(torch.tensor([[1.0, 2.0]]))
    tensor([[3.]])
    """

    columns: torch.Tensor

    def __init__(self, components: Array, representation: ClassRepresentation | None) -> None:
        super().__init__()
        self.register_buffer("columns", single_precision(components.T))
        self.n_neighbors, self.centered, self.trees = 0, False, None
        if representation is not None:
            classifier = representation.classifier
            self.n_neighbors = int(classifier.n_neighbors)
            self.centered = classifier.center is not None
            if classifier.distinct is None:
                classifier = classifier._replace(distinct=np.arange(len(classifier.rows)))
            for name in ARRAYS:
                part = getattr(classifier, name)
                self.register_buffer(f"part_{name}", torch.tensor(0 if part is None else part))
            if classifier.trees is not None:
                self.trees = TreeScores(classifier.trees)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Embed rows (n, n_features), to (n, n_components)."""
        return (self._represent(X) if self.n_neighbors else X) @ self.columns

    def _represent(self, X: torch.Tensor) -> torch.Tensor:
        mean, matrix, rows, scales, trend, residuals, center, distinct = (
            self.get_buffer(f"part_{name}") for name in ARRAYS
        )
        # In double precision up to the distances, then rounded: equal ones must stay equal.
        exact, points = X.double(), rows[distinct].double()
        seen = normalize(normalize(exact) - center) if self.centered else exact
        queries = ((seen - mean) @ matrix).clamp(-FARTHEST, FARTHEST).float()
        asked = queries.double()
        squares = (asked**2).sum(1, keepdim=True) + (points**2).sum(1) - 2 * asked @ points.T
        width = min(self.n_neighbors + SLACK, len(points))
        nearest = torch.topk(squares, width, dim=1, largest=False)[1].sort(1)[0]
        lengths = squares.gather(1, nearest).clamp(min=0).sqrt().float()
        # ONNX's topk takes the lower index of equal distances, as transform does.
        lengths, order = torch.topk(lengths, self.n_neighbors, dim=1, largest=False)
        nearest = distinct[nearest.gather(1, order)]
        own = torch.maximum(lengths[:, -1:], scales.min())
        weights = torch.exp(-(lengths / own) * (lengths / scales[nearest])).clamp(min=WEIGHT_FLOOR)
        weights = weights / weights.sum(1, keepdim=True)
        logits = queries @ trend[:-1] + trend[-1]
        logits = logits + (weights[:, :, None] * residuals[nearest]).sum(1)
        if self.trees is not None:
            logits = logits + self.trees(X)
        beyond = (scales >= (1 - ROUNDING) * lengths[:, -1:]).float().mean(1, keepdim=True)
        near = (1 + FAR) * beyond / (FAR + beyond)
        return torch.cat([(near * torch.softmax(logits, 1)).sqrt(), X], dim=1)


class TreeScores(nn.Module):
    """Compute the scores of :class:`ssdml.classification.trees.Trees`.

    Examples
    --------
    >>> import numpy as np
    >>> from ssdml.classification.trees import Columns, Trees, grow_trees
    >>> columns, rows = Columns(np.zeros(1), np.ones(1)), np.array([[0.0], [1.0]], np.float32)
    >>> nodes, codes = grow_trees(rows, np.array([0, 1]), 1), np.array([0, 1])
    >>> scores = TreeScores(Trees(columns, nodes, nodes.find_leaves(rows), codes, 2))
    >>> scores(torch.tensor([[-1.0], [2.0]])).argmax(1)
    tensor([0, 1])
    """

    mean: torch.Tensor
    scale: torch.Tensor
    columns: torch.Tensor
    thresholds: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor
    roots: torch.Tensor
    leaf: torch.Tensor
    shares: torch.Tensor

    def __init__(self, trees: Trees) -> None:
        super().__init__()
        columns, thresholds, children, roots = trees.nodes
        first, second = children.T
        leaves = np.flatnonzero(trees.nodes.are_leaves)
        leaf = np.zeros(len(columns), np.intp)  # number of a node among the leaves
        leaf[leaves] = np.arange(len(leaves))
        buffers: dict[str, Array] = {
            "mean": trees.standardized.mean,
            "scale": trees.standardized.scale,
        }
        buffers |= {"columns": columns, "thresholds": thresholds, "roots": roots, "leaf": leaf}
        buffers |= {"first": first.copy(), "second": second.copy()}
        for name, buffer in buffers.items():
            self.register_buffer(name, torch.tensor(buffer))
        self.register_buffer("shares", single_precision(trees.shares[leaves].toarray()))
        self.weight, self.depth = trees.weight, trees.nodes.depth

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Scores (n, n_classes) of rows (n, n_features)."""
        rows = ((X.double() - self.mean) * self.scale).clamp(-FARTHEST, FARTHEST).float()
        nodes = self.roots.expand(X.shape[0], -1)
        for _ in range(self.depth):
            beyond = rows.gather(1, self.columns[nodes]) > self.thresholds[nodes]
            nodes = torch.where(beyond, self.second[nodes], self.first[nodes])
        logs = self.weight * torch.log(self.shares[self.leaf[nodes]].mean(1) + FLOOR)
        return logs - logs.mean(1, keepdim=True)


def write_onnx(
    module: nn.Module, shape: tuple[int, ...], path: str | Path, who: str, method: str
) -> None:
    """Write a module to an ONNX file, in evaluation mode, for any number of samples.

    The module is on the CPU, and ``shape`` that of one sample. An existing file is replaced
    atomically. ``method`` must be "transform", the only one that can be exported.
    """
    if method != "transform":
        raise ValueError(
            f"{who}: method must be 'transform'; got {method!r}. To predict elsewhere, search an "
            "index made by to_faiss, or save the model."
        )
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{who} needs onnx and onnxscript: {INSTALL}.") from error
    n_bytes = sum(weight.nbytes for weight in module.state_dict().values())
    if n_bytes > MOST_BYTES:
        raise ValueError(
            f"{who}: weights must take less than 2 GB, the limit of an ONNX file; got "
            f"{n_bytes / 1e9:.1f} GB. Use torch.onnx.export with external data."
        )
    try:
        with _quiet(), own_settings("cpu"), torch.no_grad():
            program = torch.onnx.export(
                module.eval(),
                (torch.zeros(2, *shape),),
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0].rstrip(".")
        raise ValueError(
            f"{who}: backbone must be a module that torch.export can trace for any number of "
            f"samples; got {reason}. Replace branches on values by torch.where, and NumPy in "
            "forward by torch; or use save."
        ) from error
    assert program is not None
    shape_of_input = program.model.graph.inputs[0].shape
    if shape_of_input is not None and isinstance(shape_of_input[0], int):
        raise ValueError(
            f"{who}: backbone must be a module that torch.export can trace for any number of "
            f"samples; got one whose graph takes {shape_of_input[0]}. Use x.shape[0] or -1, not "
            "len(x); or use save."
        )
    with atomic_write(as_path(path)) as unfinished:
        program.save(unfinished, external_data=False)


def single_precision(array: Any) -> torch.Tensor:
    """Copy to a float32 tensor."""
    return torch.tensor(array, dtype=torch.float32, device="cpu")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log, warnings and standard error of torch's exporter."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
