"""Progress of a fit: the log, scikit-learn's callbacks, a bar in the terminal."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ssdml.utils.parallel import one_blas_thread

logger = logging.getLogger("ssdml")

try:  # scikit-learn 1.9
    # "as" marks them as exported.
    from sklearn.callback import (
        CallbackSupportMixin as CallbackSupportMixin,
        with_callbacks as with_callbacks,
    )
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Placeholder for scikit-learn before 1.9, without callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Add a stack frame as scikit-learn does, so that the stacklevel of warnings fits."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return call


class Show(Protocol):
    """Callback that reports the progress of a stage."""

    def __call__(self, done: float, note: str = "") -> object:
        """Report the fraction done, with a note."""


class Stages:
    """Reports the stages of a fit.

    Parameters
    ----------
    estimator : estimator
        Its scikit-learn callbacks see one task per stage.
    n_stages : int
    verbose : int
        If positive, draw a progress bar if standard error is a terminal.

    Attributes
    ----------
    seconds : dict of str to float
        Duration of each finished stage.

    Notes
    -----
    A callback may return True to request a stop; like the estimators of scikit-learn 1.9, ours
    ignore it. Lower ``max_rounds`` or ``epochs`` for a shorter fit.
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
        """Enclose the whole fit, in which BLAS has one thread.

        Sums of BLAS depend on the number of its threads, which other fits may limit meanwhile.
        """
        data = {"estimator": self._estimator, "X": X, "y": y}
        if self._context is not None:
            self._context.call_on_fit_task_begin(**data)
        if self._bar:
            self._bar.start()
        try:
            with one_blas_thread():
                yield
        finally:
            if self._bar:
                self._bar.stop()
        if self._context is not None:
            # No attributes to add: the estimator is fitted by now, so ScoringMonitor can score it.
            self._context.call_on_fit_task_end(**data, reconstruction_attributes={})

    @contextmanager
    def __call__(self, name: str) -> Iterator[Show]:
        """Enclose one stage; yield a callback for its progress."""
        self._stage, self._note = name, ""
        task = self._context.subcontext(task_name=name) if self._context is not None else None
        if task is not None:
            task.call_on_fit_task_begin(estimator=self._estimator)
        self._show(0.0)
        start = time.perf_counter()
        yield self._show
        self.seconds[name] = time.perf_counter() - start
        note = f" ({self._note})" if self._note else ""
        logger.info("%s: %s took %.2f s%s", self._name, name, self.seconds[name], note)
        self._show(0.0)
        if task is not None:
            task.call_on_fit_task_end(estimator=self._estimator)

    def _show(self, done: float, note: str = "") -> None:
        self._note = note or self._note
        if self._bar:
            text = ", ".join(part for part in (f"{self._name}: {self._stage}", note) if part)
            done += len(self.seconds)
            self._bar.update(self._task, completed=done, description=text)


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
        expand=True,  # the description is cut to fit
    )
