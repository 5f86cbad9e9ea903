"""Graph consistency: the graphs of two halves of a batch should agree, Chen et al. (2021)."""

from __future__ import annotations

import torch

from ssdml.losses.base import Loss
from ssdml.losses.batch import Batch, can_check_values, check_flag
from ssdml.losses.pairs import rows_of, squared_distances
from ssdml.utils.validation import UNLABELED, check_number, choose


def gaussian_graph(rows: torch.Tensor, sigma: float) -> torch.Tensor:
    """Compute ``exp(-|x_i - x_j|² / σ)`` for each pair of rows, (n, n).

    Examples
    --------
    >>> gaussian_graph(torch.tensor([[0.0], [1.0]]), 1.0)
    tensor([[1.0000, 0.3679],
            [0.3679, 1.0000]])
    """
    return (squared_distances(rows, rows) * (-1 / sigma)).exp()


def graph_difference(
    first: torch.Tensor, second: torch.Tensor, weights: torch.Tensor, *, sigma: float = 1.0
) -> torch.Tensor:
    """Compute ``|S' - S''|²``, the squared Frobenius norm between the graphs, Eq. (1).

    A pair of rows has the product of their ``weights`` (n,).

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
    """Compute ``|S'X' - S''X''|``, the Frobenius norm between the smoothed rows, Eq. (3).

    ``weights`` (n,) act as numbers of copies of the rows of both halves.

    Examples
    --------
    >>> smoothed_difference(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]]), torch.ones(1))
    tensor(5.)
    """
    scales = weights.sqrt()[:, None] * weights  # scale the graphs, which are smaller than the rows
    smooth = (scales * gaussian_graph(first, sigma)) @ first
    other = (scales * gaussian_graph(second, sigma)) @ second
    return torch.linalg.vector_norm(smooth - other)


FORMS = {"smoothed": smoothed_difference, "graphs": graph_difference}


class GraphConsistency(Loss):
    r"""Difference between the graphs of two halves of a batch with the same classes in order.

    .. math:: \|S'X' - S''X''\|_F \quad\text{or}\quad \|S' - S''\|_F^2, \qquad
        S_{ij} = e^{-|x_i - x_j|^2 / \sigma}

    Parameters
    ----------
    sigma : float
        σ, positive.
    form : {"smoothed", "graphs"}
        The first, Eq. (3), is used for training in [1]_; the second is Eq. (1).
    normalize : bool
        Whether to scale rows to length 1.

    Raises
    ------
    ValueError
        If the number of rows is odd, the halves differ in length, or rows in class.

    Notes
    -----
    Called as :class:`Loss <ssdml.losses.base.Loss>`. X' is the first half of the rows and X'' the
    second, or ``ref_emb``; :func:`ssdml.networks.sampling.aligned_halves` draws such batches.
    Without labels the halves count as aligned. In distributed training they are the halves of the
    whole batch, as :func:`ssdml.utils.distributed.gathered` returns it. Row i drops out of both
    halves if one of its two labels is -1; its weight is the product of its two weights. It ignores
    ``indices_tuple``, which would leave halves with gaps. O(n² d) time, O(n²) memory.

    The paper gives no σ; 1 on unit-length rows is ours. It adds 0.001 of this term to a triplet
    loss, 0.002 to an N-pair loss and to binomial deviance, with 10 rows of 13 classes in each half,
    as we read it. Both forms are sums. For independent halves Eq. (3) grows in proportion to the
    rows per class, Eq. (1) to their square: with 5 rows per class instead of 10, the same effect
    takes 2λ, or 4λ for Eq. (1).

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
    needs = "labeled rows of one class at the same place of both halves"
    sampler = "aligned_halves"

    def __init__(self, sigma: float = 1.0, form: str = "smoothed", normalize: bool = True) -> None:
        super().__init__()
        check_number(sigma, "sigma", "GraphConsistency", above=0)
        check_flag(normalize, "normalize", "GraphConsistency")
        self._difference = choose(FORMS, form, "GraphConsistency: form")
        self.sigma, self.form, self.normalize = sigma, form, normalize

    def usable(self, batch: Batch) -> bool:
        """Whether a place has a labeled row in both halves."""
        return bool(self._halves(batch)[2].any())

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the difference between the halves."""
        first, second, weights = self._halves(batch)
        return self._difference(first, second, weights, sigma=self.sigma)

    def _halves(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return both halves and the weights of their places."""
        rows, others = rows_of(batch, normalize=self.normalize)
        weights, labels = batch.row_weights, batch.labels
        if batch.has_reference:
            if len(rows) != len(others):
                raise ValueError(
                    "GraphConsistency: ref_emb must have as many rows as embeddings = "
                    f"{len(rows)}; got {len(others)}. Pass one row of the same class for each."
                )
            other_labels = batch.reference_labels
            if other_labels is not None:
                weights = weights * (other_labels != UNLABELED)
        else:
            half = _half(rows)
            rows, others = rows[:half], rows[half:]
            weights = weights[:half] * weights[half:]
            if labels is not None:
                labels, other_labels = labels[:half], labels[half:]
        if labels is not None and other_labels is not None:
            _check_aligned(labels, other_labels)
        return rows, others, weights


def _half(rows: torch.Tensor) -> int:
    if len(rows) % 2:
        raise ValueError(
            "GraphConsistency: embeddings must be two halves with the same classes in order; got "
            f"{len(rows)} rows. ssdml.networks.sampling.aligned_halves draws such batches."
        )
    return len(rows) // 2


def _check_aligned(labels: torch.Tensor, others: torch.Tensor) -> None:
    if not can_check_values():
        return
    unlike = (labels != others) & (labels != UNLABELED) & (others != UNLABELED)
    if unlike.any():
        row = int(unlike.nonzero()[0])
        raise ValueError(
            "GraphConsistency: labels must be the same in both halves, row by row; got "
            f"{int(labels[row])} and {int(others[row])} in row {row} of the halves. "
            "ssdml.networks.sampling.aligned_halves draws such batches."
        )
