"""Folders of images with tables that name them, and of texts."""

from __future__ import annotations

import json
import os
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.paths import read_path
from ssdml.datasets.reading.summary import ReadingWarning
from tests import images

write_images = partial(images.write_images, mode="L", size=(2, 2))


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("place", ["", "images/"])
def test_metadata_in_folders_of_splits(tmp_path, monkeypatch, place):
    write_images(tmp_path, [f"{part}/{place}{i}.png" for part in ("train", "test") for i in "01"])
    for part in ("train", "test"):
        rows = [{"file_name": f"{place}{i}.png", "label": "ab"[i]} for i in range(2)]
        write_lines(tmp_path / part / "metadata.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, "."):
        data = load_dataset(path)
        assert data.ids.tolist() == [f"{p}/{place}{i}.png" for p in ("test", "train") for i in "01"]
        np.testing.assert_allclose(data.X[:, 0] * 255, [2, 3, 0, 1], atol=1e-4)
        assert (data.y.tolist(), data.test.tolist()) == ([0, 1] * 2, [True] * 2 + [False] * 2)


@pytest.mark.parametrize("place", ["", "train/"])
def test_captions_beside_folders_of_classes(tmp_path, place):
    names = ["cat/0.png", "dog/1.png"]
    write_images(tmp_path, [place + name for name in names])
    rows = [{"file_name": name, "caption": "one color"} for name in names]
    write_lines(tmp_path / place / "metadata.jsonl", rows)
    with pytest.warns(ReadingWarning, match=r"metadata\.jsonl' was not used, as none of its"):
        assert load_dataset(tmp_path).class_names == ("cat", "dog")
    raw = read_path(tmp_path, Choice(label="caption"))
    assert raw.labels.tolist() == ["one color"] * 2


@pytest.mark.parametrize("place", ["", "train/"])
def test_categories_of_coco_are_labels(tmp_path, place):
    write_images(tmp_path, [f"{place}{i}.png" for i in range(4)])
    categories = [{"id": 3, "name": "cat"}, {"id": 5, "name": "dog"}]
    objects = [(0, 3), (0, 3), (2, 5), (3, 3)]  # images and categories
    coco = {
        "images": [{"id": i, "file_name": f"{i}.png"} for i in range(4)],
        "annotations": [
            {"image_id": i, "category_id": c, "bbox": [0, 0, 1, 1]} for i, c in objects
        ],
        "categories": categories,
    }
    path = tmp_path / place / "annotations.json"
    path.write_text(json.dumps(coco))
    data = load_dataset(tmp_path)
    assert (data.class_names, data.y.tolist()) == (("cat", "dog"), [0, -1, 1, 0])
    coco["annotations"].append({"image_id": 3, "category_id": 5})
    path.write_text(json.dumps(coco))
    with pytest.raises(ValueError, match=r"row 3.*, column 'label': .* must be one label"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("splits", [["default"], ["train2017", "val2017"]])
def test_annotations_of_coco_in_a_folder_of_their_own(tmp_path, splits):
    (tmp_path / "annotations").mkdir()
    for split in splits:
        write_images(tmp_path, [f"{split}/{split}{i}.png" for i in range(4)])
        coco = {
            "images": [{"id": i, "file_name": f"{split}{i}.png"} for i in range(4)],
            "annotations": [{"image_id": i, "category_id": i % 2} for i in range(4)],
            "categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}],
        }
        path = tmp_path / f"annotations/instances_{split}.json"
        path.write_text(json.dumps(coco))
    data = load_dataset(tmp_path)
    assert data.y.tolist() == [0, 1, 0, 1] * len(splits)
    np.testing.assert_allclose(data.X[:, 0] * 255, [*range(4)] * len(splits), atol=1e-4)
    assert data.test is None or data.test.tolist() == [False] * 4 + [True] * 4


def test_tables_of_splits_beside_images_are_joined(tmp_path):
    write_images(tmp_path, [f"images/{i}.png" for i in range(6)])
    (tmp_path / "train.csv").write_text("id,label\n" + "".join(f"{i},{i % 2}\n" for i in range(4)))
    (tmp_path / "test.csv").write_text("id\n4\n5\n")
    data = load_dataset(tmp_path)
    assert dict(zip(data.ids.tolist(), data.y.tolist(), strict=True)) == {
        **{f"{i}": i % 2 for i in range(4)},
        **{"4": -1, "5": -1},
    }
    assert data.test.sum() == 2
    (tmp_path / "meta.csv").write_text("id,label\n1,x\n2,y\n")
    with pytest.raises(ValueError, match=r"names the images, meta\.csv or test\.csv or train"):
        load_dataset(tmp_path)


@pytest.mark.parametrize(
    "names",
    [["a.data", "a.test"], ["a.tra", "a.tes"], ["a.train", "a.valid"], ["latest.csv", "a_val.csv"]],
)
def test_tables_without_a_split_in_their_name_are_for_training(tmp_path, names):
    for k, name in enumerate(names):
        rows = [f"{i / 7:.3f},{k},{'xy'[i % 2]}\n" for i in range(4)]
        (tmp_path / name).write_text("".join(rows))
    (tmp_path / "a.names").write_text("This is about the data.")
    data = read_dataset(tmp_path, Choice())
    assert (data.X[:, 1] == data.test).all()
    assert (data.test.sum(), data.y.tolist()) == (4, [0, 1] * 4)
    assert data.summary.left_out == {"a.names": "not read"}


def test_tables_in_folders_of_classes_are_asked_for(tmp_path):
    for place in ("run/1.csv", "run/2.csv", "walk/1.csv"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        rows = [f"{len(place)}{place[-5]}.{i},{i % 3}\n" for i in range(9)]
        (tmp_path / place).write_text(f"speed,step\n0.5,{place[-5]}\n" + "".join(rows))
    with pytest.raises(ValueError, match=r"tables are in run, walk\. If these are classes, write"):
        read_path(tmp_path)
    assert read_path(tmp_path, Choice(label="step")).items.shape == (30, 1)


@pytest.mark.parametrize(
    ("names", "are_classes"),
    [("run walk", True), ("part-0 part-1", False), ("train test", False), ("s1_train s2", False)],
)
def test_names_of_tables_without_labels_are_doubted(tmp_path, names, are_classes):
    for k, name in enumerate(names.split()):
        rows = [f"{k}.{i},{i % 3}\n" for i in range(9)]
        (tmp_path / f"{name}.csv").write_text("speed,step\n" + "".join(rows))
    told = "if the names of the tables (run.csv, walk.csv) are classes, write them into a column"
    assert any(told in doubt for doubt in read_path(tmp_path).summary.doubts) == are_classes
    choice = Choice(label="step")
    assert not any(told in doubt for doubt in read_path(tmp_path, choice).summary.doubts)


def test_questions_about_labels_tell_of_the_names_of_tables(tmp_path):
    for name in ("pos", "neg"):
        lines = [f"text {i} of {name} ones\n" for i in range(4)]
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    with pytest.raises(ValueError, match=r"holds the labels\?.* the tables \(neg\.txt, pos\.txt\)"):
        read_path(tmp_path)


def test_rows_that_hugging_face_selects_by_indices_are_refused(tmp_path):
    state = {"_data_files": [{"filename": "data.arrow"}]}
    pd.DataFrame({"a": [1.5, 2], "label": ["x", "y"]}).to_feather(tmp_path / "data.arrow")
    (tmp_path / "state.json").write_text(json.dumps(state | {"_indices_data_files": None}))
    assert len(read_path(tmp_path).labels) == 2
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match=r"names indices of some\. Save dataset\.flatten_indices"):
        read_path(tmp_path)


def test_files_beside_tables_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("a,label\n0.5,x\n0.25,y\n")
    for name in ("more.svm", "README.md", "classes.txt"):
        (tmp_path / name).write_text("x")
    with pytest.warns(ReadingWarning, match=r"1 file not read, such as 'more\.svm'; if it holds"):
        data = load_dataset(tmp_path)
    assert {"more.svm", "README.md", "classes.txt"} <= data.summary.left_out.keys()


@pytest.mark.parametrize("name", ["1.ann", "train_X.bin", "t.orc"])
def test_questions_about_tables_tell_of_files_beside_them(tmp_path, name):
    (tmp_path / "1.txt").write_text("Berlin is large.\nSo is Rome.\n")
    (tmp_path / name).write_text("x")
    with pytest.raises(
        ValueError, match=rf"which column .* Note: 1 file not read, such as '{name}'"
    ):
        read_path(tmp_path)


def test_forms_of_kaggle_are_no_samples(tmp_path):
    for name, target in (("train", "target"), ("test", None), ("sample_submission", "target")):
        rows = [f"{i + len(name)},{i / 7}" + f",{'ab'[i % 2]}" * bool(target) for i in range(9)]
        header = "id,a" + f",{target}" * bool(target)
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *rows]))
    data = read_dataset(tmp_path, Choice(id="id"))
    assert data.summary.left_out == {"sample_submission.csv": "a form for predictions"}
    assert data.test.tolist() == [True] * 9 + [False] * 9
    assert data.y.tolist() == [-1] * 9 + [i % 2 for i in range(9)]


def test_names_of_classes_beside_tables_are_no_samples(tmp_path):
    for part in ("train", "test"):
        rows = [f"how do I {part} {i},{'ab'[i % 2]}\n" for i in range(9)]
        (tmp_path / f"{part}.csv").write_text("".join(["text,category\n", *rows]))
    (tmp_path / "categories.json").write_text('["a", "b", "c"]')
    data = read_dataset(tmp_path, Choice())
    assert data.summary.left_out == {"categories.json": "no data by its name"}
    assert data.y.tolist() == [i % 2 for i in range(9)] * 2


def test_forms_of_kaggle_name_no_classes_of_images(tmp_path):
    write_images(tmp_path, ["train/cat/1.png", "train/dog/2.png", "test/3.png"])
    (tmp_path / "sample_submission.csv").write_text("id,label\n3.png,cat\n")
    data = read_dataset(tmp_path, Choice())
    assert (data.class_names, data.ids.tolist()) == (
        ("cat", "dog"),
        ["test/3.png", "train/cat/1.png", "train/dog/2.png"],
    )
    assert data.y.tolist() == [-1, 0, 1]


def test_lists_of_unlabeled_images_may_have_a_header(tmp_path):
    write_images(tmp_path, [f"{part}/{i}.png" for part in ("train", "test") for i in range(4)])
    rows = [f"train/{i}.png,{'ab'[i % 2]}\n" for i in range(4)]
    (tmp_path / "train.csv").write_text("".join(["image_id,label\n", *rows]))
    (tmp_path / "test.csv").write_text("image_id\ntest/0.png\ntest/1.png\n")
    data = read_dataset(tmp_path, Choice())
    assert (data.y.tolist(), data.test.sum()) == ([-1, -1, 0, 1, 0, 1], 2)


def test_a_first_row_without_an_image_is_named(tmp_path):
    write_images(tmp_path, ["cat/0.png", "dog/1.png"])
    (tmp_path / "t.csv").write_text("file,label\n,a\ncat/0.png,b\ndog/1.png,a\n")
    with pytest.raises(ValueError, match=r"t\.csv, line 2, column 'file': an empty cell must be a"):
        read_path(tmp_path)


def test_images_that_no_row_names_are_told(tmp_path):
    write_images(tmp_path, [f"{i}.png" for i in range(5)])
    (tmp_path / "metadata.csv").write_text("file_name,label\n0.png,a\n1.png,b\n")
    with pytest.warns(ReadingWarning, match="3 of 5 images in the folder are not read, as no row"):
        load_dataset(tmp_path)


def write_texts(folder, names, text="a text of {}"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.format(name.replace("/", " ")))


def test_folders_of_texts(tmp_path):
    write_texts(tmp_path, ["README.txt", "train/urls.txt"])
    folders = ("test/neg", "test/pos", "train/neg", "train/unsup")
    names = [f"{folder}/{i}.txt" for folder in folders for i in "01"]
    write_texts(tmp_path, names)
    raw = read_path(tmp_path)
    assert raw.ids.tolist() == names
    assert raw.texts[0] == "a text of test neg 0.txt"
    assert raw.labels.tolist() == ["neg"] * 2 + ["pos"] * 2 + ["neg"] * 2 + [""] * 2
    assert raw.test.tolist() == [True] * 4 + [False] * 4
    for name in names:
        (tmp_path / name).write_text(f"a text of {name}", encoding="utf-16")
    assert read_path(tmp_path).texts[0] == "a text of test/neg/0.txt"
    write_texts(tmp_path, names[:1], "")
    with pytest.raises(ValueError, match=r"test/neg/0\.txt, .*: an empty cell must be a text"):
        read_path(tmp_path)


def test_folders_of_texts_without_suffix(tmp_path):
    names = [f"{group}/{i}" for group in ("alt.atheism", "sci.space") for i in range(51060, 51063)]
    write_texts(tmp_path, ["README", *names])
    raw = read_path(tmp_path)
    assert raw.ids.tolist() == names
    assert raw.labels.tolist() == ["alt.atheism"] * 3 + ["sci.space"] * 3
    write_texts(tmp_path, names, "\0" * 5 + "bytes of a scanner")
    with pytest.raises(ValueError, match="must contain images, texts or tables; got 7 files"):
        read_path(tmp_path)


@pytest.mark.parametrize("other", ["a/note.md", "a/2.pdf", "summary.txt", "up/Summary.txt"])
def test_files_beside_texts_are_told(tmp_path, other):
    above = "up/" if other.startswith("up/") else ""
    texts = [f"{above}{name}/{i}.txt" for name in "ab" for i in range(2)]
    write_texts(tmp_path, [*texts, other])
    data = read_dataset(tmp_path, Choice())
    assert data.summary.doubts[0].startswith(f"1 file not read, such as '{other}'; if they are")
    assert list(data.summary.left_out) == [other]
    assert data.ids.tolist() == texts
    assert data.y.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("name", ["X.npy", "data.npz", "data.mat"])
def test_arrays_beside_a_table_are_asked_for(tmp_path, name):
    (tmp_path / "labels.csv").write_text("age,label\n3.5,x\n4.5,y\n")
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=rf"holds the samples, labels\.csv or {name}\? Name one"):
        read_path(tmp_path)


@pytest.mark.parametrize("text", ["a single line", "one, line", "some\nlines\n"])
@pytest.mark.parametrize("name", ["{}.txt", "texts/{}.txt", "docs\\{}.txt", "{}"])
def test_texts_beside_a_table_of_their_names(tmp_path, name, text):
    write_texts(tmp_path, ["1.txt", "2.txt"], text)
    rows = [f"{name.format(1)},x\n", f"{name.format(2)},y\n"]
    (tmp_path / "labels.csv").write_text("file,label\n" + "".join(rows))
    message = r"must hold the texts; got their files in labels\.csv, such as '1\.txt'\. Write"
    with pytest.raises(ValueError, match=message):
        read_path(tmp_path)


def test_folders_of_tables_in_text_are_tables(tmp_path):
    names = [f"{year}/{month}.txt" for year in (2020, 2021) for month in (1, 2)]
    write_texts(tmp_path, names, "a,b,label\n0.12345,1.12345,{0}\n0.54321,2.54321,{0}\n")
    assert read_path(tmp_path).items.shape == (8, 2)


@pytest.mark.parametrize(
    "name",
    [
        "~$t.xlsx",
        ".ipynb_checkpoints/t-checkpoint.csv",
        "README.txt",
        "LICENSE.txt",
        "@eaDir/t.csv",
    ],
)
def test_files_beside_a_table_are_no_tables(tmp_path, name):
    write_texts(tmp_path, ["t.csv", name], "a,b,label\n0.5,1.5,x\n0.25,2.5,y\n")
    assert read_path(tmp_path).items.tolist() == [[0.5, 1.5], [0.25, 2.5]]


@pytest.mark.parametrize("labels", ["01", "xy"])
@pytest.mark.parametrize("name", ["list.txt", "list.csv"])
def test_images_are_named_in_a_column_of_any_name(tmp_path, name, labels):
    write_images(tmp_path, [f"images/{i}.png" for i in range(4)])
    separator = " " if name == "list.txt" else ","
    lines = [f"images/{i}.png{separator}{labels[i % 2]}\n" for i in range(4)]
    (tmp_path / name).write_text("".join(lines))
    for path in (tmp_path, tmp_path / name):
        raw = read_path(path)
        assert raw.ids.tolist() == [f"images/{i}.png" for i in range(4)]
        assert list(map(str, raw.labels)) == [*labels] * 2
        assert raw.items.ndim == 3


@pytest.mark.parametrize("cells", ["ISIC_{}", "000{}"])
def test_images_are_named_beside_other_ids(tmp_path, cells):
    names = [cells.format(i) for i in range(4)]
    write_images(tmp_path, [f"part_{i % 2}/{name}.jpg" for i, name in enumerate(names)])
    rows = (f"H_{i},{name},{5 + i % 2}.5,{'ab'[i // 2]}\n" for i, name in enumerate(names))
    (tmp_path / "metadata.csv").write_text("lesion_id,image_id,age,label\n" + "".join(rows))
    with pytest.warns(ReadingWarning, match="'age' is not a feature, as the images in 'image_id'"):
        data = load_dataset(tmp_path)
    assert data.item_shape is not None
    assert data.y.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("suffix", "way_out"),
    [
        (".dta", "pandas.read_stata"),
        (".sav", "pandas.read_spss"),
        (".sas7bdat", "pandas.read_sas"),
        (".RData", "Write it in R"),
        (".duckdb", "Export the table"),
        (".pkl", "Pickles can run code: if you trust it, load it, and save its arrays"),
        (".h5ad", "anndata.read_h5ad"),
        (".svm", "sklearn.datasets"),
        (".tgz", "Unpack it"),
        (".parquet.gz", "Unpack it"),
    ],
)
def test_other_formats_are_refused_with_a_way_out(tmp_path, suffix, way_out):
    path = tmp_path / f"t{suffix}"
    path.write_bytes(b"content")
    with pytest.raises(ValueError, match=rf"got '{path.suffix}'\. .*{way_out}"):
        read_path(path)
    (tmp_path / "t.csv").write_bytes(pickle.dumps([0.5] * 40))
    with pytest.raises(ValueError, match="it is a pickle of Python"):
        read_path(tmp_path / "t.csv")


def test_a_pipe_is_named_before_its_suffix(tmp_path):
    os.mkfifo(tmp_path / "63")  # as of a shell's <(command)
    with pytest.raises(ValueError, match=r"63 must be a regular file; got a named pipe\. Copy"):
        load_dataset(tmp_path / "63")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a pointer of Git LFS. Fetch the"),
        (b"<!DOCTYPE html><html>404</html>", "it is a web page. Download the file itself"),
        (None, r"2\.tif: its pixels must be finite"),
    ],
)
def test_reasons_why_images_cannot_be_read_are_told(tmp_path, content, reason):
    for i, folder in enumerate(("cat", "cat", "dog")):
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / f"{i}.tif"
        if i < 2 or content is None:
            Image.fromarray(np.full((4, 4), np.nan if i == 2 else i, np.float32)).save(path)
        else:
            path.write_bytes(content)
    message = rf"1 of 3 files are not images .*: dog/2\.tif\. Replace or .* The first: .*{reason}"
    with pytest.raises(ValueError, match=message):
        read_path(tmp_path)
