"""Labels of a file that may mean something else."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice

TOLD = "each class has one label, above empty cells"


def summary_of(labels, path):
    """Write labels beside numbers, and return the summary as text."""
    numbers = np.random.default_rng(0).normal(size=(len(labels), 2))
    frame = pd.DataFrame(numbers, columns=["p", "q"]).assign(species=labels)
    frame.to_excel(path, index=False) if path.suffix == ".xlsx" else frame.to_csv(path, index=False)
    return str(read_dataset(path, Choice()).summary)


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
@pytest.mark.parametrize("heights", [(10, 10, 10), (3, 20)])
def test_labels_in_the_first_rows_of_blocks_are_told(tmp_path, suffix, heights):
    path = tmp_path / f"t.{suffix}"
    labels = [
        (k if i == 0 else None) for k, n in zip("abc", heights, strict=False) for i in range(n)
    ]
    text = summary_of(labels, path)
    assert TOLD in text
    assert "frame['species'].ffill()" in text
    for others in (
        [None, *labels],  # no label in the first row
        [*labels, "a", None, None],  # a class twice
        [*labels, "x", "y"],  # no empty cells below one
        ["?" if label is None else label for label in labels],
    ):
        assert TOLD not in summary_of(others, path)


@pytest.mark.parametrize("codes", ["01", "12"])
def test_numbers_beside_names_are_told(tmp_path, codes):
    path, told = tmp_path / "t.csv", "if the numbers are codes of names"
    assert told in summary_of([*codes, "cat", "dog"] * 5, path)
    for labels in ([*codes], ["cat", codes[0]], [*codes, *"ab"], ["3", "4", "cat", "dog"]):
        assert told not in summary_of(labels * 5, path)


def test_a_list_beside_plain_labels_is_its_only_label(tmp_path):
    rows = [
        {"text": f"a text of {i}", "label": [["cat"], "dog", [], "cat"][i % 4]} for i in range(8)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = read_dataset(tmp_path / "t.jsonl", Choice())
    assert data.class_names == ("cat", "dog")
    assert data.y.tolist() == [0, 1, -1, 0] * 2
