"""A comparison of methods when labels are scarce: paired, resumable, a row a run.

`METHODS` holds what can be compared; add to it what you want to see beside the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from ssdml.datasets.base import Dataset
from ssdml.datasets.budgets import Budget
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.methods.base import Factory, parse_method, with_parameters
from ssdml.experiments.methods.deep import deep_methods
from ssdml.experiments.methods.photographs import photograph_methods
from ssdml.experiments.methods.protocols import DEFAULT_PROTOCOL, PROTOCOLS
from ssdml.experiments.methods.registry import DEEP_METHODS, METHODS
from ssdml.experiments.methods.tuning import tuned
from ssdml.experiments.preprocessing import form_of, prepared
from ssdml.experiments.runs.details import MAP_ROWS
from ssdml.experiments.runs.execution import Cluster, outcomes
from ssdml.experiments.runs.folder import Progress, ResultsFolder, drop_plan
from ssdml.experiments.runs.job import keep_cards
from ssdml.experiments.runs.locks import Claims, read_claims
from ssdml.experiments.runs.plan import plan_runs
from ssdml.experiments.runs.results import RESULTS, Row
from ssdml.utils.parallel import count_threads
from ssdml.utils.validation import choose

__all__ = ["compare"]


def compare(
    dataset: Dataset,
    methods: Sequence[str] | Mapping[str, Factory],
    *,
    out: str | Path,
    labels_per_class: Sequence[int | Budget] = (5,),
    seeds: Sequence[int] = range(5),
    features: str = "auto",
    deep: bool = False,
    weights: str | Path | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    resume: bool = False,
    n_jobs: int = 1,
    map_rows: int = MAP_ROWS,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Run every method on the same splits and write a row a run to ``out/results.jsonl``.

    Parameters
    ----------
    dataset : Dataset
    methods : sequence of str, or dict
        Names in `METHODS`; of one with other parameters, ``"ssdml[n_neighbors=20]"``; or of one
        whose parameters the labeled rows choose, ``"ssdml-tuned"``, see
        :mod:`ssdml.experiments.methods.tuning`. A dict holds others, as `METHODS` does.
    out : path
        Folder for ``results.jsonl``, ``splits/``, ``details/``, ``cards/`` (pictures or texts of
        the rows on maps) and, of failed runs, ``errors/``.
    labels_per_class : sequence of int or Budget
        Numbers of labels a class, or budgets of other kinds; see `ssdml.datasets.Budget`.
    seeds : sequence of int
        Every combination is run.
    features : {"auto", "unit", "raw", "components"}
        What every method gets; see :func:`ssdml.experiments.preprocessing.prepared`.
    deep : bool
        Whether networks are learned as well: of images, which every method then gets as they are
        ("raw"). Their methods' names begin with "deep-", and "initial" is the network as it comes.
        Of photographs that stay in their files nothing else is learned.
    weights : path, optional
        File of the weights that networks of photographs begin with; None: random ones.
    protocol : {"chen2021", "zhu2020", "li2020", "dutta2021", "zheng2019"}
        Whose networks, images and settings those of photographs are; see
        `ssdml.experiments.methods.protocols`.
    resume : bool
        Go on in a folder that holds results: what is done with the same configuration is not run
        again, what failed is.
    n_jobs : int
        Runs at a time, as processes with one thread each; 1: in this process, a thread a core.
    map_rows : int
        Test rows of the first seed on the report's map, of which each is kept with its picture or
        text; 0: none, and so no map.
    cluster : str, optional
        Address of a dask scheduler, to whose workers the runs go; "local" starts `n_jobs` workers
        on this machine.
    progress : callable, optional
        Called as ``progress(n_done, n_runs, title of the next run)`` before and after each run.

    Returns
    -------
    rows : list of dict
        Of all the runs asked for, those done earlier too.

    Raises
    ------
    FileExistsError
        Where ``out`` holds results and `resume` is False.
    ConnectionError
        Where the cluster does not answer, or goes away; what is done is kept.

    Notes
    -----
    Several processes may resume one folder at the same time: they share the runs, and each returns
    when all are done. A run whose worker is killed is done again.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from ssdml.datasets import load_dataset
    >>> with TemporaryDirectory() as out:
    ...     rows = compare(load_dataset("digits"), ["input", "lda"], seeds=[0], out=out)
    >>> [(row["method"], row["n_labeled"], row["status"]) for row in rows]
    [('input', 50, 'ok'), ('lda', 50, 'ok')]
    """
    out = Path(out)
    count_threads(n_jobs)  # told before anything is written
    _refuse_other_results(out, resume)
    if isinstance(methods, Mapping):
        factories = dict(methods)
    else:
        _refuse_networks_unasked(methods, deep)
        known = available(dataset, deep, weights, protocol)
        known = known | tuned(known)
        factories = {name: with_parameters(name, known) for name in methods}
    form = form_of(dataset, "raw" if deep and features == "auto" else features)
    if deep and form == "components":
        raise ValueError(
            "compare: features must be 'raw' or 'unit' where networks see images; got "
            "'components', which are none. Leave --features out, or --deep."
        )
    runs = plan_runs(dataset, factories, labels_per_class, seeds, features=form, map_rows=map_rows)
    given = replace(prepared(dataset, form), texts=None)  # which every worker would get
    workers = nullcontext() if cluster is None else Cluster(cluster, n_jobs)
    with workers as where, Claims(out / "claims") as claims, warnings.catch_warnings():
        # A worker that has loaded torch is larger than at its start; that is no leak.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        folder = ResultsFolder(out, runs, claims, progress or (lambda n_done, n_runs, title: None))
        keep_cards(out, dataset, runs)
        for outcome in outcomes(
            given, folder.left, folder.take, folder.give_back, n_jobs=n_jobs, cluster=where
        ):
            folder.write(outcome)
    return [folder.done[run.config_hash] for run in runs]


def available(
    dataset: Dataset,
    deep: bool,
    weights: str | Path | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> dict[str, Factory]:
    """Methods by name; with those that learn networks of the data set's images, if ``deep``."""
    if isinstance(dataset.X, ImageFiles):
        if not deep:
            raise ValueError(
                f"compare: deep must be True for {dataset.name}, whose images stay in their files; "
                "got False. Pass --deep, or deep=True."
            )
        chosen = choose(PROTOCOLS, protocol, "compare: protocol")
        return photograph_methods(dataset, weights=weights, protocol=chosen)
    defaults = (("weights", weights, None), ("protocol", protocol, DEFAULT_PROTOCOL))
    for name, value, default in defaults:
        if value != default:
            raise ValueError(
                f"compare: {name} must be {default!r} for other data than photographs in files; "
                f"got {str(value)!r} and {dataset.name}. Leave it out."
            )
    return METHODS | deep_methods(dataset) if deep else METHODS


def _refuse_networks_unasked(methods: Sequence[str], deep: bool) -> None:
    asked = [name for name in methods if parse_method(name)[0] in DEEP_METHODS]
    if asked and not deep:
        raise ValueError(
            f"compare: deep must be True for {asked[0]}, which learns a network; got False. Pass "
            "--deep, or deep=True."
        )


def _refuse_other_results(out: Path, resume: bool) -> None:
    results = out / RESULTS
    if resume or not results.exists():
        return
    if not results.stat().st_size and not read_claims(out / "claims"):
        drop_plan(out)  # of a call that was stopped in its first run
    else:
        raise FileExistsError(
            f"{results} holds results already. Go on with them (--resume, or resume=True), "
            "or name another folder."
        )
