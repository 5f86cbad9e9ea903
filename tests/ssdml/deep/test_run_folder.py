"""History on disk, and out-of-memory errors."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from ssdml.deep import run_folder
from ssdml.deep.run_folder import write_history
from ssdml.utils.torch_tools import device_hints
from tests.deep import small_model


def entries(count):
    return [
        {"partition": i + 1, "loss": 1 / (i + 1), "purity": None, "validation": {"NMI": 50.0 + i}}
        for i in range(count)
    ]


def test_history_has_one_line_per_partition(tmp_path):
    for count in (1, 3):
        write_history(tmp_path, entries(count))
        lines = (tmp_path / "history.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == entries(count)
    assert not (tmp_path / "history.jsonl.unfinished").exists()


def test_history_writes_nan_as_null(tmp_path):
    scores = {"NMI": float("nan"), "R@1": 5.0}
    write_history(tmp_path, [{"partition": 1, "loss": float("inf"), "validation": scores}])
    line = json.loads((tmp_path / "history.jsonl").read_text())
    assert line == {"partition": 1, "loss": None, "validation": {"NMI": None, "R@1": 5.0}}


def test_tensorboard_receives_scalars_if_installed(tmp_path, monkeypatch):
    seen = []

    class Writer:
        def __init__(self, folder):
            self.folder = folder

        def __enter__(self):
            return self

        def __exit__(self, *error):
            seen.append("closed")

        def add_scalar(self, name, value, step):
            seen.append((name, value, step))

    module = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    write_history(tmp_path, entries(2))
    assert seen == [("loss", 0.5, 2), ("validation/NMI", 51.0, 2), "closed"]


def test_history_needs_no_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    write_history(tmp_path, entries(1))
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"]


def test_runs_that_begin_together_do_not_share_a_folder(digits, tmp_path, monkeypatch):
    """As in a parallel search: both find an empty folder, and the second one must not mix in."""
    X, _, labels = digits
    options = {"epochs": 1, "checkpoint_dir": tmp_path}
    small_model(**options).fit(X, labels)
    (file,) = tmp_path.glob("partition-*")
    kept = file.read_bytes()
    monkeypatch.setattr(run_folder, "load_checkpoint", lambda *found: None)
    other = small_model(**options, weight_decay=0.5)
    with pytest.raises(ValueError, match=r"must hold checkpoints of the same .*weight_decay=0\.01"):
        other.fit(X, labels)
    assert file.read_bytes() == kept
    for damaged in (kept[: len(kept) // 2], kept[:-1] + bytes([kept[-1] ^ 1])):
        file.write_bytes(damaged)  # is replaced
        other.fit(X, labels)


def test_out_of_memory_names_the_parameter():
    with (
        pytest.raises(
            MemoryError, match=r"Out of memory \(9 GiB\). Lower batch_size=64 in another folder,"
        ),
        device_hints(SimpleNamespace(batch_size=64, checkpoint_dir="run")),
    ):
        raise torch.cuda.OutOfMemoryError("9 GiB")


@pytest.mark.parametrize(
    "name",
    ["CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory"],
)
def test_recognizes_errors_of_gpu_libraries(name):
    with (
        pytest.raises(MemoryError, match=rf"Out of memory \({name}"),
        device_hints(SimpleNamespace(batch_size=64)),
    ):
        raise RuntimeError(f"{name} when calling `create(handle)`")


def test_recognizes_cpu_out_of_memory():
    with (
        pytest.raises(MemoryError, match=r"Out of memory.*Lower batch_size=64, shrink the network"),
        device_hints(SimpleNamespace(batch_size=64)),
    ):
        torch.empty(2**55)


def test_main_memory_error_names_the_way_out():
    with (
        pytest.raises(MemoryError, match=r"main memory \(9 GiB\). Pass fewer samples, or set "),
        device_hints(SimpleNamespace(batch_size=64, input_edges="auto")),
    ):
        raise MemoryError("9 GiB")
    with pytest.raises(MemoryError, match=r"samples\.$"), device_hints(SimpleNamespace()):
        raise MemoryError("9 GiB")


def test_other_errors_pass_through():
    with pytest.raises(RuntimeError, match="something else"), device_hints(SimpleNamespace()):
        raise RuntimeError("something else")
    with pytest.raises(RuntimeError, match=r"^CUDA error: no kernel"), device_hints(None):
        raise RuntimeError("CUDA error: no kernel image is available for execution")
