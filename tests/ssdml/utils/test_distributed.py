"""Two processes under torchrun match one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ssdml.losses import DecorrelatedCentersLoss
from ssdml.utils.distributed import (
    average_gradients,
    gathered,
    init_process_group,
    rank,
    rank_slice,
    world_size,
)
from tests.deep import small_images, small_model

ROOT = Path(__file__).parents[3]


def run(world_size, out, *options, script="tests.two_ranks"):
    """Run the script under torchrun, which restarts it if a process dies."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={world_size}", "--max-restarts=5", "-m", script, str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    out.mkdir()
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(out / "result.npz")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    return run(1, folder / "one"), run(2, folder / "two")


@pytest.fixture
def run_of_two(results, tmp_path_factory):
    """Folder written by the run of two processes."""
    return next(tmp_path_factory.getbasetemp().glob("ranks*/two"))


def test_first_step_matches_one_process(results):
    one, two = results
    assert two["losses"][0] == pytest.approx(one["losses"][0], rel=1e-6)
    names = [name for name in one.files if name.startswith("arr_")]
    assert len(names) >= 4
    for name in names:
        largest = np.abs(one[name]).max()
        assert largest > 0
        np.testing.assert_allclose(two[name], one[name], rtol=0, atol=1e-5 * largest)


def test_whole_fit_matches_one_process(results):
    one, two = results
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=0.05)
    assert np.median(np.abs(two["Z"] - one["Z"])) < 0.02


def test_training_resumes_after_a_process_dies(results, tmp_path):
    disturbed = run(2, tmp_path / "disturbed", "--die")
    begun = (tmp_path / "disturbed" / "begun").read_text().split()
    assert begun[:4] == ["1", "2", "3", "3"]  # it dies at the start of the third
    assert set(begun[4:]) <= {"3"}  # a lost connection may restart it once more
    assert disturbed["stages"].tolist()[-1] == "end"
    np.testing.assert_array_equal(disturbed["Z"], results[1]["Z"])


def test_one_process_resumes_a_run_of_two(results, run_of_two, tmp_path):
    X, _, labels = small_images()
    *_, checkpoints = sorted(run_of_two.glob("checkpoints*"))  # of the attempt that came through
    folder = shutil.copytree(checkpoints, tmp_path / "checkpoints")
    (folder / "partition-0003.safetensors").unlink()
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the centers of the first process
        centers = DecorrelatedCentersLoss(10, 16)
    model = small_model(losses=centers, checkpoint_dir=folder).fit(X, labels)
    assert list(model.stage_seconds_) == ["input", "partition 3", "end"]
    # Sums of two halves round differently; forty steps amplify it.
    assert np.median(np.abs(model.transform(X) - results[1]["Z"])) < 1e-3


def test_published_alternation_keeps_ranks_in_sync(tmp_path):
    done = run(2, tmp_path / "paper", "--paper")
    assert done["stages"].tolist() == ["input", "partition 1", "end"]
    assert np.isfinite(done["Z"]).all()
    one, other = done["networks"]
    assert one == other


def test_batch_statistics_are_broadcast(tmp_path):
    one, other = run(2, tmp_path / "norm", "--norm")["networks"]
    assert one == other


def test_only_the_first_rank_builds_graphs(results):
    one, other = results[1]["networks"]
    assert one == other
    built, built_by_the_other = results[1]["graphs"]
    assert built == 1 + 2 + 1  # of the input, of two later partitions, in the end
    assert built_by_the_other == 0


def test_functions_without_a_process_group():
    rows = torch.ones(3, 2, requires_grad=True)
    assert gathered(rows) is rows
    assert (rank(), world_size(), rank_slice(6)) == (0, 1, slice(0, 6))
    module = torch.nn.Linear(2, 1)
    module(rows).sum().backward()
    before = module.weight.grad.clone()
    average_gradients(module)
    assert torch.equal(module.weight.grad, before)


def test_shared_gpu_raises(monkeypatch):
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "1"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    taken = []
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(
        ValueError, match=r"this one cuda:1; got 'cuda:0', the GPU of another process"
    ):
        init_process_group("cuda:0")
    assert (init_process_group("cuda"), init_process_group("cuda:1")) == ("cuda:1", "cuda:1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")  # on as many machines
    assert init_process_group("cuda:3") == "cuda:3"
    assert taken == ["cuda:1", "cuda:1", "cuda:3"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"got cuda:1 .* which sees 1\. Lower --nproc"):
        init_process_group("cuda")
