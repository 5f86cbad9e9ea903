"""DeepCluster: classify items by the clusters of their embedding."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import numpy as np
from sklearn.utils._param_validation import Interval
from torch import Tensor, from_numpy, nn, zeros
from torch.nn import functional

from ssdml.baselines.deep.recipe import Recipe, Softmax, UnsupervisedTrainer
from ssdml.metric.fitted.base import COUNT
from ssdml.networks.sampling import balanced_batches
from ssdml.utils.distributed import from_first_rank
from ssdml.utils.linalg import unit_rows
from ssdml.utils.parallel import one_blas_thread
from ssdml.utils.typing import Array, Indices, Ints


@dataclass(eq=False, repr=False)
class DeepCluster(Recipe):
    """Alternate between k-means of the whitened embedding and an epoch of softmax.

    Parameters
    ----------
    n_clusters : int
        At most the number of samples. About ten times the number of classes: 100 suits ten.
    n_axes : int
        Maximum number of principal components.
    max_iter : int
        Of k-means.

    Notes
    -----
    As published, each epoch begins with a new head, and batches are balanced over the clusters.
    Ours: the number of clusters (10,000 on ImageNet, ten times the number of classes), the head on
    L, the rate, weight decay and size of batches.

    References
    ----------
    .. [1] Caron, Bojanowski, Joulin, Douze, "Deep clustering for unsupervised learning of visual
       features", ECCV 2018.
    """

    n_clusters: int = 100
    n_axes: int = 256
    max_iter: int = 20

    _parameter_constraints = {  # noqa: RUF012
        "n_clusters": [Interval(Integral, 2, None, closed="left")],
        "n_axes": COUNT,
        "max_iter": COUNT,
    }

    def new_head(self, n_items: int, d: int, n_components: int) -> nn.Module:
        """Return a softmax over the clusters."""
        return Softmax(n_components, min(n_items, self.n_clusters))

    def batches(
        self, run: UnsupervisedTrainer, rows: Indices, counts: list[int], rng: np.random.Generator
    ) -> Iterator[tuple[Indices, Ints]]:
        """Yield items and their clusters, recomputed in each epoch."""
        size, head = run.estimator.batch_size, run.head
        assert isinstance(head, Softmax)
        for count in counts:
            own = rng.spawn(1)[0]
            codes = from_first_rank(partial(self._clusters, run, rows, own))
            # Drawn on the CPU: the same on every device.
            drawn = nn.init.normal_(zeros(head.linear.weight.shape), std=0.01)
            head.linear.weight.data.copy_(drawn)
            nn.init.zeros_(head.linear.bias)
            run.forget_head()
            for batch in balanced_batches(codes, np.ones(len(rows)), size, count, rng):
                yield rows[batch], codes[batch]

    def loss(self, run: UnsupervisedTrainer, batch: tuple[Indices, Ints]) -> Tensor:
        """Compute the cross-entropy of the clusters."""
        rows, codes = batch
        logits = run.head(run.layer(run.views(rows)))
        return functional.cross_entropy(logits, from_numpy(codes).to(logits.device))

    def _clusters(self, run: UnsupervisedTrainer, rows: Indices, rng: np.random.Generator) -> Ints:
        axes = whitened(run.embed("embedding", rows), self.n_axes)
        return clusters(axes, min(self.n_clusters, len(rows)), self.max_iter, rng)


def whitened(embedding: Array, n_axes: int) -> Array:
    """Compute whitened principal components, with rows of unit length.

    Examples
    --------
    >>> whitened(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 2).round(2)
    array([[ 1.,  0.],
           [-1.,  0.],
           [ 0.,  1.],
           [ 0., -1.]])
    """
    from sklearn.decomposition import PCA

    n_axes = min(n_axes, *embedding.shape)
    pca = PCA(n_axes, whiten=True, svd_solver="covariance_eigh")
    return unit_rows(pca.fit_transform(embedding))


def clusters(rows: Array, n_clusters: int, max_iter: int, rng: np.random.Generator) -> Ints:
    """Cluster the rows by k-means, without empty clusters.

    Examples
    --------
    >>> codes = clusters(np.array([[0.0], [0.1], [9.0]]), 2, 20, np.random.default_rng(0))
    >>> bool(codes[0] == codes[1] != codes[2])
    True
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    seed = int(rng.integers(2**31))
    kmeans = KMeans(n_clusters, n_init=1, max_iter=max_iter, random_state=seed)
    # Several threads would sum in an order of their own. Of equal rows, k-means warns: empty
    # clusters are refilled.
    with warnings.catch_warnings(), one_blas_thread(), threadpool_limits(1, "openmp"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        codes = kmeans.fit_predict(rows).astype(np.int64)
    return refilled(codes, n_clusters, rng)


def refilled(codes: Ints, n_clusters: int, rng: np.random.Generator) -> Ints:
    """Give each empty cluster a random half of the largest one.

    Examples
    --------
    >>> codes = refilled(np.array([0, 0, 0, 0, 2]), 3, np.random.default_rng(0))
    >>> np.bincount(codes).tolist()
    [2, 2, 1]
    """
    codes = codes.copy()
    for empty in np.flatnonzero(np.bincount(codes, minlength=n_clusters) == 0):
        members = np.flatnonzero(codes == np.bincount(codes).argmax())
        codes[rng.permutation(members)[: len(members) // 2]] = empty
    return codes
