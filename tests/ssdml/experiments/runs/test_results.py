"""Rows on disk survive a kill, a full disk and a careless editor."""

from __future__ import annotations

import errno
import json
import os

import pytest

from ssdml.experiments.runs.results import append_row, drop_cut_line, latest, read_rows


def test_rows_come_back_as_they_were_written(tmp_path, make_row):
    path = tmp_path / "results.jsonl"
    rows = [make_row(seed=seed, dataset="Zürich 数字\n") for seed in range(3)]
    for row in rows:
        append_row(path, row)
    assert read_rows(path) == rows
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize("kept", [1, 40, -2, -1])
def test_a_line_cut_short_is_dropped_with_a_warning(tmp_path, make_row, kept):
    path = tmp_path / "results.jsonl"
    append_row(path, make_row(seed=0))
    whole = path.read_bytes()
    append_row(path, make_row(seed=1))
    path.write_bytes(whole + path.read_bytes()[len(whole) :][:kept])
    with pytest.warns(UserWarning, match=r"results\.jsonl: the last line was cut short"):
        assert [row["seed"] for row in read_rows(path)] == [0]


def test_the_row_after_a_cut_line_starts_on_a_line_of_its_own(tmp_path, make_row):
    path = tmp_path / "results.jsonl"
    append_row(path, make_row(seed=0))
    with path.open("a") as file:
        file.write('{"dataset": "blo')
    drop_cut_line(path)
    append_row(path, make_row(seed=1))
    assert [row["seed"] for row in read_rows(path)] == [0, 1]


def test_a_file_without_a_whole_line_becomes_empty(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"dataset"')
    drop_cut_line(path)
    assert path.read_bytes() == b""


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, make_row, monkeypatch):
    path = tmp_path / "results.jsonl"
    append_row(path, make_row(seed=0))
    before, real_write = path.read_bytes(), os.write

    def write_a_bit(file, data):
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", write_a_bit)
    with pytest.raises(OSError, match=r"No space left on device.*--resume.*results\.jsonl") as info:
        append_row(path, make_row(seed=1))
    assert info.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    monkeypatch.undo()
    append_row(path, make_row(seed=1))
    assert [row["seed"] for row in read_rows(path)] == [0, 1]


def test_a_write_that_takes_a_part_at_a_time_is_finished(tmp_path, make_row, monkeypatch):
    path, real_write = tmp_path / "results.jsonl", os.write
    monkeypatch.setattr(os, "write", lambda file, data: real_write(file, data[:7]))
    append_row(path, make_row())
    assert read_rows(path) == [make_row()]


def test_a_score_that_is_no_number_is_not_written(tmp_path, make_row):
    path = tmp_path / "results.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_row(path, make_row(peak_rss_mb=float("nan")))
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("oops", "not JSON"), ("[1, 2]", "no 'dataset'"), ('{"dataset": "d"}', "no 'method'")],
)
def test_a_spoilt_line_is_named(tmp_path, make_row, line, complaint):
    path = tmp_path / "results.jsonl"
    path.write_text(f"{json.dumps(make_row())}\n{line}\n")
    with pytest.raises(ValueError, match=rf"results\.jsonl, line 2: .*{complaint}.*Delete that"):
        read_rows(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.jsonl: there is no such file"):
        read_rows(tmp_path / "results.jsonl")


def test_a_retry_replaces_the_run_before_it_and_no_other(make_row):
    failed = make_row(method="nca", status="failed")
    again, other = make_row(method="nca"), make_row(method="nca", seed=1)
    assert latest([failed, other, again]) == [again, other]
