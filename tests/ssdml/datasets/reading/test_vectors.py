"""Columns of vectors."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from tests.images import write_images
from tests.tables import N, assert_features

SIDE_BY_SIDE = [" {} {} ", "{},{}", "({}, {})", "({}, {},)", "{{{},{}}}", "{};{}", "{} | {}"]
PRINTED = ["array([{}, {}], dtype=float32)", "tensor([{},\n {}])", "np.array([{}, {}])"]
PRINTED += ["tensor([{}, {}], device='cuda:0')", "[np.float64({}), np.float64({})]"]


@pytest.mark.parametrize("form", [*SIDE_BY_SIDE, *PRINTED])
def test_vectors_in_any_notation_are_the_features(tmp_path, frame, form):
    vectors = frame[["p", "q"]].round(3).to_numpy() + 0.0005
    path = tmp_path / "t.csv"
    cells = [form.format(*row) for row in vectors]
    frame.drop(columns=["p", "q"]).assign(v=cells).to_csv(path, index=False)
    for choice in (Choice(), Choice(features=("v",))):
        np.testing.assert_allclose(read_dataset(path, choice).X, vectors, rtol=1e-6)


def test_long_vectors_without_brackets_are_preferred(tmp_path, frame):
    cells = [" ".join(map(str, np.arange(k, k + 16))) for k in range(len(frame))]
    frame.assign(pixels=cells).to_csv(tmp_path / "t.csv", index=False)
    assert read_dataset(tmp_path / "t.csv", Choice()).X.shape == (len(frame), 16)


def test_a_few_numbers_without_brackets_are_text_beside_numbers(tmp_path, frame):
    cells = [f"48.{k:02d}1, 11.{k:02d}7" for k in range(len(frame))]
    frame.assign(place=cells).to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.columns == ("p", "q")
    assert "place" in data.summary.left_out


@pytest.mark.parametrize(
    "cells", [["1,234.5", "1,235.5"], ["1 2", "3 4"], ["0,1 0,2", "0,3 0,4"], ["(0.1", "0.2)"]]
)
def test_other_numbers_in_a_text_are_no_vectors(tmp_path, cells):
    with open(tmp_path / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows([["v", "label"], *zip(cells * 5, "ab" * 5, strict=True)])
    with pytest.raises(ValueError, match="must have columns of numbers or of texts"):
        read_dataset(tmp_path / "t.csv", Choice())


def test_a_wrong_number_in_a_vector_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("v,label\n" + "0.5 0.25,a\n" * 6 + "0.5 x,b\n")
    with pytest.raises(ValueError, match=r"line 8, column 'v': '0\.5 x' must be a vector such as"):
        read_dataset(tmp_path / "t.csv", Choice())


@pytest.mark.parametrize("kind", ["lists", "text", "numpy", "nested"])
def test_vectors_are_the_features(tmp_path, frame, kind):
    vectors = frame[["p", "q"]].round(3).to_numpy()
    cells = {
        "lists": vectors.tolist(),
        "text": [str(v) for v in vectors.tolist()],
        "numpy": [str(v) for v in vectors],
        "nested": [[v] for v in vectors.tolist()],
    }[kind]
    path = tmp_path / "t.jsonl"
    rows = zip(cells, frame["label"], strict=True)
    path.write_text("\n".join(json.dumps({"id": 5, "v": v, "label": x}) for v, x in rows))
    data = read_dataset(path, Choice())
    np.testing.assert_allclose(data.X, vectors, rtol=1e-6)
    assert data.columns == ("v",)


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ([1.0], r"must have the shape \(2,\) of the first row; got \(1,\)"),
        (None, "must be a vector of numbers"),
        ([1.0, None], "must be a vector of numbers"),
        ([1.0, float("nan")], "must be a vector of numbers"),
        ([], "must be a vector of numbers"),
    ],
)
def test_wrong_vectors_are_named(tmp_path, frame, cell, problem):
    path = tmp_path / "t.parquet"
    vectors = frame[["p", "q"]].to_numpy().tolist()
    vectors[3] = cell
    frame.assign(v=vectors).drop(columns=["p", "q"]).to_parquet(path)
    with pytest.raises(ValueError, match=rf"t\.parquet, row 3, column 'v': .*{problem}"):
        load_dataset(path)


def test_vectors_shortened_by_numpy_are_named(tmp_path):
    (tmp_path / "t.csv").write_text('v,label\n"[1 2 ... 3]",a\n"[1 2 ... 4]",b\n')
    with pytest.raises(ValueError, match=r"line 2, column 'v': .* was shortened by NumPy; write"):
        load_dataset(tmp_path / "t.csv")


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_sparse_vectors_are_refused(tmp_path, name):
    rows = pd.DataFrame({"f": [{"indices": [0, i + 1], "values": [0.5, 1.5]} for i in range(4)]})
    rows = rows.assign(label=[*"abab"])
    if name == "t.jsonl":
        rows.to_json(tmp_path / name, orient="records", lines=True)
    else:
        rows.to_parquet(tmp_path / name)
    with pytest.raises(ValueError, match=r"dense vectors; f\.indices and f\.values are sparse"):
        load_dataset(tmp_path / name)
    rows.assign(v=[[0.5, i / 7] for i in range(4)]).to_parquet(tmp_path / "both.parquet")
    data = load_dataset(tmp_path / "both.parquet")
    np.testing.assert_allclose(data.X, [[0.5, i / 7] for i in range(4)])
    rows["f"] = [{"indices": None, "values": [0.5, i / 7]} for i in range(4)]  # of Spark
    rows.to_parquet(tmp_path / "dense.parquet")
    data = load_dataset(tmp_path / "dense.parquet")
    np.testing.assert_allclose(data.X, [[0.5, i / 7] for i in range(4)])


def test_places_of_answers_are_no_vectors(tmp_path):
    rows = pd.DataFrame({"question": [f"where is the thing {i}?" for i in range(6)]})
    rows["answers"] = [{"text": ["x"], "answer_start": [i]} for i in range(6)]
    rows.assign(label=[*"ababab"]).to_parquet(tmp_path / "t.parquet")
    data = read_dataset(tmp_path / "t.parquet", Choice())
    assert data.columns == ("question",)
    assert data.summary.left_out["answers.answer_start"] == "lists"


def test_tokens_beside_embeddings_are_told(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame = frame.assign(embedding=frame[["p", "q"]].to_numpy().tolist(), input_ids=[[1, 2]] * N)
    frame.to_parquet(path)
    data = read_dataset(path, Choice())
    np.testing.assert_allclose(data.X, frame[["p", "q"]], rtol=1e-6)
    doubts = "".join(data.summary.doubts)
    assert "columns 'p', 'q' are not features, as the vectors in 'embedding' are" in doubts
    assert "column 'input_ids' is not a feature, as it holds lists" in doubts


def test_several_columns_of_vectors_are_asked_for(tmp_path, frame):
    vectors = [[0.5, i / 7] * 5 for i in range(N)]
    frame.assign(u=vectors, v=vectors).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(
        ValueError, match=r"which vectors are the features\? Columns u, v hold some"
    ):
        load_dataset(tmp_path / "t.parquet")
    data = read_dataset(tmp_path / "t.parquet", Choice(features=("v",)))
    np.testing.assert_allclose(data.X, vectors, rtol=1e-6)


@pytest.mark.parametrize(
    "cells",
    [
        [[i, 5] for i in range(N)],
        [[7] * (i % 9 + 1) for i in range(N)],
        [[i / 7, 0.5, 1.5, i / 3] for i in range(N)],  # boxes
        [[[i / 7, 0.5]] * (i % 9 + 1) for i in range(N)],
    ],
)
@pytest.mark.parametrize("name", ["t.jsonl", "t.csv"])
def test_short_lists_are_no_vectors_beside_others(tmp_path, frame, name, cells):
    write = {"t.csv": pd.DataFrame.to_csv, "t.jsonl": pd.DataFrame.to_json}[name]
    options = {"index": False} if name == "t.csv" else {"orient": "records", "lines": True}
    write(frame.assign(span=cells), tmp_path / name, **options)
    data = read_dataset(tmp_path / name, Choice())
    assert data.columns == ("p", "q")
    assert "'span' is not a feature, as it holds lists" in str(data.summary)
    texts = frame[["label"]].assign(text=[f"where is the thing {i}?" for i in range(N)], span=cells)
    write(texts, tmp_path / name, **options)
    assert read_dataset(tmp_path / name, Choice()).columns == ("text",)
    write_images(tmp_path, [f"{i}.png" for i in range(N)])
    images = texts.assign(text=[f"{i}.png" for i in range(N)]).rename(columns={"text": "image"})
    write(images, tmp_path / name, **options)
    assert read_dataset(tmp_path / name, Choice()).columns == ("image",)


@pytest.mark.parametrize("form", ["[INST] say {} again [/INST]", "['cat', 'x{}']", "[time : {}]"])
def test_words_in_brackets_are_no_vectors(tmp_path, frame, form):
    frame.assign(tags=[form.format(i) for i in range(N)]).to_csv(tmp_path / "t.csv", index=False)
    assert_features(read_dataset(tmp_path / "t.csv", Choice()), frame, "p", "q")
