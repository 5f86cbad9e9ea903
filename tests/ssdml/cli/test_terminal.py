"""Output on a terminal, in a file and in a pipe."""

from __future__ import annotations

import io
import logging
import re
import time

import pytest
from rich.console import Console

from ssdml.cli import terminal
from ssdml.cli.terminal import LastLine, print_columns, print_scores, progress_bar, spinner
from ssdml.experiments.analysis.tables import score_table


@pytest.fixture
def console(monkeypatch, request) -> Console:
    """A console of 80 columns instead of standard error: a terminal if the parameter says so."""
    console = Console(file=io.StringIO(), force_terminal=request.param, width=80, color_system=None)
    monkeypatch.setattr(terminal, "terminal", lambda: console)
    return console


@pytest.mark.parametrize("console", [True], indirect=True)
def test_bar_shows_run_count_and_time(console):
    with progress_bar("out") as progress:
        progress(37, 90, "ssdml, 5 labels per class, seed 4")
    shown = console.file.getvalue()
    assert "37/90" in shown
    assert "ssdml, 5 labels per class, seed 4" in shown
    assert "0:00:00 left" in shown


@pytest.mark.parametrize("console", [True], indirect=True)
def test_bar_announces_the_report_last(console):
    with progress_bar("out") as progress:
        progress(90, 90, "")
    assert "writing the report" in console.file.getvalue()


@pytest.mark.parametrize("console", [True], indirect=True)
def test_names_are_not_markup(console):
    with progress_bar("out") as progress, spinner("[bold]wait[/]"):
        progress(0, 2, "[red]pca[/red]")
    assert "[red]pca[/red]" in console.file.getvalue()


@pytest.mark.parametrize("console", [False], indirect=True)
def test_nothing_is_shown_without_a_terminal(console):
    with progress_bar("out") as progress, spinner("learning"):
        progress(1, 2, "input")
    assert console.file.getvalue() == ""


@pytest.mark.parametrize("console", [False, True], indirect=True)
def test_a_pipe_gets_lines_during_long_work(console, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "SILENCE", 0.02)
    with progress_bar("out") as progress:
        progress(3, 12, "ssdml, 5 labels per class, seed 1")
        time.sleep(0.2)
    with spinner("scoring 10 samples"):
        time.sleep(0.2)
    told = capsys.readouterr().err
    assert ("3 of 12 runs done; ssdml, 5 labels per class, seed 1\n" in told) != console.is_terminal
    assert (" ms: scoring 10 samples\n" in told) != console.is_terminal


def test_the_last_line_of_the_log_is_kept():
    log = logging.getLogger("ssdml")
    level, handlers = log.level, log.handlers[:]
    with LastLine() as last:
        assert last.text == ""
        for n in (1, 2):
            log.info("DeepSSDML: partition %d took %.1f s", n, 0.5)
        assert last.text == "; DeepSSDML: partition 2 took 0.5 s"
    assert (log.level, log.handlers) == (level, handlers)


@pytest.mark.parametrize("console", [False], indirect=True)
@pytest.mark.parametrize(
    ("n_done", "message"), [(1, "1 finished run is"), (7, "7 finished runs are")]
)
def test_ctrl_c_names_what_is_kept(console, n_done, message):
    def stopped():
        with progress_bar("out") as progress:
            progress(n_done, 9, "input")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=rf"{message} kept in out; .*--resume"):
        stopped()


def test_table_in_a_file_is_not_wrapped(capsys):
    long = "word " * 60
    print_columns(("name", "where"), [("mnist", long.strip())])
    assert long.strip() in capsys.readouterr().out


def test_lines_in_a_file_are_stripped(capsys):
    print_columns(("name", "where"), [("mnist", "here"), ("cub", "somewhere else")])
    shown = capsys.readouterr().out
    assert "  mnist   here\n" in shown
    assert not [line for line in shown.split("\n") if line != line.rstrip()]


def test_brackets_in_names_are_printed(capsys):
    print_columns(("ssdml[decay=0.9]", "[b]"), [("[i]", "88.1")])
    shown = capsys.readouterr().out
    assert [part for part in ("ssdml[decay=0.9]", "[b]", "[i]") if part not in shown] == []


def test_score_table_marks_failures(capsys, make_row):
    failed = make_row(method="[b]lda", status="failed", seconds={}) | {"scores": {}}
    print_scores([score_table([make_row(), make_row(seed=1), failed])])
    lines = capsys.readouterr().out.splitlines()
    assert re.search(r"blobs, 5 labels per class, 2 seeds, \d+ test samples", lines[0])
    assert [word for line in lines if "input" in line for word in line.split()][2:4] == [
        "60.0", "±0.0",
    ]  # fmt: skip
    assert any("[b]lda" in line and "failed" in line for line in lines)
