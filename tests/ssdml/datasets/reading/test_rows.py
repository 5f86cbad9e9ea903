"""Texts and images as the samples of a table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from tests.tables import N, assert_features


@pytest.mark.parametrize("again", ["label,text", "Text,LABEL", " label, TEXT"])
def test_names_of_the_columns_in_a_row_are_refused(tmp_path, again):
    path, rows = tmp_path / "t.csv", "text,label\nhello there,a\nlabel these,text\n\n"
    path.write_text(f"{rows}{again}\nb,bye now\n")
    message = r"t\.csv, line 5: must be a row; got the names of the columns again, as "
    with pytest.raises(ValueError, match=message + ", ".join(again.split(","))):
        load_dataset(path)
    path.write_text(f"{rows}the text,label\n")
    assert read_dataset(path, Choice()).class_names == ("a", "label", "text")


def test_texts_are_the_samples_if_there_are_no_numbers(read, frame):
    texts = [f"the text number {i} here" for i in range(N)]
    plain = frame[["label"]].assign(text=texts)
    data = read(plain)
    assert data.texts.tolist() == texts
    assert data.columns == ("text",)
    assert read(frame.assign(text=texts), text="text").columns == ("text",)
    other = read(plain.rename(columns={"text": "what was said"}))
    assert other.texts.tolist() == texts
    assert "the samples are the texts in column 'what was said'" in str(other.summary)


def test_texts_beside_few_numbers_are_the_samples(read, frame):
    texts = [f"the text number {i} here" for i in range(N)]
    data = read(frame.assign(text=texts))
    assert data.columns == ("text",)
    assert "columns 'p', 'q' are not features, as the texts in 'text' are" in str(data.summary)
    for others in (["fine"] * N, [*texts[1:], ""]):  # no sentences, or not in each row
        data = read(frame.assign(text=others))
        assert_features(data, frame, "p", "q")
        assert "to learn from the texts, pass --text 'text'" in str(data.summary)


def test_texts_beside_many_features_are_for_display(tmp_path, rng):
    path = tmp_path / "t.csv"
    frame = pd.DataFrame(rng.normal(size=(N, 12))).add_prefix("f")
    frame.assign(text=[f"text {i}" for i in range(N)], label=["a", "b"] * 20).to_csv(path)
    data = load_dataset(path)
    assert data.X.shape == (N, 12)
    assert data.texts[3] == "text 3"


def test_a_single_word_is_no_text_beside_sentences(tmp_path):
    rows = [
        f"I broke my toe {i},it got {i} big,{'ca' if i % 3 else 'ef'},{i % 2}\n" for i in range(9)
    ]
    (tmp_path / "t.csv").write_text("premise,choice,question,label\n" + "".join(rows))
    with pytest.raises(
        ValueError, match=r"which texts are the samples\? Columns question, premise"
    ):
        read_dataset(tmp_path / "t.csv", Choice())


def test_missing_text_is_named(read, frame):
    texts = ["one two", None, "three"] + ["four"] * (N - 3)
    with pytest.raises(ValueError, match=r"(row 1|line [23]), column 'text': .* must be a text"):
        read(frame[["label"]].assign(text=texts))


def write_images(folder, n, size=(8, 8)):
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(n):
        Image.new("RGB", size, (i, 0, 0)).save(folder / f"{i}.png")


def test_table_names_images(tmp_path):
    write_images(tmp_path / "images", 4)
    names = [f"images/{i}.png" for i in range(4)]
    pd.DataFrame({"path": names, "label": list("abab")}).to_csv(tmp_path / "t.csv", index=False)
    data = load_dataset(tmp_path / "t.csv")
    assert data.item_shape == (8, 8, 3)
    np.testing.assert_allclose(data.X[:, 0] * 255, range(4), atol=1e-4)
    assert data.ids.tolist() == names
    (tmp_path / "images/2.png").unlink()
    with pytest.raises(
        ValueError, match=r"line 4, column 'path': 'images/2\.png' must be a file in"
    ):
        load_dataset(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("column", "form"),
    [("image_id", "{}"), ("id", "{}.png"), ("Photo", "images/{}"), ("filename", "{}.png")],
)
def test_names_of_images_may_lack_folder_and_suffix(tmp_path, column, form):
    write_images(tmp_path / "images", 4)
    (tmp_path / "other").mkdir()
    names = [form.format(i) for i in (3, 1, 0, 2)]
    pd.DataFrame({column: names, "label": list("abab")}).to_csv(tmp_path / "t.csv", index=False)
    for path in (tmp_path / "t.csv", tmp_path):  # the table, or the folder that holds it
        data = load_dataset(path)
        np.testing.assert_allclose(data.X[:, 0] * 255, (3, 1, 0, 2), atol=1e-4)
        assert data.ids.tolist() == names
        assert [data.class_names[code] for code in data.y] == list("abab")


def test_several_tables_that_name_images_are_asked_for(tmp_path):
    write_images(tmp_path / "train", 2)
    for name in ("first.csv", "train.csv"):
        (tmp_path / name).write_text("id,label\n0,a\n1,b\n")
    with pytest.raises(ValueError, match=r"which table names the images, first.csv or train.csv\?"):
        load_dataset(tmp_path)


def test_table_names_no_files_outside(tmp_path):
    write_images(tmp_path / "images", 1)
    (tmp_path / "tables").mkdir()
    pd.DataFrame({"path": ["../images/0.png"] * 2, "label": ["a", "b"]}).to_csv(
        tmp_path / "tables/t.csv", index=False
    )
    with pytest.raises(ValueError, match=r"names must stay inside; got '\.\./images/0\.png'"):
        load_dataset(tmp_path / "tables/t.csv")


def test_manifest_of_open_metric_learning(tmp_path):
    write_images(tmp_path / "images", 6)
    frame = pd.DataFrame(
        {
            "label": [0, 0, 1, 1, 2, 2],
            "path": [f"images/{i}.png" for i in range(6)],
            "split": ["train"] * 2 + ["validation"] * 4,
            "is_query": [None, None, True, False, True, False],
            "is_gallery": [None, None, False, True, False, True],
        }
    )
    frame.to_csv(tmp_path / "df.csv", index=False)
    data = load_dataset(tmp_path / "df.csv")
    np.testing.assert_array_equal(data.test, [False, False, True, True, True, True])
    np.testing.assert_array_equal(data.gallery, [False, False, False, True, False, True])
    assert data.class_names == ("0", "1", "2")


def test_images_inside_a_table(tmp_path):
    write_images(tmp_path, 3)
    cells = [{"bytes": (tmp_path / f"{i}.png").read_bytes(), "path": None} for i in range(3)]
    path = tmp_path / "t.parquet"
    pd.DataFrame({"image": cells, "label": [0, 1, 0]}).to_parquet(path)
    data = load_dataset(path)
    assert data.item_shape == (8, 8, 3)
    np.testing.assert_allclose(data.X[:, 0] * 255, range(3), atol=1e-4)
    write_images(tmp_path, 1, size=(9, 8))
    cells[2] = {"bytes": (tmp_path / "0.png").read_bytes(), "path": None}
    pd.DataFrame({"image": cells, "label": [0, 1, 0]}).to_parquet(path)
    data = load_dataset(path)
    assert data.item_shape == (224, 224, 3)
    assert "cropped from 2 sizes" in str(data.summary)
    np.testing.assert_allclose(data.X[:, 0] * 255, [0, 1, 0], atol=1e-4)
    pd.DataFrame({"image": cells, "mask": cells, "label": [0, 1, 0]}).to_parquet(path)
    with pytest.raises(
        ValueError, match=r"which images are the samples\? Columns image, mask hold"
    ):
        load_dataset(path)
    assert read_dataset(path, Choice(ignore=("mask",))).columns == ("image",)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".gif", ".tif", ".webp", ".bmp"])
def test_images_in_a_column_of_bytes_are_read(tmp_path, suffix):
    Image.new("RGB", (8, 8), (30, 100, 200)).save(tmp_path / f"0{suffix}")
    cells = [(tmp_path / f"0{suffix}").read_bytes()] * 2
    frame = pd.DataFrame({"hash": [b"\x01", b"\x02"], "photo": cells, "label": [0, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    data = read_dataset(tmp_path / "t.parquet", Choice())
    assert data.item_shape == (8, 8, 3)
    assert "in column 'photo'" in str(data.summary)


def test_bytes_of_no_image_are_named(tmp_path):
    frame = pd.DataFrame({"audio": [{"bytes": b"RIFF", "path": "a.wav"}] * 2, "label": [0, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"row 0 is not an image that Pillow can read\. Replace"):
        load_dataset(tmp_path / "t.parquet")


@pytest.mark.parametrize(("first", "is_told"), [("id", True), ("label", True), ("text", False)])
def test_rows_that_are_commented_out_are_doubted(tmp_path, first, is_told):
    rows = [(str(i), f"a text of {i}", "xy"[i % 2]) for i in range(9)]
    frame = pd.DataFrame(rows, columns=["id", "text", "label"])
    frame.insert(0, first, frame.pop(first))
    for mark in ("", "#"):
        frame.iloc[3, 0] = f"{mark}{frame.iloc[3, 0]}"
        frame.to_csv(tmp_path / "t.csv", index=False)
        told = "1 sample with '#' in front, as in line 5; if these rows are commented out"
        summary = str(read_dataset(tmp_path / "t.csv", Choice()).summary)
        assert (told in summary) == (is_told and mark == "#")


def test_labels_of_another_class_than_the_folder_are_doubted(tmp_path):
    names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(4)]
    for shade, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4), shade).save(tmp_path / name)
    labels = ["cat"] * 4 + ["dog"] * 4
    for other in (0, 5):
        pd.DataFrame({"file": names, "label": labels}).to_csv(tmp_path / "t.csv", index=False)
        told = "1 image is in the folder of another class than that of the table, as in line 7"
        assert (told in str(read_dataset(tmp_path / "t.csv", Choice()).summary)) == (other > 0)
        labels[5] = "cat"
    labels = ["x", "y"] * 4
    pd.DataFrame({"file": names, "label": labels}).to_csv(tmp_path / "t.csv", index=False)
    assert not read_dataset(tmp_path / "t.csv", Choice()).summary.doubts


def test_texts_inside_of_objects_are_texts(tmp_path):
    texts = [f"some words of {i}" for i in range(N)]
    frame = pd.DataFrame({"Title": "Tell us what it is", "Input.text": texts, "seconds": 0.5})
    frame["seconds"] *= np.arange(N) % 7
    frame["label"] = np.resize(["x", "y"], N)
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.texts.tolist() == texts
    assert data.summary.facts["samples"] == "texts in column 'Input.text'"
    frame.assign(**{"Other.text": texts[::-1]}).to_csv(tmp_path / "t.csv", index=False)
    assert read_dataset(tmp_path / "t.csv", Choice()).columns == ("seconds",)


@pytest.mark.parametrize("n", [1, 2])
def test_remarks_below_a_table_are_doubted(tmp_path, n):
    rows = "".join(f"some text number {i},{'xy'[i % 2]}\n" for i in range(N))
    (tmp_path / "t.csv").write_text("text,label\n" + rows + "Exported by Ann,\n" * n)
    told = "line 42 has no cell but 'Exported by Ann'; if it is a remark below the table, delete it"
    assert told in str(read_dataset(tmp_path / "t.csv", Choice()).summary)
    rows = rows.replace(",x", ",") + "another text,\n"
    (tmp_path / "t.csv").write_text("text,label\n" + rows)
    assert "no cell but" not in str(read_dataset(tmp_path / "t.csv", Choice()).summary)
