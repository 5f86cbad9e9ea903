"""Tables of a folder that are joined, and those that are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.paths import read_path


def test_tables_of_several_types_of_numbers_are_joined(tmp_path):
    pd.DataFrame({"a": [1, 2], "label": ["x", "y"]}).to_parquet(tmp_path / "train.parquet")
    table = pa.table({"a": [0.5], "label": pa.array(["x"], pa.large_string())})
    parquet.write_table(table, tmp_path / "test.parquet")
    data = read_dataset(tmp_path, Choice())
    assert (data.X[:, 0].tolist(), data.y.tolist()) == ([0.5, 1, 2], [0, 0, 1])


def test_other_sheets_of_joined_tables_are_told(tmp_path):
    for part in ("train", "test"):
        with pd.ExcelWriter(tmp_path / f"{part}.xlsx") as writer:
            frame = pd.DataFrame({"a": [0.5, len(part)], "label": ["x", "y"]})
            frame.to_excel(writer, index=False)
            frame[:1].to_excel(writer, sheet_name="more", index=False)
    doubts = read_path(tmp_path).summary.doubts
    assert [doubt.partition(":")[0] for doubt in doubts[:2]] == ["test.xlsx", "train.xlsx"]


@pytest.mark.parametrize("needs_label", [False, True])
def test_labels_of_several_names_are_refused(tmp_path, needs_label):
    (tmp_path / "train.csv").write_text("a,b,label\n0.5,1.5,x\n0.25,2.5,y\n")
    (tmp_path / "test.csv").write_text("a,b,Class\n0.5,3.5,x\n0.25,4.5,y\n")
    with pytest.raises(ValueError, match=r"must name the labels alike; got 'Class' and 'label'"):
        read_path(tmp_path, Choice(needs_label=needs_label))


def test_names_of_columns_in_another_case_are_the_same(tmp_path):
    (tmp_path / "train.csv").write_text("Id,a,b,label\n1,0.5,1.5,x\n2,0.25,2.5,y\n")
    (tmp_path / "test.csv").write_text("id,a,B,Label\n3,0.5,3.5,x\n4,0.25,4.5,y\n")
    data = read_path(tmp_path, Choice())
    assert data.columns == ("a", "B")
    np.testing.assert_array_equal(data.items[:, 1], [3.5, 4.5, 1.5, 2.5])
    assert data.labels.tolist() == ["x", "y", "x", "y"]
    (tmp_path / "test.csv").write_text("a,b,B,label\n0.5,3.5,0,x\n0.25,4.5,1,y\n")
    (tmp_path / "train.csv").write_text("a,B,b,label\n0.5,3.5,0,x\n0.25,9.5,1,y\n")
    assert read_path(tmp_path, Choice()).columns == ("a", "b", "B")


@pytest.mark.parametrize(
    ("train", "test", "is_told"),
    [
        *(("01", "xy", True), ("xy", "01", True), ("01", "23", False), ("wx", "yz", False)),
        *(("0x", "01", False), ("01", " ", False)),
    ],
)
def test_codes_of_the_classes_of_test_rows_are_told(tmp_path, train, test, is_told):
    for name, labels in (("train", train), ("test", test)):
        rows = [f"{k}.5,{i}.25,{label}\n" for k, label in enumerate(labels) for i in range(3)]
        (tmp_path / f"{name}.csv").write_text(f"a,b,label\n0.1,{len(name)},\n" + "".join(rows))
    data = read_dataset(tmp_path, Choice())
    told = f"of the test rows ({', '.join(test)}) are none of the training rows ({train[0]}"
    assert any(told in doubt for doubt in data.summary.doubts) == is_told


@pytest.mark.parametrize("copy", ["t (1).csv", "raw/t.csv"])
def test_copies_of_a_table_are_refused(tmp_path, copy):
    for name in ("t.csv", copy):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a,b,label\n0.5,1.5,x\n0.25,2.5,y\n")
    with pytest.raises(ValueError, match=r"its tables must differ; 2 rows of .* are in"):
        read_path(tmp_path)
    (tmp_path / copy).write_text("a,b,label\n0.5,1.5,x\n0.25,3.5,y\n")
    assert sorted(read_path(tmp_path).items[:, 1]) == [1.5, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("name", ["fold{0}/{1}.csv", "{1}_fold{0}.parquet", "{1}{0}.csv"])
def test_rows_of_several_folds_are_refused(tmp_path, rng, name):
    frame = pd.DataFrame(rng.normal(size=(15, 2)), columns=["a", "b"]).assign(label=[*"xyx"] * 5)
    frame.loc[3, "a"] = np.nan
    for fold in range(3):
        for part, rows in (("test", frame.index % 3 == fold), ("train", frame.index % 3 != fold)):
            path = tmp_path / name.format(fold, part)
            path.parent.mkdir(exist_ok=True)
            if path.suffix == ".csv":
                frame[rows].to_csv(path, index=False)
            else:
                frame[rows].to_parquet(path)
    with pytest.raises(ValueError, match=r"are in .*; of several folds, keep one in the folder"):
        read_path(tmp_path)


def test_rows_of_a_table_that_are_in_a_larger_one_are_refused(tmp_path, rng):
    frame = pd.DataFrame(rng.normal(size=(15, 2)), columns=["a", "b"]).assign(label=[*"xyx"] * 5)
    frame.to_csv(tmp_path / "all.csv", index=False)
    frame[::3].to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ValueError, match=r"differ; 5 rows of .*test\.csv are in .*all\.csv\. Name"):
        read_path(tmp_path)


def test_rows_of_few_values_may_occur_again(tmp_path):
    rows = [f"{i % 2},{i // 2 % 2},{'xy'[i % 2]}\n" for i in range(16)]
    (tmp_path / "train.csv").write_text("".join(["a,b,label\n", *rows]))
    (tmp_path / "test.csv").write_text("".join(["a,b,label\n", *rows[:12]]))
    assert read_path(tmp_path).items.shape == (28, 2)


@pytest.mark.parametrize(
    ("samples", "labels"),
    [
        ("x_train.txt", "y_train.txt"),
        ("train_text.txt", "train_labels.txt"),
        ("data.csv", "Target.csv"),
    ],
)
@pytest.mark.parametrize("needs_label", [True, False])
def test_labels_in_a_file_of_their_own_are_no_samples(tmp_path, samples, labels, needs_label):
    (tmp_path / samples).write_text("how do I pay\nwhere is it now\n" * 2)
    (tmp_path / labels).write_text("a\nb\n" * 2)
    message = rf"{labels} seems to hold those of another table\. Write them into it"
    with pytest.raises(ValueError, match=message):
        read_path(tmp_path, Choice(needs_label=needs_label))


@pytest.mark.parametrize("other", ["features.tsv", "ids.csv"])
def test_tables_of_other_columns_are_not_joined(tmp_path, other):
    (tmp_path / "train.csv").write_text("id,a,b,label\n1,0.5,2,x\n2,1.5,3,y\n")
    (tmp_path / other).write_text("id\tlabel\n3\tx\n" if "tsv" in other else "id,label\n3,x\n")
    message = rf"its tables must have the same columns; .*{other} lacks a, b\. Name one file"
    with pytest.raises(ValueError, match=message):
        read_path(tmp_path)
    (tmp_path / other).write_text("id,a,b\n3,0.5,4\n".replace(",", "\t" if "tsv" in other else ","))
    assert read_path(tmp_path).items.shape == (3, 2)


@pytest.mark.parametrize("step", [1, 3])
def test_row_numbers_of_each_table_are_no_features(tmp_path, rng, step):
    for n_rows, part in ((9, "train"), (6, "test")):
        rows = pd.DataFrame(rng.normal(size=(n_rows, 2))).assign(
            label=["x", "y", "z"] * (n_rows // 3)
        )
        rows.set_axis(np.arange(n_rows) * step).to_csv(tmp_path / f"{part}.csv", header=False)
    data = read_dataset(tmp_path, Choice())
    assert (data.columns, len(data.X)) == (("2", "3"), 15)
    assert "distinct and sorted in each table, like row numbers" in str(data.summary)


def test_the_index_of_each_table_is_no_repeated_id(tmp_path, frame):
    frame[:20].to_csv(tmp_path / "train.csv")
    frame[20:].reset_index(drop=True).to_csv(tmp_path / "test.csv")
    assert not read_dataset(tmp_path, Choice()).summary.doubts
    frame[20:].assign(id=range(20)).to_csv(tmp_path / "test.csv", index=False)
    frame[:20].assign(id=range(20)).to_csv(tmp_path / "train.csv", index=False)
    assert "20 ids in column 'id' are in" in str(read_dataset(tmp_path, Choice()).summary)


def test_labels_in_a_table_of_their_own_are_to_be_joined(tmp_path, rng):
    ids = np.arange(20) * 3
    pd.DataFrame({"id": ids, "p": rng.normal(size=20)}).to_csv(tmp_path / "values.csv", index=False)
    labels = pd.DataFrame({"id": ids, "status": np.resize(["a", "b"], 20)})
    labels.to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(
        ValueError, match=r"have rows of the same id, and other columns\. Join them"
    ):
        read_dataset(tmp_path, Choice())
