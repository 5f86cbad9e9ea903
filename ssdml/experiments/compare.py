"""Compare methods when labels are scarce: same splits for all, resumable, one row per run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssdml.datasets.base import Dataset
from ssdml.datasets.budgets import Budget
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.methods.protocols import DEFAULT_PROTOCOL, PROTOCOLS
from ssdml.experiments.runs.results import Row
from ssdml.utils.files import as_path
from ssdml.utils.validation import as_list, check_count, choose

if TYPE_CHECKING:
    from ssdml.experiments.methods.base import Factory
    from ssdml.experiments.runs.folder import Progress

# The package imports this module eagerly, so the rest loads inside the functions.

__all__ = ["compare"]


def compare(
    dataset: Dataset,
    methods: Sequence[str] | str | Mapping[str, Factory],
    *,
    out: str | Path,
    labels_per_class: Sequence[int | Budget] | int | Budget = (5,),
    seeds: Sequence[int] = range(5),
    features: str = "auto",
    deep: bool = False,
    weights: str | Path | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    resume: bool = False,
    n_jobs: int = 1,
    map_rows: int = 1500,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Run every method on the same splits and write one row per run to ``out/results.jsonl``.

    Parameters
    ----------
    dataset : Dataset
    methods : str, sequence of str, or dict
        Names in `ssdml.experiments.METHODS`, with other parameters as
        ``"ssdml[n_neighbors=20]"``, or tuned on the labeled samples as ``"ssdml-tuned"`` (see
        :mod:`ssdml.experiments.methods.tuning`). Or a dict of factories, as `METHODS` is.
    out : path
        Folder for ``results.jsonl``, the file of each run in ``runs/``, ``splits/``,
        ``details/``, ``thumbnails/`` (images or texts of the samples on maps) and the tracebacks
        of failed runs, ``errors/``.
    labels_per_class : int, Budget, or sequence of these
        Numbers of labels per class, or other budgets; see `ssdml.datasets.Budget`.
    seeds : sequence of int
    features : {"auto", "unit", "raw", "components", "standardized"}
        Preprocessing for all methods; see :func:`ssdml.experiments.preprocessing.preprocess`.
    deep : bool
        Add methods that train networks on images, ``"deep-..."``, and the untrained network,
        ``"initial"``; every method then gets raw images. For photographs in files these are the
        only methods.
    weights : path, optional
        File of the initial weights of networks for photographs; random if None.
    protocol : {"chen2021", "zhu2020", "li2020", "dutta2021", "zheng2019", "dutta2021-lite"}
        Paper whose network, images and settings photographs get, or the smaller network of
        ``ssdml[images]`` with its weights; see
        `ssdml.experiments.methods.protocols`.
    resume : bool
        Continue in a folder that holds results: finished runs with the same configuration are
        kept, failed ones are repeated.
    n_jobs : int
        Runs at a time, as processes with one thread each; 1: in this process, with one thread
        per core.
    map_rows : int
        Test samples of the first seed to draw on the report's map, with image or text; 0: no map.
    cluster : str, optional
        Address of a dask scheduler whose workers execute the runs; "local" starts `n_jobs`
        workers on this machine.
    progress : callable, optional
        Called as ``progress(n_done, n_runs, title of the next run)`` before and after each run.

    Returns
    -------
    rows : list of dict
        One per requested run, including those done earlier.

    Raises
    ------
    FileExistsError
        If ``out`` holds results and `resume` is False.
    ValueError
        If ``out`` holds results on other data of the same name, among others.
    ConnectionError
        If the cluster does not answer or goes away; finished runs are kept.

    Notes
    -----
    Several processes may work on one folder: each does the runs of the others last. If a run is
    done twice, one copy is kept.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from ssdml.datasets import load_dataset
    >>> with TemporaryDirectory() as out:
    ...     rows = compare(load_dataset("digits"), ["input", "lda"], seeds=[0], out=out)
    >>> [(row["method"], row["n_labeled"], row["status"]) for row in rows]
    [('input', 50, 'ok'), ('lda', 50, 'ok')]
    """
    from ssdml.experiments.preprocessing import preprocess, resolve_features, warn_of_scales
    from ssdml.experiments.runs.execution import dask_workers, execute
    from ssdml.experiments.runs.folder import RunFolder, refuse_other_results
    from ssdml.experiments.runs.grid import make_runs
    from ssdml.experiments.runs.thumbnails import update_thumbnails
    from ssdml.utils.parallel import count_threads

    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"compare: dataset must be a Dataset; got {type(dataset).__name__}. Pass "
            "ssdml.datasets.load_dataset(name_or_path), or Dataset(name, X, y, class_names)."
        )
    seeds, budgets = _as_seeds(seeds), _as_budgets(labels_per_class)
    check_count(map_rows, "map_rows", "compare", least=0)
    if progress is not None and not callable(progress):
        raise TypeError(f"compare: progress must be a function or None; got {progress!r}. Omit it.")
    if not isinstance(cluster, str | None):
        raise TypeError(
            f"compare: cluster must be an address or 'local'; got {cluster!r}. Pass the address of "
            "a dask scheduler, as in 'tcp://host:8786'."
        )
    out = as_path(out)
    count_threads(n_jobs, "compare")  # checks it before anything is written
    refuse_other_results(out, resume)
    factories = _factories(methods, dataset, deep, weights, protocol)
    form = resolve_features(dataset, "raw" if deep and features == "auto" else features)
    if deep and form in ("components", "standardized"):
        raise ValueError(
            "compare: features must be 'raw' or 'unit' when networks learn from images; got "
            f"{form!r}. Omit --features or --deep."
        )
    if form == "raw" and not deep:
        warn_of_scales(dataset)
    given = replace(preprocess(dataset, form), texts=None)  # texts would go to every worker
    runs = make_runs(
        dataset,
        factories,
        budgets,
        seeds,
        features=form,
        map_rows=map_rows,
        prepared=given,
    )
    workers = nullcontext() if cluster is None else dask_workers(cluster, n_jobs, given)
    with workers, warnings.catch_warnings():
        # A worker grows when it loads torch; that is no leak.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        with RunFolder(out, runs, progress or (lambda n_done, n_runs, title: None)) as folder:
            update_thumbnails(out, dataset, runs)
            n_workers = n_jobs if cluster is None else None
            for outcome in execute(given, folder.pending, n_jobs=n_workers):
                folder.write(outcome)
        return folder.rows()


def available_methods(
    dataset: Dataset,
    deep: bool,
    weights: str | Path | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> dict[str, Factory]:
    """Methods for a data set by name; if ``deep``, with those that train networks on its images."""
    from ssdml.experiments.methods.registry import METHODS

    if isinstance(dataset.X, ImageFiles):
        if not deep:
            raise ValueError(
                f"compare: deep must be True for {dataset.name}, whose images stay in files; got "
                "False. Pass --deep, or deep=True."
            )
        from ssdml.experiments.methods.photographs import photograph_methods  # loads torch

        chosen = choose(PROTOCOLS, protocol, "compare: protocol")
        return photograph_methods(dataset, weights=weights, protocol=chosen)
    defaults = (("weights", weights, None), ("protocol", protocol, DEFAULT_PROTOCOL))
    for name, value, default in defaults:
        if value != default:
            raise ValueError(
                f"compare: {name} must be {default!r} unless the data are photographs in files; "
                f"got {str(value)!r} and {dataset.name}. Omit it."
            )
    if not deep:
        return METHODS
    from ssdml.experiments.methods.deep import deep_methods  # loads torch

    return METHODS | deep_methods(dataset)


def _as_seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, Integral):
        raise TypeError(
            f"compare: seeds must be a sequence of numbers; got {seeds!r}. Pass range({seeds})."
        )
    found: list[int] = as_list(seeds, "seeds", "compare", "numbers")
    for seed in found:
        check_count(seed, "seeds", "compare", least=0)
    return [int(seed) for seed in found]  # NumPy's integers are none in JSON


def _as_budgets(given: Any) -> list[int | Budget]:
    listed = [given] if isinstance(given, Real | Budget) else given
    budgets: list[int | Budget] = as_list(
        listed, "labels_per_class", "compare", "numbers or Budgets"
    )
    for budget in budgets:
        if not isinstance(budget, Budget):
            check_count(budget, "labels_per_class", "compare")
    return budgets


def _factories(
    methods: Mapping[str, Factory] | Sequence[str] | str,
    dataset: Dataset,
    deep: bool,
    weights: str | Path | None,
    protocol: str,
) -> dict[str, Factory]:
    from ssdml.experiments.methods.base import parse_method, with_parameters
    from ssdml.experiments.methods.registry import DEEP_METHODS
    from ssdml.experiments.methods.tuning import tuned

    if isinstance(methods, Mapping):
        for name, factory in methods.items():
            _check_factory(name, factory)
        return dict(methods)
    listed = [methods] if isinstance(methods, str) else methods
    names: list[str] = as_list(listed, "methods", "compare", "names")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"compare: methods must be names; got {name!r}. Pass 'ssdml'.")
    networks = [name for name in names if parse_method(name)[0] in DEEP_METHODS]
    if networks and not deep:
        raise ValueError(
            f"compare: deep must be True for {networks[0]}, which trains a network; got False. "
            "Pass --deep, or deep=True."
        )
    known = available_methods(dataset, deep, weights, protocol)
    known = known | tuned(known)
    return {name: with_parameters(name, known) for name in names}


def _check_factory(name: Any, factory: Any) -> None:
    """Raise unless a method of the caller's own has a name, and is made from a seed and n_jobs."""
    if not isinstance(name, str):
        raise TypeError(f"compare: keys of methods must be strings; got {name!r}. Pass '{name}'.")
    found, cause = repr(factory), None
    if callable(factory):
        try:
            model = factory(0, None)
        except TypeError as error:
            found, cause = f"TypeError: {error}", error
        else:
            if hasattr(model, "fit"):
                return
            found = repr(model)
    raise TypeError(
        f"compare: methods[{name!r}] must make an estimator; got {found.rstrip('.')}. Pass "
        "lambda random_state, n_jobs: ..., which returns a new one."
    ) from cause
