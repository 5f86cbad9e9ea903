"""CGML: two halves of a batch with the same classes should have the same graph."""

from __future__ import annotations

import torch

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch, looks_at_values
from ssdml.losses.pairs import squares_about_0
from ssdml.utils.torch_tools import unit_rows
from ssdml.utils.validation import UNLABELED, check_number, choose


def gaussian_graph(rows: torch.Tensor, sigma: float) -> torch.Tensor:
    """``exp(-|x_i - x_j|² / σ)`` of each pair of rows, (n, n).

    Examples
    --------
    >>> gaussian_graph(torch.tensor([[0.0], [1.0]]), 1.0)
    tensor([[1.0000, 0.3679],
            [0.3679, 1.0000]])
    """
    return (squares_about_0(rows, rows) * (-1 / sigma)).exp()


def graph_difference(
    first: torch.Tensor, second: torch.Tensor, weights: torch.Tensor, *, sigma: float = 1.0
) -> torch.Tensor:
    """``|S' - S''|²``, the squared Frobenius norm between the graphs of two halves, Eq. (1).

    Parameters
    ----------
    first, second : tensors of shape (n, d)
    weights : tensor of shape (n,)
        Of each row of the two; a pair of rows counts by the product.
    sigma : float

    Returns
    -------
    difference : tensor, a scalar

    Examples
    --------
    >>> near, far = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [9.0]])
    >>> graph_difference(near, far, torch.ones(2))  # twice exp(-1) squared
    tensor(0.2707)
    """
    gaps = gaussian_graph(first, sigma) - gaussian_graph(second, sigma)
    return weights @ gaps.square() @ weights


def smoothed_difference(
    first: torch.Tensor, second: torch.Tensor, weights: torch.Tensor, *, sigma: float = 1.0
) -> torch.Tensor:
    """``|S'X' - S''X''|``, the Frobenius norm between rows that the graphs have smoothed, Eq. (3).

    Parameters
    ----------
    first, second : tensors of shape (n, d)
    weights : tensor of shape (n,)
        Of each row of the two, as if it occurred so many times.
    sigma : float

    Returns
    -------
    difference : tensor, a scalar
        Its gradient is 0 where the two are the same.

    Examples
    --------
    >>> smoothed_difference(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]]), torch.ones(1))
    tensor(5.)
    """
    scales = weights.sqrt()[:, None] * weights  # on the graphs, which are smaller than the rows
    smooth = (scales * gaussian_graph(first, sigma)) @ first
    other = (scales * gaussian_graph(second, sigma)) @ second
    return torch.linalg.vector_norm(smooth - other)


FORMS = {"smoothed": smoothed_difference, "graphs": graph_difference}


class GraphConsistency(Loss):
    r"""Difference between the graphs of two halves of a batch, aligned row by row in class.

    .. math:: \|S'X' - S''X''\|_F \quad\text{or}\quad \|S' - S''\|_F^2, \qquad
        S_{ij} = e^{-|x_i - x_j|^2 / \sigma}

    Parameters
    ----------
    sigma : float
        σ, above 0.
    form : {"smoothed", "graphs"}
        The first, Eq. (3), is the one that [1]_ trains with; the second is Eq. (1).
    normalize : bool
        Whether rows are scaled to length 1 first.

    Raises
    ------
    ValueError
        For an odd number of rows, halves of different length, and rows of different class.

    Notes
    -----
    The call is that of :class:`Loss <ssdml.losses.base.Loss>`. The first half of the rows is X',
    the second X''; or X'' is ``ref_emb``. :func:`ssdml.networks.sampling.aligned_halves` draws such batches.
    Without labels the halves are taken to be aligned. Of several processes they are the halves of
    the whole batch, in the order of the ranks, as :func:`ssdml.utils.distributed.gathered` puts them together.
    Row i is left out of both halves if one of its two labels is -1; it counts by the product of its
    two weights. O(n² d) time, O(n²) memory.

    The paper gives no σ; 1, on rows of unit length, is ours. It adds 0.001 of this term to a
    triplet loss, 0.002 to an N-pair loss and to binomial deviance. Both norms are sums, as there.

    References
    ----------
    .. [1] Chen et al., "Deep metric learning with graph consistency", AAAI 2021, Eq. (1), (3).

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
    >>> labels = torch.tensor([0, 1, 0, 1])
    >>> GraphConsistency()(z, labels), GraphConsistency(form="graphs")(z, labels)
    (tensor(2.0182), tensor(0.))
    """

    takes_halves = True

    def __init__(self, sigma: float = 1.0, form: str = "smoothed", normalize: bool = True) -> None:
        super().__init__()
        check_number(sigma, "sigma", "GraphConsistency", above=0)
        self._difference = choose(FORMS, form, "GraphConsistency: form")
        self.sigma, self.form, self.normalize = sigma, form, normalize

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Difference between the halves."""
        rows, weights, labels = batch.embeddings, batch.row_weights, batch.labels
        rows = unit_rows(rows) if self.normalize else rows
        if batch.has_reference:
            first, second = rows, batch.reference
            second = unit_rows(second) if self.normalize else second
            other_labels = batch.reference_labels
            if other_labels is not None:
                weights = weights * (other_labels != UNLABELED)
        else:
            half = _half(rows)
            first, second = rows[:half], rows[half:]
            weights = weights[:half] * weights[half:]
            if labels is not None:
                labels, other_labels = labels[:half], labels[half:]
        if len(first) != len(second):
            raise ValueError(
                "GraphConsistency: ref_emb must have as many rows as embeddings = "
                f"{len(first)}; got {len(second)}."
            )
        if labels is not None and other_labels is not None:
            _check_aligned(labels, other_labels)
        return self._difference(first, second, weights, sigma=self.sigma)


def _half(rows: torch.Tensor) -> int:
    if len(rows) % 2:
        raise ValueError(
            "GraphConsistency: embeddings must be two halves, aligned row by row in class; got "
            f"{len(rows)} rows. ssdml.networks.sampling.aligned_halves draws such batches."
        )
    return len(rows) // 2


def _check_aligned(labels: torch.Tensor, others: torch.Tensor) -> None:
    if not looks_at_values():
        return
    unlike = (labels != others) & (labels != UNLABELED) & (others != UNLABELED)
    if unlike.any():
        row = int(unlike.nonzero()[0])
        raise ValueError(
            "GraphConsistency: labels must be the same in both halves, row by row; got "
            f"{int(labels[row])} and {int(others[row])} in row {row} of the halves. "
            "ssdml.networks.sampling.aligned_halves draws such batches."
        )
