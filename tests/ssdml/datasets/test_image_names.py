"""Images named by the cells of a table."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.datasets import load_dataset
from ssdml.datasets.image_names import as_relative
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.summary import ReadingWarning
from tests.images import write_images


@pytest.mark.parametrize(
    "name",
    [
        "s3://bucket/raw/images/{}.png",
        "file:///home/me/images/{}.png",
        "https://host/raw/images/{}.png?raw=1",
        "/data/local-files/?d=images/{}.png",
        "images/{}.png",
    ],
)
def test_images_are_found_by_addresses_and_accents(tmp_path, name):
    names = ["gro\u0308\u00dfe", "b", "c"]  # as macOS decomposes letters with accents
    write_images(tmp_path, [f"images/{stem}.png" for stem in names], mode="L")
    stems = ["gr\u00f6\u00dfe" if name == "images/{}.png" else names[0], "c", "b"]
    rows = [f"{name.format(s)},{c}\n" for s, c in zip(stems, "xyz", strict=True)]
    (tmp_path / "labels.csv").write_text("file,label\n" + "".join(rows))
    data = load_dataset(tmp_path)
    assert [data.class_names[code] for code in data.y] == ["x", "y", "z"]
    assert (np.round(data.X[:, 0] * 255) == [0, 2, 1]).all()


def test_blanks_around_a_name_are_kept_if_a_file_has_them(tmp_path):
    write_images(tmp_path, [" a.png", "b.png"])
    assert as_relative(tmp_path, " a.png") == " a.png"
    assert as_relative(tmp_path, " b.png ") == "b.png"


def test_images_are_found_by_encoded_addresses(tmp_path):
    write_images(tmp_path, ["my cat 1.png", "my%20cat 2.png"])
    rows = ["https://host/my%20cat%201.png,a\n", "https://host/my%20cat 2.png,b\n"]
    (tmp_path / "labels.csv").write_text("file,label\n" + "".join(rows))
    assert load_dataset(tmp_path).y.tolist() == [0, 1]


def test_a_manifest_among_images_is_read(tmp_path):
    write_images(tmp_path, ["images/1.png", "images/2.png"])
    (tmp_path / "df.csv").write_text("path,label\nimages/2.png,b\nimages/1.png,a\n")
    data = load_dataset(tmp_path)
    assert data.ids.tolist() == ["images/2.png", "images/1.png"]
    assert [data.class_names[code] for code in data.y] == ["b", "a"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "images\\{}.png",
            "./images/{}.png",
            "pets/images/{}.png",
            "/",
            "{}.PNG",
            "Images/{}.Png",
            " images/{}.png ",
        ),
        *("C:\\Users\\me\\images\\{}.png", "/photos/me/pets/images/{}.png"),
    ],
)
def test_a_manifest_may_name_files_as_other_programs_do(tmp_path, name):
    folder = tmp_path / "pets"
    write_images(folder, ["images/1.png", "images/2.png"])
    name = f"{folder}/images/{{}}.png" if name == "/" else name
    (folder / "t.csv").write_text(f"file,label\n{name.format(1)},a\n{name.format(2)},b\n")
    for path in (folder, folder / "t.csv"):
        assert load_dataset(path).class_names == ("a", "b")


def test_images_of_one_name_in_several_folders_are_asked_for(tmp_path):
    write_images(tmp_path, ["test/1.png", "test/2.png", "train/1.png", "train/2.png"])
    (tmp_path / "t.csv").write_text("file,label\n1.png,a\n2.png,b\n")
    with pytest.raises(ValueError, match=r"which image is '1\.png'\? .*such as train/1\.png"):
        load_dataset(tmp_path)
    (tmp_path / "test/1.png").unlink()
    write_images(tmp_path, ["train/3.png"])
    (tmp_path / "t.csv").write_text("file,label\n1.png,a\n2.png,b\n1.PNG,a\n3.png,b\n")
    with pytest.warns(ReadingWarning, match="1 row of column 'file' name images of rows above"):
        data = load_dataset(tmp_path)
    np.testing.assert_allclose(data.X[:, 0] * 255, [2, 3, 2, 0], atol=1e-4)


def test_columns_of_several_images_are_asked_for(tmp_path):
    write_images(tmp_path, [f"{part}/{i}.png" for part in ("mask", "photo") for i in range(4)])
    rows = [f"photo/{i}.png,mask/{i}.png,{i}.png,{'ab'[i % 2]}\n" for i in range(4)]
    (tmp_path / "t.csv").write_text("image,mask,name,label\n" + "".join(rows))
    with pytest.raises(
        ValueError, match=r"which images are the samples\? Columns image, mask, name"
    ):
        load_dataset(tmp_path / "t.csv")
    for ignored, first in ((("mask", "name"), 4), (("image", "name"), 0)):
        data = read_dataset(tmp_path / "t.csv", Choice(ignore=ignored))
        np.testing.assert_allclose(data.X[:, 0] * 255, np.arange(4) + first, atol=1e-4)
    (tmp_path / "t.csv").write_text("image,path,label\nphoto/1.png,./photo/1.png,a\n")
    assert read_dataset(tmp_path / "t.csv", Choice()).y.tolist() == [0]
