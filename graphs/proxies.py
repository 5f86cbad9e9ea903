"""Proxy subgraphs and reverse label propagation of ProxyGML (Zhu et al., 2020).

``proxy_classes[j]`` is the class of proxy j, an integer from 0:
``torch.arange(C).repeat_interleave(N)`` for N proxies of each of C classes. The loss uses the three
functions in turn; its regularizer on the proxies needs no subgraph::

    similarities = proxy_similarities(embeddings, proxies)
    subgraph = proxy_subgraph(similarities, labels, proxy_classes)
    on_rows = reverse_label_propagation(subgraph.weights, proxy_classes[subgraph.indices], C)

    on_proxies = reverse_label_propagation(proxy_similarities(proxies, proxies), proxy_classes, C)
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import NamedTuple

import torch

from ssdml.utils.torch_tools import check_float_matrix, check_integers, raise_if_any, unit_rows
from ssdml.utils.validation import UNLABELED, check_count


class ProxySubgraph(NamedTuple):
    """Proxies connected to each row.

    Parameters
    ----------
    indices : tensor of shape (n_rows, k), int64
        Ascending in each row; no gradient flows through them.
    weights : tensor of shape (n_rows, k)
        Similarities of the row to these proxies.
    """

    indices: torch.Tensor
    weights: torch.Tensor


class ClassPrediction(NamedTuple):
    """Class predictions of each row from its edges.

    Parameters
    ----------
    sums : tensor of shape (n_rows, n_classes)
        Sum of the weights to each class, 0 without an edge.
    reached : tensor of shape (n_rows, n_classes), bool
        Whether an edge leads to the class.
    log_probabilities : tensor of shape (n_rows, n_classes)
        Log-softmax over the classes reached; minus infinity for the others, to be filled with 0
        (``masked_fill(~reached, 0)``) before a product with probabilities. Without mask softmax,
        over all classes.
    """

    sums: torch.Tensor
    reached: torch.Tensor
    log_probabilities: torch.Tensor


def proxy_similarities(embeddings: torch.Tensor, proxies: torch.Tensor) -> torch.Tensor:
    r"""Compute the cosine of each row with each proxy.

    .. math:: S_{ij} = \frac{x_i \cdot p_j}{|x_i| |p_j|}

    Parameters
    ----------
    embeddings : tensor of shape (n_rows, d), floating
    proxies : tensor of shape (n_proxies, d), floating

    Returns
    -------
    similarities : tensor of shape (n_rows, n_proxies)
        0 for a row of zeros.

    Notes
    -----
    In [1]_ the network scales the embeddings to length 1; here both sides are scaled, which
    changes nothing for unit rows.

    References
    ----------
    .. [1] Zhu, Yang, Deng, Liu, "Fewer is more: a deep graph metric learning perspective using
       fewer proxies", NeurIPS 2020, similarity graph S.

    Examples
    --------
    >>> proxy_similarities(torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0], [0.0, -1.0]]))
    tensor([[ 0.6000, -0.8000]])
    """
    check_float_matrix(embeddings, "embeddings", "proxy_similarities")
    check_float_matrix(proxies, "proxies", "proxy_similarities")
    if embeddings.shape[1] != proxies.shape[1]:
        raise ValueError(
            "proxy_similarities: proxies must have as many columns as embeddings = "
            f"{embeddings.shape[1]}; got {proxies.shape[1]}."
        )
    return unit_rows(embeddings) @ unit_rows(proxies).T


def proxy_subgraph(
    similarities: torch.Tensor,
    labels: torch.Tensor,
    proxy_classes: torch.Tensor,
    *,
    ratio: float = 0.05,
    k: int | None = None,
    positive_mask: bool = True,
) -> ProxySubgraph:
    r"""Connect each row to k proxies: those of its class first, then the most similar.

    .. math:: W_{ij} = S_{ij} \text{ if } j \in \text{top-}k(S_i + S^{pos}_i), \text{ else } 0

    where :math:`S^{pos}` lifts the proxies of a labeled row's class above all others. An unlabeled
    row takes the k most similar proxies of all, as does every row without the positive mask.

    Parameters
    ----------
    similarities : tensor of shape (n_rows, n_proxies), floating
        As :func:`proxy_similarities` gives. Ties go to the smaller index.
    labels : tensor of shape (n_rows,), integers
        A class of ``proxy_classes``, or -1 where unlabeled.
    proxy_classes : tensor of shape (n_proxies,), integers
    ratio : float
        Share of all proxies in a subgraph, above 0 and at most 1: ``k = ⌈ratio · n_proxies⌉``, in
        floating point as in the code of [1]_ (0.07 of 100 are 8).
    k : int or None
        Number of proxies in a subgraph, in place of ``ratio``; clipped to 1 and n_proxies.
    positive_mask : bool
        Whether to lift the proxies of a row's class, by :math:`S^{pos}`.

    Returns
    -------
    subgraph : ProxySubgraph
        Indices and weights of the k edges of each row: W without its zeros.

    Notes
    -----
    Differs from the code of [1]_ in three ways. (a) There, :math:`S^{pos}` is 1000, which rounds
    similarities in float32 to steps of 6e-5; here nothing is added to them. (b) There, ties are
    left open. (c) The top k of unlabeled rows are ours.

    References
    ----------
    .. [1] Zhu, Yang, Deng, Liu, "Fewer is more: a deep graph metric learning perspective using
       fewer proxies", NeurIPS 2020, neighbor matrix W; the formula of k is in its code.

    Examples
    --------
    >>> similarities = torch.tensor([[0.9, 0.8, 0.1, 0.2], [0.9, 0.8, 0.1, 0.2]])
    >>> labels, proxy_classes = torch.tensor([1, -1]), torch.tensor([0, 0, 1, 1])
    >>> proxy_subgraph(similarities, labels, proxy_classes, k=3).indices
    tensor([[0, 2, 3],
            [0, 1, 3]])
    """
    who = "proxy_subgraph"
    check_float_matrix(similarities, "similarities", who)
    check_integers(labels, similarities.shape[:1], "labels", who)
    check_integers(proxy_classes, similarities.shape[1:], "proxy_classes", who)
    infinite = similarities[~similarities.isfinite()]
    raise_if_any(infinite, f"{who}: similarities must be finite", "Look for NaN in the embeddings.")
    negative = proxy_classes[proxy_classes < 0]
    raise_if_any(negative, f"{who}: proxy_classes must be at least 0", "Number the classes from 0.")

    same_class = labels[:, None] == proxy_classes  # (n_rows, n_proxies)
    unknown = labels[(labels != UNLABELED) & ~same_class.any(dim=1)]
    condition = f"{who}: labels must be {UNLABELED} (unlabeled) or a class in proxy_classes"
    raise_if_any(unknown, condition, "Number the classes from 0, and give each a proxy.")

    k = _subgraph_size(ratio, k, similarities.shape[1])
    keys = similarities.detach()
    indices = _top_k(_guided(keys, same_class, k) if positive_mask else keys, k)
    return ProxySubgraph(indices, similarities.gather(1, indices))


def reverse_label_propagation(
    weights: torch.Tensor,
    classes: torch.Tensor,
    n_classes: int,
    *,
    mask_softmax: bool = True,
) -> ClassPrediction:
    r"""Sum the edge weights of each row by class, and take their masked softmax.

    .. math:: Z = W Y^p, \qquad
        P_{ic} = \frac{M_{ic} e^{Z_{ic}}}{\sum_{c'} M_{ic'} e^{Z_{ic'}}}

    :math:`Y^p` is the one-hot matrix of the proxies' classes, and :math:`M_{ic}` is 1 where an
    edge leads from row i to class c, else 0.

    Parameters
    ----------
    weights : tensor of shape (n_rows, k), floating
        Of the edges of each row, k at least 1.
    classes : tensor of shape (n_rows, k) or (k,), integers
        Class of each edge's proxy, from 0 to ``n_classes - 1``; of shape (k,) if all rows are
        connected to the same k proxies.
    n_classes : int
    mask_softmax : bool
        Whether the softmax leaves out the classes that no edge leads to; if not, M is 1
        everywhere.

    Returns
    -------
    prediction : ClassPrediction
        Class sums Z, mask M and log P.

    Notes
    -----
    O(n_rows · (k + n_classes)) time and memory. With N proxies per class, :math:`|Z| \le N`, so N
    acts as a temperature. On a GPU the last bit of a sum may vary, unless
    torch.use_deterministic_algorithms is on.

    Differs from the code of [1]_ in two ways. (a) There, M is 0 for every class whose sum is
    exactly 0. Our M comes from the edges: a class whose proxies are at right angles to the row
    gets a gradient. (b) There, 1e-8 is added to the denominator and 1e-20 inside the logarithm;
    the log-softmax here needs neither.

    References
    ----------
    .. [1] Zhu, Yang, Deng, Liu, "Fewer is more: a deep graph metric learning perspective using
       fewer proxies", NeurIPS 2020, reverse label propagation and mask softmax.

    Examples
    --------
    >>> weights, classes = torch.tensor([[0.5, 0.25, 0.75]]), torch.tensor([[0, 0, 2]])
    >>> prediction = reverse_label_propagation(weights, classes, 3)
    >>> prediction.sums
    tensor([[0.7500, 0.0000, 0.7500]])
    >>> prediction.log_probabilities.exp()
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    who = "reverse_label_propagation"
    check_count(n_classes, "n_classes", who)
    check_float_matrix(weights, "weights", who)
    shared = isinstance(classes, torch.Tensor) and classes.dim() == 1
    check_integers(classes, weights.shape[1:] if shared else weights.shape, "classes", who)
    infinite = weights[~weights.isfinite()]
    raise_if_any(infinite, f"{who}: weights must be finite", "Look for NaN in the embeddings.")
    outside = classes[(classes < 0) | (classes >= n_classes)]
    condition = f"{who}: classes must lie from 0 to n_classes - 1 = {n_classes - 1}"
    raise_if_any(outside, condition, "Number the classes from 0, or raise n_classes.")

    ends = classes.long().expand_as(weights)
    sums = weights.new_zeros(len(weights), n_classes).scatter_add(1, ends, weights)
    reached = torch.zeros_like(sums, dtype=torch.bool).scatter(1, ends, True)
    logits = sums.masked_fill(~reached, -math.inf) if mask_softmax else sums
    log_probabilities = logits.log_softmax(dim=1)
    return ClassPrediction(sums, reached, log_probabilities)


def _subgraph_size(ratio: float, k: int | None, n_proxies: int) -> int:
    if k is None:
        if not isinstance(ratio, Real):
            raise TypeError(f"proxy_subgraph: ratio must be a number; got {ratio!r}. Pass 0.05.")
        if not 0 < ratio <= 1:
            raise ValueError(
                f"proxy_subgraph: ratio must be above 0 and at most 1; got {ratio}. Pass a share "
                "of all proxies, or their number as k."
            )
        k = math.ceil(ratio * n_proxies)
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise TypeError(f"proxy_subgraph: k must be an integer or None; got {k!r}.")
    return min(max(int(k), 1), n_proxies)


def _guided(similarities: torch.Tensor, same_class: torch.Tensor, k: int) -> torch.Tensor:
    """Return keys to rank the proxies by: the similarities, the row's class first."""
    # If all proxies of the row's class fit, they come first and the others are ranked; if not, they
    # alone are ranked. No number is added, so nothing is rounded.
    fits = same_class.sum(dim=1, keepdim=True) <= k
    keys = similarities.masked_fill(same_class & fits, math.inf)
    return keys.masked_fill(~same_class & ~fits, -math.inf)


def _top_k(keys: torch.Tensor, k: int) -> torch.Tensor:
    """Find the k largest entries of each row, ascending; ties go to the smaller index."""
    # torch.topk leaves ties open, and a stable sort takes several times as long.
    least = keys.topk(k, dim=1).values[:, -1:]
    above, level = keys > least, keys == least
    places = k - above.sum(dim=1, keepdim=True)
    chosen = above | (level & (level.cumsum(dim=1) <= places))
    return chosen.nonzero()[:, 1].view(len(keys), k)
