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
from tests.losses import LOSSES
from tests.two_ranks import fit, steps

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]

# `torchrun --standalone --nproc-per-node=2 --max-restarts=5`, but for a server that loads torch
# once: the four processes are its forks, where each would take 5 s.
TORCHRUN = """
import multiprocessing, sys
from torch.distributed.launcher import LaunchConfig, elastic_launch
multiprocessing.set_forkserver_preload(["tests.two_ranks", "torch._dynamo"])
meeting = {"run_id": "two ranks", "rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
agent = LaunchConfig(1, 1, 2, max_restarts=5, start_method="forkserver", **meeting)
work = "from tests.two_ranks import Path, main; main(Path(folder))"
elastic_launch(agent, exec)(work, {"folder": sys.argv[1]})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of the files that two processes write."""
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def two(folder):
    """Run two processes under torchrun, which restarts them when one dies."""
    command = [sys.executable, "-c", TORCHRUN, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    (folder / "disturbed").mkdir()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(folder / "result.npz")


@pytest.fixture(scope="module")
def one(tmp_path_factory, one_thread):
    out = tmp_path_factory.mktemp("rank")
    fit(out)
    return np.load(out / "result.npz")


def test_first_step_matches_one_process(one, two):
    assert two["losses"][0] == pytest.approx(one["losses"][0], rel=1e-6)
    names = [name for name in one.files if name.startswith("arr_")]
    assert len(names) >= 4
    for name in names:
        largest = np.abs(one[name]).max()
        assert largest > 0
        np.testing.assert_allclose(two[name], one[name], rtol=0, atol=1e-5 * largest)


def test_whole_fit_matches_one_process(one, two):
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=0.05)
    assert np.median(np.abs(two["Z"] - one["Z"])) < 0.02


def test_training_resumes_after_a_process_dies(two, folder):
    disturbed = np.load(folder / "disturbed" / "result.npz")
    begun = (folder / "disturbed" / "begun").read_text().split()
    assert begun[:4] == ["1", "2", "3", "3"]  # it dies at the start of the third
    assert set(begun[4:]) <= {"3"}  # a lost connection may restart it once more
    assert disturbed["stages"].tolist()[-1] == "end"
    np.testing.assert_array_equal(disturbed["Z"], two["Z"])


def test_one_process_resumes_a_run_of_two(two, folder, tmp_path):
    X, _, labels = small_images()
    *_, checkpoints = sorted(folder.glob("checkpoints*"))  # of the attempt that came through
    resumed = shutil.copytree(checkpoints, tmp_path / "checkpoints")
    (resumed / "partition-0003.safetensors").unlink()
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the centers of the first process
        centers = DecorrelatedCentersLoss(10, 16)
    model = small_model(losses=centers, checkpoint_dir=resumed).fit(X, labels)
    assert list(model.stage_seconds_) == ["input", "partition 3", "end"]
    # Sums of two halves round differently; forty steps amplify it.
    assert np.median(np.abs(model.transform(X) - two["Z"])) < 1e-3


def test_published_alternation_keeps_ranks_in_sync(two, folder):
    done = np.load(folder / "paper.npz")
    assert done["stages"].tolist() == ["input", "partition 1", "end"]
    assert np.isfinite(done["Z"]).all()
    rank_0, rank_1 = done["networks"]
    assert rank_0 == rank_1


def test_batch_statistics_are_broadcast(two, folder):
    rank_0, rank_1 = np.load(folder / "norm.npz")["networks"]
    assert rank_0 == rank_1


def test_only_the_first_rank_builds_graphs(two):
    rank_0, rank_1 = two["networks"]
    assert rank_0 == rank_1
    built, built_by_the_other = two["graphs"]
    assert built == 1 + 2 + 1  # of the input, of two later partitions, in the end
    assert built_by_the_other == 0


def test_steps_with_each_loss_match_one_process(two, folder):
    of_one, of_two = steps(), np.load(folder / "losses.npz")
    assert set(of_two.files) == set(of_one) == set(LOSSES)
    for name in LOSSES:
        assert np.abs(of_one[name][1:]).max() > 0
        np.testing.assert_allclose(of_two[name], of_one[name], rtol=1e-9, atol=1e-12)


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
