"""Objects of JSON in which databases of vectors and annotation tools write rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.formats.tables import read_table
from ssdml.datasets.reading.names import Choice
from tests.images import write_images

LABELS = ["cat", "dog", None, "cat"]
VECTORS = [[0.5, 1.5], [2.5, -1.0], [0.25, 3.0], [1.0, 1.0]]
PAIRS = list(zip(VECTORS, LABELS, strict=True))
POINTS = [{"id": i, "vector": v, "payload": {"label": c}} for i, (v, c) in enumerate(PAIRS)]
HITS = [{"_id": i, "_source": {"embedding": v, "label": c}} for i, (v, c) in enumerate(PAIRS)]
OBJECTS = [
    {"class": "A", "id": i, "vector": v, "properties": {"label": c}}
    for i, (v, c) in enumerate(PAIRS)
]


@pytest.mark.parametrize(
    "content",
    [
        {"result": {"points": POINTS, "next": None}, "status": "ok"},  # Qdrant
        {"took": 1, "hits": {"total": {"value": 4}, "hits": HITS}},  # Elasticsearch
        {
            "ids": list("abcd"),
            "embeddings": VECTORS,
            "metadatas": [{"label": c} for c in LABELS],
            "uris": None,
            "included": ["embeddings", "metadatas"],
        },  # Chroma
        {"objects": OBJECTS},  # Weaviate
        {name: {"v": v, "label": c} for name, (v, c) in zip("abcd", PAIRS, strict=True)},
        {name: {"v": v} | ({"label": c} if c else {}) for name, (v, c) in enumerate(PAIRS)},
        [["id", "v", "label"], *([i, v, c] for i, (v, c) in enumerate(PAIRS))],
    ],
    ids=["qdrant", "elastic", "chroma", "weaviate", "by name", "without keys", "lists"],
)
def test_vectors_and_labels_of_databases_are_read(tmp_path, content):
    (tmp_path / "t.json").write_text(json.dumps(content))
    data = read_dataset(tmp_path / "t.json", Choice())
    assert data.X.tolist() == VECTORS
    assert data.y.tolist() == [0, 1, -1, 0]
    assert data.class_names == ("cat", "dog")
    assert len(set(data.ids)) == 4


@pytest.mark.parametrize("name", ["t.json", "t.jsonl"])
def test_lists_are_rows_below_their_names(tmp_path, name):
    rows = [["a", "label"], [1.5, "x"], [2.5]]
    text = "\n".join(map(json.dumps, rows)) if name == "t.jsonl" else json.dumps({"values": rows})
    (tmp_path / name).write_text(text)
    table = read_table(tmp_path / name)
    assert table.columns.to_pylist() == [{"a": 1.5, "label": "x"}, {"a": 2.5, "label": None}]
    assert table.place(1) == ("line 3" if name == "t.jsonl" else "row 2")


def test_columns_of_objects_are_joined_by_their_keys(tmp_path):
    columns = {"a": {"0": 1.5, "1": 2.5}, "label": {"1": "y", "0": "x"}}
    (tmp_path / "t.json").write_text(json.dumps(columns))
    rows = read_table(tmp_path / "t.json").columns.to_pylist()
    assert rows == [{"a": 1.5, "label": "x"}, {"a": 2.5, "label": "y"}]
    columns["label"]["2"] = columns["label"].pop("1")
    (tmp_path / "t.json").write_text(json.dumps(columns))
    with pytest.raises(ValueError, match="must be a list of objects, or an object of columns"):
        read_table(tmp_path / "t.json")


@pytest.mark.parametrize("n_columns", [2, 3])
def test_columns_that_may_be_vectors_are_doubted(tmp_path, n_columns):
    columns = {f"image {i}": [i + 0.5, i + 0.25] for i in range(n_columns)}
    (tmp_path / "t.json").write_text(json.dumps(columns))
    data = read_dataset(tmp_path / "t.json", Choice(needs_label=False))
    assert data.X.shape == (2, n_columns)
    told = f"the {n_columns} lists of 2 numbers are read as columns; if each is the vector"
    assert (told in str(data.summary)) == (n_columns > 2)


def test_lists_without_names_are_rows(tmp_path):
    (tmp_path / "t.json").write_text('[[1.5, 2, "x"],\n [2.5, 3, "y"]]')
    assert read_table(tmp_path / "t.json").columns.to_pydict() == {
        "1": [1.5, 2.5],
        "2": [2, 3],
        "3": ["x", "y"],
    }


ANSWERS = [
    ({"rating": 3}, 3),
    ({"number": 2.5}, 2.5),
    ({"taxonomy": [["Animal", "Cat"]]}, "Animal>Cat"),
    ({"choices": ["a", "b"]}, ["a", "b"]),
]


@pytest.mark.parametrize(("value", "label"), ANSWERS)
def test_answers_of_label_studio_are_read(tmp_path, value, label):
    result = {"from_name": "answer", "to_name": "text", "value": value}
    task = {"id": 1, "data": {"text": "a"}, "annotations": [{"result": [result]}]}
    (tmp_path / "t.json").write_text(json.dumps([task]))
    assert read_table(tmp_path / "t.json").columns["answer"].to_pylist() == [label]
    added = dict.fromkeys(("annotation_id", "annotator", "created_at", "lead_time", "updated_at"))
    row = {"text": "a", "answer": [value]} | added
    (tmp_path / "t.json").write_text(json.dumps([row]))
    assert read_table(tmp_path / "t.json").columns["answer"].to_pylist() == [label]
    pd.DataFrame([row | {"answer": json.dumps([value])}]).to_csv(tmp_path / "t.csv", index=False)
    assert read_table(tmp_path / "t.csv").columns["answer"].to_pylist() == [label]


def test_responses_of_argilla_are_labels(tmp_path):
    def record(i, *answers):
        responses = {"label": [{"value": a, "user_id": "u"} for a in answers]} if answers else {}
        return {"id": i, "fields": {"text": f"text {i}"}, "responses": responses, "vectors": {}}

    path = tmp_path / "t.json"
    path.write_text(json.dumps([record(0, "pos", "pos"), record(1), record(2, "neg")]))
    data = read_dataset(path, Choice(texts=True))
    assert data.y.tolist() == [1, -1, 0]
    path.write_text(json.dumps([record(0, "pos", "neg"), record(1, "neg")]))
    with pytest.raises(ValueError, match=r"row 0, column 'label': .* must be one label"):
        read_dataset(path, Choice(texts=True))


def test_classifications_of_labelbox_are_labels(tmp_path):
    def row(i, *answers):
        found = [{"name": "kind", "radio_answer": {"name": answer}} for answer in answers]
        labels = [{"annotations": {"objects": [], "classifications": found}}] if found else []
        sample = {"id": f"c{i}", "external_id": f"{i}.txt", "row_data": f"this is text {i}"}
        return json.dumps({"data_row": sample, "projects": {"p": {"labels": labels}}})

    path = tmp_path / "t.ndjson"
    path.write_text("\n".join([row(0, "pos"), row(1), row(2, "neg", "neg"), row(3, "pos")]))
    data = read_dataset(path, Choice())
    assert data.y.tolist() == [1, -1, 0, 1]
    assert data.texts.tolist() == [f"this is text {i}" for i in range(4)]
    path.write_text("\n".join([row(0, "pos"), row(1, "neg"), row(2, "neg", "pos")]))
    with pytest.raises(ValueError, match=r"line 3, column 'kind': .* must be one label"):
        read_dataset(path, Choice(label="kind"))


TEXTS = ["how do I pay", "please cancel it now", "pay by card", "what is it"]


def write_lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))


def assert_read(path, labels):
    data = read_dataset(path, Choice())
    assert data.texts.tolist() == TEXTS
    assert [(*data.class_names, None)[code] for code in data.y] == labels


@pytest.mark.parametrize("name", ["t.manifest", "t.jsonl"])
def test_classes_of_ground_truth_are_labels_and_no_features(tmp_path, name):
    def row(text, code, *names):
        metadata = {"class-name": names[0], "confidence": 0.5, "job-name": "labeling-job/kind"}
        if len(names) > 1:
            metadata = {"class-map": {str(i): name for i, name in enumerate(names)}}
        return {"source": text, "kind": code, "kind-metadata": metadata}

    rows = [row(text, i % 2, "pay" if i % 2 else "no") for i, text in enumerate(TEXTS)]
    write_lines(tmp_path / name, rows)
    assert_read(tmp_path / name, ["no", "pay"] * 2)
    write_lines(tmp_path / name, [*rows[:3], row(TEXTS[3], [0, 1], "pay", "no")])
    with pytest.raises(ValueError, match=r"line 4, column 'kind': .* must be one label"):
        read_dataset(tmp_path / name, Choice(label="kind"))
    failed = {"source": TEXTS[3], "kind-metadata": {"failure-reason": "no answer"}}
    write_lines(tmp_path / name, [*rows[:3], failed])
    assert_read(tmp_path / name, ["no", "pay", "no", None])


def test_answers_to_single_messages_are_labels(tmp_path):
    def chat(text, *answers):
        messages = [{"role": "system", "content": "Which?"}, {"role": "user", "content": text}]
        return {"messages": messages + [{"role": "assistant", "content": a} for a in answers]}

    rows = [chat(text, "ab"[i % 2]) for i, text in enumerate(TEXTS[:3])] + [chat(TEXTS[3])]
    write_lines(tmp_path / "t.jsonl", rows)
    assert_read(tmp_path / "t.jsonl", ["a", "b", "a", None])
    write_lines(tmp_path / "t.jsonl", [*rows, chat("hi", "a", "b")])
    assert "messages" in read_table(tmp_path / "t.jsonl").columns.column_names


@pytest.mark.parametrize("is_project", [False, True])
def test_attributes_of_via_are_columns(tmp_path, is_project):
    def entry(name, sky, *kinds):
        regions = [{"shape_attributes": {}, "region_attributes": {"kind": k}} for k in kinds]
        regions = regions if is_project else dict(enumerate(regions))
        return {"filename": name, "regions": regions, "file_attributes": {"sky": sky}}

    entries = [entry("a", "blue", "cat", "cat"), entry("b", ""), entry("c", {"gray": True}, "dog")]
    content = {f"{found['filename']}99": found for found in entries}
    content = {"_via_settings": {}, "_via_img_metadata": content} if is_project else content
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert read_table(tmp_path / "t.json").columns.to_pylist() == [
        {"filename": "a", "kind": "cat", "sky": "blue"},
        {"filename": "b", "kind": None, "sky": None},
        {"filename": "c", "kind": "dog", "sky": "gray"},
    ]


def test_labels_of_create_ml_are_read_once_per_image(tmp_path):
    objects = [{"label": "cat", "coordinates": {"x": 1}}, {"label": "cat"}, {"coordinates": {}}]
    rows = [{"image": f"{i}.png", "annotations": objects[:i]} for i in range(4)]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    labels = read_table(tmp_path / "t.json").columns["label"].to_pylist()
    assert labels == [[], ["cat"], ["cat"], ["cat"]]


def test_labels_by_names_of_images_are_read(tmp_path):
    write_images(tmp_path, ["1.png", "2.png", "3.png"])
    labels = {"2.png": "cat", "1.png": None, "3.png": "dog"}
    (tmp_path / "t.json").write_text(json.dumps(labels))
    data = read_dataset(tmp_path / "t.json", Choice())
    assert dict(zip(data.ids, data.y.tolist(), strict=True)) == {
        "1.png": -1,
        "2.png": 0,
        "3.png": 1,
    }
    (tmp_path / "t.json").write_text(json.dumps(labels | {"size": 3}))
    with pytest.raises(ValueError, match="must be a list of objects, or an object of columns"):
        read_table(tmp_path / "t.json")


def test_embeddings_in_answers_of_openai_are_features(tmp_path):
    vectors = [[0.5, i / 7] for i in range(5)]
    rows = [
        {
            "custom_id": f"s{i}",
            "response": {"status_code": 200, "body": {"data": [{"embedding": vector}]}},
        }
        for i, vector in enumerate(vectors)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = read_dataset(tmp_path / "t.jsonl", Choice(needs_label=False))
    np.testing.assert_allclose(data.X, vectors)
    assert data.ids.tolist() == [f"s{i}" for i in range(5)]
    for several in ([{"embedding": [0.5, 1]}] * 2, []):
        rows[3]["response"]["body"]["data"] = several
        (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
        with pytest.raises(ValueError, match=r"t\.jsonl, line 4, column 'embedding': an empty"):
            read_dataset(tmp_path / "t.jsonl", Choice(needs_label=False))


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "data": {"text": "a"}, "annotations": [{"result": 5}]},
        {"id": 1, "data": {"text": "a"}, "annotations": [{"result": [{"value": 5}]}]},
        {"id": 1, "fields": {"text": "a"}, "responses": {"label": 5}},
        {"id": 1, "fields": {"text": "a"}, "responses": {}, "vectors": 5},
        {"filename": "a", "regions": 5, "file_attributes": {}},
        {"filename": "a", "regions": [], "file_attributes": []},
        {"source": "a", "kind-metadata": {"class-map": 5}},
    ],
)
def test_damaged_exports_of_annotation_tools_are_named(tmp_path, row):
    (tmp_path / "t.json").write_text(json.dumps([row]))
    with pytest.raises(ValueError, match=r"t\.json, row 0: must be what an annotation tool writes"):
        read_table(tmp_path / "t.json")


def test_lists_of_objects_may_lack_all_values(tmp_path):
    rows = [{"parts": [{"a": "x"}, {"b": None}], "v": v, "label": c} for v, c in PAIRS]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    assert read_dataset(tmp_path / "t.json", Choice()).X.tolist() == VECTORS


@pytest.mark.parametrize("write", [json.dumps, str], ids=["JSON", "Python"])
def test_objects_in_cells_are_no_labels(tmp_path, write):
    rows = [{"v": v, "metadata": write({"label": c})} for v, c in PAIRS]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="which column holds the labels"):
        read_dataset(tmp_path / "t.jsonl", Choice())


def test_indicators_of_classes_are_told(tmp_path):
    rows = [{"a": i / 7, "cats": {"pos": i % 2, "neg": 1 - i % 2}} for i in range(8)]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    message = r"Each of cats\.pos, cats\.neg tells one class; .*idxmax"
    with pytest.raises(ValueError, match=message):
        read_dataset(tmp_path / "t.json", Choice())
