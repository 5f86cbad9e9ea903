"""The baselines end to end: Algorithm 1 of seed 003 over any of them."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines._estimator import Baseline
from ssdml.baselines.apit import APIT
from ssdml.baselines.apllr import APLLR
from ssdml.baselines.isdml import ISDML
from ssdml.baselines.lrml import LRML
from ssdml.baselines.seraph import SERAPH
from ssdml.deep_estimator import DeepEstimator
from ssdml.utils.typing import Array

if TYPE_CHECKING:
    from ssdml.baselines._deep_run import BaselineRun


METHODS: dict[str, type[Baseline]] = {
    "lrml": LRML,
    "seraph": SERAPH,
    "isdml": ISDML,
    "apllr": APLLR,
    "apit": APIT,
}


class DeepBaseline(DeepEstimator):
    """A baseline's metric and a network, learned in turn.

    Partition after partition: the method learns its metric from the network's unit features, then
    the network learns by the same objective, the metric fixed, on mini-batches.

    Parameters
    ----------
    method : {"lrml", "seraph", "isdml", "apllr", "apit"}
    backbone : {"mnist", "cifar", "wide-resnet"} or Module
        Seed 003's networks, or :class:`ssdml.wide_resnet.WideResNet` for images of any size, or any
        that makes (n, d) features of a batch; it is copied.
    n_components : int or None
        Rows of the metric's factor; None: d, for the methods' matrices are full.
    method_params : dict or None
        Parameters of the method, beside its own defaults.
    decay : float
        How far labels reach along the last graph, between 0 and 1, for ``transduction_``.
    pretrain_epochs : int
        Passes over the labelled items by softmax, before anything else.
    partition_size : int or None
        Unlabelled items of a partition; None: all.
    epochs, epochs_per_partition : int
        Passes over partitions, and over each of them; the last partition has what is left.
    batch_size : int
        Items of a step: a third labelled, the rest in pairs of neighbours.
    learning_rate, weight_decay : float
        Of SGD with momentum 0.9.
    mixed_precision : bool or "auto"
        As that of :class:`ssdml.DeepSSDML`, but in float32 unless it is asked for.
    checkpoint_dir : path or None
        Where each partition leaves a checkpoint; see :class:`ssdml.DeepSSDML`.
    device : str
        "auto" is a GPU where torch finds one.
    n_jobs : int or None
        Threads of the method.
    random_state : int, RandomState or None
    verbose : int
        From 1 on a progress bar is drawn, if standard error is a terminal.

    Attributes
    ----------
    network_ : Module
        Calling it gives the embedding, of unit length.
    components_ : ndarray of shape (n_components, d)
    classes_, transduction_, label_distributions_, history_, stage_seconds_
        As those of :class:`ssdml.DeepSSDML`.

    Warns
    -----
    UserWarning, ConvergenceWarning
        As the method does, of the labels and of its steps on a partition.

    Notes
    -----
    The seed says that batches are drawn from the partition, and no more; a third of labelled items
    and pairs of neighbours are ours, as a batch drawn evenly would hold hardly any labelled pair or
    edge. So is a metric learned once a partition, for its closed form wants the partition's graph.
    But for SERAPH, whose threshold says how long a distance is, it is scaled to trace d, so that a
    rate means the same to all. That rate is ours too: at seed 003's 10⁻⁴ networks learn the few
    labelled items by heart (of held-out training images of MNIST, LRML's NMI falls to 21, and at
    10⁻⁵ rises to 57), and ISDML's, unscaled, end in zeros.
    The embedding is scaled to unit length, where the seed says nothing, and the last network is
    kept: the seed's choice of the best wants the labels of 15 % of the items. Items of which the
    network makes zeros alone stay in the partition's graph.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
    >>> _ = torch.manual_seed(0)
    >>> head = torch.nn.Linear(64, 32)
    >>> model = DeepBaseline("lrml", head, 16, epochs=2, random_state=0)
    >>> model.fit(X / 16, labels).transform(X / 16).shape
    (1797, 16)
    """

    _parameter_constraints: dict[str, list[Any]] = DeepEstimator._parameter_constraints | {
        "method": [StrOptions(set(METHODS))],
        "method_params": [dict, None],
        "batch_size": [Interval(Integral, 4, None, closed="left")],
    }

    # What other runs leave open: no early stop, and L is learned apart.
    tol, orthogonal = 0.0, True

    def __init__(
        self,
        method: str = "lrml",
        backbone: Any = "mnist",
        n_components: int | None = None,
        *,
        method_params: dict[str, Any] | None = None,
        decay: float = 0.99,
        pretrain_epochs: int = 0,
        partition_size: int | None = 9000,
        epochs: int = 50,
        epochs_per_partition: int = 10,
        batch_size: int = 100,
        learning_rate: float = 1e-5,
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
        self.decay = decay
        self.pretrain_epochs = pretrain_epochs
        self.partition_size = partition_size
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
    def n_neighbors(self) -> int:
        """Of the method's graph, and of the last."""
        return self._new_method().n_neighbors

    @property
    def method_defaults(self) -> dict[str, Any]:
        """What may stand in ``method_params``, with the values that it has otherwise."""
        return METHODS[self.method]().get_params()

    def _new_method(self) -> Baseline:
        method = METHODS[self.method](n_jobs=self.n_jobs)
        method.set_params(**(self.method_params or {}))
        method._validate_params()
        return method

    def _new_run(
        self, items: Any, labels: Array, network: Any, seed: int, device: str
    ) -> BaselineRun:
        from ssdml.baselines._deep_run import BaselineRun

        return BaselineRun(items, labels, network, self._new_method(), self, seed, device)
