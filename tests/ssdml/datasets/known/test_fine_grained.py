"""Readers of CUB, Cars, SOP, In-Shop and Caltech-101, on small folders in their layouts."""

from __future__ import annotations

import os
import re
import shutil

import numpy as np
import pytest
from scipy.io import savemat

from ssdml.datasets import dataset_status, label_scarce_split, load_dataset
from ssdml.datasets.known.fine_grained import second_half
from tests.photographs import (
    N_CLASSES,
    PER_CLASS,
    QUERIES,
    WRITERS,
    draw,
    rows,
    save_rows,
    titles,
    write_caltech101,
    write_caltech101_zip,
    write_cars,
    write_cars_devkit,
    write_cub,
    write_inshop,
    write_sop,
)

LAYOUTS = [
    *WRITERS.items(),
    ("cars", write_cars_devkit),
    ("caltech101_images", write_caltech101_zip),
]
each = pytest.mark.parametrize(
    ("name", "write"), LAYOUTS, ids=[write.__name__.removeprefix("write_") for _, write in LAYOUTS]
)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv("SSDML_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@each
def test_images_have_their_class(tmp_path, name, write):
    write(tmp_path)
    data = load_dataset(name, data_dir=tmp_path)
    assert data.X.shape == (len(rows()), 3, 224, 224)
    np.testing.assert_array_equal(np.bincount(data.y), [PER_CLASS] * N_CLASSES)
    colors = np.stack([image.mean(axis=(1, 2)) for image in data.X.resized(8)])
    shown = (colors > 120) @ [1, 2, 4]  # the color that `draw` gives a class
    np.testing.assert_array_equal(shown, data.y)


@each
def test_training_classes_are_the_first_half(tmp_path, name, write):
    write(tmp_path)
    data = load_dataset(name, data_dir=tmp_path)
    np.testing.assert_array_equal(data.test, data.y >= N_CLASSES // 2)
    split = label_scarce_split(data, 5, seed=0)
    np.testing.assert_array_equal(np.bincount(data.y[split.labeled]), [5] * 3)
    assert set(data.y[split.train]).isdisjoint(data.y[split.test])
    assert len(split.train) + len(split.test) == len(data.y)


def test_caltech101_trains_on_51_classes(tmp_path, rng):
    for c in range(101):
        draw(tmp_path / f"caltech101/101_ObjectCategories/{c:03}/{c}.jpg", c % 8, rng)
    data = load_dataset("caltech101_images", data_dir=tmp_path)
    assert (data.y[~data.test].max(), data.test.sum()) == (50, 50)


def test_caltech101_needs_classes(tmp_path, rng):
    draw(tmp_path / "caltech101/101_ObjectCategories/BACKGROUND_Google/1.jpg", 0, rng)
    with pytest.raises(ValueError, match=r"must hold folders of classes; got BACKGROUND_Google"):
        load_dataset("caltech101_images", data_dir=tmp_path)


def test_gallery_follows_the_list(tmp_path):
    write_inshop(tmp_path)
    data = load_dataset("inshop", data_dir=tmp_path)
    others = np.array([i >= QUERIES for _, i in rows()])
    np.testing.assert_array_equal(data.gallery, data.test & others)


@pytest.mark.parametrize("moved", [False, True], ids=["as published", "side by side"])
def test_inshop_list_may_be_beside_images(tmp_path, moved):
    folder = write_inshop(tmp_path)
    if moved:
        shutil.move(folder / "Eval/list_eval_partition.txt", folder)
        shutil.move(folder / "Img/img", folder)
    assert load_dataset("inshop", data_dir=tmp_path).X[0].shape == (3, 224, 224)


def test_cars_test_labels_may_be_above_devkit(tmp_path):
    folder = write_cars_devkit(tmp_path)
    shutil.move(folder / "devkit/cars_test_annos_withlabels.mat", folder)
    assert len(load_dataset("cars", data_dir=tmp_path).y) == len(rows())


@pytest.mark.parametrize(
    ("name", "write", "names"),
    [
        ("cub", write_cub, ("Bird_0", "Bird_1")),
        ("cars", write_cars, ("Maker Model 0 2012", "Maker Model 1 2012")),
        ("cars", write_cars_devkit, ("Maker Model 0 2012", "Maker Model 1 2012")),
        ("sop", write_sop, ("1", "2")),
        ("inshop", write_inshop, ("id_00000000", "id_00000001")),
        ("caltech101_images", write_caltech101, ("class_0", "class_1")),
    ],
)
def test_class_names_are_the_published_ones(tmp_path, name, write, names):
    write(tmp_path)
    assert load_dataset(name, data_dir=tmp_path).class_names[:2] == names


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("cub", "CUB_200_2011"),
        ("cars", "cars196"),
        ("sop", "Stanford_Online_Products"),
        ("inshop", "In-shop Clothes Retrieval Benchmark"),
        ("caltech101_images", "caltech101/caltech101-images.zip"),
    ],
)
def test_missing_data_set_says_what_to_put_where(tmp_path, name, place):
    with pytest.raises(FileNotFoundError, match=rf"Searched for {place} .*nothing is downloaded"):
        load_dataset(name, data_dir=tmp_path)
    (status,) = (status for status in dataset_status(data_dir=tmp_path) if status.name == name)
    assert not status.available
    assert place in status.note


BROKEN = {
    "cub": ("images.txt", r"images\.txt is missing\. .* must hold images/, images\.txt"),
    "cars": ("car_ims/000003.jpg", r"000003\.jpg is missing"),
    "sop": ("Ebay_test.txt", r"Ebay_test\.txt is missing"),
    "inshop": ("Eval/list_eval_partition.txt", r"list_eval_partition\.txt is missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_missing_file_is_named(tmp_path, name):
    file, message = BROKEN[name]
    (WRITERS[name](tmp_path) / file).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        load_dataset(name, data_dir=tmp_path)


def test_missing_images_are_counted(tmp_path):
    folder = write_sop(tmp_path)
    for i in range(3):
        (folder / f"bicycle_final/0_{i}.JPG").unlink()
    with pytest.raises(FileNotFoundError, match=r"0_0\.JPG is missing, with 2 other images"):
        load_dataset("sop", data_dir=tmp_path)


def test_damaged_lists_name_file_and_line(tmp_path):
    folder = write_sop(tmp_path)
    lines = (folder / "Ebay_test.txt").read_text().splitlines()
    for text, message in (
        ("\n".join([*lines[:4], "30 5"]), r"Ebay_test\.txt, line 5: must have 4 columns; got '30"),
        (lines[0], r"Ebay_test\.txt: must contain rows; got none"),
        ("\n".join([lines[0], "30 five 1 a.jpg"]), r"Ebay_test\.txt: classes .*'five'"),
    ):
        (folder / "Ebay_test.txt").write_text(text)
        with pytest.raises(ValueError, match=message):
            load_dataset("sop", data_dir=tmp_path)
    (folder / "Ebay_test.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"Ebay_test\.txt: must be text .* Download"):
        load_dataset("sop", data_dir=tmp_path)


def test_unknown_part_of_inshop_raises(tmp_path):
    path = write_inshop(tmp_path) / "Eval/list_eval_partition.txt"
    path.write_text(path.read_text().replace("gallery", "val"))
    with pytest.raises(ValueError, match=r"must be train, query or gallery; got \['val'\]"):
        load_dataset("inshop", data_dir=tmp_path)


def test_class_without_a_name_raises(tmp_path):
    path = write_cub(tmp_path) / "classes.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(
        ValueError, match=r"classes must be from 1 to 5, the number of class names; got 1 to 6"
    ):
        load_dataset("cub", data_dir=tmp_path)


def test_lists_of_different_images_raise(tmp_path):
    path = write_cub(tmp_path) / "image_class_labels.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match=r"must number the same images; got 48 and 47"):
        load_dataset("cub", data_dir=tmp_path)


def test_damaged_matlab_file_is_named(tmp_path):
    path = write_cars(tmp_path) / "cars_annos.mat"
    content = path.read_bytes()
    for damaged in (content[:200], b"", b"no MATLAB file" * 20):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=re.escape(f"{path}: damaged, or not a MATLAB file")):
            load_dataset("cars", data_dir=tmp_path)
    savemat(path, {"annotations": [1]})
    with pytest.raises(ValueError, match=r"class_names is missing"):
        load_dataset("cars", data_dir=tmp_path)


def test_matlab_lists_without_classes_are_refused(tmp_path):
    path = write_cars(tmp_path) / "cars_annos.mat"
    names = {"relative_im_path": ["a.jpg", "b.jpg"]}
    save_rows(path, names | {"klass": [1, 2]}, class_names=titles())
    with pytest.raises(ValueError, match=r"cars_annos\.mat: annotations must be a structure array"):
        load_dataset("cars", data_dir=tmp_path)


def test_odd_number_of_classes_trains_the_smaller_half():
    np.testing.assert_array_equal(second_half(np.array([0, 7, 9])), [False, True, True])


def outside(name, path):
    """Make a list name a file outside of its folder."""
    text = path.read_text()
    old = re.search(r"\S+\.jpe?g", text, re.IGNORECASE)[0]
    path.write_text(text.replace(old, name))


@pytest.mark.parametrize(
    ("write", "listed"),
    [
        (write_cub, "images.txt"),
        (write_sop, "Ebay_test.txt"),
        (write_inshop, "Eval/list_eval_partition.txt"),
    ],
)
def test_lists_name_no_file_outside_of_their_folder(tmp_path, write, listed):
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"secret")
    folder = write(tmp_path)
    name = {write: n for n, write in WRITERS.items()}[write]
    for way in ("../../secret.png", str(secret)):
        outside(way, folder / listed)
        with pytest.raises(ValueError, match=rf"names must stay inside; got '{re.escape(way)}'"):
            load_dataset(name, data_dir=tmp_path)
        shutil.rmtree(folder)
        write(tmp_path)


def test_linked_images_outside_of_their_folder_are_refused(tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    image = next((write_cub(tmp_path) / "images").rglob("*.jpg"))
    image.unlink()
    image.symlink_to(tmp_path / "secret.png")
    with pytest.raises(ValueError, match=r"links must stay inside .* leads to .*secret\.png"):
        load_dataset("cub", data_dir=tmp_path)


def test_matlab_lists_name_no_file_outside_of_their_folder(tmp_path):
    folder = write_cars(tmp_path)
    names = [f"../{n}.jpg" for n in range(len(rows()))]
    save_rows(
        folder / "cars_annos.mat",
        {"relative_im_path": names, "class": [c + 1 for c, _ in rows()]},
        class_names=titles(),
    )
    with pytest.raises(ValueError, match=r"cars196: names must stay inside; got '\.\./0\.jpg'"):
        load_dataset("cars", data_dir=tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"relative_im_path": [1, 2]},
        {"class": [1.5, 2]},
        {"class": ["a", "b"]},
        {"class_names": [1, 2]},
    ],
)
def test_matlab_lists_of_other_kinds_are_refused(tmp_path, changes):
    folder = write_cars(tmp_path)
    columns = {"relative_im_path": ["a.jpg", "b.jpg"], "class": [1, 2]}
    titles = changes.pop("class_names", np.array(["a", "b"], dtype=object))
    save_rows(folder / "cars_annos.mat", columns | changes, class_names=titles)
    with pytest.raises(ValueError, match=r"cars_annos\.mat: (annotations|class_names) must be a"):
        load_dataset("cars", data_dir=tmp_path)


def test_class_numbers_fit_into_64_bits(tmp_path):
    path = write_sop(tmp_path) / "Ebay_test.txt"
    path.write_text(path.read_text().replace(" 4 1 ", f" {2**70} 1 "))
    with pytest.raises(ValueError, match=r"Ebay_test\.txt: classes and images must be numbers"):
        load_dataset("sop", data_dir=tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    path = write_sop(tmp_path) / "Ebay_test.txt"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(
        ValueError, match=r"Ebay_test\.txt must be a regular file; got a named pipe"
    ):
        load_dataset("sop", data_dir=tmp_path)
