"""Diverging fits raise or warn, and leave no checkpoint."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

from ssdml import DeepSSDML
from ssdml.deep import published
from ssdml.deep.trainer import PartitionTrainer
from ssdml.graphs import Triplets
from ssdml.utils import distributed
from ssdml.utils.progress import Stages
from tests.deep import small_model, small_network, small_published_model


class Fading(nn.Module):
    """Features scaled by a factor after n training batches."""

    def __init__(self, factor, after):
        super().__init__()
        self.inner, self.factor, self.after = small_network(), factor, after
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, samples):
        self.calls += self.training
        factor = self.factor if self.calls > self.after else 1.0
        keep = torch.arange(len(samples)) % 5 == 0
        rows = self.inner(samples)
        return rows * (torch.where(keep, 1.0, 0.0)[:, None] if factor is None else factor)


class TestTheNetwork:
    def test_diverged_training_leaves_no_checkpoint(self, digits, tmp_path):
        X, _, labels = digits
        model = small_model(epochs=1, epochs_per_partition=1, learning_rate=1e30, batch_size=500)
        model.set_params(checkpoint_dir=tmp_path, consistency=0.0)
        message = "must stay finite.*after partition 1. Lower learning_rate=1e.30 and use another"
        with pytest.raises(FloatingPointError, match=message):
            model.fit(X, labels)
        assert not list(tmp_path.glob("*.safetensors"))

    def test_rejects_features_that_vanish(self, digits):
        X, _, labels = digits
        with pytest.raises(FloatingPointError, match="got only zeros after partition 1"):
            small_model(epochs=2).set_params(backbone=Fading(0.0, 6)).fit(X, labels)

    def test_warns_of_vanishing_features_with_their_share(self, digits):
        X, _, labels = digits
        model = small_model(epochs=2).set_params(backbone=Fading(None, 6))
        message = "all zero for 80% of the samples after partition"
        with pytest.warns(RuntimeWarning, match=message) as caught:
            model.fit(X, labels)
        assert caught[0].filename == __file__

    def test_rejects_a_pretraining_loss_that_is_nan(self, digits):
        X, _, labels = digits
        model = small_model(pretrain_epochs=2).set_params(backbone=Fading(torch.nan, 0))
        with pytest.raises(FloatingPointError, match="got nan in epoch 1 of the pretraining"):
            model.fit(X, labels)


def test_pretraining_is_a_stage_with_progress(digits, monkeypatch):
    X, _, labels = digits
    told = []
    monkeypatch.setattr(Stages, "_show", lambda stages, done, note="": told.append(note))
    model = small_model(epochs=2, pretrain_epochs=2).fit(X, labels)
    assert list(model.stage_seconds_) == ["input", "pretraining", "partition 1", "end"]
    first, second = (note for note in told if " of 2, loss" in note and "accuracy" not in note)
    assert first.startswith("epoch 1 of 2, loss 2.")
    losses = model.history_[0]["pretraining"]
    assert [float(note.split()[-1]) for note in (first, second)] == pytest.approx(losses, abs=1e-3)
    assert losses[0] > losses[1]


@pytest.mark.parametrize("own", [0, 1])
def test_only_the_first_rank_shows_progress(digits, monkeypatch, own):
    X, _, labels = digits
    told = []

    def spy(stages, estimator, n_stages, *, verbose):
        told.append(verbose)
        raise KeyboardInterrupt

    monkeypatch.setattr(Stages, "__init__", spy)
    monkeypatch.setattr("ssdml.deep.base.rank", lambda: own)
    with pytest.raises(KeyboardInterrupt):
        small_model(verbose=1).fit(X, labels)
    assert told == [1 - own]


class TestTriplets:
    def test_warns_that_one_class_has_no_triplets(self, digits):
        X, y, labels = digits
        with pytest.warns(RuntimeWarning, match="Labels of two classes must reach the graph"):
            model = small_model(epochs=2).fit(X, np.where(y == 3, labels, -1))
        assert model.history_[0]["n_triplets"] == 0
        assert (model.transduction_ == 3).all()

    def test_fits_a_single_labeled_sample(self, digits):
        X, _, labels = digits
        network = nn.Sequential(*small_network(), nn.BatchNorm1d(32))
        model = small_model(backbone=network, epochs=2, pretrain_epochs=2)
        with pytest.warns(RuntimeWarning, match="Labels of two classes must reach the graph"):
            model.fit(X, np.where(np.arange(len(X)) == np.argmax(labels >= 0), labels, -1))
        assert "pretraining" not in model.history_[0]

    def test_published_method_skips_partitions_without_triplets(self, digits, monkeypatch):
        X, _, labels = digits
        none = Triplets(*np.zeros((3, 0), np.int64), np.zeros(0))
        monkeypatch.setattr(published, "mine_triplets", lambda *given, **more: none)
        options = {"epochs": 2, "epochs_per_partition": 1, "random_state": 0}
        model = DeepSSDML.paper(small_network(), 8, **options).fit(X, labels)
        assert [(entry["n_triplets"], entry["losses"]) for entry in model.history_] == [(0, [])] * 2

    def test_published_method_needs_two_neighbors(self, digits):
        X, _, labels = digits
        model = DeepSSDML.paper(small_network(), 8, n_neighbors=1)
        with pytest.raises(
            ValueError, match=r"'n_neighbors' .* PublishedDeepSSDML must be .*\[2, inf"
        ):
            model.fit(X, labels)

    def test_published_method_reports_no_changes(self, digits):
        X, _, labels = digits
        options = {"partition_size": 100, "epochs": 3, "epochs_per_partition": 1}
        model = DeepSSDML.paper(small_network(), 8, **options, random_state=0).fit(X, labels)
        assert len(model.history_) == 3
        assert not any("changed" in entry for entry in model.history_)


def test_rejects_batches_that_ranks_cannot_share(digits, monkeypatch):
    X, _, labels = digits
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    monkeypatch.setattr("ssdml.deep.base.rank", lambda: 0)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", lambda message, src: None)
    model = small_model()
    with pytest.raises(ValueError, match="batch_size must be a multiple of the 3 processes; got 4"):
        model.fit(X, labels)


class Dazzled(nn.Module):
    """NaN for images with a very bright pixel."""

    def __init__(self):
        super().__init__()
        self.inner = small_network()

    def forward(self, samples):
        return self.inner(samples) / (samples.amax(dim=(1, 2, 3)) < 20)[:, None]


@pytest.mark.parametrize("new", [small_model, small_published_model])
def test_names_the_sample_with_nan_features(digits, new):
    """It is not among the samples that are tried first."""
    X, _, labels = digits
    X = X.copy()
    X[300, 4, 4] = 100
    model = new(partition_size=None, backbone=Dazzled())
    message = (
        "finite features; got NaN or infinity for 1 of 400 samples, the first at index 300. Drop"
    )
    with pytest.raises(ValueError, match=message):
        model.fit(X, labels)


def test_out_of_memory_in_fit_names_the_parameter(digits, monkeypatch):
    X, _, labels = digits

    def full(run, progress):
        raise torch.cuda.OutOfMemoryError("9 GiB")

    monkeypatch.setattr(PartitionTrainer, "partition", full)
    with pytest.raises(
        MemoryError, match=r"Out of memory \(9 GiB\). Lower batch_size=40, shrink the"
    ):
        small_model().fit(X, labels)


def test_a_lost_gpu_is_named_and_the_fit_resumes(digits, tmp_path, monkeypatch):
    """Another process goes on after the last partition, to the same embedding."""
    X, _, labels = digits
    schedule = {"epochs": 3, "epochs_per_partition": 1}
    whole = small_model(**schedule).fit(X, labels)
    train, lost = PartitionTrainer.partition, "CUDA error: unspecified launch failure\nCompile with"

    def failing(run, progress):
        if len(run.history) == 2:
            raise RuntimeError(lost)
        return train(run, progress)

    monkeypatch.setattr(PartitionTrainer, "partition", failing)
    for folder, way_out in (
        (None, "fits with checkpoint_dir"),
        (tmp_path, f"the fit in {tmp_path}"),
    ):
        model = small_model(**schedule, checkpoint_dir=folder)
        message = re.escape(
            "The GPU failed (CUDA error: unspecified launch failure), and this process cannot use "
            f"it any more. Start another one, where {way_out} can be resumed."
        )
        with pytest.raises(RuntimeError, match=message):
            model.fit(X, labels)
    monkeypatch.setattr(PartitionTrainer, "partition", train)
    resumed = small_model(**schedule, checkpoint_dir=tmp_path).fit(X, labels)
    np.testing.assert_array_equal(resumed.transform(X), whole.transform(X))


def test_names_the_sample_that_is_not_finite(digits):
    X, _, labels = digits
    broken = X.copy()
    broken[17, 3, 3] = np.nan
    message = "DeepSSDML: dataset must be finite; got nan in sample 17. Drop such samples"
    with pytest.raises(ValueError, match=message):
        small_model().fit(broken, labels)
    pairs = [(torch.from_numpy(x)[None], 0) for x in broken]
    with pytest.raises(ValueError, match="dataset must be finite; got nan in sample 17"):
        small_model().fit(pairs, labels)
