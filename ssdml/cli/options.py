"""Options shared by commands, parsing of their values, and messages."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ssdml.datasets.budgets import Budget

Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="First folder to search, before $SSDML_DATA and the cache folder."),
]
Out = Annotated[Path, typer.Option(help="Folder for results.jsonl and the report.")]
ResultsDir = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `compare` or `study`.")]
COMPARED = (  # if available
    *("input", "logistic", "knn", "poisson", "pca", "lda", "nca"),
    *("ssdml", "deep-ssdml"),
)
Methods = Annotated[
    str | None,
    typer.Option(
        show_default=", ".join(COMPARED[:-1]),
        help=r"Names, separated by commas, or all. ssdml\[n_neighbors=20] sets a parameter (; "
        "between several), ssdml-tuned tunes parameters on the labeled samples, and module:Class "
        "is your own method, from the current folder or installed.",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ...")]
Form = Annotated[
    str,
    typer.Option(
        help="Form of the features: unit (mean subtracted, samples of length 1), components (64 "
        "principal components of these), standardized (columns of variance 1), raw, or auto: "
        "unit for named data sets, raw for your files."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue in the folder; finished runs are kept.")
]


def _not_zero(n_jobs: int) -> int:
    """Raise a usage error for 0, before data are read."""
    if n_jobs == 0:
        raise typer.BadParameter("must be a number other than 0; got 0. -1 takes all cores.")
    return n_jobs


Jobs = Annotated[int, typer.Option(callback=_not_zero, help="Runs at a time; -1: one per core.")]
Threads = Annotated[int, typer.Option(callback=_not_zero, help="Threads; -1: all cores.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed.")]
MapRows = Annotated[int, typer.Option(min=0, help="Test samples on the report's maps; 0: no maps.")]
OnCluster = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:8786|local",
        help="Dask scheduler whose workers execute the runs; local: N_JOBS workers here.",
    ),
]
TextModel = Annotated[
    str | None,
    typer.Option(
        metavar="words|MODEL",
        help="Features of texts: their words, or a sentence-transformers model by name or folder.",
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        "--label-column",
        metavar="COLUMN",
        help="Column of the labels; default: found by its name.",
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option("--text", metavar="COLUMN", help="Column of texts to use as features."),
]
IdColumn = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", help="Column that names the samples."),
]
FeatureColumns = Annotated[
    str | None,
    typer.Option(
        "--features",
        metavar="COLUMNS",
        help='Columns of features, separated by commas; "f*" names all that begin with f. Default: '
        "all numbers.",
    ),
]
IgnoredColumns = Annotated[
    str | None,
    typer.Option("--ignore", metavar="COLUMNS", help="Columns to leave out, separated by commas."),
]
NoLabel = Annotated[
    str | None,
    typer.Option(
        metavar="MARKS",
        help="More values that mean no label, separated by commas; empty, NaN, NA, None, -1, ?, "
        "unlabeled and unknown always do.",
    ),
]
Encoding = Annotated[str | None, typer.Option(help="Encoding of a table in text; default: UTF-8.")]


def say(message: str) -> None:
    """Write a line to standard error; standard output is for results."""
    from ssdml.experiments.analysis.formats import visible

    typer.echo(visible(message), err=True)


def put(text: str) -> None:
    """Write results to standard output."""
    with naming_standard_output():
        if sys.stdout is None:  # typer would drop them
            raise OSError(errno.EBADF, "it is closed")
        typer.echo(text, nl=False)


@contextmanager
def naming_standard_output() -> Iterator[None]:
    """Name standard output in errors of writing to it, which Python's do not name."""
    try:
        yield
    except BrokenPipeError:  # of `| head`, no error
        raise
    except OSError as error:
        sys.stdout = sys.stderr  # else Python would write the rest at its end, and fail again
        raise OSError(error.errno, error.strerror, "standard output") from error


def next_steps(*steps: str) -> None:
    """Tell what to do next, the last lines of a command."""
    for i, step in enumerate(steps):
        say(f"{'      ' if i else 'Next: '}{step}")


def in_shell(path: Path) -> str:
    """Write a path as an argument of a command."""
    return quote(str(path))


def refuse_to_replace(path: Path, force: bool) -> None:
    """Raise FileExistsError for an existing path, unless forced."""
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; --force replaces it.")


def in_one_line(problem: object) -> str:
    """Text of an error in one line; its type if it has none."""
    text = " ".join(str(problem).split())
    if isinstance(problem, OSError) and problem.strerror and problem.filename:
        text = f"{problem.filename}: {problem.strerror}"
    return text or type(problem).__name__


def names(text: str | None) -> list[str]:
    """Split at commas, without duplicates."""
    parts = (text or "").split(",")
    return list(dict.fromkeys(name.strip() for name in parts if name.strip()))


def numbers(text: str, option: str) -> list[int]:
    """Parse whole numbers from 1 on; raise a usage error otherwise."""
    found = names(text)
    if not found or not all(name.isdecimal() and int(name) > 0 for name in found):
        raise typer.BadParameter(
            f"{text!r} must be whole numbers from 1 on, separated by commas, like 1,5,10.",
            param_hint=option,
        )
    return [int(name) for name in found]


def decimals(text: str, option: str, least: float, most: float, like: str) -> list[float]:
    """Parse numbers in a range; raise a usage error otherwise."""
    try:
        found = [float(name) for name in names(text)]
    except ValueError:
        found = []
    if not found or not all(least <= value <= most for value in found):
        raise typer.BadParameter(
            f"{text!r} must be numbers from {least:g}{f' to {most:g}' if most < 1e9 else ' on'}, "
            f"separated by commas, like {like}.",
            param_hint=option,
        )
    return found


def budgets(amounts: str, draw: str, noise: str, imbalance: str) -> list[Budget]:
    """Every number of labels in every condition; raise a usage error for a wrong value."""
    from ssdml.datasets.budgets import DRAWS, Budget

    wanted = names(amounts)
    counted = ",".join(name for name in wanted if name != "all")
    counts: list[int | None] = [*numbers(counted, "--budgets")] if counted or not wanted else []
    counts += [None] * ("all" in wanted)
    shares = decimals(noise, "--noise", 0, 1, "0,0.1,0.3")
    ratios = decimals(imbalance, "--imbalance", 1, 1e9, "1,10,100")
    draws = names(draw)
    if not draws or not set(draws) <= DRAWS.keys():
        raise typer.BadParameter(
            f"{draw!r} must be of {', '.join(DRAWS)}, separated by commas.", param_hint="--draw"
        )
    conditions = product(shares, ratios, draws, counts)
    return list(dict.fromkeys(Budget(n, way, share, ratio) for share, ratio, way, n in conditions))
