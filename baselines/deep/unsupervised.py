"""DeepUnsupervised: the unsupervised baselines of Dutta et al. (2021)."""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from ssdml.baselines.deep.base import DeepMethod
from ssdml.baselines.deep.deepcluster import DeepCluster
from ssdml.baselines.deep.exemplar import Exemplar
from ssdml.baselines.deep.instance import InstanceDiscrimination
from ssdml.baselines.deep.recipe import Recipe, UnsupervisedTrainer
from ssdml.baselines.deep.rotnet import RotNet
from ssdml.baselines.deep.suml import SUML
from ssdml.metric.fitted.base import COUNT, POSITIVE
from ssdml.networks.augmentation import strong_and_weak
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

METHODS: dict[str, type[Recipe]] = {
    "exemplar": Exemplar,
    "rotnet": RotNet,
    "nce": InstanceDiscrimination,
    "deepcluster": DeepCluster,
    "suml": SUML,
}


@dataclass(eq=False, repr=False)
class DeepUnsupervised(DeepMethod):
    """Learn a network without labels; propagate labels over its last graph only.

    Parameters
    ----------
    method : {"exemplar", "rotnet", "nce", "deepcluster", "suml"}
        See :class:`~ssdml.baselines.deep.exemplar.Exemplar`,
        :class:`~ssdml.baselines.deep.rotnet.RotNet`,
        :class:`~ssdml.baselines.deep.instance.InstanceDiscrimination`,
        :class:`~ssdml.baselines.deep.deepcluster.DeepCluster` and
        :class:`~ssdml.baselines.deep.suml.SUML`.
    n_components : int or None
        Columns of L, the last layer, orthonormal at the start only; None: d. SUML learns L apart.
    method_params : dict or None
        Parameters of the method that differ from its defaults.
    augment : "auto", None or callable
        Augmentation, ``augment(items, generator)``. "auto": the method's own, or that of
        :class:`ssdml.DeepSSDML`.
    n_neighbors : int
        Of the last graph, over which the labels are propagated for ``transduction_``.
    epochs, epochs_per_partition : int
        Passes over all samples, and from one checkpoint to the next.
    learning_rate : float or None
        Of SGD with momentum 0.9, dropped as the method says. None: 0.03, or 0.003 for "nce", whose
        embedding collapses at higher rates.
    backbone, decay, batch_size, ...
        See :class:`~ssdml.baselines.deep.base.DeepMethod`.

    Attributes
    ----------
    network_, components_, ...
        See :class:`~ssdml.baselines.deep.base.DeepMethod`. Without labels ``classes_`` is empty and
        ``transduction_`` is -1.

    Notes
    -----
    Heads take the output of L, before it is scaled to unit length; softmax standardizes its
    columns. This and the learning rates are ours: the published ones, 0.1 for RotNet and NCE and
    0.05 for DeepCluster, belong to networks with batch normalization. The 50 epochs and the weight
    decay are those of the other baselines.

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

    method: str = "nce"
    backbone: Any = "mnist"
    n_components: int | None = 64
    _: KW_ONLY
    method_params: dict[str, Any] | None = None
    augment: Any = "auto"
    n_neighbors: int = 10
    batch_size: int = 128
    learning_rate: float | None = None

    _parameter_constraints = DeepMethod._parameter_constraints | {
        "method": [StrOptions(set(METHODS))],
        "method_params": [dict, None],
        "augment": [StrOptions({"auto"}), callable, None],
        "n_neighbors": COUNT,
        "learning_rate": [*POSITIVE, None],
    }
    tol, partition_size, pretrain_epochs = 0.0, None, 0  # no early stopping, all items, no labels

    @property
    def orthogonal(self) -> bool:  # type: ignore[override]
        """Whether L is learned apart from the network."""
        return METHODS[self.method].learns_metric

    @property
    def method_defaults(self) -> dict[str, Any]:
        """Defaults of the entries of ``method_params``."""
        return METHODS[self.method]().get_params()

    def _labels(self, y: Any, n_samples: int) -> Array:
        """Read labels, which may be missing."""
        if y is None:
            return np.full(n_samples, UNLABELED)
        return self._read_labels(y, n_samples)

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
        estimator = copy(self)
        estimator.learning_rate = self.learning_rate or recipe.learning_rate
        return UnsupervisedTrainer(items, labels, network, recipe, views, estimator, seed, device)
