"""Deep fits resume after interruption, and are saved and loaded."""

from __future__ import annotations

import json
from functools import lru_cache, partial
from shutil import copytree
from types import CodeType, FunctionType

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ssdml import DeepSSDML
from ssdml.deep.checkpoints import describe
from ssdml.deep.run_folder import RunFolder
from ssdml.deep.trainer import PartitionTrainer
from ssdml.losses import DecorrelatedCentersLoss
from ssdml.networks.augmentation import unchanged
from ssdml.utils.persistence import UNSIGNED, signed
from ssdml.utils.progress import Stages
from tests.deep import assert_same_weights, small_model, small_network


class TestResume:
    @pytest.mark.parametrize("mixed", [False, True])
    def test_interrupted_fit_resumes_to_the_same_bits(
        self, fitted, digits, tmp_path, monkeypatch, mixed
    ):
        X, _, labels = digits
        if mixed:
            fitted = small_model(mixed_precision=True).fit(X, labels)
        partition = PartitionTrainer.partition

        def stop(run, progress):
            if len(run.history) == 2:
                raise KeyboardInterrupt
            return partition(run, progress)

        monkeypatch.setattr(PartitionTrainer, "partition", stop)
        model = small_model(checkpoint_dir=tmp_path, mixed_precision=mixed)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, labels)
        assert not hasattr(model, "network_")
        monkeypatch.undo()
        resumed = model.fit(X, labels)
        assert set(resumed.stage_seconds_) == {"input", "partition 3", "end"}
        assert_same_weights(fitted, resumed)
        np.testing.assert_array_equal(fitted.transform(X), resumed.transform(X))
        assert resumed.history_[-1]["changed"] == fitted.history_[-1]["changed"]

    def test_progress_counts_the_remaining_stages(self, digits, tmp_path, monkeypatch):
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

    def test_resumes_from_what_a_kill_would_leave(self, fitted, digits, tmp_path, monkeypatch):
        """The folder as it is once the first checkpoint is kept; two_ranks.py kills a process."""
        X, _, labels = digits
        keep = RunFolder.keep

        def die(folder, run):
            keep(folder, run)
            copytree(tmp_path / "run", tmp_path / "left")
            raise KeyboardInterrupt

        monkeypatch.setattr(RunFolder, "keep", die)
        with pytest.raises(KeyboardInterrupt):
            small_model(checkpoint_dir=tmp_path / "run").fit(X, labels)
        monkeypatch.undo()
        resumed = small_model(checkpoint_dir=tmp_path / "left").fit(X, labels)
        assert set(resumed.stage_seconds_) == {"input", "partition 2", "partition 3", "end"}
        assert_same_weights(fitted, resumed)

    def test_resumes_before_a_truncated_checkpoint(self, fitted, digits, tmp_path):
        X, _, labels = digits
        small_model(checkpoint_dir=tmp_path).fit(X, labels)
        last = tmp_path / "partition-0003.safetensors"
        last.write_bytes(last.read_bytes()[:-100])
        with pytest.warns(RuntimeWarning, match=r"partition-0003\.safetensors") as caught:
            resumed = small_model(checkpoint_dir=tmp_path).fit(X, labels)
        assert caught[0].filename == __file__
        assert set(resumed.stage_seconds_) == {"input", "partition 3", "end"}
        assert_same_weights(fitted, resumed)

    def test_rejects_checkpoints_of_other_parameters_or_labels(self, digits, tmp_path):
        X, _, labels = digits
        small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels)
        with pytest.raises(ValueError, match=r"same parameters and data; got decay=0.99 in"):
            small_model(epochs=2, decay=0.9, checkpoint_dir=tmp_path).fit(X, labels)
        others = labels.copy()
        others[np.flatnonzero(labels == 3)[0]] = -1
        with pytest.raises(ValueError, match=r"got labels=.* in"):
            small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, others)

    def test_rejects_checkpoints_of_changed_samples(self, digits, tmp_path):
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

    def test_checkpoints_have_the_usual_file_mode(self, digits, tmp_path):
        X, _, labels = digits
        small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels).save(tmp_path / "model")
        (tmp_path / "plain").touch()
        modes = {path.stat().st_mode for path in tmp_path.glob("**/*.safetensors")}
        assert modes == {(tmp_path / "plain").stat().st_mode}

    def test_other_initial_weights_warn_and_resume(self, digits, tmp_path):
        X, _, labels = digits
        one = small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels)
        model = small_model(epochs=2, checkpoint_dir=tmp_path)
        with torch.no_grad():
            model.backbone[0].weight += 1
        with pytest.warns(
            RuntimeWarning, match="continuing with the weights of the checkpoint. Use another"
        ) as caught:
            two = model.fit(X, labels)
        assert caught[0].filename == __file__
        assert_same_weights(one, two)

    def test_finished_run_restores_triplets_and_history(self, digits, tmp_path):
        X, _, labels = digits
        one = small_model(epochs=2, epochs_per_partition=1, checkpoint_dir=tmp_path).fit(X, labels)
        journal = tmp_path / "history.jsonl"
        whole = journal.read_text()
        journal.write_text(whole.splitlines()[0])
        two = small_model(epochs=2, epochs_per_partition=1, checkpoint_dir=tmp_path).fit(X, labels)
        for found, expected in zip(two.triplets_, one.triplets_, strict=True):
            np.testing.assert_array_equal(found, expected)
        assert journal.read_text() == whole

    def test_resume_reuses_the_drawn_seed(self, digits, tmp_path):
        X, _, labels = digits
        options = {"epochs": 2, "random_state": None, "checkpoint_dir": tmp_path}
        one, two = (small_model(**options).fit(X, labels) for _ in range(2))
        assert "partition 1" not in two.stage_seconds_
        assert_same_weights(one, two)

    def test_custom_views_are_known_by_name(self, digits, tmp_path):
        X, _, labels = digits
        options = {"epochs": 2, "checkpoint_dir": tmp_path, "augment": unchanged}
        one, two = (small_model(**options).fit(X, labels) for _ in range(2))
        assert_same_weights(one, two)
        with pytest.raises(
            ValueError, match=r"got augment='ssdml\.networks\.augmentation\.unchanged' in"
        ):
            small_model(epochs=2, checkpoint_dir=tmp_path).fit(X, labels)


class Scaled(nn.Module):
    """A loss with a parameter."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor


class Views:
    """Views with a parameter."""

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
def test_objects_are_described_by_their_values(make):
    assert describe([make(1)]) == describe([make(1)]) != describe([make(2)])
    assert "0x" not in str(describe(make(1)))


def test_lambdas_are_described_by_their_code():
    twice, again, thrice = (lambda x: 2 * x), (lambda x: 2 * x), (lambda x: 3 * x)
    assert describe(twice) == describe(again) != describe(thrice)
    assert describe(test_lambdas_are_described_by_their_code).endswith("_their_code")
    assert describe(lru_cache(lambda x: x)).endswith("<lambda>")


def test_functions_are_described_by_the_values_they_hold():
    def brighter(factor, kind):
        def inner(batch, generator, offset=factor):
            return inner and factor * batch + offset

        return inner if kind == "inner" else lambda batch, generator: factor * batch

    for kind in ("inner", "lambda"):
        half, again, full = (describe(brighter(factor, kind)) for factor in (0.5, 0.5, 1.0))
        assert half == again != full
    half, full = (lambda batch, generator, factor=factor: factor * batch for factor in (0.5, 1.0))
    assert describe(half) != describe(full)


def test_lambdas_ignore_the_order_of_sets():
    """It differs between processes, and here by hashes that collide."""
    one = lambda v: [w for w in v if w in {0, 8}] or (lambda: v)()  # noqa: E731
    turned = frozenset([8, 0])
    assert list(turned) != list(frozenset([0, 8]))
    code = with_set(one.__code__, turned)
    assert code != one.__code__ or repr(code.co_consts) != repr(one.__code__.co_consts)
    assert describe(FunctionType(code, globals())) == describe(one)


def with_set(code, given):
    """Replace the sets among the constants of bytecode."""

    def replaced(part):
        if isinstance(part, CodeType):
            return with_set(part, given)
        return given if isinstance(part, frozenset) else part

    return code.replace(co_consts=tuple(map(replaced, code.co_consts)))


class TestSaveAndLoad:
    def test_loaded_model_embeds_and_predicts_alike(self, fitted, digits, tmp_path):
        X, _, _ = digits
        fitted.save(tmp_path / "model")
        loaded = DeepSSDML.load(tmp_path / "model", backbone=small_network())
        np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))
        np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
        np.testing.assert_array_equal(loaded.transduction_, fitted.transduction_)
        assert loaded.decay == fitted.decay

    def test_losses_are_not_saved(self, digits, tmp_path):
        X, _, labels = digits
        model = small_model(epochs=2, losses=[(0.1, DecorrelatedCentersLoss(10, 16))]).fit(
            X, labels
        )
        model.save(tmp_path / "model")
        loaded = DeepSSDML.load(tmp_path / "model", backbone=small_network())
        np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
        assert loaded.losses is None

    @pytest.mark.parametrize("mining", ["propagated", "neighborhood"])
    def test_loads_or_rejects_models_with_mining(self, fitted, digits, tmp_path, mining):
        """The published method was a value of this parameter."""
        fitted.save(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text()) | {"sha256": UNSIGNED}
        config["params"]["mining"] = mining
        text = signed(json.dumps(config), tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(text)
        if mining == "propagated":
            loaded = DeepSSDML.load(tmp_path, backbone=small_network())
            np.testing.assert_array_equal(loaded.predict(digits[0]), fitted.predict(digits[0]))
        else:
            message = r"mining must be 'propagated'; got 'neighborhood', .* DeepSSDML.paper\(\)"
            with pytest.raises(ValueError, match=message):
                DeepSSDML.load(tmp_path, backbone=small_network())

    def test_no_path_of_this_machine_is_saved(self, digits, tmp_path):
        X, _, labels = digits
        model = small_model(epochs=1, checkpoint_dir=tmp_path / "run").fit(X, labels)
        model.save(tmp_path / "model")
        assert str(tmp_path).encode() not in (tmp_path / "model/config.json").read_bytes()
        loaded = DeepSSDML.load(tmp_path / "model", backbone=small_network())
        assert loaded.checkpoint_dir is None

    def test_model_with_a_turned_bit_is_refused(self, fitted, tmp_path, rng):
        fitted.save(tmp_path)
        for file in ("config.json", "model.safetensors"):
            whole = (tmp_path / file).read_bytes()
            for place in rng.choice(8 * len(whole), 100, replace=False):
                content = bytearray(whole)
                content[place // 8] ^= 1 << place % 8
                (tmp_path / file).write_bytes(content)
                with pytest.raises(ValueError, match=r"DeepSSDML\.load: "):
                    DeepSSDML.load(tmp_path, backbone=small_network())
            (tmp_path / file).write_bytes(whole)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"item_shape": [0]}, r"item_shape must be positive integers; got \[0\]"),
            ({"item_shape": [10**9]}, r"item_shape: takes 512\.0 GB in memory"),
            ({"item_shape": [63]}, r"input_center must have the shape \(63,\); got \(64,\)"),
            ({"input_weight": "1"}, "input_weight and the input projection must be numbers"),
            ({"input_mean": None, "params": {"epochs": -1}}, "epochs"),
        ],
    )
    def test_forged_config_is_refused(self, fitted, tmp_path, changes, message):
        fitted.save(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        text = json.dumps(config | changes | {"sha256": UNSIGNED})
        arrays = tmp_path / "model.safetensors"
        (tmp_path / "config.json").write_text(signed(text, arrays))
        with pytest.raises(ValueError, match=rf"DeepSSDML\.load: .*written by .*{message}"):
            DeepSSDML.load(tmp_path, backbone=small_network())

    def test_load_needs_the_custom_module(self, fitted, tmp_path):
        fitted.save(tmp_path / "model")
        with pytest.raises(
            ValueError, match=r"like the fitted one; got None, .*load\('.*', backbone=network\)"
        ):
            DeepSSDML.load(tmp_path / "model")
        with pytest.raises(ValueError, match=r"load: .*: backbone must be like the fitted one"):
            DeepSSDML.load(tmp_path / "model", backbone=nn.Linear(64, 32))


@pytest.mark.parametrize(
    "wrap", [partial(torch.compile, backend="eager"), nn.DataParallel, AveragedModel]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_wrapped_backbone_is_like_the_plain_one(digits, tmp_path, wrap, first):
    X, _, labels = digits
    ways = (wrap, lambda module: module)
    before, after = ways if first else ways[::-1]
    model = small_model(epochs=2, backbone=before(small_network())).fit(X, labels)
    model.save(tmp_path / "model")
    loaded = DeepSSDML.load(tmp_path / "model", backbone=after(small_network()))
    np.testing.assert_allclose(loaded.transform(X), model.transform(X), atol=1e-6)


class LeftOut(nn.Module):
    """A network with random buffers that its state leaves out, one of them changed by training."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.register_buffer("axes", torch.randn(64, 32), persistent=False)
        self.register_buffer("cache", torch.zeros(1), persistent=False)
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.cache = torch.zeros(len(x))
        self.count += self.training
        return self.linear(torch.relu(x.flatten(1) @ self.axes + self.count / 1000))


def test_buffers_that_a_state_leaves_out_are_restored(digits, tmp_path):
    X, _, labels = digits
    options = {"backbone": LeftOut(), "checkpoint_dir": tmp_path / "run"}
    model = small_model(**options).fit(X, labels)
    assert model.network_.backbone.backbone.count > 0
    model.save(tmp_path / "model")
    loaded = DeepSSDML.load(tmp_path / "model", backbone=LeftOut())
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    options["backbone"] = LeftOut()
    with pytest.warns(RuntimeWarning, match="the initial weights of the backbone"):
        resumed = small_model(**options).fit(X, labels)
    np.testing.assert_array_equal(resumed.transform(X), model.transform(X))


class Odd(nn.Module):
    """A network with weights in bfloat16, and infinite, complex and float8 buffers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 32).bfloat16()
        mask = torch.full((32,), -torch.inf)
        mask[:9] = 0
        self.register_buffer("mask", mask)
        self.register_buffer("scale", torch.full((32,), 2.0).to(torch.float8_e5m2))
        self.register_buffer("left_out", self.scale.clone(), persistent=False)
        self.register_buffer("phase", torch.randn(32).mul(1j).exp(), persistent=False)

    def forward(self, x):
        outputs = self.linear(x.flatten(1).bfloat16()).float()
        shares = (outputs + self.mask).softmax(dim=1)
        return outputs * shares * self.scale.float() * self.phase.imag


def test_weights_and_buffers_of_other_kinds_are_saved_and_resumed(digits, tmp_path):
    X, _, labels = digits
    options = {"epochs": 2, "epochs_per_partition": 1, "checkpoint_dir": tmp_path / "run"}
    model = small_model(backbone=Odd(), **options).fit(X, labels)
    model.save(tmp_path / "model")
    other = Odd()
    other.phase.conj_physical_()
    loaded = DeepSSDML.load(tmp_path / "model", backbone=other)
    resumed = small_model(backbone=Odd(), **options).fit(X, labels)
    for twin in (loaded, resumed):
        assert twin.network_.backbone.backbone.linear.weight.dtype == torch.bfloat16
        np.testing.assert_array_equal(twin.transform(X), model.transform(X))


@pytest.mark.parametrize("below", [True, False])
def test_unwritable_folder_fails_before_training(digits, tmp_path, monkeypatch, below):
    X, _, labels = digits
    monkeypatch.setattr(PartitionTrainer, "partition", lambda *_: pytest.fail("it has begun"))
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "run" if below else tmp_path / "file"
    with pytest.raises(OSError, match=r"cannot be written .* Use another checkpoint_dir"):
        small_model(checkpoint_dir=folder).fit(X, labels)


def test_an_empty_name_is_no_folder(monkeypatch, tmp_path, digits):
    X, _, labels = digits
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="checkpoint_dir must name a folder, or be None; got ''"):
        small_model(checkpoint_dir="").fit(X, labels)
    assert not list(tmp_path.iterdir())
