"""Stages of a fit, told to whoever listens: the log, scikit-learn's callbacks, a terminal."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

logger = logging.getLogger("ssdml")

try:  # scikit-learn 1.9
    # "as" tells the type checker that others import them from here.
    from sklearn.callback import (
        CallbackSupportMixin as CallbackSupportMixin,
        with_callbacks as with_callbacks,
    )
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Put a frame around the method, as scikit-learn does: the levels of warnings count it."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return call


class Show(Protocol):
    """Takes the fraction of a stage that is done, and a word on it."""

    def __call__(self, done: float, note: str = "") -> object:
        """So much is done."""


class Stages:
    """Tells of each stage of a fit as it begins and ends.

    Parameters
    ----------
    estimator : estimator
        Its callbacks, where scikit-learn has them, see a task a stage.
    n_stages : int
    verbose : int
        From 1 on a bar is drawn on the terminal, if standard error is one.

    Attributes
    ----------
    seconds : dict of str to float
        What each stage took that has ended.

    Notes
    -----
    A callback may return True at the end of a task to ask for a stop. No estimator that
    scikit-learn 1.9 ships reads it, and neither do we: the fit goes on to its end. Fewer rounds
    are had by ``max_rounds``, fewer partitions by ``epochs``.
    """

    def __init__(self, estimator: Any, n_stages: int, *, verbose: int = 0) -> None:
        self._estimator = estimator
        self._name = type(estimator).__name__
        self._context: Any = None
        if hasattr(estimator, "_init_callback_context"):
            self._context = estimator._init_callback_context(max_subtasks=n_stages)
        self._bar = _terminal_bar() if verbose and sys.stderr.isatty() else None
        self._task = self._bar.add_task(self._name, total=n_stages) if self._bar else None
        self.seconds: dict[str, float] = {}
        self._stage, self._note = "", ""

    @contextmanager
    def all(self, X: Any, y: Any) -> Iterator[None]:
        """Around the whole fit."""
        data = {"estimator": self._estimator, "X": X, "y": y}
        if self._context is not None:
            self._context.call_on_fit_task_begin(**data)
        if self._bar:
            self._bar.start()
        try:
            yield
        finally:
            if self._bar:
                self._bar.stop()
        if self._context is not None:
            # Nothing to add: by now the estimator is fitted, and ScoringMonitor scores it.
            self._context.call_on_fit_task_end(**data, reconstruction_attributes={})

    @contextmanager
    def __call__(self, name: str) -> Iterator[Show]:
        """Around one stage; yields a function that takes the fraction of it that is done."""
        self._stage, self._note = name, ""
        task = self._context.subcontext(task_name=name) if self._context is not None else None
        if task is not None:
            task.call_on_fit_task_begin(estimator=self._estimator)
        self._show(0.0)
        start = time.perf_counter()
        yield self._show
        self.seconds[name] = time.perf_counter() - start
        told = f" ({self._note})" if self._note else ""
        logger.info("%s: %s took %.2f s%s", self._name, name, self.seconds[name], told)
        self._show(0.0)
        if task is not None:
            task.call_on_fit_task_end(estimator=self._estimator)

    def _show(self, done: float, note: str = "") -> None:
        self._note = note or self._note
        if self._bar:
            told = ", ".join(part for part in (f"{self._name}: {self._stage}", note) if part)
            done += len(self.seconds)
            self._bar.update(self._task, completed=done, description=told)


def _terminal_bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    return Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True, ratio=1)),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        expand=True,  # and what is told is cut where the line is full
    )
