"""The unsupervised baselines of seed 003: a network learned without any label."""

from __future__ import annotations

from copy import copy
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines.deep.deepcluster import DeepCluster
from ssdml.baselines.deep.exemplar import Exemplar
from ssdml.baselines.deep.instance import InstanceDiscrimination
from ssdml.baselines.deep.recipe import Recipe, UnsupervisedTrainer
from ssdml.baselines.deep.rotnet import RotNet
from ssdml.baselines.deep.suml import SUML
from ssdml.deep.base import DeepEstimator
from ssdml.networks.augmentation import strong_and_weak
from ssdml.utils.labels import read_labels
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

METHODS: dict[str, type[Recipe]] = {
    "exemplar": Exemplar,
    "rotnet": RotNet,
    "nce": InstanceDiscrimination,
    "deepcluster": DeepCluster,
    "suml": SUML,
}


class DeepUnsupervised(DeepEstimator):
    """A network learned without labels, which are carried along its last graph alone.

    Parameters
    ----------
    method : {"exemplar", "rotnet", "nce", "deepcluster", "suml"}
        See the classes :class:`~ssdml.baselines.deep.exemplar.Exemplar`,
        :class:`~ssdml.baselines.deep.rotnet.RotNet`,
        :class:`~ssdml.baselines.deep.instance.InstanceDiscrimination`,
        :class:`~ssdml.baselines.deep.deepcluster.DeepCluster` and :class:`~ssdml.baselines.deep.suml.SUML`.
    backbone : {"mnist", "cifar", "wide-resnet"} or Module
        Seed 003's networks, or :class:`ssdml.networks.wide_resnet.WideResNet` for images of any size, or any
        that makes (n, d) features of a batch; it is copied.
    n_components : int or None
        Columns of L, at most d; None: d. It is the last layer, orthonormal at the start alone.
        SUML learns it apart.
    method_params : dict or None
        Parameters of the method, beside its own defaults.
    augment : "auto", None or callable
        Views of a batch, ``augment(items, generator)``. "auto": the method's own, or those of
        :class:`ssdml.DeepSSDML`.
    n_neighbors, decay : int, float
        Of the last graph, along which labels are carried, for ``transduction_``.
    epochs, epochs_per_partition : int
        Passes over all items, and from one checkpoint to the next.
    batch_size : int
    learning_rate : float or None
        Of SGD with momentum 0.9; it falls where the method's recipe says so. None: 0.03, of NCE
        0.003, beyond which its embedding collapses.
    weight_decay : float
    mixed_precision : bool or "auto"
        As that of :class:`ssdml.DeepSSDML`, but in float32 unless it is asked for.
    checkpoint_dir, device, n_jobs, random_state, verbose
        As those of :class:`ssdml.DeepSSDML`.

    Attributes
    ----------
    network_, components_, classes_, transduction_, label_distributions_, history_, stage_seconds_
        As those of :class:`ssdml.DeepSSDML`. Without labels there are no classes, and
        ``transduction_`` is -1.

    Notes
    -----
    Heads stand on L's output, which is the embedding but for its length; softmax sees its columns
    at mean 0 and variance 1. This and the rates are ours: the published ones, 0.1 for RotNet and
    NCE and 0.05 for DeepCluster, are those of networks with batch normalization. So are 50 epochs
    and the weight decay, as other baselines have them.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, Table 3.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> X, _ = load_digits(return_X_y=True)
    >>> _ = torch.manual_seed(0)
    >>> model = DeepUnsupervised("nce", torch.nn.Linear(64, 32), 16, epochs=2, random_state=0)
    >>> model.fit(X / 16).transform(X / 16).shape
    (1797, 16)
    """

    _parameter_constraints: dict[str, list[Any]] = DeepEstimator._parameter_constraints | {
        "method": [StrOptions(set(METHODS))],
        "method_params": [dict, None],
        "augment": [StrOptions({"auto"}), callable, None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
    }

    # What other runs leave open: no early stop, every item, no label before.
    tol, partition_size, pretrain_epochs = 0.0, None, 0

    def __init__(
        self,
        method: str = "nce",
        backbone: Any = "mnist",
        n_components: int | None = 64,
        *,
        method_params: dict[str, Any] | None = None,
        augment: Any = "auto",
        n_neighbors: int = 10,
        decay: float = 0.99,
        epochs: int = 50,
        epochs_per_partition: int = 10,
        batch_size: int = 128,
        learning_rate: float | None = None,
        weight_decay: float = 5e-4,
        mixed_precision: bool | str = False,
        checkpoint_dir: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.n_components = n_components
        self.method_params = method_params
        self.augment = augment
        self.n_neighbors = n_neighbors
        self.decay = decay
        self.epochs = epochs
        self.epochs_per_partition = epochs_per_partition
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.mixed_precision = mixed_precision
        self.checkpoint_dir = checkpoint_dir
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def orthogonal(self) -> bool:  # type: ignore[override]
        """Whether L is no layer."""
        return METHODS[self.method].learns_metric

    @property
    def method_defaults(self) -> dict[str, Any]:
        """What may stand in ``method_params``, with the values that it has otherwise."""
        return METHODS[self.method]().get_params()

    def _labels(self, y: Any, n_samples: int) -> Array:
        """None are needed."""
        if y is None:
            return np.full(n_samples, UNLABELED)
        return read_labels(y, n_samples, type(self).__name__)

    def _new_recipe(self) -> Recipe:
        recipe = METHODS[self.method]()
        recipe.set_params(**(self.method_params or {}))
        recipe._validate_params()
        return recipe

    def _new_trainer(
        self, items: Any, labels: Array, network: Any, seed: int, device: str
    ) -> UnsupervisedTrainer:
        recipe = self._new_recipe()
        recipe.check(items.shape)
        views = recipe.default_views(items.shape) if self.augment == "auto" else self.augment
        views, _ = strong_and_weak(views, items.shape)
        settings: Any = copy(self)
        settings.learning_rate = self.learning_rate or recipe.learning_rate
        return UnsupervisedTrainer(items, labels, network, recipe, views, settings, seed, device)
