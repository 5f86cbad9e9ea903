"""SSDML: a metric from many rows and a handful of labels."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import validate_data

from ssdml.graphs.neighbors.knn import knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.metric.alternation import alternate, count_rounds, learn_by_partitions
from ssdml.metric.base import embed
from ssdml.metric.out_of_core import fewest_rows, learn_from_partitions
from ssdml.metric.prediction import InductiveMetric, neighbors_among
from ssdml.metric.state import Learned, State
from ssdml.utils.dask_arrays import check_dask_array, check_known_chunks, of_dask
from ssdml.utils.labels import read_labels
from ssdml.utils.linalg import graph_rows
from ssdml.utils.progress import CallbackSupportMixin, Stages, with_callbacks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED


class SSDML(InductiveMetric, CallbackSupportMixin, BaseEstimator):
    """Metric learned from many rows and a handful of labels.

    A kNN graph carries the labels to the unlabeled rows, the graph and the classes mine
    triplets, and an orthonormal L is learned from them on features in which classes are compact.
    The input is kept beside what is learned, and a metric that it finds worse than the input is
    never returned.

    Parameters
    ----------
    n_components : int or None
        Columns of the embedding. None: as many as features. A smaller number keeps distances
        between the training rows as well as any linear map of the embedding can.
    n_neighbors : int
        Neighbors of each row in the graph; at least 2 with ``mining="neighborhood"``.
    decay : float
        How far labels reach along the graph, between 0 and 1.
    propagation : {"two-sided", "one-sided"}
        Whether the affinities that triplets are mined from reach pairs of unlabeled rows, or only
        pairs with a labeled row (seed).
    mining : {"propagated", "neighborhood"}
        Where triplets come from; see :func:`ssdml.graphs.mine_triplets`.
    input_weight : float or "auto"
        Weight of the input beside what is learned; 0 drops it, and with it all columns but those of
        L (one less than classes; 64 under a backbone). "auto": see
        :func:`ssdml.metric.selection.choose_input_weight`.
    angle : float
        Of the angular objective, in degrees.
    backbone : None or "residual"
        Features that L is learned on. None: linear ones, in which the scatter within classes is
        the identity. "residual": the input bent by a hidden layer, trained in turn with the graph,
        the propagated labels and L.
    max_rounds : int or None
        Turns of the alternation; the first leaves some rows out, which judge it. None: 3 with a
        backbone, 2 without (nothing changes after them), or one partition after another, 5 at
        most. Of a dask array 2 at most.
    guard : bool
        Whether to return the input, with a warning, where the learned metric is worse on the
        graph or on the labeled rows.
    partition_size : int or None
        Seed 003's way: L alone is learned, on the rows as they are, on one random partition of so
        many unlabeled rows after another. None: all rows at once, as described above.
    device : str
        Of the backbone: "auto" is a GPU where torch finds one.
    n_jobs : int or None
        Threads of the neighbor search and of the propagation. The result does not depend on it.
    random_state : int, RandomState or None
    verbose : int
        From 1 on a progress bar is drawn, if standard error is a terminal.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        With a backbone its columns belong to ``representation_(X)``.
    representation_ : None or callable
        What the components are applied to: with a backbone, the embedding and the input side by
        side.
    classes_ : ndarray of shape (n_classes,)
    transduction_ : ndarray of shape (n_samples,)
        Class of each training row.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        As the graph gave them, which is softer than they are right.
    transduction_confidence_ : ndarray of shape (n_samples,)
        How often ``transduction_`` is right where the graph is as sure as there.
    confidence_powers_ : tuple of two floats
        That calibrate the distributions of these rows, and those of new ones.
    input_weight_ : float
        Weight of the input that was used; infinite where the guard returned the input.
    triplets_ : Triplets
        The last that were mined.
    embedding_ : ndarray of shape (n_references, n_components)
        Of the rows that :meth:`predict` compares new ones with.
    reference_rows_ : None or ndarray of shape (n_references,)
        Their numbers; None: all rows. Of a dask array, the labeled rows and at most 15,000 random
        ones, which judged the metric.
    history_ : list of dict
        A round each: triplets, objective before and after, steps; of the first, how the weight of
        the input was chosen; under a backbone, its last loss and the share of rows that changed
        class. Of a dask array, a partition each: its rows (first, and one past the last),
        triplets, how many rows no label reaches, recall of its graph; the rest as above.
    stage_seconds_ : dict of str to float
        Time of each stage of the fit; see :func:`ssdml.model_selection.plan_fit`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where the columns of X have names.

    Notes
    -----
    Time: the neighbor search, O(n k C) a step of the propagation, O(n d²) for the scatter and
    O(T l + n d l) a step of the manifold search for T triplets. Memory: O(n d + n k + n C).

    Departures from [1]_, all undone by :meth:`paper`: labels are propagated to pairs of unlabeled
    rows as well; triplets come from the classes so found; L is orthonormal after whitening by the
    scatter within classes, and starts at the discriminants; the input is kept beside.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.full(len(y), -1)
    >>> labels[:50] = y[:50]
    >>> model = SSDML(random_state=0).fit(X / 16, labels)
    >>> Z = model.transform(X / 16)
    >>> bool((model.transduction_ == y).mean() > 0.9)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "decay": [Interval(Real, 0, 1, closed="neither")],
        "propagation": [StrOptions({"two-sided", "one-sided"})],
        "mining": [StrOptions({"propagated", "neighborhood"})],
        "input_weight": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "angle": [Interval(Real, 0, 90, closed="neither")],
        "backbone": [Options(str, {"residual"}), None],
        "max_rounds": [Interval(Integral, 1, None, closed="left"), None],
        "guard": ["boolean"],
        "partition_size": [Interval(Integral, 1, None, closed="left"), None],
        "device": [str],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 10,
        decay: float = 0.99,
        propagation: str = "two-sided",
        mining: str = "propagated",
        input_weight: float | str = "auto",
        angle: float = 40.0,
        backbone: str | None = None,
        max_rounds: int | None = None,
        guard: bool = True,
        partition_size: int | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.decay = decay
        self.propagation = propagation
        self.mining = mining
        self.input_weight = input_weight
        self.angle = angle
        self.backbone = backbone
        self.max_rounds = max_rounds
        self.guard = guard
        self.partition_size = partition_size
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, n_components: int | None = None, **params: Any) -> Self:
        """Seed 003 to the letter: one-sided affinities, neighborhood triplets, no guard.

        L starts at random and is learned on partitions of 9,000 unlabeled rows, 10 steps of
        conjugate gradients each. ``n_components`` None: half the features, as in the seed's
        networks. The seed's rows have unit length: scale X first, by ``Normalizer``. Where
        features do not change, a mini-batch has nothing to wait for, so the triplets of a
        partition are one batch.
        """
        literal: dict[str, Any] = {
            "propagation": "one-sided",
            "mining": "neighborhood",
            "input_weight": 0.0,
            "guard": False,
            "partition_size": 9000,
        }
        return cls(n_components, **(literal | params))

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            float32 or float64; other numbers are converted to float64. The rows of a dask array
            may be more than memory holds; see Notes.
        y : array of shape (n_samples,), int
            -1 where unlabeled; :func:`ssdml.datasets.encode_partial_labels` makes such labels
            from names.

        Returns
        -------
        self : SSDML

        Notes
        -----
        Of a dask array, consecutive chunks are merged into partitions of up to 50,000 rows, or
        half a GB in float32 if that is less. No chunk is split: larger ones make larger partitions
        (``X.rechunk({0: 200_000})``). Each partition, with the labeled rows of all others below
        its own, has a graph that carries the labels and mines its share of the triplets. Pooled
        are the moments of the classes, the triplets with the rows at their ends, and the rows that
        judge; from these L is learned where fit was called. One partition comes to the metric that
        the same rows in memory do, but for rounding.

        The tasks run on the scheduler that dask is set to: threads, processes, a cluster's
        ``distributed.Client``. What a partition draws depends on ``random_state`` and its number,
        so neither the scheduler nor the loss of a worker changes the result. X is read twice, first
        where it holds labeled rows; ``X.persist()`` spares the second time if a cluster has room.

        A worker holds the rows of its partition three times at the most, beside their graph. Where
        fit was called are O(n C) numbers, y and what it became (``transduction_`` and
        ``label_distributions_`` are NumPy arrays, in row order), the labeled rows, and at most
        325,000 others.

        ``backbone`` and ``partition_size`` must be None.

        References
        ----------
        .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
           AAAI 2021: partitions of unlabeled rows, each with all the labeled ones. Their
           metrics come one after another there; that their triplets are pooled is ours.
        """
        if hasattr(self, "components_"):  # a fit that is cut short leaves nothing fitted
            del self.components_
        in_chunks = of_dask(X)
        X, labels, fewest = (self._validated_chunks if in_chunks else self._validated)(X, y)
        rounds = count_rounds(self, int((labels == UNLABELED).sum()))
        k = neighbors_among(self.n_neighbors, fewest, type(self).__name__, stacklevel=5)
        plan = (labels, k, rounds)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        stages = Stages(self, 2 + plan[-1], verbose=self.verbose)
        with stages.all(X, y):
            rows, numbers = X, None  # that new rows are compared with
            if in_chunks:
                learned, numbers, rows = learn_from_partitions(X, *plan, self, seed, stages)
            else:
                learned = self._learn(X, *plan, seed, stages)
            self.reference_rows_ = numbers
            self._keep(rows, labels, learned)
        self.stage_seconds_ = stages.seconds
        return self

    def _learn(
        self, X: Array, labels: Ints, n_neighbors: int, rounds: int, seed: int, stages: Stages
    ) -> Learned:
        rng = np.random.default_rng(seed)
        with stages("neighbors") as show:
            graph = knn_graph(
                graph_rows(X), n_neighbors, n_jobs=self.n_jobs, random_state=rng, progress=show
            )
        with stages("labels"):
            distributions = propagate_labels(graph, labels, decay=self.decay, n_jobs=self.n_jobs)
        learn = alternate if self.partition_size is None else learn_by_partitions
        return learn(State(X, labels, graph, distributions), rounds, self, rng, stages)

    def _validated(self, X: Any, y: Any) -> tuple[Array, Ints, int]:
        X, labels = self._training_rows(X, y, "Label some rows.")
        if (X[-1] == X[0]).all() and (X == X[0]).all():  # all are read where the last is the first
            warnings.warn(
                f"{type(self).__name__}: X must have rows that differ; got {len(X)} equal ones. "
                "Nothing can be learned from them: look at how X was made.",
                stacklevel=5,
            )
        self._check_parameters(*X.shape)
        return X, labels, len(X)

    def _validated_chunks(self, X: Any, y: Any) -> tuple[Any, Ints, int]:
        """The dask array as it is, labels, and the rows of the smallest partition."""
        name = type(self).__name__
        check_dask_array(X, name)
        check_known_chunks(X, name)
        for parameter in ("backbone", "partition_size"):
            if getattr(self, parameter) is not None:
                raise ValueError(
                    f"{name}: {parameter} must be None with a dask array; got "
                    f"{getattr(self, parameter)!r}. Leave it out, or fit rows that memory holds: "
                    "X[:n].compute()."
                )
        if X.shape[0] < 2 or X.shape[1] < 1:
            raise ValueError(
                f"{name}: X must have at least 2 rows and 1 column; got shape {X.shape}."
            )
        validate_data(self, X, skip_check_array=True)
        labels = read_labels(y.compute() if of_dask(y) else y, len(X), name, "Label some rows.")
        fewest = fewest_rows(X.chunks[0], X.shape[1], labels)
        self._check_parameters(fewest, X.shape[1])
        return X, labels, fewest

    def _check_parameters(self, n_samples: int, n_features: int) -> None:
        name = type(self).__name__
        if self.mining == "neighborhood" and min(self.n_neighbors, n_samples - 1) < 2:
            raise ValueError(
                f"{name}: n_neighbors must be at least 2, among at least 3 rows, with "
                f"mining='neighborhood'; got {self.n_neighbors} among {n_samples} rows. "
                "Raise it, or pass mining='propagated'."
            )
        if self.partition_size is not None and self.backbone is not None:
            raise ValueError(
                f"{name}: backbone must be None with partition_size, which learns L alone; "
                f"got {self.backbone!r}. Leave one of them out."
            )
        self._check_n_components(n_features)

    def _keep(self, X: Array, labels: Ints, learned: Learned) -> None:
        if learned.complaint:
            warnings.warn(
                f"{type(self).__name__}: returns the input as it is, for {learned.complaint}",
                stacklevel=5,
            )
        self.representation_ = learned.representation
        self.input_weight_ = learned.input_weight
        self.triplets_ = learned.triplets
        self.history_ = list(learned.history)
        self.classes_ = np.unique(labels[labels != UNLABELED])
        self.label_distributions_ = learned.distributions.astype(X.dtype, copy=False)
        self.transduction_ = self.classes_[learned.distributions.argmax(axis=1)]
        components = learned.components.astype(X.dtype)
        self.embedding_ = embed(X, components, learned.representation)
        self._calibrate(learned.edges, labels, self.decay)
        self.components_ = components  # last: with it the model counts as fitted


def check_is_ssdml(estimator: Any, who: str) -> None:
    """Raise unless ``estimator`` is an instance of SSDML."""
    if not isinstance(estimator, SSDML):
        given = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
        kind = "the class " * isinstance(estimator, type) + given
        raise TypeError(f"{who}: estimator must be an SSDML(...) instance; got {kind}.")


def validate_fit(estimator: SSDML, X: Any, y: Any) -> tuple[Array, Ints]:
    """Validate the parameters, rows and labels of a fit in memory; return rows and labels."""
    estimator._validate_params()
    return estimator._validated(X, y)[:2]
