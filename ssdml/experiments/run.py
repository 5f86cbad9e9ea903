"""A comparison of methods when labels are scarce: paired, resumable, a row a run.

`METHODS` holds what can be compared; add to it what you want to see beside the rest.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ssdml.datasets import Budget, Dataset, LabelScarceSplit
from ssdml.experiments.deep_methods import DEEP, deep_methods, pretraining
from ssdml.experiments.features import prepared
from ssdml.experiments.job import run_one
from ssdml.experiments.methods import (
    Embedder,
    Factory,
    InputFeatures,
    LabeledRowsOnly,
    with_parameters,
)
from ssdml.experiments.photographs import photograph_methods
from ssdml.experiments.plan import Run, file_name, plan_runs, split_name
from ssdml.experiments.references import REFERENCES
from ssdml.experiments.results import RESULTS, Row, append_row, drop_cut_line, latest, read_rows
from ssdml.experiments.tuning import tuned
from ssdml.image_files import ImageFiles

__all__ = ["METHODS", "compare", "run_one"]

BASELINES = ("LRML", "SERAPH", "ISDML", "APLLR", "APIT")

Progress = Callable[[int, int, str], None]


def _input(random_state: int, n_jobs: int | None) -> Embedder:
    return InputFeatures()


def _pca(random_state: int, n_jobs: int | None) -> Embedder:
    from sklearn.decomposition import PCA

    return PCA(n_components=0.95, svd_solver="full", random_state=random_state)


def _lda(random_state: int, n_jobs: int | None) -> Embedder:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    # Ledoit and Wolf's estimate ("auto") is singular where a feature is constant in the labelled
    # rows, as pixels are; half and half is as strong with 5 labels a class.
    return LabeledRowsOnly(LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5))


def _nca(random_state: int, n_jobs: int | None) -> Embedder:
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    return LabeledRowsOnly(NeighborhoodComponentsAnalysis(random_state=random_state))


def _ssdml(random_state: int, n_jobs: int | None) -> Embedder:
    from ssdml.estimator import SSDML

    return SSDML(random_state=random_state, n_jobs=n_jobs)


def _ssdml_residual(random_state: int, n_jobs: int | None) -> Embedder:
    from ssdml.estimator import SSDML

    return SSDML(backbone="residual", random_state=random_state, n_jobs=n_jobs)


def _ssdml_paper(random_state: int, n_jobs: int | None) -> Embedder:
    from ssdml.estimator import SSDML

    return SSDML.paper(random_state=random_state, n_jobs=n_jobs)


def _baseline(name: str, random_state: int, n_jobs: int | None) -> Embedder:
    from ssdml import baselines

    model: Embedder = getattr(baselines, name)(random_state=random_state, n_jobs=n_jobs)
    return model


def _deep_baseline(
    name: str, network: str, n_components: int, random_state: int, n_jobs: int | None
) -> Any:
    from ssdml.baselines import DeepBaseline

    return DeepBaseline(
        name,
        network,
        n_components,
        pretrain_epochs=pretraining(network),
        random_state=random_state,
        n_jobs=n_jobs,
    )


METHODS: dict[str, Factory] = {
    "input": _input,
    "pca": _pca,
    "lda": _lda,
    "nca": _nca,
    **REFERENCES,
    **{name.lower(): partial(_baseline, name) for name in BASELINES},
    "ssdml": _ssdml,
    "ssdml-residual": _ssdml_residual,
    "ssdml-paper": _ssdml_paper,
}

DEEP_METHODS = DEEP | {
    f"deep-{name.lower()}": partial(_deep_baseline, name.lower()) for name in BASELINES
}


def compare(
    dataset: Dataset,
    methods: Sequence[str],
    *,
    out: str | Path,
    labels_per_class: Sequence[int | Budget] = (5,),
    seeds: Sequence[int] = range(5),
    features: str = "auto",
    deep: bool = False,
    weights: str | Path | None = None,
    resume: bool = False,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> list[Row]:
    """Run every method on the same splits and write a row a run to ``out/results.jsonl``.

    Parameters
    ----------
    dataset : Dataset
    methods : sequence of str
        Names in `METHODS`; of one with other parameters, ``"ssdml[n_neighbors=20]"``; or of one
        whose parameters the labelled rows choose, ``"ssdml-tuned"``, see
        :mod:`ssdml.experiments.tuning`.
    out : path
        Folder for ``results.jsonl``, ``splits/``, ``details/`` and, of failed runs, ``errors/``.
    labels_per_class : sequence of int or Budget
        Numbers of labels a class, or budgets of other kinds; see `ssdml.datasets.Budget`.
    seeds : sequence of int
        Every combination is run.
    features : {"auto", "unit", "raw", "components"}
        What every method gets; see :func:`ssdml.experiments.features.prepared`.
    deep : bool
        Whether networks are learned as well: of images, which every method then gets as they are
        ("raw"). Their methods' names begin with "deep-". Of photographs that stay in their files
        nothing else is learned, by seed 003's protocol; "initial" is the network as it comes.
    weights : path, optional
        File of the weights that networks of photographs begin with; None: random ones.
    resume : bool
        Go on in a folder that holds results: what is done with the same configuration is not run
        again, what failed is.
    n_jobs : int
        Runs at a time, as processes.
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
    _refuse_other_results(out, resume)
    known = available(dataset, deep, weights)
    known = known | tuned(known)
    dataset = prepared(dataset, "raw" if deep and features == "auto" else features)
    factories = {name: with_parameters(name, known) for name in methods}
    runs = plan_runs(dataset, factories, labels_per_class, seeds)
    results = _open_results(out)
    _save_splits(out / "splits", runs)
    done = {row["config_hash"]: row for row in latest(read_rows(results)) if row["status"] == "ok"}
    left = [run for run in runs if run.config_hash not in done]
    report = progress or (lambda n_done, n_runs, title: None)
    with warnings.catch_warnings():
        # A worker that has loaded torch is larger than at its start; that is no leak.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        for row in _execute(dataset, left, out, n_jobs, report, len(runs)):
            append_row(results, row)
            done[row["config_hash"]] = row
    return [done[run.config_hash] for run in runs]


def available(
    dataset: Dataset, deep: bool, weights: str | Path | None = None
) -> dict[str, Factory]:
    """Methods by name; with those that learn networks of the data set's images, if ``deep``."""
    if isinstance(dataset.X, ImageFiles):
        if not deep:
            raise ValueError(
                f"compare: deep must be True for {dataset.name}, whose images stay in their files; "
                "got False. Pass --deep, or deep=True."
            )
        return photograph_methods(DEEP_METHODS, weights=weights)
    if weights is not None:
        raise ValueError(
            "compare: weights must be None for other data than photographs in files; got "
            f"{str(weights)!r} and {dataset.name}. Leave it out."
        )
    return METHODS | deep_methods(dataset, DEEP_METHODS) if deep else METHODS


def _execute(
    dataset: Dataset, runs: list[Run], out: Path, n_jobs: int, progress: Progress, n_all: int
) -> Iterator[Row]:
    """Rows in the order in which they are done; where runs go side by side each has one thread."""
    from joblib import Parallel, delayed

    work = _run_here if n_jobs == 1 else _run_beside
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    rows = parallel(delayed(work)(dataset, run, out) for run in runs)
    n_earlier = n_all - len(runs)
    titles = [run.title for run in runs] + [""]
    progress(n_earlier, n_all, titles[0])
    for n_done, row in enumerate(rows, 1):
        yield row
        progress(n_earlier + n_done, n_all, titles[n_done])


def _run_here(dataset: Dataset, run: Run, out: Path) -> Row:
    return run_one(dataset, run, out=out)


def _run_beside(dataset: Dataset, run: Run, out: Path) -> Row:
    """In a process of its own: Ctrl-C is for the first process, which ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return run_one(dataset, run, out=out, n_jobs=1)


def _refuse_other_results(out: Path, resume: bool) -> None:
    if (out / RESULTS).exists() and not resume:
        raise FileExistsError(
            f"{out / RESULTS} holds results already. Go on with them (--resume, or resume=True), "
            "or name another folder."
        )


def _open_results(out: Path) -> Path:
    """The results file, ready for the next row."""
    out.mkdir(parents=True, exist_ok=True)
    results = out / RESULTS
    results.touch()
    drop_cut_line(results)
    return results


def _save_splits(folder: Path, runs: list[Run]) -> None:
    """One file a split; a file of that name must hold the same split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in {run.split.digest: run.split for run in runs}.values():
        name = f"{runs[0].config['dataset']}-{split_name(split)}"
        path = folder / f"{file_name(name)}.json"
        if not path.exists():
            split.save(path)
        elif LabelScarceSplit.load(path).digest != split.digest:
            raise ValueError(
                f"{path}: holds another split than the one of this data set; the data have "
                "changed since. Name another folder."
            )
