"""SSDML on the schedulers of dask, and on a cluster that loses a worker: equal results."""

from __future__ import annotations

import errno
import os
import time
import weakref

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from ssdml import SSDML
from ssdml.metric import out_of_core
from tests.chunks import in_chunks

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.usefixtures("small_partitions")


@pytest.fixture(scope="module")
def expected(overlapping):
    """The fit on the synchronous scheduler."""
    X, labels, _ = overlapping
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr(out_of_core, "PARTITION_ROWS", 200)  # as `small_partitions`
        return SSDML(random_state=0).fit(in_chunks(X), labels)


def check_equal(model, expected):
    """Assert that two fits are bitwise equal."""
    for name in ("components_", "transduction_", "label_distributions_", "embedding_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(expected, name), err_msg=name)
    for ends, same in zip(model.triplets_, expected.triplets_, strict=True):
        np.testing.assert_array_equal(ends, same)
    assert model.history_ == expected.history_


# Each process imports all of ssdml again.
@pytest.mark.parametrize(
    "scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)]
)
def test_schedulers_give_equal_results(overlapping, expected, scheduler):
    with dask.config.set(scheduler=scheduler, num_workers=2):
        check_equal(SSDML(random_state=0).fit(in_chunks(overlapping[0]), overlapping[1]), expected)


def test_no_task_holds_all_rows(overlapping, monkeypatch):
    """Counts the rows of each graph and the blocks alive at a time."""
    X, labels, _ = overlapping
    graphs, alive, most = [], set(), []

    def searched(points, *args, search=out_of_core.forms_with_graphs, **kwargs):
        graphs.append(len(points))
        return search(points, *args, **kwargs)

    def read(block):
        block = block.copy()
        alive.add(id(block))
        weakref.finalize(block, alive.discard, id(block))
        most.append(len(alive))
        return block

    monkeypatch.setattr(out_of_core, "forms_with_graphs", searched)
    monkeypatch.setattr(out_of_core, "REFERENCE_ROWS", 100)
    watched = in_chunks(X).map_blocks(read, dtype=X.dtype, meta=X[:0])
    with dask.config.set(scheduler="synchronous"):
        SSDML(random_state=0).fit(watched, labels)
    # 200 of its own and 10 of the 15 labeled rows; the reference rows
    assert sorted(graphs[:3]) == [210, 210, 210]
    assert 100 <= graphs[3] <= 115
    assert max(most) == 4  # of 50 rows each


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, forked from a server that has loaded what they need."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    forked = {"distributed.worker.multiprocessing-method": "forkserver"}
    with dask.config.set(forked):
        server = distributed.utils.get_mp_context()
        server.set_forkserver_preload(["distributed", "ssdml.metric.out_of_core"])
        with distributed.LocalCluster(**options) as cluster:
            yield cluster


@pytest.fixture
def client(cluster):
    with cluster.get_client() as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def test_cluster_gives_equal_results(overlapping, expected, client):
    check_equal(SSDML(random_state=0).fit(in_chunks(overlapping[0]), overlapping[1]), expected)
    assert len(client.run(os.getpid)) == 2


def test_killed_worker_changes_nothing(overlapping, expected, client, tmp_path):
    """The first worker to build a graph dies; its tasks are computed again."""
    mark = str(tmp_path / "killed")

    def arm(mark):
        import os
        import signal

        from ssdml.metric import out_of_core

        def killing(*args, search=out_of_core.forms_with_graphs, **kwargs):
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return search(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        out_of_core.forms_with_graphs = killing

    before = set(client.run(os.getpid).values())
    client.run(arm, mark)
    model = SSDML(random_state=0).fit(in_chunks(overlapping[0]), overlapping[1])
    client.wait_for_workers(2, timeout=30)
    after = set(client.run(os.getpid).values())
    assert os.path.exists(mark)
    assert len(before & after) == 1
    check_equal(model, expected)


def failing_when_read_again(X, mark):
    """The rows in chunks; the second read of the sixth chunk fails once."""

    def read(block, block_info):
        if block_info[0]["chunk-location"][0] == 5:
            with open(mark, "a") as file:
                file.write("x")
            if os.path.getsize(mark) == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO), "part-5.npy")
        return block

    return in_chunks(X).map_blocks(read, dtype=X.dtype, meta=X[:0])


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_failing_disk_leaves_nothing_fitted(overlapping, expected, tmp_path, scheduler):
    X, labels, _ = overlapping
    failing = failing_when_read_again(X, str(tmp_path / "reads"))
    model = SSDML(random_state=0).fit(X[:100], labels[:100])
    with dask.config.set(scheduler=scheduler):
        with pytest.raises(OSError, match=r"Input/output error: 'part-5\.npy'"):
            model.fit(failing, labels)
        with pytest.raises(NotFittedError, match="SSDML instance is not fitted"):
            model.predict(X)
        check_equal(model.fit(failing, labels), expected)


def test_failing_task_leaves_nothing_fitted(overlapping, expected, client, tmp_path):
    """The error is raised unchanged; the cluster forgets it although its traceback lives."""
    X, labels, _ = overlapping
    failing = failing_when_read_again(X, str(tmp_path / "reads"))
    model = SSDML(random_state=0).fit(X[:100], labels[:100])
    with pytest.raises(OSError, match=r"Input/output error: 'part-5\.npy'") as caught:
        model.fit(failing, labels)
    with pytest.raises(NotFittedError, match="SSDML instance is not fitted"):
        model.predict(X)
    deadline = time.monotonic() + 20
    while client.run_on_scheduler(n_failed) and time.monotonic() < deadline:
        time.sleep(0.01)
    check_equal(model.fit(failing, labels), expected)
    assert caught.tb is not None


def n_failed(dask_scheduler):
    """Number of tasks whose error the scheduler holds."""
    return sum(task.state == "erred" for task in dask_scheduler.tasks.values())


def test_worker_errors_are_raised(overlapping, client):
    bad = overlapping[0].copy()
    bad[333, 2] = np.nan
    with pytest.raises(ValueError, match="SSDML: X must be finite; got nan at row 333, column 2"):
        SSDML(random_state=0).fit(in_chunks(bad), overlapping[1])
