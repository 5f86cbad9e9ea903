"""A comparison is paired, resumes, and continues when a method fails."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

from ssdml import SSDML
from ssdml.baselines import LRML
from ssdml.datasets import LabelScarceSplit, label_scarce_split
from ssdml.evaluation import evaluate, few_label_accuracy
from ssdml.experiments import METHODS, compare, preprocessing
from ssdml.experiments.analysis.tables import FIRST
from ssdml.experiments.runs import job
from ssdml.experiments.runs.details import load_details
from ssdml.experiments.runs.folder import read_status
from ssdml.experiments.runs.grid import make_runs
from ssdml.experiments.runs.results import RESULTS, read_rows

FIELDS = {
    "dataset", "method", "seed", "labels_per_class", "n_train", "n_labeled", "n_test", "scores",
    "seconds", "peak_rss_mb", "config_hash", "versions", "status", "error", "data", "features",
}  # fmt: skip


class Recorder(BaseEstimator):
    """Return the input; record what is fitted."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y):
        self.seen.append((X, y))
        return self

    def transform(self, X):
        return X


@pytest.fixture
def recorder(monkeypatch):
    Recorder.seen = []
    monkeypatch.setitem(METHODS, "recorder", lambda seed, n_jobs: Recorder())
    return "recorder"


def test_known_methods_are_registered():
    names = {"input", "pca", "lda", "nca", "ssdml", "ssdml-paper"}
    assert set(METHODS) >= names
    assert set(FIRST) - {"tabpfn"} <= set(METHODS)


def test_single_job_uses_all_cores(blobs, tmp_path, monkeypatch):
    class Threads(Recorder):
        def __init__(self, n_jobs=None):
            self.n_jobs = n_jobs

        def fit(self, X, y):
            raise RuntimeError(f"{self.n_jobs} threads")

    monkeypatch.setitem(METHODS, "threads", lambda seed, n_jobs: Threads(n_jobs))
    (row,) = compare(blobs, ["threads"], out=tmp_path, seeds=[0], labels_per_class=[2])
    assert row["error"] == "RuntimeError: -1 threads"


def test_row_has_the_documented_fields(blobs, tmp_path):
    (row,) = compare(blobs, ["input"], out=tmp_path, seeds=[3], labels_per_class=[2])
    assert set(row) == FIELDS
    assert (row["dataset"], row["method"], row["seed"]) == (blobs.name, "input", 3)
    assert (row["n_train"], row["n_labeled"], row["n_test"]) == (81, 6, 39)
    assert set(row["seconds"]) == {"fit", "transform"}
    assert (row["status"], row["error"]) == ("ok", None)
    assert json.loads((tmp_path / RESULTS).read_text()) == row


def test_scores_are_of_the_embedded_test_samples(blobs, tmp_path):
    (row,) = compare(blobs, ["input"], out=tmp_path, seeds=[1], labels_per_class=[2])
    split = label_scarce_split(blobs, 2, seed=1)
    X, y = blobs.X[split.test], blobs.y[split.test]
    expected = evaluate(X, y, random_state=1)
    expected.pop("RP")
    expected["accuracy"] = few_label_accuracy(blobs.X[split.labeled], blobs.y[split.labeled], X, y)
    assert row["scores"] == pytest.approx(expected)


REFERENCES = ("logistic", "knn", "poisson")


@pytest.mark.parametrize("name", [*REFERENCES, "lda", "label-spreading", "lrml", "ssdml"])
def test_accuracy_is_that_of_predict_on_test_samples(blobs, tmp_path, name):
    noisy = replace(blobs, X=blobs.X + 2 * np.random.default_rng(0).standard_normal(blobs.X.shape))
    (row,) = compare(noisy, [name], out=tmp_path, seeds=[1], labels_per_class=[3])
    split = label_scarce_split(noisy, 3, seed=1)
    model = METHODS[name](1, None)
    model.fit(noisy.X[split.train], split.partial_labels(noisy.y))
    own = np.mean(model.predict(noisy.X[split.test]) == noisy.y[split.test])
    assert row["scores"]["accuracy"] == pytest.approx(100 * own)
    assert row["predicted"]


def test_classifiers_without_a_metric_have_accuracy_alone(blobs, tmp_path):
    rows = compare(blobs, REFERENCES, out=tmp_path, seeds=[0], labels_per_class=[2])
    assert [row["scores"].keys() for row in rows] == [{"accuracy"}] * 3
    assert [row["status"] for row in rows] == ["ok"] * 3
    kept = load_details(tmp_path / "details" / f"{rows[0]['config_hash']}.npz")
    assert kept.answers.reliability is not None
    assert kept.answers.predictions.by_predict


def test_a_classifier_needs_test_samples_of_labeled_classes(blobs, tmp_path):
    disjoint = replace(blobs, test=blobs.y == 2)
    (row,) = compare(disjoint, ["knn"], out=tmp_path, seeds=[0])
    assert "method without transform has no score, since no class of the test" in row["error"]


def test_methods_get_training_samples_and_given_labels(blobs, tmp_path, recorder):
    compare(blobs, [recorder], out=tmp_path, seeds=[0], labels_per_class=[2])
    split = label_scarce_split(blobs, 2, seed=0)
    ((X, y),) = Recorder.seen
    np.testing.assert_array_equal(X, blobs.X[split.train])
    np.testing.assert_array_equal(y, split.partial_labels(blobs.y))


def test_methods_share_the_saved_splits(blobs, tmp_path, recorder):
    METHODS["recorder-2"] = METHODS["recorder"]
    try:
        compare(blobs, [recorder, "recorder-2"], out=tmp_path, seeds=[0, 1])
    finally:
        del METHODS["recorder-2"]
    first, second, third, _ = Recorder.seen
    np.testing.assert_array_equal(first[1], second[1])
    assert (first[0] != third[0]).any()  # another seed, other rows
    saved = [LabelScarceSplit.load(path) for path in sorted((tmp_path / "splits").iterdir())]
    expected = [label_scarce_split(blobs, 5, seed=seed) for seed in (0, 1)]
    assert [split.digest for split in saved] == [split.digest for split in expected]


def test_supervised_methods_fit_labeled_samples_only(blobs):
    split = label_scarce_split(blobs, 5, seed=0)
    X, y = blobs.X[split.train], split.partial_labels(blobs.y)
    for name in ("lda", "nca"):
        few = METHODS[name](0, None).fit(X[y >= 0], y[y >= 0])
        all_rows = METHODS[name](0, None).fit(X, y)
        np.testing.assert_array_equal(few.transform(X), all_rows.transform(X))


def test_failure_is_recorded_and_others_continue(blobs, tmp_path, broken_method):
    rows = compare(blobs, [broken_method, "input"], out=tmp_path, seeds=[0])
    assert [row["status"] for row in rows] == ["failed", "ok"]
    assert rows[0]["error"] == "RuntimeError: no <metric> & no luck"
    assert rows[0]["scores"] == {}
    trace = (tmp_path / "errors" / "-blobs-co-broken-5-labels-seed-0.txt").read_text()
    assert "in fit" in trace


def test_embedding_with_nan_fails(blobs, tmp_path, monkeypatch):
    class Lost(Recorder):
        def transform(self, X):
            return np.full((len(X), 2), np.nan)

    monkeypatch.setitem(METHODS, "lost", lambda seed, n_jobs: Lost())
    (row,) = compare(blobs, ["lost"], out=tmp_path, seeds=[0])
    assert row["status"] == "failed"
    assert "Lost.transform: embedding must be finite; got nan at row 0" in row["error"]


def test_resume_retries_failed_runs_only(blobs, tmp_path, recorder, broken_method, monkeypatch):
    compare(blobs, [broken_method, recorder], out=tmp_path, seeds=[0, 1])
    monkeypatch.setitem(METHODS, broken_method, METHODS["input"])
    rows = compare(blobs, [broken_method, recorder], out=tmp_path, seeds=[0, 1], resume=True)
    assert [row["status"] for row in rows] == ["ok"] * 4
    assert len(Recorder.seen) == 2
    assert not list((tmp_path / "errors").iterdir())


def test_resume_adds_seeds_and_budgets(blobs, tmp_path, recorder):
    first = compare(blobs, [recorder], out=tmp_path, seeds=[0])
    more = compare(
        blobs, [recorder], out=tmp_path, seeds=[0, 1], labels_per_class=[2, 5], resume=True
    )
    assert len(Recorder.seen) == len(more) == len(read_rows(tmp_path / RESULTS)) == 4
    assert first[0] in more


def test_existing_results_need_resume(blobs, tmp_path):
    compare(blobs, ["input"], out=tmp_path, seeds=[0])
    before = (tmp_path / RESULTS).read_bytes()
    with pytest.raises(FileExistsError, match=r"results\.jsonl holds results already.*--resume"):
        compare(blobs, ["pca"], out=tmp_path, seeds=[0])
    assert (tmp_path / RESULTS).read_bytes() == before


def test_changed_data_of_the_same_name_are_refused(blobs, tmp_path):
    compare(blobs, ["input"], out=tmp_path, seeds=[0])
    fewer = replace(blobs, X=blobs.X[:100], y=blobs.y[:100])
    rescaled = replace(blobs, X=2 * blobs.X)  # its splits are the same
    for other in (fewer, rescaled):
        with pytest.raises(
            ValueError, match="holds runs on other samples or labels called '<blobs> & co'"
        ):
            compare(other, ["input"], out=tmp_path, seeds=[0], labels_per_class=2, resume=True)
    assert read_status(tmp_path).pending == []
    assert len(list((tmp_path / "splits").iterdir())) == 1


def test_other_features_of_the_same_data_are_refused(blobs, tmp_path):
    compare(blobs, ["input"], out=tmp_path, seeds=[0], features="unit")
    message = "features='unit', and their scores are not comparable with those of features='raw'"
    with pytest.raises(ValueError, match=message):
        compare(blobs, ["pca"], out=tmp_path, seeds=[0], resume=True)
    assert read_status(tmp_path).pending == []
    (row,) = compare(blobs, ["pca"], out=tmp_path, seeds=[0], features="unit", resume=True)
    assert row["status"] == "ok"


def test_failed_runs_on_other_data_do_not_prevent_resuming(blobs, tmp_path, broken_method):
    compare(replace(blobs, X=2 * blobs.X), [broken_method], out=tmp_path, seeds=[0])
    (row,) = compare(blobs, ["input"], out=tmp_path, seeds=[0], resume=True)
    assert row["status"] == "ok"


def test_changed_splits_are_refused(blobs, tmp_path):
    compare(blobs, ["input"], out=tmp_path, seeds=[0])
    rows = [json.loads(line) for line in (tmp_path / RESULTS).read_text().splitlines()]
    early = [{k: v for k, v in row.items() if k != "data"} for row in rows]
    for row in early:
        (tmp_path / "runs" / f"{row['config_hash']}.json").write_text(json.dumps(row))
    fewer = replace(blobs, X=blobs.X[:100], y=blobs.y[:100])
    with pytest.raises(ValueError, match=r"seed-0\.json: holds another split.*data have changed"):
        compare(fewer, ["input"], out=tmp_path, seeds=[0], resume=True)


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        ("ssdml[decay=2]", ValueError, r"'decay' parameter of SSDML must be .* Got 2 instead"),
        ("deep-ssdml[epochs=-1]", ValueError, "'epochs' parameter of DeepSSDML"),
        ("ssdml[dekay=2]", ValueError, "Invalid parameter 'dekay'"),
        ("lda[transformer__shrinkage=x]", ValueError, "'shrinkage' parameter of Linear"),
        ("ssdml-tuned[estimator__decay=2]", ValueError, "'decay' parameter of SSDML"),
        ("tabpfn", ImportError, r"tabpfn needs tabpfn: pip install 'ssdml\[tabpfn\]'"),
        ("umap", ImportError, r"umap needs umap-learn: pip install 'ssdml\[umap\]'"),
        ("umap-tuned", ImportError, r"umap-tuned needs umap-learn: pip install 'ssdml\[umap\]'"),
    ],
)
def test_wrong_parameters_are_named_before_any_run(
    blobs, tmp_path, monkeypatch, method, error, message
):
    for name in ("umap", "tabpfn"):
        monkeypatch.delitem(METHODS, name, raising=False)
    monkeypatch.setattr("ssdml.experiments.methods.base.find_spec", lambda name: None)
    images = replace(blobs, X=blobs.X[:, :1], item_shape=(1, 1))
    with pytest.raises(error, match=message):
        compare(images, ["input", method], out=tmp_path, deep=True)
    assert not list(tmp_path.iterdir())


def test_zero_jobs_are_refused_and_nothing_written(blobs, tmp_path):
    with pytest.raises(ValueError, match=r"^compare: n_jobs must be .*; got 0\. Pass"):
        compare(blobs, ["input"], out=tmp_path, n_jobs=0)
    assert not list(tmp_path.iterdir())


def test_call_stopped_in_its_first_run_leaves_nothing(blobs, tmp_path, monkeypatch):
    class Stopped(BaseEstimator):
        def fit(self, X, y):
            with pytest.raises(FileExistsError, match=r"holds results already"):
                compare(blobs, ["input"], out=tmp_path)  # while it runs
            raise KeyboardInterrupt

    monkeypatch.setitem(METHODS, "stopped", lambda seed, n_jobs: Stopped())
    with pytest.raises(KeyboardInterrupt):
        compare(blobs, ["stopped"], out=tmp_path)
    assert len(read_status(tmp_path).pending) == 5
    other = replace(blobs, X=blobs.X[:100], y=blobs.y[:100])
    assert len(compare(other, ["input"], out=tmp_path, seeds=[0])) == 1
    found = read_status(tmp_path)
    assert (len(found.done), found.pending) == (1, [])


@pytest.mark.parametrize("dataset", ["digits", (np.eye(2), [0, 1]), None])
def test_data_that_are_no_dataset_are_named(tmp_path, dataset):
    message = f"dataset must be a Dataset; got {type(dataset).__name__}. Pass .*load_dataset"
    with pytest.raises(TypeError, match=message):
        compare(dataset, ["input"], out=tmp_path / "out")


def test_estimators_in_place_of_factories_are_named(blobs, tmp_path):
    message = r"methods\['mine'\] must make an estimator; got SSDML\(\)\. Pass lambda random_state"
    with pytest.raises(TypeError, match=message):
        compare(blobs, {"mine": SSDML()}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_factories_of_other_arguments_and_keys_are_named(blobs, tmp_path):
    message = r"methods\['mine'\] must make an .*; got TypeError: .*argument.*Pass lambda random"
    with pytest.raises(TypeError, match=message):
        compare(blobs, {"mine": lambda seed: SSDML()}, out=tmp_path / "out")
    with pytest.raises(TypeError, match=r"methods\['mine'\] must make an estimator; got None\."):
        compare(blobs, {"mine": lambda seed, n_jobs: None}, out=tmp_path / "out")
    with pytest.raises(TypeError, match=r"keys of methods must be strings; got 1\. Pass '1'"):
        compare(blobs, {1: lambda random_state, n_jobs: SSDML()}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


as_objects = partial(np.asarray, dtype=object)


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.DataFrame, torch.tensor, list, as_objects])
def test_embeddings_may_be_tables_and_tensors(blobs, tmp_path, convert):
    class Converted(PCA):
        def transform(self, X):
            return convert(super().transform(X))

    methods = {
        "converted": lambda random_state, n_jobs: Converted(2),
        "pca": lambda random_state, n_jobs: PCA(2),
    }
    one, other = compare(blobs, methods, out=tmp_path, seeds=np.arange(1), labels_per_class=[2])
    assert one["status"] == "ok"
    assert one["scores"] == other["scores"]


def test_one_method_and_one_budget_may_be_given_alone(blobs, tmp_path):
    alone = compare(blobs, "input", out=tmp_path / "a", labels_per_class=np.int64(2), seeds=[0])
    listed = compare(blobs, ["input"], out=tmp_path / "b", labels_per_class=[2], seeds=[0])
    assert [row["config_hash"] for row in alone] == [row["config_hash"] for row in listed]
    with pytest.raises(TypeError, match=r"seeds must be a sequence .*; got 3\. Pass range\(3\)"):
        compare(blobs, "input", out=tmp_path / "c", seeds=3)


def test_clusters_are_addresses(blobs, tmp_path):
    with pytest.raises(TypeError, match=r"compare: cluster must be an address .*; got 3\."):
        compare(blobs, ["input"], cluster=3, out=tmp_path)


def test_empty_grids_are_refused(tmp_path, blobs):
    for name, given in (("seeds", {"seeds": []}), ("labels", {"labels_per_class": []})):
        with pytest.raises(ValueError, match=f"compare: {name} must name at least one; got none"):
            compare(blobs, ["input"], out=tmp_path / "out", **given)
    with pytest.raises(ValueError, match="compare: methods must name at least one"):
        compare(blobs, [], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_function_and_module_share_the_name():
    """Whichever is imported first."""
    code = (
        "from ssdml.experiments.compare import available_methods, compare\n"
        "from ssdml.experiments import compare as again\n"
        "assert compare is again and callable(compare)\n"
        "import sys\n"
        "assert {'torch', 'sklearn', 'scipy'} & sys.modules.keys() == set()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("change", ["data", "seed", "labels", "method", "parameters", "features"])
def test_hash_depends_on_what_decides_the_result(blobs, change):
    def hash_of(dataset, name, factory, labels, seed, features="unit"):
        (run,) = make_runs(dataset, {name: factory}, [labels], [seed], features=features)
        return run.config_hash

    usual = {"dataset": blobs, "name": "m", "factory": METHODS["nca"], "labels": 2, "seed": 0}
    X = blobs.X.copy()
    X[0, 0] += 1
    other = {
        "data": {"dataset": replace(blobs, X=X)},
        "seed": {"seed": 1},
        "labels": {"labels": 3},
        "method": {"name": "n"},
        "parameters": {"factory": METHODS["lda"]},
        "features": {"features": "components"},
    }[change]
    assert hash_of(**usual) == hash_of(**usual)
    assert hash_of(**usual) != hash_of(**usual | other)


def test_hash_ignores_rounding_of_preprocessing(blobs, tmp_path, monkeypatch):
    known = {"seeds": [0], "features": "components", "out": tmp_path}
    (row,) = compare(blobs, ["input"], **known)
    whole = preprocessing.FORMS["components"]

    def otherwise(dataset):
        computed = whole(dataset)
        return replace(computed, X=np.nextafter(computed.X, np.float32(9)))

    monkeypatch.setitem(preprocessing.FORMS, "components", otherwise)
    assert compare(blobs, ["input"], **known, resume=True) == [row]  # not run again


def test_hash_ignores_the_number_of_jobs(blobs):
    from sklearn.neighbors import KNeighborsTransformer

    def hashed(n_jobs):
        method = {"m": lambda seed, _: KNeighborsTransformer(n_jobs=n_jobs)}
        return make_runs(blobs, method, [2], [0])[0].config_hash

    assert hashed(1) == hashed(2)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("kw_args", {"k": np.int64(5)}, {"k": np.int64(7)}),
        ("kw_args", {"k": np.float32(0.5)}, {"k": np.float32(0.25)}),
        ("kw_args", {"weights": np.eye(2)}, {"weights": np.ones((2, 2))}),
        ("func", np.log1p, np.sqrt),
        ("func", np.linalg.norm, np.linalg.det),
        ("func", lambda X: X**2, lambda X: X**3),
        ("func", partial(np.clip, a_min=0), partial(np.clip, a_min=1)),
    ],
)
def test_hash_tells_numbers_arrays_and_functions_apart(blobs, name, one, other):
    """Or a run with another value would be taken for finished."""

    def hashed(value):
        method = {"m": lambda seed, _: FunctionTransformer(**{name: value})}
        return make_runs(blobs, method, [2], [0])[0].config_hash

    assert hashed(one) != hashed(other)
    assert hashed(one) == hashed(one)


def test_hash_of_numbers_of_numpy_is_that_of_others(blobs):
    def hashed(k):
        return make_runs(blobs, {"m": lambda *_: LRML(n_neighbors=k)}, [2], [0])[0].config_hash

    assert hashed(np.int64(5)) == hashed(5)


def test_parallel_runs_give_the_same_scores(blobs, tmp_path):
    one = compare(blobs, ["input", "pca"], out=tmp_path / "one", seeds=[0, 1])
    two = compare(blobs, ["input", "pca"], out=tmp_path / "two", seeds=[0, 1], n_jobs=2)
    assert [row["scores"] for row in one] == [row["scores"] for row in two]
    assert [row["config_hash"] for row in one] == [row["config_hash"] for row in two]


def test_progress_counts_earlier_runs(blobs, tmp_path):
    compare(blobs, ["input"], out=tmp_path, seeds=[0])
    told = []
    compare(
        blobs,
        ["input"],
        out=tmp_path,
        seeds=[0, 1],
        resume=True,
        progress=lambda *news: told.append(news),
    )
    assert told == [(1, 2, "input, 5 labels per class, seed 1"), (2, 2, "")]


def test_unknown_method_is_named_and_nothing_written(blobs, tmp_path):
    with pytest.raises(ValueError, match=r"method must be one of .*'nac'\. Did you mean 'nca'\?"):
        compare(blobs, ["nac"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_warnings_of_a_run_are_kept(blobs, tmp_path, monkeypatch):
    class Anxious(Recorder):
        def fit(self, X, y):
            warnings.warn("careful", stacklevel=2)
            warnings.warn("careful", stacklevel=2)
            return self

    monkeypatch.setitem(METHODS, "anxious", lambda seed, n_jobs: Anxious())
    (row,) = compare(blobs, ["anxious"], out=tmp_path, seeds=[0])
    assert load_details(tmp_path / "details" / f"{row['config_hash']}.npz").warnings == ["careful"]


def test_seconds_are_of_fit_and_transform(blobs, monkeypatch):
    class Slow(Recorder):
        def fit(self, X, y):
            time.sleep(0.05)
            return self

        def transform(self, X):
            time.sleep(0.02)
            return X

    (run,) = make_runs(blobs, {"slow": lambda seed, n_jobs: Slow()}, [2], [0])
    row = job.run_one(blobs, run).row
    assert 0.05 <= row["seconds"]["fit"] < 5  # a busy machine sleeps longer
    assert 0.02 <= row["seconds"]["transform"] < 5


def test_full_disk_is_no_failure_of_the_method(blobs, tmp_path, monkeypatch):
    def full(path, details):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(job, "save_details", full)
    with pytest.raises(OSError, match="No space left"):
        compare(blobs, ["input"], out=tmp_path, seeds=[0])
    assert read_rows(tmp_path / RESULTS) == []
    monkeypatch.undo()
    assert compare(blobs, ["input"], out=tmp_path, seeds=[0], resume=True)[0]["status"] == "ok"


def test_ctrl_c_keeps_finished_runs(blobs, tmp_path, recorder, monkeypatch):
    def interrupted(self, X, y, fit=Recorder.fit):
        if len(self.seen) == 2:
            raise KeyboardInterrupt
        return fit(self, X, y)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compare(blobs, [recorder, "input"], out=tmp_path, seeds=range(4))
    kept = read_rows(tmp_path / RESULTS)
    assert [(row["method"], row["seed"]) for row in kept] == [
        (recorder, 0), ("input", 0), (recorder, 1), ("input", 1)
    ]  # fmt: skip

    rows = compare(blobs, [recorder, "input"], out=tmp_path, seeds=range(4), resume=True)
    assert len(Recorder.seen) == 4  # no run twice
    assert [row["status"] for row in rows] == ["ok"] * 8
    assert rows[:4] == kept
    assert read_rows(tmp_path / RESULTS) == rows
