"""Plans of a fit: stages, growth with the rows, memory, bad input."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ssdml import SSDML
from ssdml.baselines import LRML
from ssdml.cli.app import app
from ssdml.model_selection import fit_cost
from ssdml.model_selection.fit_cost import (
    FitShape,
    pilot_data,
    plan_fit,
    stage_bytes,
    stage_kind,
    stage_work,
)

ROOT = Path(__file__).parents[3]
SHAPE = FitShape(20_000, 64, 10, 64, 10, 4)
MODES = [
    {},
    {"propagation": "one-sided", "mining": "neighborhood"},
    {"partition_size": 100, "max_rounds": 2},
    {"input_weight": 0},
]


@pytest.fixture
def seconds_by_size(monkeypatch):
    """Fake fits, one microsecond per row and stage; returns the sizes of the fits requested."""
    asked = []

    def stage_seconds(estimator, X, classes):
        asked.append(len(X))
        return dict.fromkeys(
            ("neighbors", "classes", "round 1", "round 2", "embedding"), 1e-6 * len(X)
        )

    monkeypatch.setattr(fit_cost, "_stage_seconds", stage_seconds)
    monkeypatch.setattr(fit_cost, "_index_seconds", lambda rows, estimator: 1e-6 * len(rows))
    return asked


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_stages_are_those_of_the_fit(mode, rng):
    X, y = rng.standard_normal((300, 5)), np.full(300, -1)
    y[:40] = np.arange(40) % 4
    plan = plan_fit(SSDML(**mode), 300, 5, n_classes=4)
    model = SSDML(guard=False, random_state=0, **mode).fit(X, y)
    assert [stage.name for stage in plan.stages] == list(model.stage_seconds_)
    assert all(stage.seconds > 0 and stage.megabytes > 0 for stage in plan.stages)
    assert plan.seconds == sum(stage.seconds for stage in plan.stages)
    assert plan.megabytes == max(stage.megabytes for stage in plan.stages)


def test_plan_uses_the_parameters_and_changes_nothing():
    model = SSDML(max_rounds=3)
    assert len(plan_fit(model, 100, 3).stages) == 6
    assert len(plan_fit(SSDML(), 100, 3).stages) == 5
    assert model.get_params() == SSDML(max_rounds=3).get_params()


def test_a_table_costs_a_second_search(rng, monkeypatch):
    """Where columns of different units correlate, they are also scaled one by one."""
    shapes = []
    monkeypatch.setattr(
        fit_cost, "stage_bytes", lambda shape: shapes.append(shape) or stage_bytes(shape)
    )
    rows = rng.standard_normal((600, 4))
    for sample in (rows, (rows + rng.standard_normal((600, 1))) * [1, 1, 1, 9]):
        plan_fit(SSDML(), 700, 4, rows=sample)
    assert [(shape.n_forms, shape.n_searched) for shape in shapes] == [(1, 4), (2, 4)]


def test_propagated_folds_are_left_out_where_they_cost_most():
    few, many = SHAPE._replace(n_samples=10**6), SHAPE._replace(n_samples=10**6, n_classes=100)
    assert few.propagates_folds
    assert not many.propagates_folds
    work = [stage_work(shape, by_index=True)["classes"] for shape in (few, many)]
    assert work[1] < 3 * work[0]


def test_one_sided_affinities_cost_more():
    plain = SHAPE._replace(n_samples=10**6)
    shape = plain._replace(one_sided=True)
    for cost in (stage_bytes, partial(stage_work, by_index=False)):
        assert cost(shape)["round"] > cost(plain)["round"]


def test_partitions_are_counted_for_all_rows():
    stages = plan_fit(SSDML(partition_size=500), 2000, 4).stages
    names = [s.name for s in stages[2:]]
    assert names == [*(f"partition {i}" for i in (1, 2, 3, 4)), "embedding"]


def test_stages_scale_with_their_work(seconds_by_size):
    plan = plan_fit(SSDML(), 60_000, 64, n_classes=10)
    size = seconds_by_size[-1]
    assert size == 20_000
    shapes = [SHAPE._replace(n_samples=n) for n in (size, 60_000)]
    few, many = (stage_work(shape, by_index=False) for shape in shapes)
    for stage in plan.stages:
        kind = stage_kind(stage.name)
        assert stage.seconds == pytest.approx(1e-6 * size * many[kind] / few[kind], rel=1e-2)


def test_pilot_is_at_most_a_third_and_bounded(seconds_by_size):
    for n, size in [(30_000, 10_000), (10**6, 50_000), (10**9, 50_000), (700, 600), (400, 400)]:
        plan_fit(SSDML(), n, 2)
        assert seconds_by_size[-1] == size


def test_approximate_search_is_timed_with_an_index(seconds_by_size, monkeypatch):
    monkeypatch.setattr(fit_cost, "_index_seconds", lambda rows, estimator: 7.0)
    indexed, exact = plan_fit(SSDML(), 10**6, 16).stages[0], plan_fit(SSDML(), 10**5, 16).stages[0]
    assert indexed.seconds == pytest.approx(7 * 20**1.15)
    assert exact.seconds < 7


MEASURED = """
import numpy as np
from ssdml import SSDML
from ssdml.experiments.runs.resources import PeakMemory
from ssdml.model_selection import fit_cost, plan_fit

fit_cost.PILOT_ROWS = 200  # for seconds alone
n, d, n_classes = {shape}
X = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
y = np.full(n, -1)
y[: 2 * n_classes] = np.arange(2 * n_classes) % n_classes
SSDML(guard=False, random_state=0).fit(X[:500], y[:500])  # loads what a fit loads
with PeakMemory() as before:
    pass
with PeakMemory() as memory:
    SSDML(guard=False, random_state=0).fit(X, y)
plan = plan_fit(SSDML(), n, d, n_classes=n_classes)
print(before.megabytes, memory.megabytes, plan.megabytes)
"""


@pytest.mark.long
def test_memory_is_within_a_factor_of_two():
    """In a fresh process: here, memory freed by other tests would be reused."""
    n, d, n_classes = shape = 10_000, 16, 80
    command = [sys.executable, "-W", "ignore", "-c", MEASURED.format(shape=shape)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, peak, told = map(float, done.stdout.split())
    planned = max(stage_bytes(FitShape(n, d, n_classes, d, 10, 4)).values()) / 1e6
    assert planned / 2 < peak - before < 2 * planned
    assert told / 2 < peak < 2 * told


@pytest.mark.parametrize("field", ["n_samples", "n_features", "n_classes", "n_neighbors"])
@pytest.mark.parametrize("n_forms", [1, 2])
def test_cost_grows_with_every_number(field, n_forms):
    shape = SHAPE._replace(n_forms=n_forms)
    more = shape._replace(**{field: 2 * getattr(shape, field)})
    exact, index = (partial(stage_work, by_index=by_index) for by_index in (False, True))
    for cost in (stage_bytes, exact, index):
        less, greater = cost(shape), cost(more)
        assert all(less[stage] <= greater[stage] for stage in less)
        assert any(less[stage] < greater[stage] for stage in less)


def test_double_precision_takes_more_memory(seconds_by_size):
    single, double = (
        plan_fit(SSDML(), 10**5, 20, dtype=dtype) for dtype in (np.float32, np.float64)
    )
    assert single.megabytes < double.megabytes


def test_pilot_samples_the_given_rows(tmp_path, seconds_by_size):
    np.save(tmp_path / "X.npy", np.arange(40_000.0).reshape(20_000, 2))
    rows = np.load(tmp_path / "X.npy", mmap_mode="r")
    X, classes = pilot_data(rows, 700, 2, 3, np.dtype(np.float32))
    assert len(np.unique(X[:, 0])) == 700
    assert np.isin(X, rows).all()
    assert X.dtype == np.float64
    np.testing.assert_array_equal(classes[:5], [0, 1, 2, 0, 1])
    plan_fit(SSDML(), 20_000, 2, rows=rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 1}, "n_samples must be at least 2; got 1"),
        ({"n_features": 0}, "n_features must be at least 1; got 0"),
        ({"n_classes": 0}, "n_classes must be at least 1; got 0"),
        (
            {"rows": np.zeros((700, 3))},
            r"rows must have shape \(m, n_features = 2\); got \(700, 3\)",
        ),
        ({"rows": np.zeros((100, 2))}, "rows must be at least 600; got 100"),
    ],
)
def test_impossible_shapes_raise(arguments, message):
    shape = {"n_samples": 1000, "n_features": 2}
    with pytest.raises(ValueError, match=f"plan_fit: {message}"):
        plan_fit(SSDML(), **(shape | arguments))


@pytest.mark.parametrize(
    ("estimator", "given"), [(SSDML, "the class SSDML"), (LRML(), "LRML"), (None, "NoneType")]
)
def test_plan_refuses_other_estimators(estimator, given):
    with pytest.raises(
        TypeError, match=rf"estimator must be an SSDML\(...\) instance; got {given}"
    ):
        plan_fit(estimator, 1000, 2)


def test_plan_prints_as_a_table(seconds_by_size):
    first, *lines = repr(plan_fit(SSDML(), 1000, 2)).splitlines()
    assert first.startswith("FitPlan: ")
    assert [line.split()[0] for line in lines] == [
        *("neighbors", "classes", "round", "round", "embedding")
    ]


@pytest.fixture
def run(seconds_by_size):
    """Calls ``ssdml plan`` in this process."""
    return lambda *arguments: CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_command_prints_stages_and_total(run):
    result = run("--n", 3000, "--d", 4)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    stages = [row[0] for row in rows if "MB" in row]
    assert stages == ["neighbors", "classes", "round", "round", "embedding", "all"]


def test_command_takes_the_shape_of_a_file(run, tmp_path, monkeypatch):
    calls = []

    def noted(estimator, *shape, **options):
        calls.append(shape)
        return plan_fit(estimator, *shape, **options)

    monkeypatch.setattr(fit_cost, "plan_fit", noted)
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((900, 3)))
    assert run("--like", tmp_path / "X.npy").exit_code == 0
    assert run("--like", tmp_path / "X.npy", "--n", 1200).exit_code == 0
    assert calls == [(900, 3), (1200, 3)]


def test_command_reports_missing_input_and_memory(run, tmp_path):
    assert "--n and --d" in run("--n", 100).stderr
    assert "X.npy is missing" in run("--like", tmp_path / "X.npy").stderr
    result = run("--n", 10**9, "--d", 8)
    assert result.exit_code == 0
    assert "MB are free. Use fewer classes or neighbors" in result.stderr


def test_shape_of_a_plan_is_of_whole_numbers():
    with pytest.raises(TypeError, match=r"n_samples must be a whole number; got ndarray\. .*rows"):
        plan_fit(SSDML(), np.eye(3), 3)
