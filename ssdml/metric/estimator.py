"""SSDML: semi-supervised metric learning."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import validate_data

from ssdml.classification.forms import forms_with_graphs
from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph, limit_neighbors
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.metric.alternation import (
    ONE_CLASS,
    Classes,
    alternate,
    combine,
    count_rounds,
    input_weight,
    learn_by_partitions,
    learn_classes,
    rescaled,
)
from ssdml.metric.fitted.base import ANGLE, COUNT, DECAY, N_JOBS, NOT_NEGATIVE
from ssdml.metric.fitted.kept import Kept, kept_pool
from ssdml.metric.fitted.novelty import NoveltyMixin
from ssdml.metric.fitted.relabeling import RelabelingMixin
from ssdml.metric.out_of_core import learn_out_of_core, smallest_partition
from ssdml.metric.selection import fall_back, input_alone, labeled_rows
from ssdml.metric.state import Classified, Learned, State
from ssdml.utils.dask_arrays import check_dask_array, check_known_chunks, is_dask
from ssdml.utils.labels import index_of
from ssdml.utils.linalg import graph_rows
from ssdml.utils.progress import CallbackSupportMixin, Stages, with_callbacks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, warn


@dataclass(eq=False, repr=False)
class SSDML(RelabelingMixin, NoveltyMixin, CallbackSupportMixin, BaseEstimator):
    """Semi-supervised metric learning from many samples and a handful of labels.

    Classifiers of the labeled samples and a kNN graph of all samples predict the unlabeled ones.
    From triplets of these classes, a map L with orthonormal columns is learned on whitened
    features. The embedding concatenates the class probabilities of a sample, its image under L and
    its input.

    Parameters
    ----------
    n_components : int or None
        Columns of the embedding; None: at most ``max(n_features, 64)``. A smaller number
        preserves the distances between training samples as well as a linear map can.
    n_neighbors : int
        Neighbors in the graph; at least 2 with ``mining="neighborhood"``.
    propagation : {"two-sided", "one-sided"}
        "two-sided": classes by classifiers and graph, and affinities between all samples.
        "one-sided": classes by propagated labels alone, and affinities that depend on
        the labels only in pairs with a labeled sample [1]_.
    decay : float
        With one-sided propagation: between 0 and 1, the closer to 1, the farther labels propagate.
        With two-sided propagation, held-out labels decide.
    mining : {"propagated", "neighborhood"}
        Source of the triplets; see :func:`ssdml.graphs.mine_triplets`.
    input_weight : float or "auto"
        Weight of the input relative to class probabilities and learned metric. "auto": from 0.8
        to 1.2, and more if held-out labels are predicted poorly; see
        :func:`ssdml.metric.selection.balanced_weight`. 0: the columns of L alone, one fewer
        than classes, a linear map of the input.
    angle : float
        Angle of the angular objective, in degrees.
    max_rounds : int or None
        Rounds of learning classes and metric; from the second on, classes also propagate on the
        graph of the embedding. None: 2, or 1 beyond 70,000 samples or with one-sided propagation;
        with ``partition_size``, the number of partitions, at most 5. A fit of a dask array has 1.
    guard : bool
        Whether to fall back to the input, with a warning, if the learned metric is worse on
        held-out labels.
    partition_size : int or None
        Unlabeled samples per random partition: learn L on one partition after another, as [1]_
        does. None: on all samples at once.
    n_jobs : int or None
        Threads of neighbor search and propagation; the result does not depend on it.
    random_state : int, RandomState or None
        Draws follow the order of the rows and of the sorted classes: with new names in another
        order, the same seed gives other draws.
    verbose : int
        1 or more: draw a progress bar if standard error is a terminal.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        With a ``representation_``, of shape (n_components, n_classes + n_features).
    representation_ : None or callable
        Maps samples to the roots of their class probabilities and the input, concatenated. None
        after a fallback, with ``input_weight=0`` and without a ``classifier_``.
    classes_ : ndarray of shape (n_classes,)
        Sorted distinct labels, of the kind passed to :meth:`fit`.
    transduction_ : ndarray of shape (n_samples,)
        Class of each training sample.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Class probabilities of the training samples; labeled ones have their label, unless
        one-sided propagation outvotes it.
    transduction_confidence_ : ndarray of shape (n_samples,)
        Confidence in ``transduction_``.
    labeled_rows_ : ndarray of shape (n_labeled,)
        Training samples with a label.
    classifier_ : ssdml.classification.new_rows.ClassInterpolator or None
        Class probabilities of new samples; None with one-sided propagation, with
        ``partition_size``, and if only one class is found.
    held_out_ : ssdml.classification.learning.HeldOut or None
        Labeled samples with the class probabilities that the other labels give them.
    input_weight_ : float
        Weight of the input; infinite after a fallback to the input.
    triplets_ : Triplets
        Of the last round.
    embedding_ : ndarray of shape (n_references, n_components)
        Of the training samples, or of ``reference_rows_``.
    reference_rows_ : None or ndarray of shape (n_references,)
        Rows that ``classifier_`` keeps; None: all. After a fit of a dask array, the labeled rows
        and at most 15,000 random ones.
    history_ : list of dict
        Per round: triplets, objective before and after, steps, and the share of samples that
        changed class. Of a dask array, per partition: its rows (first, and one past the last),
        triplets, recall of its graph.
    stage_seconds_ : dict of str to float
        Time of each stage; :func:`ssdml.model_selection.plan_fit` predicts it.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If the columns of X have names.

    See Also
    --------
    ssdml.model_selection.suggest_parameters : Choose parameters from the given labels.

    Notes
    -----
    Classes: the classifiers are softmax regressions of the labeled samples, on features as given
    and smoothed over the graph, propagated labels and, for up to 100 columns, randomized trees and
    class means that k-means moves. They are stacked on held-out labels. Their calibrated evidence Q
    and the labels Y propagate together, ``(I - γ S) F = Y + μ Q``. They reach farther if the graph
    predicts held-out labels well. Class masses follow the shares of the labels, or an estimate if
    the labels do not follow the class proportions. See "Mathematics" in the documentation.

    Time: the neighbor search, O(n k C) per step of the propagation, O(n d²) for the scatter and
    O(T l + n d l) per step of the manifold search for T triplets. Memory: O(n d + n k + n C).

    Departures from [1]_, all undone by :meth:`paper`: classifiers take part; labels reach pairs of
    unlabeled samples as well; triplets come from the classes; L is orthonormal after whitening by
    the within-class scatter, and starts at the discriminants; class probabilities and input are
    kept.

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

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: int = 10
    decay: float = 0.99
    propagation: str = "two-sided"
    mining: str = "propagated"
    input_weight: float | str = "auto"
    angle: float = 40.0
    max_rounds: int | None = None
    guard: bool = True
    partition_size: int | None = None
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [*COUNT, None],
        "n_neighbors": COUNT,
        "decay": DECAY,
        "propagation": [StrOptions({"two-sided", "one-sided"})],
        "mining": [StrOptions({"propagated", "neighborhood"})],
        "input_weight": [*NOT_NEGATIVE, StrOptions({"auto"})],
        "angle": ANGLE,
        "max_rounds": [*COUNT, None],
        "guard": ["boolean"],
        "partition_size": [*COUNT, None],
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @classmethod
    def paper(cls, n_components: int | None = None, **params: Any) -> Self:
        """The method of Dutta et al. (2021) on fixed features.

        One-sided affinities, neighborhood triplets, no fallback to the input. L starts at random
        and is learned on partitions of 9,000 unlabeled samples, with 10 steps of conjugate
        gradients on all triplets of each (in the paper, with a network, on batches of 100);
        ``n_components`` None is half the features. Classes, which the paper does not predict, are
        propagated labels. The paper's samples have unit length: apply ``Normalizer`` first.
        """
        published: dict[str, Any] = {
            "propagation": "one-sided",
            "mining": "neighborhood",
            "input_weight": 0.0,
            "guard": False,
            "partition_size": 9000,
        }
        return cls(n_components, **(published | params))

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            float32 or float64; other numbers are converted to float64. A dask array may be larger
            than memory; see Notes.
        y : array-like of shape (n_samples,)
            Integers, -1 where unlabeled; or names or booleans, with None, NaN or another mark of
            :func:`ssdml.datasets.encode_partial_labels` where unlabeled.

        Returns
        -------
        self : SSDML

        Notes
        -----
        The chunks of a dask array are merged into partitions of up to 50,000 rows, or half a GB in
        float32 if that is less. Chunks are not split: larger ones (``X.rechunk({0: 200_000})``)
        make larger partitions. Each partition gets all labeled rows, builds its own graph, predicts
        the classes and mines its share of the triplets. Class moments, triplets with their rows,
        and reference rows are pooled, and L is learned in this process, in one round. A single
        partition of up to 15,000 rows gives the same metric as a fit in memory with
        ``max_rounds=1``, up to rounding. ``partition_size`` must be None.

        Tasks run on dask's current scheduler: threads, processes or a ``distributed.Client``.
        Random draws of a partition depend on ``random_state`` and its number, so neither the
        scheduler nor a lost worker changes the result. X is read twice, first only the chunks with
        labeled rows; ``X.persist()`` saves the second pass if the cluster has room.

        A worker needs memory for three copies of its rows, and their graph; this process for O(n C)
        numbers (``transduction_`` and ``label_distributions_`` are NumPy arrays), the labeled
        rows, and at most 325,000 others.

        References
        ----------
        .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
           AAAI 2021, trains on such partitions one after another; pooling their triplets is ours.
        """
        self._forget()
        self._kept, self._index = None, index_of(X)
        X, labels, fewest = self._validate_fit(X, y)
        rounds = count_rounds(self, len(labels), int((labels == UNLABELED).sum()))
        k = limit_neighbors(self.n_neighbors, fewest, type(self).__name__)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        stages = Stages(self, 3 + rounds, verbose=self.verbose)
        # Exponentials of far rows are 0, whatever the caller has set.
        with np.errstate(under="ignore"), stages.all(X, y):
            if is_dask(X):
                learned, numbers, rows = learn_out_of_core(X, labels, k, self, seed, stages)
            else:
                learned, numbers, rows = self._learn(X, labels, k, rounds, seed, stages), None, X
                if self._kept is not None:
                    self._kept = self._kept._replace(nearer=learned.nearer)
            self.reference_rows_ = numbers
            self._keep(rows, labels, learned)
        self.stage_seconds_ = stages.seconds
        return self

    def _learn(
        self, X: Array, labels: Ints, n_neighbors: int, rounds: int, seed: int, stages: Stages
    ) -> Learned:
        rng, classes = np.random.default_rng(seed), None
        if self.propagation == "one-sided":
            graph, distributions = self._propagated(X, labels, n_neighbors, rng, stages)
        else:
            classes, distributions = self._classified(X, labels, n_neighbors, rng, stages)
            graph = classes.form.graph
        alone = input_alone(X, distributions, self.n_components)
        scaled = X if classes is None else rescaled(X, classes.form)
        state = State(scaled, labels, graph, distributions)
        if self.partition_size is None and len(np.unique(state.classes)) < 2:
            return alone._replace(fallback_reason=ONE_CLASS)
        if self.partition_size is not None:
            state, feature_map, kept = learn_by_partitions(state, rounds, self, rng, stages)
        else:
            state, feature_map, kept = alternate(state, classes, rounds, self, rng, stages)
        with stages("embedding"):
            weight = input_weight(classes, self)
            held_out = None if classes is None else classes.evidence.held_out
            if classes is None or self.partition_size is not None:
                rows = Classified(X, state.distributions)
            else:
                rows = classes.of_rows(X, state.distributions)
            del classes  # and its distributions, of the size of those that are kept
            learned = combine(rows, feature_map, weight, self.n_components)
        learned = learned._replace(held_out=held_out, **kept)
        if not self.guard:
            return learned
        return fall_back(learned, alone, held_out or labeled_rows(labels), X.__getitem__)

    def _classified(
        self, X: Array, labels: Ints, n_neighbors: int, rng: np.random.Generator, stages: Stages
    ) -> tuple[Classes, Array]:
        """Find the classes by classifiers and graph."""
        with stages("neighbors") as show:
            forms = forms_with_graphs(
                X, n_neighbors, labels=labels, rng=rng, n_jobs=self.n_jobs, progress=show
            )
        with stages("classes"):
            classes, first = learn_classes(forms, labels, n_jobs=self.n_jobs)
        if self.partition_size is None:
            self._kept = Kept(X, forms, None, kept_pool(classes, first, forms, labels))
        return classes, first

    def _propagated(
        self, X: Array, labels: Ints, n_neighbors: int, rng: np.random.Generator, stages: Stages
    ) -> tuple[KNNGraph, Array]:
        """Propagate the labels alone, as Dutta et al. (2021) do."""
        with stages("neighbors") as show:
            graph = knn_graph(
                graph_rows(X), n_neighbors, n_jobs=self.n_jobs, random_state=rng, progress=show
            )
        with stages("classes"):
            return graph, propagate_labels(graph, labels, decay=self.decay, n_jobs=self.n_jobs)

    def _validate_fit(self, X: Any, y: Any) -> tuple[Any, Ints, int]:
        """Return rows (a dask array stays one), labels, and the size of the smallest partition."""
        name = type(self).__name__
        if is_dask(X):
            labels = self._validate_chunks(X, y)
            fewest = smallest_partition(X.chunks[0], X.shape[1], labels)
        else:
            X, labels = self._training_rows(X, y, "Label some rows.")
            fewest = len(X)
            if (X[-1] == X[0]).all() and (X == X[0]).all():  # compare all only if the last equals
                warn(
                    f"{name}: X must have rows that differ; got {len(X)} equal ones. Check how X "
                    "was made."
                )
        if self.mining == "neighborhood" and min(self.n_neighbors, fewest - 1) < 2:
            raise ValueError(
                f"{name}: n_neighbors must be at least 2, among at least 3 rows, with "
                f"mining='neighborhood'; got {self.n_neighbors} among {fewest} rows. "
                "Raise it, or pass mining='propagated'."
            )
        self._check_n_components(X.shape[1])
        return X, labels, fewest

    def _validate_chunks(self, X: Any, y: Any) -> Ints:
        name = type(self).__name__
        check_dask_array(X, name)
        check_known_chunks(X, name)
        if self.partition_size is not None:
            raise ValueError(
                f"{name}: partition_size must be None with a dask array; got "
                f"{self.partition_size!r}. Omit it, or fit rows in memory: X[:n].compute()."
            )
        if X.shape[0] < 2 or X.shape[1] < 1:
            raise ValueError(
                f"{name}: X must have at least 2 rows and 1 column; got shape {X.shape}."
            )
        validate_data(self, X, skip_check_array=True)
        y = y.compute() if is_dask(y) else y
        return self._read_labels(y, len(X), "Label some rows.")


def check_is_ssdml(estimator: Any, who: str) -> None:
    """Raise unless ``estimator`` is an instance of SSDML."""
    if not isinstance(estimator, SSDML):
        is_class = isinstance(estimator, type)
        name = estimator.__name__ if is_class else type(estimator).__name__
        raise TypeError(
            f"{who}: estimator must be an SSDML(...) instance; got {'the class ' * is_class}{name}."
            " Of a Pipeline, pass the SSDML, and X as the steps before transform it."
        )


def validate_fit(estimator: SSDML, X: Any, y: Any) -> tuple[Array, Ints]:
    """Validate parameters, rows and labels as :meth:`SSDML.fit` does; return rows and labels."""
    estimator._validate_params()
    return estimator._validate_fit(X, y)[:2]
