"""What a comparison refuses before its first run, and what a call that was stopped there leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sklearn.base import BaseEstimator

from ssdml.experiments import METHODS, compare
from ssdml.experiments.runs.folder import read_status


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        ("ssdml[decay=2]", ValueError, r"'decay' parameter of SSDML must be .* Got 2 instead"),
        ("deep-ssdml[epochs=-1]", ValueError, "'epochs' parameter of DeepSSDML"),
        ("ssdml[dekay=2]", ValueError, "Invalid parameter 'dekay'"),
        ("lda[transformer__shrinkage=x]", ValueError, "'shrinkage' parameter of Linear"),
        ("ssdml-tuned[estimator__decay=2]", ValueError, "'decay' parameter of SSDML"),
        ("umap", ImportError, r"umap needs umap-learn: pip install 'ssdml\[umap\]'"),
        ("umap-tuned", ImportError, r"umap-tuned needs umap-learn: pip install 'ssdml\[umap\]'"),
    ],
)
def test_what_no_run_could_do_is_told_before_the_first(
    blobs, tmp_path, monkeypatch, method, error, message
):
    monkeypatch.delitem(METHODS, "umap", raising=False)
    monkeypatch.setattr("ssdml.experiments.methods.base.find_spec", lambda name: None)
    images = replace(blobs, X=blobs.X[:, :1], item_shape=(1, 1))
    with pytest.raises(error, match=message):
        compare(images, ["input", method], out=tmp_path, deep=True)
    assert not list(tmp_path.iterdir())


def test_no_jobs_are_refused_before_anything_is_written(blobs, tmp_path):
    with pytest.raises(ValueError, match="n_jobs must not be 0; got 0"):
        compare(blobs, ["input"], out=tmp_path, n_jobs=0)
    assert not list(tmp_path.iterdir())


def test_a_call_that_was_stopped_in_its_first_run_leaves_no_trace_in_the_next(
    blobs, tmp_path, monkeypatch
):
    class Stopped(BaseEstimator):
        def fit(self, X, y):
            with pytest.raises(FileExistsError, match=r"holds results already"):
                compare(blobs, ["input"], out=tmp_path)  # while it runs
            raise KeyboardInterrupt

    monkeypatch.setitem(METHODS, "stopped", lambda seed, n_jobs: Stopped())
    with pytest.raises(KeyboardInterrupt):
        compare(blobs, ["stopped"], out=tmp_path)
    assert len(read_status(tmp_path).waiting) == 5
    other = replace(blobs, X=blobs.X[:100], y=blobs.y[:100])
    assert len(compare(other, ["input"], out=tmp_path, seeds=[0])) == 1
    assert (read_status(tmp_path).n_planned, read_status(tmp_path).waiting) == (1, [])
