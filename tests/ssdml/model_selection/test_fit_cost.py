"""The plan of a fit: its stages, how it carries them on, what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ssdml import SSDML
from ssdml.cli.app import app
from ssdml.model_selection import fit_cost as planning
from ssdml.model_selection.fit_cost import FitShape, pilot_data, stage_bytes, stage_work

ROOT = Path(__file__).parents[3]
SHAPE = FitShape(20_000, 64, 10, 60, 10, 4)
MODES = [{}, {"backbone": "residual", "max_rounds": 2}, {"partition_size": 300, "max_rounds": 2}]


@pytest.fixture
def seconds_by_size(monkeypatch):
    """Fits that take a microsecond a row in each stage; the sizes of the fits that were asked."""
    asked = []

    def stage_seconds(estimator, X, classes):
        asked.append(len(X))
        return dict.fromkeys(("neighbors", "labels", "round 1"), 1e-6 * len(X))

    monkeypatch.setattr(planning, "_stage_seconds", stage_seconds)
    return asked


@pytest.mark.parametrize("mode", MODES, ids=["linear", "residual", "partitions"])
def test_stages_are_those_of_the_fit(mode, rng, short_training):
    X, y = rng.standard_normal((900, 5)), np.full(900, -1)
    y[:40] = np.arange(40) % 4
    plan = SSDML.plan(900, 5, n_classes=4, **mode)
    model = SSDML(guard=False, random_state=0, **mode).fit(X, y)
    assert [stage.name for stage in plan.stages] == list(model.stage_seconds_)
    assert all(stage.seconds > 0 and stage.megabytes > 0 for stage in plan.stages)
    assert plan.seconds == sum(stage.seconds for stage in plan.stages)
    assert plan.megabytes == max(stage.megabytes for stage in plan.stages)


def test_a_plan_is_that_of_the_estimator_it_is_asked_of():
    model = SSDML(max_rounds=3)
    assert len(model.plan(900, 3).stages) == 5
    assert len(model.plan(900, 3, max_rounds=1).stages) == 3
    assert len(SSDML.plan(900, 3).stages) == 4
    assert model.max_rounds == 3


def test_walks_of_one_sided_affinities_count():
    plain = SHAPE._replace(n_samples=10**6)
    shape = plain._replace(one_sided=True)
    for cost in (stage_bytes, partial(stage_work, by_index=False)):
        assert cost(shape)["round"] > cost(plain)["round"]


def test_partitions_are_as_many_as_all_rows_need():
    stages = SSDML.plan(2000, 4, partition_size=500).stages
    assert [s.name for s in stages[2:]] == [f"partition {i}" for i in (1, 2, 3, 4)]


def test_stages_grow_by_their_work(seconds_by_size):
    plan = SSDML.plan(60_000, 64, n_classes=10)
    size = seconds_by_size[-1]
    assert size == 20_000
    shapes = [SHAPE._replace(n_samples=n, n_searched=60) for n in (size, 60_000)]
    few, many = (stage_work(shape, by_index=False) for shape in shapes)
    for stage in plan.stages:
        kind = stage.name.split(" ")[0]
        assert stage.seconds == pytest.approx(1e-6 * size * many[kind] / few[kind], rel=1e-2)


def test_the_small_fit_is_a_third_or_less_and_never_large(seconds_by_size):
    for n, size in [(30_000, 10_000), (10**6, 50_000), (10**9, 50_000), (700, 600), (400, 400)]:
        SSDML.plan(n, 2)
        assert seconds_by_size[-1] == size


def test_rows_too_many_to_be_searched_exactly_are_timed_by_an_index(seconds_by_size, monkeypatch):
    monkeypatch.setattr(planning, "_index_seconds", lambda rows, estimator: 7.0)
    indexed, exact = SSDML.plan(10**6, 16).stages[0], SSDML.plan(10**5, 16).stages[0]
    assert indexed.seconds == pytest.approx(7 * 20**1.15)
    assert exact.seconds < 7


MEASURED = """
import numpy as np
from ssdml import SSDML
from ssdml.experiments.resources import PeakMemory

n, d, n_classes = {shape}
X = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
y = np.full(n, -1)
y[: 5 * n_classes] = np.arange(5 * n_classes) % n_classes
SSDML(guard=False, random_state=0).fit(X[:500], y[:500])  # loads what a fit loads
with PeakMemory() as before:
    pass
with PeakMemory() as memory:
    SSDML(guard=False, random_state=0).fit(X, y)
plan = SSDML.plan(n, d, n_classes=n_classes)
print(before.megabytes, memory.megabytes, plan.megabytes)
"""


def test_memory_is_that_of_a_fit_within_a_factor_of_two():
    """In a process of its own: in this one, others' tests have left room that is used again."""
    n, d, n_classes = shape = 20_000, 16, 80
    command = [sys.executable, "-W", "ignore", "-c", MEASURED.format(shape=shape)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, peak, told = map(float, done.stdout.split())
    planned = stage_bytes(FitShape(n, d, n_classes, d, 10, 4))["labels"] / 1e6
    assert planned / 2 < peak - before < 2 * planned
    assert told / 2 < peak < 2 * told


@pytest.mark.parametrize("field", ["n_samples", "n_features", "n_classes", "n_neighbors"])
@pytest.mark.parametrize("residual", [False, True])
def test_more_of_anything_costs_no_less(field, residual):
    shape = SHAPE._replace(residual=residual)
    more = shape._replace(**{field: 2 * getattr(shape, field)})
    exact, index = (partial(stage_work, by_index=by_index) for by_index in (False, True))
    for cost in (stage_bytes, exact, index):
        less, greater = cost(shape), cost(more)
        assert all(less[stage] <= greater[stage] for stage in less)
        assert any(less[stage] < greater[stage] for stage in less)


def test_double_precision_takes_more_memory(seconds_by_size):
    single, double = (SSDML.plan(10**5, 20, dtype=dtype) for dtype in (np.float32, np.float64))
    assert single.megabytes < double.megabytes


def test_few_of_the_given_rows_are_read_and_none_is_changed(tmp_path, seconds_by_size):
    np.save(tmp_path / "X.npy", np.arange(40_000.0).reshape(20_000, 2))
    rows = np.load(tmp_path / "X.npy", mmap_mode="r")
    X, classes = pilot_data(rows, 700, 2, 3, np.dtype(np.float32))
    assert len(np.unique(X[:, 0])) == 700
    assert np.isin(X, rows).all()
    assert X.dtype == np.float64
    np.testing.assert_array_equal(classes[:5], [0, 1, 2, 0, 1])
    SSDML.plan(20_000, 2, rows=rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 1}, "n_samples must be at least 2; got 1"),
        ({"n_features": 0}, "n_features must be at least 1; got 0"),
        ({"n_classes": 0}, "n_classes must be at least 1; got 0"),
        ({"rows": np.zeros((700, 3))}, r"rows must have 2 columns; got shape \(700, 3\)"),
        ({"rows": np.zeros((100, 2))}, "rows must be at least 600; got 100"),
    ],
)
def test_what_cannot_be_planned_is_told(arguments, message):
    shape = {"n_samples": 1000, "n_features": 2}
    with pytest.raises(ValueError, match=f"SSDML.plan: {message}"):
        SSDML.plan(**(shape | arguments))


def test_a_plan_reads_as_a_table(seconds_by_size):
    first, *lines = repr(SSDML.plan(1000, 2)).splitlines()
    assert first.startswith("FitPlan: ")
    assert [line.split()[0] for line in lines] == ["neighbors", "labels", "round"]


@pytest.fixture
def run(seconds_by_size):
    """Calls ``ssdml plan`` in this process."""
    return lambda *arguments: CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_the_command_prints_the_stages_and_their_sum(run):
    result = run("--n", 3000, "--d", 4)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[0] for row in rows if "MB" in row] == ["neighbors", "labels", "round", "all"]


def test_the_command_takes_the_shape_of_a_file(run, tmp_path, monkeypatch):
    calls = []
    plan = SSDML.plan
    monkeypatch.setattr(
        SSDML, "plan", lambda *shape, **options: calls.append(shape) or plan(*shape, **options)
    )
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((900, 3)))
    assert run("--like", tmp_path / "X.npy").exit_code == 0
    assert run("--like", tmp_path / "X.npy", "--n", 1200).exit_code == 0
    assert calls == [(900, 3), (1200, 3)]


def test_the_command_says_what_is_missing_and_what_is_too_much(run, tmp_path):
    assert "--n and --d" in run("--n", 100).stderr
    assert "X.npy is missing" in run("--like", tmp_path / "X.npy").stderr
    result = run("--n", 10**9, "--d", 8)
    assert result.exit_code == 0
    assert "MB that are free here" in result.stderr
