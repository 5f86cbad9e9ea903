"""Fits that run at once, in threads and processes, are equal bit for bit to fits alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from ssdml import SSDML, DeepSSDML
from ssdml.baselines import LRML, DeepSupervised, DeepUnsupervised
from tests.deep import small_images

ROOT = Path(__file__).parents[2]

SHORT = {"epochs": 2, "epochs_per_partition": 1, "batch_size": 40, "device": "cpu"}


def network(seed: int) -> nn.Module:
    """A network with dropout, whose weights do not depend on torch's generators."""
    first, last = (nn.utils.skip_init(nn.Linear, *sizes) for sizes in ((64, 48), (48, 32)))
    layers = nn.Sequential(first, nn.ReLU(), nn.Dropout(0.3), last)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for weights in layers.parameters():
            weights.copy_(torch.from_numpy(rng.normal(size=weights.shape) / 8))
    return layers


ESTIMATORS: dict[str, Callable[[int], Any]] = {
    "linear": lambda seed: SSDML(random_state=seed),
    "baseline": lambda seed: LRML(random_state=seed),
    "deep": lambda seed: DeepSSDML(network(seed), 16, random_state=seed, **SHORT),
    "deep by name": lambda seed: DeepSSDML("mnist", 16, random_state=seed, **SHORT),
    "published": lambda seed: DeepSSDML.paper(network(seed), 16, random_state=seed, **SHORT),
    "supervised": lambda seed: DeepSupervised(
        "triplet", network(seed), 16, random_state=seed, **SHORT
    ),
    "suml": lambda seed: DeepUnsupervised("suml", network(seed), 16, random_state=seed, **SHORT),
    "deepcluster": lambda seed: DeepUnsupervised(
        "deepcluster", network(seed), 16, random_state=seed, **SHORT
    ),
}
DEFAULT = ("linear", "deep")


def fitted(name: str, seed: int) -> list[bytes]:
    """What a fit learned, as bytes."""
    images, _, labels = small_images(n=120)
    X = images.reshape(len(images), -1)
    if name == "deep by name":
        X = np.pad(images, [(0, 0), (10, 10), (10, 10)])
    model = ESTIMATORS[name](seed).fit(X, labels)
    arrays = [model.components_, model.label_distributions_, model.transform(X[:50])]
    if hasattr(model, "network_"):
        arrays += [value.numpy() for value in model.network_.state_dict().values()]
    return [np.ascontiguousarray(part).tobytes() for part in arrays]


@pytest.fixture(autouse=True)
def several_threads(monkeypatch):
    """Two threads of BLAS and torch, whatever the machine has, and short fits."""
    monkeypatch.setattr("ssdml.deep.alternation.N_TRIPLETS", 500)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with threadpool_limits(2, "blas"):
        yield
    torch.set_num_threads(before)


def at_once(jobs: list[tuple[str, int]]) -> list[list[bytes]]:
    """Fit in as many threads."""
    start = threading.Barrier(len(jobs))

    def work(job: tuple[str, int]) -> list[bytes]:
        start.wait()
        return fitted(*job)

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(work, jobs))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name",
    [n if n in DEFAULT else pytest.param(n, marks=pytest.mark.slow) for n in ESTIMATORS],
)
def test_fits_in_two_threads_are_those_of_each_alone(name):
    alone = [at_once([(name, seed)])[0] for seed in (0, 1)]
    assert alone[0] != alone[1] or name == "baseline"  # which draws nothing here
    assert at_once([(name, 0), (name, 1)]) == alone


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("deep", "deepcluster") else pytest.param(name, marks=pytest.mark.slow)
        for name in ESTIMATORS
        if name != "deep by name"  # which has convolutions
    ],
)
def test_without_convolutions_one_thread_gives_the_same_bits(name):
    on_two = fitted(name, 0)
    torch.set_num_threads(1)
    assert fitted(name, 0) == on_two


def test_fits_of_other_kinds_do_not_disturb_each_other():
    jobs = [(name, 0) for name in DEFAULT]
    assert at_once(jobs) == [at_once([job])[0] for job in jobs]


def blas_threads() -> set[int]:
    return {part["num_threads"] for part in threadpool_info() if part["user_api"] == "blas"}


def test_fits_leave_threads_and_generators_as_they_were():
    state = torch.get_rng_state()
    at_once([("deep", 1), ("linear", 2)])
    assert torch.equal(torch.get_rng_state(), state)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == torch.get_num_threads() == 2
    assert blas_threads() == {2}


PROCESSES = """
import multiprocessing, sys, threading
import torch._dynamo  # here, not in each fork
from joblib import Parallel, delayed
from ssdml.deep import alternation
from tests.contracts.test_concurrent_fits import fitted

JOBS = [("linear", 0), ("deep", 1)]

def short(*job):
    alternation.N_TRIPLETS = 500
    return fitted(*job)

def of_forks():
    # A thread of the parent holds the limit of BLAS while the children are forked; it imports
    # nothing then, since a lock of an import that is forked is never released.
    fitted("linear", 5)
    other = threading.Thread(target=fitted, args=("linear", 5))
    other.start()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.starmap(short, JOBS, chunksize=1)
    other.join()
    return found

def of_joblib():
    return Parallel(2)(delayed(short)(*job) for job in JOBS)

if __name__ == "__main__":
    # The forks first: OpenMP may hang in one once its threads have run.
    found = {"fork": of_forks, "joblib": of_joblib}[sys.argv[1]]()
    print(found == [short(*job) for job in JOBS])
"""


# Each worker of joblib imports all of ssdml; test_compare.py has two at work by default.
@pytest.mark.parametrize("workers", ["fork", pytest.param("joblib", marks=pytest.mark.slow)])
def test_fits_in_processes_are_those_of_each_alone(workers, tmp_path):
    script = tmp_path / "fits.py"
    script.write_text(PROCESSES)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    environment["OMP_WAIT_POLICY"] = "passive"  # threads that wait leave the cores to others
    done = subprocess.run(
        [sys.executable, script, workers],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        cwd=ROOT,
    )
    assert done.stdout == "True\n", done.stderr
