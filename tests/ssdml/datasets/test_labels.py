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
@pytest.mark.parametrize("heights", [(10, 10, 10), (4, 20)])
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
        [*labels, *[None] * 100],  # a few labels, the last of them far above the end
    ):
        assert TOLD not in summary_of(others, path)


@pytest.mark.parametrize("codes", ["01", "12"])
def test_numbers_beside_names_are_told(tmp_path, codes):
    path, told = tmp_path / "t.csv", "if the numbers are codes of names"
    assert told in summary_of([*codes, "cat", "dog"] * 5, path)
    others = (["cat", codes[0]], [*codes, *"ab"], [*codes, "3-5", "6+"], ["3", "4", "cat", "dog"])
    for labels in ([*codes], *others):
        assert told not in summary_of(labels * 5, path)


def test_a_list_beside_plain_labels_is_its_only_label(tmp_path):
    rows = [
        {"text": f"a text of {i}", "label": [["cat"], "dog", [], "cat"][i % 4]} for i in range(8)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = read_dataset(tmp_path / "t.jsonl", Choice())
    assert data.class_names == ("cat", "dog")
    assert data.y.tolist() == [0, 1, -1, 0] * 2


@pytest.mark.parametrize("form", ["votes_{}", "{} (%)", "P({})", "{}"])
def test_features_called_like_all_classes_are_told(tmp_path, rng, form):
    told = "are named after the classes; if they reveal the labels"
    votes = {form.format(name.title()): rng.random(20) for name in ("cat", "dog")}
    frame = pd.DataFrame({"a": rng.normal(size=20), **votes, "label": ["cat", "dog"] * 10})
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    assert told in str(read_dataset(path, Choice()).summary)
    for other in (
        frame.assign(label=["cat", "eel"] * 10),  # not of all classes
        frame.set_axis(["a", "category_x", "dogma_x", "label"], axis=1),
        frame.set_axis(["a", "x1", "x2", "label"], axis=1).assign(label=["1", "2"] * 10),
        frame.set_axis(["a", "x_no", "x_yes", "label"], axis=1).assign(label=["no", "yes"] * 10),
        frame.assign(n_cat=1.5, n_dog=frame["a"]),  # two for each class
    ):
        other.to_csv(path, index=False)
        assert told not in str(read_dataset(path, Choice()).summary)


@pytest.mark.parametrize("name", ["gold", "what"])
def test_predictions_are_not_guessed_beside_labels(tmp_path, name):
    texts = [f"a text about {i}" for i in range(20)]
    frame = pd.DataFrame({"text": texts, name: ["cat", "dog"] * 10, "pred": ["dog", "cat"] * 10})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert f"column '{name}'" in read_dataset(tmp_path / "t.csv", Choice()).summary.facts["labels"]
    frame.drop(columns=name).to_csv(tmp_path / "t.csv", index=False)
    assert "column 'pred'" in read_dataset(tmp_path / "t.csv", Choice()).summary.facts["labels"]
