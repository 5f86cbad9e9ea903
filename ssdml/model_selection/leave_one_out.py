"""Exact leave-one-out of label propagation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ssdml.graphs.propagation.labels import class_shares, propagate_labels
from ssdml.utils.labels import class_codes
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

ROUNDING = 1e-12  # share of a row's score below which a difference is rounding error


def rows_to_leave_out(labels: Ints) -> Ints:
    """Labeled rows of classes with at least two labels.

    Examples
    --------
    >>> rows_to_leave_out(np.array([4, -1, 7, 4, -1]))
    array([0, 3])
    """
    codes, n_classes = class_codes(labels)
    labeled = np.flatnonzero(codes != UNLABELED)
    counts = np.bincount(codes[labeled], minlength=n_classes)
    return labeled[counts[codes[labeled]] > 1]


def leave_one_out(
    graph: Any,
    labels: Ints,
    rows: Ints,
    *,
    decay: float,
    tol: float = 1e-6,
    n_jobs: int | None = None,
) -> Array:
    r"""Propagate labels to labeled rows, each without its own label.

    Parameters
    ----------
    graph : KNNGraph or sparse array of shape (n, n)
    labels : array of shape (n,), int
        -1 where unlabeled.
    rows : array of shape (q,), int
        Labeled rows of classes with at least two labels; see :func:`rows_to_leave_out`.
    decay, tol : float
        See :func:`ssdml.graphs.propagate_labels`.
    n_jobs : int or None

    Returns
    -------
    distributions : ndarray of shape (q, n_classes)

    Notes
    -----
    Scores are :math:`F = K H`, with :math:`K = (1 - \gamma) (I - \gamma S)^{-1}` and H the one-hot
    labels. Without the label of row i, of class c, they are :math:`F - K_{\cdot i} e_c^\top`, so
    the columns of K of labeled rows replace q propagations by one solve with q more columns.
    O(n q n_classes) time and O(n (q + n_classes)) memory beside the solve.

    The class prior counts all labels. Without label i it would be lowest for the class of i,
    which decides where labels reach far: on MNIST with 5 labels per class and a decay of 0.999,
    leave-one-out accuracy was 23 % so, and 79 % with all labels (3 seeds).

    Examples
    --------
    >>> from scipy import sparse
    >>> path = sparse.diags_array([np.ones(4), np.ones(4)], offsets=[-1, 1]).tocsr()
    >>> labels = np.array([0, 0, -1, 1, 1])
    >>> leave_one_out(path, labels, np.array([0, 3]), decay=0.5).round(2)
    array([[0.92, 0.08],
           [0.16, 0.84]])
    """
    codes, n_classes = class_codes(labels)
    wrong = rows[~np.isin(rows, rows_to_leave_out(labels))]
    if len(wrong):
        raise ValueError(
            "leave_one_out: rows must be labeled, and not alone in their class; got row "
            f"{wrong[0]}. Use rows_to_leave_out(labels)."
        )
    q = np.arange(len(rows))
    # One column of K per row left out; the other rows of a class share one.
    columns = np.where(codes == UNLABELED, UNLABELED, len(rows) + codes)
    columns[rows] = q
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on rows that no label reaches
        _, solution = propagate_labels(
            graph, columns, decay=decay, tol=tol, return_solution=True, n_jobs=n_jobs
        )
    kernel = solution.values.astype(np.float64)
    known = columns != UNLABELED
    order = np.unique(columns[known], return_index=True)[1]
    one_hot = np.asarray(codes[known][order][:, None] == np.arange(n_classes), dtype=float)
    own, scores = kernel[:, : len(rows)], kernel @ one_hot
    totals = kernel.sum(axis=1, keepdims=True)
    left = totals - own  # (n, q), score of each row without each label
    shares = np.divide(1, left, out=np.zeros_like(left), where=left > ROUNDING * totals)
    masses = shares.T @ scores  # (q, n_classes)
    masses[q, codes[rows]] -= (shares * own).sum(axis=0)
    others = kernel[rows]
    others[q, q] = 0
    distributions: Array = (others @ one_hot) * class_shares(None, codes, n_classes) / masses
    distributions[~distributions.any(axis=1)] = class_shares(None, codes, n_classes)
    distributions /= distributions.sum(axis=1, keepdims=True)
    return distributions
