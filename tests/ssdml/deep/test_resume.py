"""A fit of networks that was cut short goes on; a finished one is saved and loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ssdml import DeepSSDML
from ssdml.deep.checkpoints import describe
from ssdml.deep.trainer import PartitionTrainer
from ssdml.losses import DecorrelatedCentersLoss
from ssdml.networks.augmentation import unchanged
from ssdml.utils.progress import Stages
from tests.deep import assert_same_weights, small_model, small_network

ROOT = Path(__file__).parents[3]


class TestResume:
    def test_a_fit_that_stopped_goes_on_to_the_same_bits(
        self, fitted, digits, tmp_path, monkeypatch
    ):
        X, _, labels = digits
        partition = PartitionTrainer.partition

        def stop(run, progress):
            if len(run.history) == 2:
                raise KeyboardInterrupt
            return partition(run, progress)

        monkeypatch.setattr(PartitionTrainer, "partition", stop)
        model = small_model(checkpoint_dir=tmp_path)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, labels)
        assert not hasattr(model, "network_")
        monkeypatch.undo()
        resumed = model.fit(X, labels)
        assert set(resumed.stage_seconds_) == {"input", "partition 3", "end"}
        assert_same_weights(fitted, resumed)
        np.testing.assert_array_equal(fitted.transform(X), resumed.transform(X))
        assert resumed.history_[-1]["changed"] == fitted.history_[-1]["changed"]

    def test_the_bar_counts_what_is_left(self, digits, tmp_path, monkeypatch):
        X, _, labels = digits
        counts = []
        begin = Stages.__init__

        def spy(stages, estimator, n_stages, **options):
            counts.append(n_stages)
            begin(stages, estimator, n_stages, **options)

        monkeypatch.setattr(Stages, "__init__", spy)
        options = {"epochs": 2, "pretrain_epochs": 1, "checkpoint_dir": tmp_path}
        fits = [small_model(**options).fit(X, labels) for _ in range(2)]
        assert counts == [len(model.stage_seconds_) for model in fits] == [4, 2]

    def test_kill_and_resume(self, fitted, digits, tmp_path):
        """SIGKILL after the first checkpoint: nothing of the process is left."""
        script = (
            "import os, signal, sys, torch; torch.set_num_threads(1)\n"
            "from ssdml.deep.run_folder import RunFolder\n"
            "from tests.deep import small_images, small_model\n"
            "keep = RunFolder.keep\n"
            "def die(folder, run):\n"
            "    keep(folder, run)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "RunFolder.keep = die\n"
            "X, _, labels = small_images()\n"
            "small_model(checkpoint_dir=sys.argv[1]).fit(X, labels)\n"
        )
        died = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT)
        assert died.returncode == -signal.SIGKILL
        X, _, labels = digits
        resumed = small_model(checkpoint_dir=tmp_path).fit(X, labels)
        assert set(resumed.stage_seconds_) == {"input", "partition 2", "partition 3", "end"}
        assert_same_weights(fitted, resumed)

    def test_where_the_last_checkpoint_is_cut_short_the_one_before_it_is_taken(
        self, fitted, digits, tmp_path
    ):
        X, _, labels = digits
        small_model(checkpoint_dir=tmp_path).fit(X, labels)
        last = tmp_path / "partition-0003.safetensors"
        last.write_bytes(last.read_bytes()[:-100])
        with pytest.warns(RuntimeWarning, match=r"partition-0003\.safetensors"):
            resumed = small_model(checkpoint_dir=tmp_path).fit(X, labels)
        assert set(resumed.stage_seconds_) == {"input", "partition 3", "end"}
        assert_same_weights(fitted, resumed)

    def test_checkpoints_of_other_settings_or_labels_are_refused(self, digits, tmp_path):
        X, _, labels = digits
        small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels)
        with pytest.raises(ValueError, match=r"same parameters and data; got decay=0.99 in"):
            small_model(epochs=2, decay=0.9, checkpoint_dir=tmp_path).fit(X, labels)
        others = labels.copy()
        others[np.flatnonzero(labels == 3)[0]] = -1
        with pytest.raises(ValueError, match=r"got labels=.* in"):
            small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, others)

    def test_items_that_changed_are_refused(self, digits, tmp_path):
        X, _, labels = digits
        small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels)
        order = np.arange(len(X))
        unlabeled = np.flatnonzero(labels < 0)
        order[unlabeled] = unlabeled[::-1]
        changed = X.copy()
        changed[unlabeled[-1], 0, 0] += 1
        for others in (0.9 * X, X[order], changed):
            with pytest.raises(ValueError, match=r"got samples=.* in"):
                small_model(epochs=2, checkpoint_dir=tmp_path).fit(others, labels)

    def test_a_checkpoint_may_be_read_by_those_who_may_read_other_files(self, digits, tmp_path):
        X, _, labels = digits
        small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels).save(tmp_path / "model")
        (tmp_path / "plain").touch()
        modes = {path.stat().st_mode for path in tmp_path.glob("**/*.safetensors")}
        assert modes == {(tmp_path / "plain").stat().st_mode}

    def test_of_other_weights_to_begin_with_it_warns_and_goes_on(self, digits, tmp_path):
        X, _, labels = digits
        one = small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels)
        model = small_model(epochs=2, checkpoint_dir=tmp_path)
        with torch.no_grad():
            model.backbone[0].weight += 1
        with pytest.warns(
            RuntimeWarning, match="continuing with the weights of the checkpoint. Use another"
        ):
            two = model.fit(X, labels)
        assert_same_weights(one, two)

    def test_a_finished_run_has_its_triplets_and_its_whole_history(self, digits, tmp_path):
        X, _, labels = digits
        one = small_model(epochs=4, checkpoint_dir=tmp_path).fit(X, labels)
        journal = tmp_path / "history.jsonl"
        whole = journal.read_text()
        journal.write_text(whole.splitlines()[0])
        two = small_model(epochs=4, checkpoint_dir=tmp_path).fit(X, labels)
        for found, expected in zip(two.triplets_, one.triplets_, strict=True):
            np.testing.assert_array_equal(found, expected)
        assert journal.read_text() == whole

    def test_any_seed_goes_on_with_the_one_it_began_with(self, digits, tmp_path):
        X, _, labels = digits
        options = {"epochs": 2, "random_state": None, "checkpoint_dir": tmp_path}
        one, two = (small_model(**options).fit(X, labels) for _ in range(2))
        assert "partition 1" not in two.stage_seconds_
        assert_same_weights(one, two)

    def test_views_of_ones_own_are_known_by_their_name(self, digits, tmp_path):
        X, _, labels = digits
        options = {"epochs": 2, "checkpoint_dir": tmp_path, "augment": unchanged}
        one, two = (small_model(**options).fit(X, labels) for _ in range(2))
        assert_same_weights(one, two)
        with pytest.raises(
            ValueError, match=r"got augment='ssdml\.networks\.augmentation\.unchanged' in"
        ):
            small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels)


class Scaled(nn.Module):
    """A loss with a number of its own."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor


class Views:
    """Views with a number of their own."""

    def __init__(self, strength):
        self.strength = strength


@pytest.mark.parametrize(
    "make",
    [
        Scaled,
        Views,
        lambda value: partial(unchanged, value=value),
        lambda value: nn.Sequential(Scaled(value), nn.Linear(2, 2)),
        lambda value: Scaled((value, (1.0, [2.0]))),
        lambda value: Views([value]),
    ],
    ids=["module", "object", "partial", "inner module", "tuple", "list"],
)
def test_what_is_made_anew_is_known_by_what_it_was_made_with(make):
    assert describe([make(1)]) == describe([make(1)]) != describe([make(2)])
    assert "0x" not in str(describe(make(1)))


def test_functions_without_a_name_are_told_apart_by_what_they_do():
    twice, again, thrice = (lambda x: 2 * x), (lambda x: 2 * x), (lambda x: 3 * x)
    assert describe(twice) == describe(again) != describe(thrice)
    assert describe(test_functions_without_a_name_are_told_apart_by_what_they_do).endswith("_do")
    assert describe(lru_cache(lambda x: x)).endswith("<lambda>")


def test_functions_without_a_name_are_the_same_in_every_process():
    program = (
        "from ssdml.deep.checkpoints import describe; "
        "print(describe(lambda v: [w for w in v if w in {'a', 'b', 'c'}] or (lambda: v)()))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1


class TestSaveAndLoad:
    def test_what_is_loaded_embeds_and_predicts_alike(self, fitted, digits, tmp_path):
        X, _, _ = digits
        fitted.save(tmp_path / "model")
        loaded = DeepSSDML.load(tmp_path / "model", backbone=small_network())
        np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))
        np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
        np.testing.assert_array_equal(loaded.transduction_, fitted.transduction_)
        assert loaded.decay == fitted.decay

    def test_losses_stay_behind(self, digits, tmp_path):
        X, _, labels = digits
        model = small_model(epochs=2, losses=[(0.1, DecorrelatedCentersLoss(10, 16))]).fit(
            X, labels
        )
        model.save(tmp_path / "model")
        loaded = DeepSSDML.load(tmp_path / "model", backbone=small_network())
        np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
        assert loaded.losses is None

    def test_a_module_of_ones_own_is_asked_for_again(self, fitted, tmp_path):
        fitted.save(tmp_path / "model")
        with pytest.raises(
            ValueError, match="backbone must be a module like the fitted one; got None"
        ):
            DeepSSDML.load(tmp_path / "model")
        with pytest.raises(ValueError, match="backbone must be like the fitted one"):
            DeepSSDML.load(tmp_path / "model", backbone=nn.Linear(64, 32))


@pytest.mark.parametrize("below", [True, False])
def test_a_folder_that_cannot_be_written_is_told_before_the_training(
    digits, tmp_path, monkeypatch, below
):
    X, _, labels = digits
    monkeypatch.setattr(PartitionTrainer, "partition", lambda *_: pytest.fail("it has begun"))
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "run" if below else tmp_path / "file"
    with pytest.raises(OSError, match=r"cannot be written .* Use another checkpoint_dir"):
        small_model(checkpoint_dir=folder).fit(X, labels)
