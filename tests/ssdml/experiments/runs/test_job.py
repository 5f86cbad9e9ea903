"""Details of a run for the report: map, neighborhood, thumbnails, history."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import ClassifierMixin

from ssdml.datasets import label_scarce_split
from ssdml.experiments import METHODS, compare
from ssdml.experiments.methods.estimators import InputFeatures
from ssdml.experiments.runs.details import load_details, map_rows as map_rows_of
from ssdml.experiments.runs.folder import read_status
from ssdml.experiments.runs.job import SCORES
from ssdml.experiments.runs.thumbnails import load_thumbnails, thumbnails_path


def test_first_seed_keeps_a_map(blobs, tmp_path):
    rows = compare(blobs, ["input"], out=tmp_path, seeds=[4, 5])
    kept = [load_details(tmp_path / "details" / f"{row['config_hash']}.npz") for row in rows]
    assert [details.sample is not None for details in kept] == [True, False]


def test_thumbnails_cover_the_maps_of_all_calls(blobs, tmp_path):
    texts = np.array([f"text {i}" for i in range(len(blobs.y))], dtype=object)
    written, split = replace(blobs, texts=texts), label_scarce_split(blobs, 5, seed=0)
    before: set[int] = set()
    for map_rows in (20, 7, 30):
        (row,) = compare(
            written, ["input"], out=tmp_path, seeds=[0], map_rows=map_rows, resume=True
        )
        (path,) = (tmp_path / "thumbnails").iterdir()
        kept = load_thumbnails(path)
        assert before | set(np.concatenate(map_rows_of(split, map_rows))) == set(kept.rows)
        assert kept.texts == [f"text {row}" for row in kept.rows]
        before = set(kept.rows)
    details = load_details(tmp_path / "details" / f"{row['config_hash']}.npz")
    assert path == thumbnails_path(tmp_path, details.config["data"])


def test_data_sets_have_their_own_thumbnails(blobs, tmp_path):
    for name in ("first", "second"):
        texts = np.array([f"{name} {i}" for i in range(len(blobs.y))], dtype=object)
        other = replace(blobs, name=name, X=blobs.X + len(name), texts=texts)
        compare(other, ["input"], out=tmp_path, seeds=[0], resume=True)
    kept = [
        load_thumbnails(path).texts[0].split()[0] for path in (tmp_path / "thumbnails").iterdir()
    ]
    assert sorted(kept) == ["first", "second"]


HISTORIES = [
    ([{"loss": np.float32(0.5), "at": Path("x")}], [{"loss": 0.5, "at": "x"}]),
    ({"loss": [1.0]}, []),
    ([1.0], []),
]


@pytest.mark.parametrize(("history", "wanted"), HISTORIES)
def test_history_is_kept_if_a_list_of_dicts(blobs, tmp_path, monkeypatch, history, wanted):
    class Told(InputFeatures):
        history_ = history

    monkeypatch.setitem(METHODS, "told", lambda seed, n_jobs: Told())
    (row,) = compare(blobs, ["told"], out=tmp_path, seeds=[0])
    assert row["status"] == "ok", row["error"]
    kept = load_details(tmp_path / "details" / f"{row['config_hash']}.npz")
    assert kept.history == wanted


def test_unlabeled_classes_embed_samples_on_the_map_only(blobs, tmp_path, monkeypatch):
    """Only class 2 is scored, and it has no label."""
    asked = []

    class Counted(InputFeatures):
        def transform(self, X):
            asked.append(len(X))
            return X

    monkeypatch.setitem(METHODS, "counted", lambda seed, n_jobs: Counted())
    disjoint = replace(blobs, test=blobs.y == 2)
    for map_rows, wanted in ((0, [40]), (9, [40, 10])):
        asked.clear()
        out = tmp_path / str(map_rows)
        (row,) = compare(disjoint, ["counted"], out=out, seeds=[0], map_rows=map_rows)
        assert "accuracy" not in row["scores"]
        assert asked == wanted


def test_no_map_keeps_no_sample(blobs, tmp_path):
    (row,) = compare(blobs, ["input"], out=tmp_path, seeds=[0], map_rows=0)
    kept = load_details(tmp_path / "details" / f"{row['config_hash']}.npz")
    assert kept.sample is None
    assert not (tmp_path / "thumbnails").exists()


class Refusing(InputFeatures):
    """Raise an error in fit."""

    def __init__(self, error):
        self.error = error

    def fit(self, X, y=None):
        raise self.error


class Constant(InputFeatures):
    """An embedding that is NaN, or one class that is -1."""

    def fit(self, X, y=None):
        self.classes_ = np.array([-1, 0])
        return self

    def predict(self, X):
        return np.zeros(len(X), int)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("too few labels"), "left out"),
        (RuntimeError("broken"), "failed"),
        (np.linalg.LinAlgError("singular"), "failed"),
        (SystemExit(4), "failed"),
    ],
)
def test_only_a_refusal_of_the_labels_is_left_out(blobs, tmp_path, error, status):
    (row,) = compare(blobs, {"m": lambda seed, n: Refusing(error)}, out=tmp_path, seeds=[0])
    assert row["status"] == status
    assert row["error"] == f"{type(error).__name__}: {error}"
    found = read_status(tmp_path)
    assert (len(found.left_out), len(found.failed)) == (status == "left out", status == "failed")


class Shaped(InputFeatures):
    """An embedding of another shape."""

    def __init__(self, change):
        self.change = change

    def transform(self, X):
        return self.change(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:1], r"must return one row .*; got shape \(1, 4\)"),
        (lambda X: X[:, 0], r"embedding must have two dimensions .*; got shape \(\d+,\)"),
        (lambda X: X[None], r"embedding must have two dimensions .*; got shape \(1, \d+, 4\)"),
        (lambda X: None, r"embedding must be an array or a table of numbers; got NoneType"),
    ],
)
def test_embeddings_have_a_row_per_sample(blobs, tmp_path, change, message):
    (row,) = compare(blobs, {"m": lambda seed, n: Shaped(change)}, out=tmp_path, seeds=[0])
    assert row["status"] == "failed"
    assert re.search(rf"Shaped.transform:? {message}", row["error"])


def test_undefined_scores_are_failures(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "ssdml.experiments.runs.job.evaluate",
        lambda *args, **options: dict.fromkeys(SCORES, float("nan")),
    )
    (row,) = compare(blobs, ["input"], out=tmp_path, seeds=[0])
    assert (row["status"], row["scores"]) == ("failed", {})
    assert "scores must be finite; got nan for NMI, F1" in row["error"]


def test_unlabeled_is_no_class(blobs, tmp_path):
    (row,) = compare(blobs, {"m": lambda seed, n: Constant()}, out=tmp_path, seeds=[0])
    assert row["status"] == "failed"
    assert "Constant takes -1, which marks samples without a label, for a class" in row["error"]


class Contrary(ClassifierMixin, InputFeatures):
    """Predict one class for all samples; the embedding separates the classes."""

    def predict(self, X):
        return np.full(len(X), 2)


def test_accuracy_of_a_classifier_uses_its_predictions(blobs, tmp_path):
    methods = {"input": METHODS["input"], "contrary": lambda seed, n_jobs: Contrary()}
    by_means, own = compare(blobs, methods, out=tmp_path, seeds=[0])
    split = label_scarce_split(blobs, 5, seed=0)
    assert own["scores"]["accuracy"] == pytest.approx(100 * np.mean(blobs.y[split.test] == 2))
    assert by_means["scores"]["accuracy"] > own["scores"]["accuracy"] + 20
    assert by_means["scores"]["NMI"] == own["scores"]["NMI"]
