"""Options that several commands have, how their values are read, and how a command speaks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ssdml.datasets.budgets import Budget

Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets; else $SSDML_DATA, then the cache folder."),
]
COMPARED = ("input", "pca", "lda", "nca", "ssdml", "ssdml-residual", "deep-ssdml")  # if known
Methods = Annotated[
    str | None,
    typer.Option(
        show_default=", ".join(COMPARED[:-1]),
        help=r"Names with commas between, or all; ssdml\[decay=0.9] sets a parameter (a ; between "
        "several), ssdml-tuned has the labeled rows choose them.",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ...")]
Features = Annotated[
    str, typer.Option(help="unit (rows of length 1), components (64 of these), raw; auto.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with what is there; finished runs stay.")
]
Jobs = Annotated[int, typer.Option(help="Runs at a time; -1: one a core.")]
MapRows = Annotated[int, typer.Option(min=0, help="Test rows on the report's maps; 0: no maps.")]
OnCluster = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:8786|local",
        help="Scheduler of dask whose workers do the runs; local: N_JOBS workers here.",
    ),
]
TextModel = Annotated[
    str | None,
    typer.Option(
        metavar="words|MODEL",
        help="What makes rows of a column called text: its words, or a sentence-transformers "
        "model's name or folder.",
    ),
]


def say(message: str) -> None:
    """Write a line to standard error: standard output is for what can be piped."""
    typer.echo(message, err=True)


def in_one_line(problem: object) -> str:
    """Its text; the kind of error where that is all it has."""
    text = " ".join(str(problem).split())
    if isinstance(problem, OSError) and problem.strerror and problem.filename:
        text = f"{problem.filename}: {problem.strerror}"
    return text or type(problem).__name__


def names(text: str) -> list[str]:
    """What stands between the commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def numbers(text: str, option: str) -> list[int]:
    """Whole numbers from 1 on; a usage error otherwise."""
    found = names(text)
    if not found or not all(name.isdecimal() and int(name) > 0 for name in found):
        raise typer.BadParameter(
            f"{text!r} must be whole numbers from 1 on with commas between, like 1,5,10.",
            param_hint=option,
        )
    return [int(name) for name in found]


def decimals(text: str, option: str, least: float, most: float, like: str) -> list[float]:
    """Numbers from the least to the most; a usage error otherwise."""
    try:
        found = [float(name) for name in names(text)]
    except ValueError:
        found = []
    if not found or not all(least <= value <= most for value in found):
        raise typer.BadParameter(
            f"{text!r} must be numbers from {least:g}{f' to {most:g}' if most < 1e9 else ' on'} "
            f"with commas between, like {like}.",
            param_hint=option,
        )
    return found


def budgets(amounts: str, draw: str, noise: str, imbalance: str) -> list[Budget]:
    """Every number of labels in every condition; a usage error where one cannot be."""
    wanted = names(amounts)
    counted = ",".join(name for name in wanted if name != "all")
    counts: list[int | None] = [*numbers(counted, "--budgets")] if counted or not wanted else []
    counts += [None] * ("all" in wanted)
    shares = decimals(noise, "--noise", 0, 1, "0,0.1,0.3")
    ratios = decimals(imbalance, "--imbalance", 1, 1e9, "1,10,100")
    from ssdml.datasets.budgets import DRAWS, Budget

    if draw not in DRAWS:
        raise typer.BadParameter(
            f"{draw!r} must be one of {', '.join(DRAWS)}.", param_hint="--draw"
        )
    return [
        Budget(count, draw, share, ratio)
        for share in shares
        for ratio in ratios
        for count in counts
    ]
