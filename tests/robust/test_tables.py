"""The tables of the robust suite, against a slow twin in plain Python."""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest
from scipy import stats

from tools.robust import tables
from tools.robust.cells import Cell

METHODS = (*tables.REFERENCES, "ssdml", "ssdml[max_rounds=1]")
OURS = "ssdml"


@pytest.fixture
def rows(rng):
    """Rows of 2 sets x 2 schemes x 2 budgets x 5 seeds; a few are lost, one failed."""
    found = []
    for name in ("wine", "atis"):
        for seed in range(5):
            for scheme in ("balanced", "noisy"):
                for labels in (2, 10):
                    cell = Cell(name, "raw", scheme, labels, seed)
                    for method in METHODS:
                        values = rng.uniform(60, 90, 5).round(3).tolist()
                        scores = dict(
                            zip(("accuracy", "NMI", "R@1", "ece", "unlabeled"), values, strict=True)
                        )
                        found.append({"method": method, **cell._asdict(), **scores})
            values = rng.uniform(60, 90, 2).round(3).tolist()
            scores = dict(zip(("NMI", "R@1"), values, strict=True))
            first = Cell(name, "raw", "balanced", 2, seed)
            found.append({"method": "input", **first._asdict(), **scores})
    lost = rng.permutation(len(found))[:6]
    kept = [row for i, row in enumerate(found) if i not in lost]
    failed = {"method": OURS, **Cell("wine", "raw", "random", 2, 0)._asdict(), "error": "E: no"}
    return [kept[i] for i in rng.permutation(len(kept))] + [failed]


def value_of(rows, score, method, cell, seed):
    """A score by search, None if it is not there."""
    for row in rows:
        place = (
            ("set", "features") if method == "input" else ("set", "features", "scheme", "labels")
        )
        same = all(row[name] == getattr(cell, name) for name in place)
        if same and row["method"] == method and row["seed"] == seed:
            return row.get(score)
    return None


def slow_gains(rows, score, method, references):
    """Gains by cell: (mean, reference, mean gain, half the interval, seeds)."""
    found = {}
    cells = {Cell(*(r[f] for f in Cell._fields))._replace(seed=0) for r in rows if score in r}
    for cell in cells:
        columns = {}
        for seed in range(5):
            values = [value_of(rows, score, name, cell, seed) for name in (method, *references)]
            if None not in values:
                columns[seed] = values
        if not columns:
            continue
        means = [mean(v[i + 1] for v in columns.values()) for i in range(len(references))]
        best = means.index(max(means))
        gaps = [values[0] - values[best + 1] for values in columns.values()]
        half = stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps) if len(gaps) > 1 else np.nan
        ours = mean(values[0] for values in columns.values())
        found[cell] = (ours, references[best], mean(gaps), half, len(gaps))
    return found


@pytest.mark.parametrize(
    ("score", "method", "references"),
    [
        ("accuracy", OURS, tables.REFERENCES),
        ("accuracy", OURS, tables.REFERENCES[:1]),
        ("NMI", OURS, ("input",)),
        ("R@1", "ssdml[max_rounds=1]", ("input",)),
        ("ece", "ssdml[max_rounds=1]", (OURS,)),
    ],
)
def test_gains_match_a_slow_twin(rows, score, method, references):
    twin = slow_gains(rows, score, method, references)
    found = tables.gains(rows, score, method=method, references=references)
    assert {gain.cell for gain in found} == twin.keys()
    for gain in found:
        ours, reference, change, half, n_seeds = twin[gain.cell]
        assert (gain.reference, gain.gain.n, gain.score) == (reference, n_seeds, score)
        assert gain.value.mean == pytest.approx(ours)
        assert gain.gain.mean == pytest.approx(change)
        assert gain.gain.half_width == pytest.approx(half)
        assert gain.harms == (change < -0.3)


def text(value):
    return f"{value:+.1f}".replace("-", "−").removeprefix("+" if round(value, 1) == 0 else "")


def test_the_summary_averages_over_cells(rows):
    head, *lines = tables.summary(rows)
    assert [line[0] for line in lines] == ["balanced", "noisy", "all"]
    for scheme, line in zip(("balanced", "noisy", None), lines, strict=True):
        told = dict(zip(head, line, strict=True))
        for column, score, references in (
            *((f"over {tables.title(name)}", "accuracy", (name,)) for name in tables.REFERENCES),
            ("over the best", "accuracy", tables.REFERENCES),
            ("NMI over the input", "NMI", ("input",)),
            ("R@1 over the input", "R@1", ("input",)),
        ):
            twin = slow_gains(rows, score, OURS, references)
            gaps = [v[2] for cell, v in twin.items() if scheme in (None, cell.scheme)]
            harmed = sum(gap < -0.3 for gap in gaps)
            assert told[column] == f"{text(mean(gaps))} ({harmed})"
        assert told["cells"] == str(len(gaps))


def test_the_grid_has_a_column_per_budget(rows):
    head, *lines = tables.grid(rows, "noisy")
    assert head == ("data", "features", "labels", "2", "10")
    assert [line[:3] for line in lines] == [("atis", "raw", "noisy"), ("wine", "raw", "noisy")]
    twin = slow_gains(rows, "accuracy", OURS, tables.REFERENCES)
    for name, *_, few, many in lines:
        for labels, told in ((2, few), (10, many)):
            ours, _, change, half, _ = twin[Cell(name, "raw", "noisy", labels, 0)]
            bold = "**" * (change < -0.3)
            assert told == f"{ours:.1f} {bold}{text(change)}{bold} ± {half:.1f}"


def test_harm_is_listed_worst_first(rows):
    head, *lines = tables.harmed(rows)
    expected = []
    for score, references in (
        ("accuracy", tables.REFERENCES),
        ("NMI", ("input",)),
        ("R@1", ("input",)),
    ):
        twin = slow_gains(rows, score, OURS, references)
        harmed = ((v[2], c.set, c.scheme, str(c.labels), score, v[1]) for c, v in twin.items())
        expected += [entry for entry in harmed if entry[0] < -0.3]
    told = [tuple(dict(zip(head, line, strict=True)).values()) for line in lines]
    assert [(t[0], t[2], t[3], t[4], t[6]) for t in told] == [
        (*e[1:5], tables.title(e[5])) for e in sorted(expected)
    ]


def test_variants_are_compared_with_the_default(rows):
    _, line = tables.variants(rows)
    twin = slow_gains(rows, "accuracy", "ssdml[max_rounds=1]", (OURS,))
    gaps = [values[2] for values in twin.values()]
    shown = (mean(gaps), min(gaps), max(gaps))
    assert line[:5] == ("ssdml[max_rounds=1]", str(len(gaps)), *map(text, shown))
    calibration = [v[2] for v in slow_gains(rows, "ece", "ssdml[max_rounds=1]", (OURS,)).values()]
    assert line[-1] == text(mean(calibration))


def test_every_cell_shows_all_means(rows):
    head, *lines = tables.cells(rows, ("input", *tables.REFERENCES, OURS))
    named = map(tables.title, tables.REFERENCES)
    assert head[4:] == (*named, OURS, "gain", "NMI gain", "R@1 gain")
    for name, form, scheme, labels, *means in lines:
        for method, told in zip((*tables.REFERENCES, OURS), means, strict=False):
            cell = Cell(name, form, scheme, int(labels), 0)
            values = [value_of(rows, "accuracy", method, cell, seed) for seed in range(5)]
            assert told == f"{mean(v for v in values if v is not None):.1f}"
    assert len(lines) == 8


def test_failures_are_listed(rows):
    _, line = tables.failures(rows)
    assert line == (OURS, "wine", "raw", "random", "2", "0", "E: no")


def test_no_rows_give_empty_tables():
    for table in (tables.summary, tables.grid, tables.harmed, tables.variants, tables.failures):
        assert len(list(table([]))) == 1
