"""SSDML: semi-supervised metric learning."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from ssdml.classification.forms import Form, forms_with_graphs
from ssdml.classification.novelty import Novelty, learn_novelty, novel_groups
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph, nearest_rows
from ssdml.graphs.neighbors.rows import check_file
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.graphs.propagation.smoothing import Diffusion
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
from ssdml.metric.base import N_JOBS, LearnedMetric, embed, limit_neighbors
from ssdml.metric.features import ClassRepresentation
from ssdml.metric.out_of_core import learn_out_of_core, smallest_partition
from ssdml.metric.prediction import SuspectedLabels, suspects
from ssdml.metric.relabeling import (
    GRAPHS,
    Kept,
    are_rows_of,
    extended,
    joined_labels,
    kept_pool,
    learn_again,
    relabeled,
    restored,
    restored_held_out,
    saved,
)
from ssdml.metric.selection import fall_back, input_alone, labeled_rows
from ssdml.metric.state import Learned, State
from ssdml.utils.dask_arrays import check_dask_array, check_known_chunks, is_dask
from ssdml.utils.labels import in_precision
from ssdml.utils.linalg import graph_rows
from ssdml.utils.parallel import count_threads, one_blas_thread, threads
from ssdml.utils.persistence import restoring
from ssdml.utils.progress import CallbackSupportMixin, Stages, with_callbacks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import (
    UNLABELED,
    check_finite,
    check_number,
    check_rows,
    without_container,
)

MAX_GROUPED = 20_000  # novel samples that are grouped


@dataclass(eq=False, repr=False)
class SSDML(LearnedMetric, CallbackSupportMixin, BaseEstimator):
    """Semi-supervised metric learning from many samples and a handful of labels.

    Classifiers of the labeled samples and a kNN graph of all samples predict the unlabeled ones.
    From triplets of these classes, a map L with orthonormal columns is learned on whitened
    features. The embedding concatenates the class probabilities of a sample, its image under L and
    its input.

    Parameters
    ----------
    n_components : int or None
        Columns of the embedding; None: at most ``n_features``, or 64 if that is more. Fewer keep
        the distances between training samples as well as a linear map of the embedding can.
    n_neighbors : int
        Neighbors in the graph; at least 2 with ``mining="neighborhood"``.
    propagation : {"two-sided", "one-sided"}
        "two-sided": classes by classifiers and graph, and affinities between all samples.
        "one-sided": classes by propagated labels alone, and affinities that labels reach only in
        pairs with a labeled sample [1]_.
    decay : float
        With one-sided propagation: between 0 and 1, the closer to 1, the farther labels propagate.
        With two-sided propagation, held-out labels decide.
    mining : {"propagated", "neighborhood"}
        Source of the triplets; see :func:`ssdml.graphs.mine_triplets`.
    input_weight : float or "auto"
        Weight of the input beside class probabilities and learned metric. "auto": from 0.8 to 1.2,
        see :func:`ssdml.metric.selection.balanced_weight`. 0: the columns of L alone, one fewer
        than classes, a linear map of the input.
    angle : float
        Of the angular objective, in degrees.
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
        Class probabilities of the training samples; labeled ones have their label.
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
    Classes: softmax regressions of the labeled samples, on features as given and smoothed over the
    graph, and propagated labels are stacked on held-out labels. Their calibrated evidence Q and the
    labels Y propagate together, ``(I - γ S) F = Y + μ Q``, the farther, the better the graph
    predicts held-out labels. Class masses follow the shares of the labels, or an estimate if the
    labels were not drawn at random. See "Mathematics" in the documentation.

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
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "decay": [Interval(Real, 0, 1, closed="neither")],
        "propagation": [StrOptions({"two-sided", "one-sided"})],
        "mining": [StrOptions({"propagated", "neighborhood"})],
        "input_weight": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "angle": [Interval(Real, 0, 90, closed="neither")],
        "max_rounds": [Interval(Integral, 1, None, closed="left"), None],
        "guard": ["boolean"],
        "partition_size": [Interval(Integral, 1, None, closed="left"), None],
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @classmethod
    def paper(cls, n_components: int | None = None, **params: Any) -> Self:
        """The method of Dutta et al. (2021), as published, on fixed features.

        One-sided affinities, neighborhood triplets, no fallback to the input. L starts at random
        and is learned on partitions of 9,000 unlabeled samples, with 10 steps of conjugate
        gradients on all triplets of each; ``n_components`` None is half the features. The paper's
        samples have unit length: apply ``Normalizer`` first.
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
        if hasattr(self, "components_"):  # an interrupted fit must not leave a fitted estimator
            del self.components_
        self._kept = None
        X, labels, fewest = self._validate_fit(X, y)
        rounds = count_rounds(self, len(labels), int((labels == UNLABELED).sum()))
        k = limit_neighbors(self.n_neighbors, fewest, type(self).__name__, stacklevel=5)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        stages = Stages(self, 3 + rounds, verbose=self.verbose)
        with stages.all(X, y):
            if is_dask(X):
                learned, numbers, rows = learn_out_of_core(X, labels, k, self, seed, stages)
            else:
                learned, numbers, rows = self._learn(X, labels, k, rounds, seed, stages), None, X
                if self._kept is not None:
                    keeps = self.partition_size is None
                    self._kept = self._kept._replace(nearer=learned.nearer) if keeps else None
            self.reference_rows_ = numbers
            self._keep(rows, labels, learned)
        self.stage_seconds_ = stages.seconds
        return self

    def save(self, folder: str | Path, *, graphs: bool = False) -> None:
        """Save the fitted estimator to a folder: safetensors and JSON, no code.

        ``random_state`` is saved if it is an integer; triplets and history are not. An existing
        model is replaced atomically.

        Parameters
        ----------
        folder : path
        graphs : bool
            Whether to keep the neighbor graphs and ``held_out_``, so that ``SSDML.load(folder, X)``
            can :meth:`relabel` and :meth:`extend`, and has :meth:`suspected_labels`.
        """
        arrays = {}
        if graphs:
            arrays = saved(self._kept_rows("save"), self.held_out_)
        self._save(folder, arrays)

    @classmethod
    def load(cls, folder: str | Path, X: Any = None) -> Self:
        """Load an estimator saved by :meth:`save`.

        Parameters
        ----------
        folder : path
        X : array of shape (n_samples, n_features) or None
            The samples of the fit, if the model was saved with its graphs: it can then
            :meth:`relabel` and :meth:`extend`.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
        >>> with TemporaryDirectory() as folder:
        ...     SSDML(random_state=0).fit(X, labels).save(folder, graphs=True)
        ...     model = SSDML.load(folder, X)
        >>> labels[1::10] = y[1::10]
        >>> len(model.relabel(labels).labeled_rows_)
        30
        """
        model = super().load(folder)
        graphs, model._graphs = model._graphs, {}
        if X is None:
            return model
        who, rows = f"{cls.__name__}.load", check_rows(X, f"{cls.__name__}.load", "X")
        shape = (len(model.transduction_), model.n_features_in_)
        if rows.shape != shape:
            raise ValueError(f"{who}: X must have shape {shape}, as in the fit; got {rows.shape}.")
        if not graphs:
            raise ValueError(
                f"{who}: X needs a model with its graphs; {folder} has none. Omit X, or save with "
                "graphs=True."
            )
        with restoring(folder, cls.__name__, {}):
            model._kept = restored(graphs, rows)
            model.held_out_ = restored_held_out(graphs)
        if not are_rows_of(model._kept):
            raise ValueError(
                f"{who}: X must be the samples of the fit in their order; got rows at other "
                "distances from each other. Pass the same X."
            )
        return model

    @one_blas_thread()
    def relabel(self, y: Any) -> Self:
        """Learn from other labels of the same training samples, without refitting.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            All labels, as for :meth:`fit`, which may name other classes.

        Returns
        -------
        self : SSDML

        Raises
        ------
        ValueError
            After a fit of a dask array, with one-sided propagation or by partitions, and after
            :meth:`load` without X.

        Notes
        -----
        The graphs of the fit are reused, so X must not have changed. If y adds at most a quarter to
        the labels of the fit, and no class, the weights of the classifiers, the class prior and the
        metric are kept, and classifiers continue from their coefficients: about a tenth of the time
        of a fit. New labels enter ``held_out_`` with the probabilities from before they were given.
        Otherwise all of these are learned again (L as the discriminants of the classes, without
        triplets), in about a third of the time. Either way the accuracy is within half a point of
        that of a new fit. ``triplets_``, ``history_`` and ``stage_seconds_`` stay those of the fit.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where(np.arange(len(y)) < 10, y, -1)
        >>> model = SSDML(random_state=0).fit(X / 16, labels)
        >>> before = model.score(X / 16, y)
        >>> labels[:100] = y[:100]
        >>> model.relabel(labels).score(X / 16, y) > before
        True
        """
        kept = self._kept_rows("relabel")
        labels = self._read_labels(y, len(kept.X), "Label some rows.")
        same = np.array_equal(self._classes(labels), self.classes_)
        self._kept, learned = relabeled(kept, labels, self, same_classes=same)
        self._keep(kept.X, labels, learned)
        return self

    @one_blas_thread()
    def extend(self, X: Any, y: Any = None) -> Self:
        """Add training samples to a fitted model.

        Parameters
        ----------
        X : array of shape (n_new, n_features)
        y : array-like of shape (n_new,) or None
            Labels, as for :meth:`fit`; None: all unlabeled. Earlier samples keep theirs.

        Returns
        -------
        self : SSDML

        Notes
        -----
        New rows are scaled as in the fit and join its graphs, in O(n_new n d) time. Then classes
        and metric are learned as by :meth:`relabel`, but without the graph of the embedding. Fit
        again after the samples have doubled, or if new ones are unlike the others.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
        >>> model = SSDML(random_state=0).fit(X[:900] / 16, labels[:900])
        >>> len(model.extend(X[900:] / 16).transduction_)
        1797
        """
        kept, who = self._kept_rows("extend"), f"{type(self).__name__}.extend"
        check_file(X, who)
        floats, X = (np.float64, np.float32), without_container(X, who)
        new = validate_data(self, X, dtype=floats, reset=False, ensure_all_finite=False)
        check_finite(new, who, "X")
        given = [None] * len(new) if y is None else y
        if len(given) != len(new):
            raise ValueError(f"{who}: y must have {len(new)} labels, as X; got {len(given)}.")
        rows = self.labeled_rows_
        assert rows is not None
        joined = joined_labels(len(kept.X), rows, self.transduction_[rows], given, who)
        labels = self._read_labels(joined, len(kept.X) + len(new), "Label some rows.")
        kept = extended(kept, new.astype(kept.X.dtype, copy=False), self.n_jobs)
        self._kept, learned = learn_again(kept, labels, self)
        self._keep(kept.X, labels, learned)
        return self

    def novelty_score(self, X: Any = None) -> Array:
        """Estimate the probability that a sample belongs to no labeled class.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or None
            None: the training samples.

        Returns
        -------
        scores : ndarray of shape (n_samples,), float32
            From 0 to 1; 0 for labeled samples.

        Notes
        -----
        The score is calibrated on classes whose labels are held out, and on an estimate of the
        share of novel samples. With a quarter of the classes of Banking77 unlabeled, its mean is
        0.26 where the true share is 0.24, and 70% of the samples with a score above 0.5 are novel.
        Samples unlike all training samples are recognized by distance alone, with 2% false alarms
        at 0.5; their scores are too low. A novel class inside a labeled one is not found, and with
        one label per class the score is a guess. See ``ssdml.classification.novelty``.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where((np.arange(len(y)) < 100) & (y != 4), y, -1)
        >>> scores = SSDML(random_state=0).fit(X / 16, labels).novelty_score()
        >>> bool(scores[y == 4].mean() > 0.8), bool(scores[y != 4].mean() < 0.2)
        (True, True)
        """
        novelty, classifier = self._learned_novelty(), self.classifier_
        if X is None:
            return novelty.of_training_rows()
        assert classifier is not None

        def score(rows: Array, who: str = "") -> Array:
            check_finite(rows, who, "X")
            queries = classifier.form(rows)
            k = int(classifier.n_neighbors)
            found = nearest_rows(classifier.rows, queries, k, n_jobs=self.n_jobs)
            return novelty.of_new_rows(*found)[:, None]

        scores: Array = self._apply(X, score, 1)
        return scores[:, 0]

    def predict(self, X: Any, *, reject: float | None = None) -> Array:
        """Predict the most probable class of each row, or reject it as novel.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        reject : float or None
            Smallest :meth:`novelty_score`, from 0 to 1, of rows to reject: they get -1, or "" if
            classes are names, None if they are booleans. None: reject none.

        Returns
        -------
        classes : ndarray of shape (n_samples,)
            A dask array if X is.
        """
        classes = super().predict(X)
        if reject is None:
            return classes
        check_number(reject, "reject", f"{type(self).__name__}.predict", least=0, most=1)
        none = {"U": "", "b": None}.get(classes.dtype.kind, UNLABELED)
        if classes.dtype.kind == "b":
            classes = classes.astype(object)
        classes[self.novelty_score(X) >= reject] = none
        return classes

    def suggest_classes(self, reject: float = 0.5) -> list[Array]:
        """Cluster training samples that belong to no known class, as candidates for new classes.

        Parameters
        ----------
        reject : float
            Smallest :meth:`novelty_score` of the samples, of which at most the 20,000 most novel
            are grouped.

        Returns
        -------
        groups : list of arrays of int
            Rows of each group, the most central first; the largest group first.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where((np.arange(len(y)) < 100) & (y != 4), y, -1)
        >>> groups = SSDML(random_state=0).fit(X / 16, labels).suggest_classes()
        >>> bool((y[groups[0]] == 4).mean() > 0.9)
        True
        """
        check_number(reject, "reject", f"{type(self).__name__}.suggest_classes", least=0, most=1)
        kept, scores = self._kept_rows("suggest_classes"), self.novelty_score()
        rows = np.argsort(-scores, kind="stable")[:MAX_GROUPED]
        rows = np.sort(rows[scores[rows] >= reject])
        return novel_groups(self._form(kept).graph, rows) if len(rows) else []

    def _learned_novelty(self) -> Novelty:
        check_is_fitted(self)
        if self._novelty is None:
            kept = self._kept_rows("novelty_score")
            if self.classifier_ is None:
                raise ValueError(
                    f"{type(self).__name__}.novelty_score: needs two classes among the training "
                    "samples; got one. Label samples of another class."
                )
            form, codes = self._form(kept), np.full(len(kept.X), UNLABELED)
            rows = self.labeled_rows_
            codes[rows] = np.searchsorted(self.classes_, self.transduction_[rows])
            with threads(count_threads(self.n_jobs, type(self).__name__)) as pool:
                self._novelty = learn_novelty(form, codes, Diffusion(adjacency(form.graph), pool))
        return self._novelty

    def kept_form(self) -> Form | None:
        """Rows and graph that ``classifier_`` searches; None after :meth:`load`."""
        return None if self._kept is None or self.classifier_ is None else self._form(self._kept)

    def _form(self, kept: Kept) -> Form:
        assert self.classifier_ is not None
        matrix = self.classifier_.matrix
        return next(form for form in kept.forms if np.array_equal(form.linear.matrix, matrix))

    def _more_arrays(self) -> dict[str, Array]:
        if self.classifier_ is None or (self._novelty is None and self._kept is None):
            return {}
        return {f"novelty_{k}": v for k, v in self._learned_novelty()._asdict().items()}

    def _restore_more(self, arrays: dict[str, Array]) -> None:
        if "novelty_log_odds" in arrays:
            self._novelty = Novelty(arrays["novelty_log_odds"], arrays["novelty_farthest"])
        self._graphs = {name: array for name, array in arrays.items() if name.startswith(GRAPHS)}

    def _kept_rows(self, method: str) -> Kept:
        check_is_fitted(self)
        if self._kept is None:
            raise ValueError(
                f"{type(self).__name__}.{method}: needs the graphs of a fit in memory with "
                "propagation='two-sided' and partition_size=None; got none. Save with graphs=True "
                "and load with X, or fit all samples again."
            )
        return self._kept

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
        scale = None if classes is None else classes.form.linear.column_scale
        state = State(rescaled(X, scale), labels, graph, distributions)
        if self.partition_size is None and len(np.unique(state.classes)) < 2:
            return alone._replace(fallback_reason=ONE_CLASS)
        form = None if classes is None else classes.form
        if self.partition_size is not None:
            state, feature_map, kept = learn_by_partitions(state, rounds, self, rng, stages)
            form = None
        else:
            state, feature_map, kept = alternate(state, classes, rounds, self, rng, stages)
        with stages("embedding"):
            weight = input_weight(classes, self)
            held_out = None if classes is None else classes.evidence.held_out
            del classes  # and its distributions, of the size of those that are kept
            learned = combine(X, feature_map, weight, form, state.distributions, self.n_components)
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
                warnings.warn(
                    f"{name}: X must have rows that differ; got {len(X)} equal ones. Check how X "
                    "was made.",
                    stacklevel=5,
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

    def _keep(self, X: Array, labels: Ints, learned: Learned) -> None:
        if learned.fallback_reason:
            warnings.warn(
                f"{type(self).__name__}: returns the input instead: {learned.fallback_reason}",
                stacklevel=5,
            )
        self.classifier_ = learned.classifier
        self.representation_ = None
        if learned.classifier is not None and learned.represented is not None:
            self.representation_ = ClassRepresentation(learned.classifier, self.n_jobs)
        self._novelty = None
        self.labeled_rows_ = np.flatnonzero(labels != UNLABELED)
        self.held_out_ = learned.held_out
        self.input_weight_ = learned.input_weight
        self.triplets_ = learned.triplets
        self.history_ = list(learned.history)
        self.classes_ = self._classes(labels)
        self.label_distributions_ = in_precision(learned.distributions, X.dtype)
        self.transduction_ = self.classes_[learned.distributions.argmax(axis=1)]
        components = learned.components.astype(X.dtype)
        rows = X if learned.represented is None else learned.represented
        self.embedding_ = embed(rows, components, None)
        self.components_ = components  # last: it marks the estimator as fitted

    def suspected_labels(self) -> SuspectedLabels:
        """List training labels that are more likely wrong than right, the likeliest errors first.

        Each label is compared with the prediction of classifiers from other labels, given how often
        these contradict labels in general; see ``ssdml.metric.prediction.error_probabilities``. At
        most 5,000 labels are checked, and none that is the only one of its class.

        Returns
        -------
        suspects : SuspectedLabels
            ``rows``, their ``labels``, the ``classes`` predicted from the other labels, and as
            ``confidences`` the probability that the label is wrong.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
        >>> labels[0] = 7  # it is a 0
        >>> suspects = SSDML(random_state=0).fit(X, labels).suspected_labels()
        >>> first = suspects.rows.tolist().index(0)
        >>> first < 3, int(suspects.labels[first]), int(suspects.classes[first])
        (True, 7, 0)
        """
        check_is_fitted(self)
        if self.held_out_ is None or not len(self.held_out_.rows):
            raise ValueError(
                f"{type(self).__name__}.suspected_labels: needs held-out labels; got none. Fit "
                "rows in memory with two labels of a class; models saved without graphs do not "
                "keep them."
            )
        return suspects(self.held_out_, self.classes_)


def check_is_ssdml(estimator: Any, who: str) -> None:
    """Raise unless ``estimator`` is an instance of SSDML."""
    if not isinstance(estimator, SSDML):
        is_class = isinstance(estimator, type)
        name = estimator.__name__ if is_class else type(estimator).__name__
        raise TypeError(
            f"{who}: estimator must be an SSDML(...) instance; got {'the class ' * is_class}{name}."
        )


def validate_fit(estimator: SSDML, X: Any, y: Any) -> tuple[Array, Ints]:
    """Validate parameters, rows and labels as :meth:`SSDML.fit` does; return rows and labels."""
    estimator._validate_params()
    return estimator._validate_fit(X, y)[:2]
