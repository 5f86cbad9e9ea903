"""The input of a saved model: how new samples are read."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

import ssdml
from ssdml.utils.persistence import UNSIGNED, signed
from tests.tables import CLASS_NAMES, write


def test_damaged_input_of_a_model_is_named(run, table, tmp_path):
    data, model = write(table, tmp_path / "t.csv"), tmp_path / "model"
    assert run("fit", data, "--out", model).exit_code == 0
    wrong = ({"columns": [7]}, {"other": 1}, {"image_size": "a"}, {"text": 2})
    for text in ("{", "[7]", *(json.dumps({"sha256": UNSIGNED} | more) for more in wrong)):
        (model / "input.json").write_text(signed(text), encoding="utf-8")
        told = run("predict", model, data)
        assert told.exit_code == 1
        assert "input.json: damaged" in told.stderr
        assert "checksum" not in told.stderr


def test_model_without_its_input_is_refused(run, table, tmp_path):
    data, model = write(table, tmp_path / "t.csv"), tmp_path / "model"
    assert run("fit", data, "--out", model).exit_code == 0
    whole = run("predict", model, data).stdout
    (model / "input.json").rename(tmp_path / "input.json")
    told = run("predict", model, data)
    assert told.exit_code == 1
    assert "input.json is missing" in told.stderr
    learned = ssdml.SSDML.load(model)
    assert learned.feature_names_in_.tolist() == ["f0", "f1", "f2", "f3", "f4"]
    learned.save(model)  # now a model of Python
    assert run("predict", model, data).stdout == whole
    (tmp_path / "input.json").rename(model / "input.json")
    told = run("predict", model, data)
    assert told.exit_code == 1
    assert "not of this model, which Python saved. Delete it" in told.stderr


def test_input_of_another_model_is_refused(run, table, tmp_path):
    for name in ("one", "other"):
        data = write(table.rename(columns={"f0": name}), tmp_path / f"{name}.csv")
        assert run("fit", data, "--out", tmp_path / name).exit_code == 0
    (tmp_path / "one" / "input.json").replace(tmp_path / "other" / "input.json")
    told = run("predict", tmp_path / "other", data)
    assert "belongs to another model" in told.stderr


def test_columns_of_a_model_of_python_are_found_by_name(run, table, tmp_path):
    """A model without feature names takes the numeric columns in their order."""
    features, labels = table[["f3", "f0", "f4", "f2", "f1"]], table["label"].replace("", None)
    ssdml.SSDML(random_state=0).fit(features, labels).save(tmp_path / "named")
    ssdml.SSDML(random_state=0).fit(features.to_numpy(), labels).save(tmp_path / "plain")
    data = write(table, tmp_path / "t.csv")
    same = write(table[["f3", "f0", "f4", "f2", "f1"]], tmp_path / "same.csv")
    found = [
        pd.read_csv(io.StringIO(run("predict", tmp_path / model, path).stdout))["confidence"]
        for model, path in (("named", data), ("plain", same))
    ]
    np.testing.assert_array_equal(*found)
    data = write(table.drop(columns="f2"), tmp_path / "t.csv")
    assert "'f2' is missing" in run("predict", tmp_path / "named", data).stderr


@pytest.mark.parametrize("command", ["fit", "label"])
def test_marks_are_told_once(run, arrays, tmp_path, command):
    X, y = (np.load(path) for path in arrays)
    np.savez(tmp_path / "t.npz", X=X, y=np.where(y < 0, -100, y))
    frame = pd.DataFrame(X).add_prefix("f").assign(label=CLASS_NAMES[y])
    frame.loc[::9, "f0"] = -999
    data = write(frame, tmp_path / "t.csv")
    out = tmp_path / ("model" if command == "fit" else "out.csv")
    told = run(command, data, "--out", out).output
    assert told.count("-999 is a number; if it means a missing value, replace it") == 1
    assert "must not mark missing values" not in told
    if command == "fit":
        told = run(command, tmp_path / "t.npz", "--out", out, "--force").output
        assert told.count("'-100' counts as a class") == 1
        assert "must mark unlabeled rows" not in told
