"""Progress of a fit in the log, scikit-learn's callbacks and the terminal."""

from __future__ import annotations

import logging
import re
import sys
from importlib import import_module

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from ssdml import SSDML
from ssdml.utils.progress import Stages


@pytest.fixture
def callbacks():
    return pytest.importorskip("sklearn.callback", reason="scikit-learn 1.9 brings callbacks")


@pytest.fixture
def SSDML_without_callbacks(monkeypatch):
    """SSDML as it is with scikit-learn before 1.9."""
    for module in ("ssdml.metric.estimator", "ssdml.utils.progress"):
        package, _, name = module.rpartition(".")
        monkeypatch.setattr(import_module(package), name, import_module(module))  # to restore
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    return import_module("ssdml.metric.estimator").SSDML


class Recorder:
    """A callback that writes down what it is told."""

    def __init__(self):
        self.events = []
        self.fitted = []

    def setup(self, estimator, context):
        self.events.append(("setup", context.max_subtasks))

    def teardown(self, estimator, context):
        self.events.append(("teardown", context.task_name))

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.events.append(("end", context.task_name))
        if fitted_estimator is not None:
            self.fitted.append(fitted_estimator.score(X, y))


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(90, 3, centers=3, random_state=0)
    labels = np.where(np.arange(90) < 15, y, -1)
    return X, labels


STAGES = ["neighbors", "classes", "round 1", "round 2", "embedding"]
PARTITIONS = [f"partition {number}" for number in (1, 2, 3)]


@pytest.mark.usefixtures("callbacks")
def test_callback_sees_every_stage(blobs):
    recorder = Recorder()
    SSDML(random_state=0).set_callbacks(recorder).fit(*blobs)
    within = [event for stage in STAGES for event in (("begin", stage), ("end", stage))]
    fit = [("begin", "fit"), *within, ("end", "fit")]
    assert recorder.events == [("setup", len(STAGES)), *fit, ("teardown", "fit")]
    assert recorder.fitted == [1.0]


@pytest.mark.usefixtures("callbacks")
def test_callback_sees_published_partitions(blobs):
    recorder = Recorder()
    model = SSDML.paper(partition_size=30, random_state=0).set_callbacks(recorder)
    model.fit(*blobs)
    begun = [name for event, name in recorder.events if event == "begin"]
    assert begun == ["fit", "neighbors", "classes", *PARTITIONS, "embedding"]


def test_scikit_learn_progress_bar_and_scoring_monitor(blobs, callbacks, capsys):
    X, labels = blobs
    monitor = callbacks.ScoringMonitor(scoring=lambda model, X, y: {"known": model.score(X, y)})
    SSDML(random_state=0).set_callbacks(callbacks.ProgressBar(), monitor).fit(X, labels)
    assert "SSDML - fit" in capsys.readouterr().out


@pytest.mark.usefixtures("callbacks")
def test_stop_request_is_ignored(blobs):
    """As with the estimators of scikit-learn 1.9: none of them reads what a callback returns."""
    recorder = Recorder()
    recorder.on_fit_task_end = lambda estimator, context: recorder.events.append("end") or True
    model = SSDML(random_state=0).set_callbacks(recorder).fit(*blobs)
    assert recorder.events.count("end") == 1 + len(STAGES)
    plain = SSDML(random_state=0).fit(*blobs)
    np.testing.assert_array_equal(model.components_, plain.components_)


@pytest.mark.usefixtures("callbacks")
def test_callback_is_torn_down_after_failure(blobs, monkeypatch):
    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    recorder = Recorder()
    monkeypatch.setattr("ssdml.metric.estimator.learn_classes", fail)
    model = SSDML().set_callbacks(recorder)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*blobs)
    assert recorder.events[-1] == ("teardown", "fit")
    assert ("end", "fit") not in recorder.events


def test_fit_without_scikit_learn_callbacks_is_equal(blobs, SSDML_without_callbacks, caplog):
    assert SSDML_without_callbacks is not SSDML
    assert not hasattr(SSDML_without_callbacks, "set_callbacks")
    with caplog.at_level(logging.INFO, logger="ssdml"):
        model = SSDML_without_callbacks(random_state=0).fit(*blobs)
    assert [record.getMessage().split()[1] for record in caplog.records] == [
        stage.split()[0] for stage in STAGES
    ]
    plain = SSDML(random_state=0).fit(*blobs)
    np.testing.assert_array_equal(model.components_, plain.components_)
    assert model.history_ == plain.history_


def test_warning_names_the_caller_without_callbacks(blobs, SSDML_without_callbacks):
    with pytest.warns(UserWarning, match="n_neighbors must be below") as caught:
        SSDML_without_callbacks().fit(blobs[0][:3], [0, 1, -1])
    assert caught[0].filename == __file__


def test_log_reports_the_duration_of_stages(blobs, caplog):
    with caplog.at_level(logging.INFO, logger="ssdml"):
        SSDML(random_state=0).fit(*blobs)
    assert [record.getMessage().split(" took")[0] for record in caplog.records] == [
        f"SSDML: {stage}" for stage in STAGES
    ]


def test_log_shows_the_last_note(caplog):
    stages = Stages(object(), 2)
    with caplog.at_level(logging.INFO, logger="ssdml"):
        with stages("one") as show:
            show(0.5, "loss 2")
            show(1.0, "loss 1")
        with stages("two"):
            pass
    one, two = caplog.messages
    assert one.endswith(" s (loss 1)")
    assert two.endswith(" s")


@pytest.mark.parametrize("verbose", [0, 1])
def test_bar_needs_a_terminal_and_verbose(verbose, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    stages = Stages(object(), 2, verbose=verbose)
    with stages.all(None, None):
        for name in ("one", "two"):
            with stages(name):
                pass
    out, err = capsys.readouterr()
    assert out == ""
    assert ("2/2" in err) == bool(verbose)


def test_long_note_leaves_room_for_remaining_time(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stages = Stages(object(), 4, verbose=1)
    with stages.all(None, None), stages("partition 1") as show:
        show(0.5, "epoch 12 of 50, loss 1.234, propagation accuracy 94%")
        stages._bar.refresh()
        line = re.sub(r"\x1b\[[0-9;?]*\w", "", capsys.readouterr().err).split("\r")[-1]
    assert len(line) <= 80
    assert re.search(
        r"^object: partition 1, epoch 12.*0/4 +0:00:00 left: +[-\d]+:[-\d]+:[-\d]+", line
    )


def test_no_bar_if_stderr_is_a_file(capsys):
    stages = Stages(object(), 1, verbose=1)
    with stages.all(None, None), stages("one"):
        pass
    assert capsys.readouterr() == ("", "")
