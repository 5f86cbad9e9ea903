"""Folders and zip files of images."""

from __future__ import annotations

import os
import shutil
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from ssdml.datasets import load_dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.pixels import image_formats
from ssdml.datasets.reading.image_folders import read_image_folder, read_image_zip
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.summary import ReadingWarning
from tests.images import SPLIT, write_images, zipped


@pytest.mark.parametrize("read", [read_image_folder, read_image_zip])
def test_class_folders_below_train_and_test(tmp_path, read):
    write_images(tmp_path / "pets", SPLIT)
    (tmp_path / "pets" / "notes.txt").write_text("no image")
    place = tmp_path / "pets"
    raw = read(place if read is read_image_folder else zipped(place, tmp_path / "pets.zip"))
    assert raw.items.shape == (3, 3, 4, 3)  # rows, columns, channels
    found = dict(
        zip(raw.items[:, 0, 0, 0].tolist(), zip(raw.labels, raw.test, strict=True), strict=True)
    )
    assert found == {0: ("cat", False), 1: ("dog", False), 2: ("cat", True)}


@pytest.mark.parametrize(
    ("folders", "held_out"),
    [(["Train", "val"], "val"), (["train", "valid", "test"], "test"), (["training", "dev"], "dev")],
)
def test_parts_have_the_usual_names(tmp_path, folders, held_out):
    write_images(
        tmp_path, [f"{part}/{name}" for part in folders for name in ("a/1.png", "b/2.png")]
    )
    write_images(tmp_path, [f"{folders[0]}/3.png"])
    raw = read_image_folder(tmp_path)
    assert [name.split("/")[0] == held_out for name in raw.ids] == raw.test.tolist()
    assert sorted(raw.labels.tolist()) == ["", *["a"] * len(folders), *["b"] * len(folders)]


def test_folders_within_those_of_classes_are_told(tmp_path):
    write_images(tmp_path, ["cat/2020/1.png", "cat/2.png", "dog/3.png"])
    raw = read_image_folder(tmp_path)
    assert raw.labels.tolist() == ["cat", "cat", "dog"]
    assert "folders within those of classes are of that class, as in 'cat/2020'" in str(raw.summary)


def test_folders_called_images_are_no_classes(tmp_path):
    names = [f"train/{name}/images/{i}.png" for name in ("n01", "n02") for i in "01"]
    write_images(tmp_path, [*names, "val/images/1.png", "val/images/2.png"])
    data = read_dataset(tmp_path, Choice())
    assert [data.class_names[code] for code in data.y[:4]] == ["n01", "n01", "n02", "n02"]
    assert (data.y[4:].tolist(), data.test.tolist()) == ([-1, -1], [False] * 4 + [True] * 2)
    cells = "2.png\tn01\t0\t9\n1.png\tn02\t0\t9\n"  # as in Tiny ImageNet
    (tmp_path / "val/val_annotations.txt").write_text(cells)
    data = read_dataset(tmp_path, Choice())
    assert [data.class_names[code] for code in data.y[4:]] == ["n02", "n01"]
    assert data.summary.facts["more labels"] == "column '2' of val/val_annotations.txt"
    write_images(tmp_path / "screens", ["images/1.png", "texts/2.png"])
    assert read_image_folder(tmp_path / "screens").labels.tolist() == ["images", "texts"]
    write_images(tmp_path / "planes", ["data/images/1.png"])
    with pytest.raises(ValueError, match="must contain class/image files"):
        read_image_folder(tmp_path / "planes")


@pytest.mark.parametrize("in_zip", [False, True])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("labels.csv", "all images in the folder 'images', and 'labels.csv', which"),
        ("annotations.xml", "annotations such as 'annotations.xml', which are not read"),
        ("annotations/default.json", "annotations such as 'annotations/default.json', which are"),
        ("imagelabels.mat", "annotations such as 'imagelabels.mat', which are not read"),
        ("", None),
    ],
)
def test_labels_beside_one_folder_are_not_ignored(tmp_path, name, problem, in_zip):
    write_images(tmp_path / "d", ["images/1.png", "images/2.png"])
    if name:
        (tmp_path / "d" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "d" / name).write_text("number,breed\n7,a\n8,b\n")
    path = zipped(tmp_path / "d", tmp_path / "d.zip") if in_zip else tmp_path / "d"
    told = f"must have the labels in .*; got {problem}" if problem else "must contain class/image"
    with pytest.raises(ValueError, match=told):
        load_dataset(path)
    data = read_dataset(path, Choice(needs_label=False))
    assert len(data.X) == 2


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("images/{}.png", "annotations/trimaps/{}.png"),  # Oxford-IIIT Pet
        ("images/training/{}.png", "annotations/training/{}.png"),  # ADE20K
        ("train/img/{}.png", "train/masks/{}.png"),
        ("VOC2012/JPEGImages/{}.png", "VOC2012/SegmentationClass/{}.png"),
    ],
)
def test_masks_of_all_images_are_no_class(tmp_path, image, mask):
    write_images(tmp_path, [name.format(i) for name in (image, mask) for i in range(3)])
    with pytest.raises(ValueError, match=r"got masks .*'.*/0\.png'\. Write .*, move the masks"):
        read_image_folder(tmp_path)


def test_people_in_masks_are_a_class(tmp_path):
    write_images(tmp_path, [f"{name}/{i}.png" for name in ("mask", "no_mask") for i in range(2)])
    raw = read_image_folder(tmp_path)
    assert raw.labels.tolist() == ["mask"] * 2 + ["no_mask"] * 2
    assert any("may be masks of others" in doubt for doubt in raw.summary.doubts)


def test_masks_among_images_are_doubted(tmp_path):
    write_images(tmp_path, ["cat/1.png", "cat/1_mask.png", "dog/2 (1).jpg", "dog/2 (1)_Mask_1.png"])
    write_images(tmp_path, ["dog/3.png", "dog/seg.png", "dog/mask 3.png"])  # of no image
    write_images(tmp_path, ["cat-GT/1.png", "dog_mask/3_mask.png", "no_mask/1.png"])  # two more
    [doubt] = read_image_folder(tmp_path).summary.doubts
    assert doubt.startswith("4 images such as cat/1_mask.png may be masks of others")


def test_class_folders_without_standard_split(tmp_path):
    write_images(tmp_path, ["dog/b.png", "cat/a.jpg"], mode="L")
    raw = read_image_folder(tmp_path)
    assert raw.items.shape == (2, 3, 4)
    assert raw.labels.tolist() == ["cat", "dog"]
    assert raw.test is None


@pytest.mark.parametrize("name", ["unlabeled", "unlabelled", "Unlabelled"])
def test_images_in_unlabeled_folder_have_no_label(tmp_path, name):
    write_images(tmp_path, ["cat/a.png", f"{name}/b.png", "unlabeled cats/c.png"])
    assert sorted(read_image_folder(tmp_path).labels) == ["", "cat", "unlabeled cats"]
    data = load_dataset(str(tmp_path))
    assert data.class_names == ("cat", "unlabeled cats")
    assert sorted(data.y) == [-1, 0, 1]


def test_gray_image_among_colored_becomes_rgb(tmp_path):
    write_images(tmp_path, ["cat/a.png"], mode="RGB")
    write_images(tmp_path, ["cat/b.png", "cat/c.png"], mode="L")
    raw = read_image_folder(tmp_path)
    assert raw.items.shape == (3, 3, 4, 3)
    assert raw.items[2, 0, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "must contain class/image files.*; got no images"),
        (["1.png"], r"must contain class/image files.*; got 1 images, the first '1\.png'"),
        (["cat/1.png", "train/dog/2.png"], "must contain class/image files"),
        (["1.png", "train/dog/2.png"], "must contain class/image files"),
        (
            ["2020/cat/1.png", "2021/cat/2.png"],
            r"must be train, validation and test; got \['2020', '2021'\]",
        ),
        (["train/1.png", "test/2.png"], "must contain class/image files"),
    ],
)
def test_wrong_tree_raises(tmp_path, names, message):
    write_images(tmp_path, names)
    with pytest.raises(ValueError, match=message):
        read_image_folder(tmp_path)
    (tmp_path / "t.csv").write_text("file,label\n9.png,a\n")
    if "class/image" in message:
        with pytest.raises(ValueError, match=r"Or name the images in 't\.csv', which names none"):
            read_image_folder(tmp_path)


@pytest.fixture(params=["folder", "zip"])
def read(request, tmp_path):
    """Reads the folder pets as it is, or zipped."""
    if request.param == "folder":
        return lambda **options: read_image_folder(tmp_path / "pets", **options)
    return lambda **options: read_image_zip(
        zipped(tmp_path / "pets", tmp_path / "pets.zip"), **options
    )


def test_images_of_several_sizes_stay_in_their_files(tmp_path, read):
    write_images(tmp_path / "pets", ["cat/a.png"])
    write_images(tmp_path / "pets", ["dog/b.png", "dog/c.png"], size=(5, 5))
    raw = read()
    assert isinstance(raw.items, ImageFiles)
    assert raw.items.shape == (3, 3, 224, 224)
    assert raw.items[2].reshape(3, -1)[:, 0].tolist() == [1, 100, 200]
    assert raw.ids.tolist() == ["cat/a.png", "dog/b.png", "dog/c.png"]
    assert raw.labels.tolist() == ["cat", "dog", "dog"]
    assert "3 images of several sizes" in str(raw.summary)


def test_large_images_stay_in_their_files(tmp_path, read):
    write_images(tmp_path / "pets", ["cat/a.png", "cat/b.png"], size=(400, 300))
    assert isinstance(read().items, ImageFiles)


def test_images_without_folder_have_no_label(tmp_path, read):
    write_images(tmp_path / "pets", ["cat/a.png", "b.png", "dog/c.png"])
    raw = read()
    assert dict(zip(raw.ids, raw.labels, strict=True)) == {
        "b.png": "",
        "cat/a.png": "cat",
        "dog/c.png": "dog",
    }
    assert "1 image, which has no label" in str(raw.summary)


def test_folder_without_classes_is_read_for_predictions(tmp_path, read):
    write_images(tmp_path / "pets", ["b.png", "a.png"])
    assert read(needs_label=False).ids.tolist() == ["a.png", "b.png"]
    with pytest.raises(ValueError, match="must contain class/image files"):
        read()


@pytest.mark.parametrize(
    "suffix", ["jfif", "JPG", "avif", "ppm", "tga", "jp2", "PNG", "ico", "qoi"]
)
def test_images_of_any_suffix_are_read(tmp_path, read, suffix):
    write_images(tmp_path / "pets", ["cat/a.png"], size=(16, 16))
    (tmp_path / "pets/dog").mkdir()
    image = Image.new("RGB", (16, 16), (9, 9, 9))
    kind = {"jfif": "JPEG", "jpg": "JPEG", "jp2": "JPEG2000"}.get(suffix.lower())
    image.save(tmp_path / f"pets/dog/b.{suffix}", kind or suffix.upper())
    assert read().labels.tolist() == ["cat", "dog"]


def test_files_of_systems_and_editors_are_no_images(tmp_path, read):
    write_images(tmp_path / "pets", ["cat/a.png"])
    for name in ("__MACOSX/cat/._a.png", "cat/._b.png", ".trash/c.png", "cat/.DS_Store"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(b"no image")
    raw = read()
    assert raw.ids.tolist() == ["cat/a.png"]
    assert not raw.summary.left_out


def test_folder_without_readable_image_is_told(tmp_path):
    write_images(tmp_path / "pets", ["cat/a.png", "eel/b.png"])
    (tmp_path / "pets/dog").mkdir()
    (tmp_path / "pets/dog/c.raw").write_bytes(b"no image")
    with pytest.warns(UserWarning, match="folder 'dog' holds no image that Pillow can read"):
        pets = load_dataset(tmp_path / "pets")
    assert pets.class_names == ("cat", "eel")
    assert pets.summary.left_out == {"dog/c.raw": "no image"}


def test_photographs_of_iphones_need_a_package(tmp_path, read):
    (tmp_path / "pets/cat").mkdir(parents=True)
    (tmp_path / "pets/cat/IMG_1.HEIC").write_bytes(b"no image")
    if "HEIF" in image_formats():
        pytest.skip("pillow-heif is installed")
    with pytest.raises(ImportError, match=r"1 image such as cat/IMG_1\.HEIC .*ssdml\[heif\]"):
        read()


def deep(tmp_path, images):
    for i, image in enumerate(images):
        path = tmp_path / "pets" / "ab"[i % 2] / f"{i}.tif"
        path.parent.mkdir(exist_ok=True, parents=True)
        Image.fromarray(image).save(path)


def test_images_of_16_bits_keep_their_shades(tmp_path, read, rng):
    images = rng.integers(0, 2**16, (2, 5, 4), dtype=np.uint16)
    deep(tmp_path, images)
    np.testing.assert_allclose(read().items, images / 65535, rtol=1e-6)
    assert load_dataset(tmp_path / "pets").X.max() <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_images_in_other_units_are_scaled_together(tmp_path, read, rng, dtype):
    images = (10_000 * rng.normal(size=(2, 5, 4))).astype(dtype)
    deep(tmp_path, images)
    raw = read()
    low, high = images.min(), images.max()
    np.testing.assert_allclose(raw.items, (images - low) / (np.float64(high) - low), atol=1e-5)
    assert f"scaled from {low:g} to {high:g}" in str(raw.summary)


def test_fractions_are_not_scaled(tmp_path, read, rng):
    images = rng.random((2, 5, 4)).astype(np.float32) / 2
    deep(tmp_path, images)
    np.testing.assert_array_equal(read().items, images)


def test_bytes_beside_16_bits_have_their_range(tmp_path, read):
    deep(tmp_path, [np.full((3, 4), 65535, np.uint16), np.full((3, 4), 255, np.uint8)])
    np.testing.assert_array_equal(read().items, np.ones((2, 3, 4)))


def test_bytes_beside_other_units_raise(tmp_path, read):
    deep(tmp_path, [np.full((3, 4), -5, np.float32), np.full((3, 4), 255, np.uint8)])
    with pytest.raises(ValueError, match=r"a/0\.tif has pixels from -5 to -5, other images bytes"):
        read()


@pytest.mark.parametrize("kept", [0, 30, 50])
def test_damaged_image_is_named(tmp_path, kept):
    write_images(tmp_path, ["cat/a.png"])
    path = tmp_path / "cat" / "a.png"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"1 of 1 files are not images .*: cat/a\.png\. Replace"):
        read_image_folder(tmp_path)


def test_damaged_images_are_counted(tmp_path):
    names = [f"cat/{i}.png" for i in range(9)]
    write_images(tmp_path, names)
    for name in names[1:8]:
        (tmp_path / name).write_bytes(b"")
    told = r"7 of 9 files .*: cat/1\.png, .*, cat/5\.png and 2 more\. Replace"
    with pytest.raises(ValueError, match=told):
        read_image_folder(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_folder_whose_name_is_not_utf8_is_refused(tmp_path):
    for name in ("caf\udce9", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "0.png")
    problem = rf"{tmp_path}: 2 .* must be text in UTF-8; got 'caf\\udce9'. Rename the class or its"
    with pytest.raises(ValueError, match=problem):
        load_dataset(tmp_path)


def test_links_and_pipes_among_images_are_refused(tmp_path):
    write_images(tmp_path, ["pets/cat/a.png", "secret/b.png"])
    link = tmp_path / "pets/cat/b.png"
    link.symlink_to(tmp_path / "secret/b.png")
    with pytest.raises(ValueError, match=r"links must stay inside .*'cat/b\.png' leads to"):
        read_image_folder(tmp_path / "pets")
    link.unlink()
    link.symlink_to("c.png")
    with pytest.raises(FileNotFoundError, match=r"b\.png is a link to c\.png, which is missing"):
        read_image_folder(tmp_path / "pets")
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(ValueError, match=r"b\.png must be a regular file; got a named pipe"):
        read_image_folder(tmp_path / "pets")


def test_links_to_folders_of_classes_are_refused(tmp_path):
    write_images(tmp_path, ["pets/cat/a.png", "dog/b.png"])
    (tmp_path / "pets/dog").symlink_to(tmp_path / "dog")
    with pytest.raises(ValueError, match=r"links to folders are not followed; 'dog' is one\."):
        load_dataset(tmp_path / "pets")


@pytest.mark.parametrize("suffix", [".tif", ".gif", ".webp"])
@pytest.mark.parametrize("size", [(4, 3), (8, 8)])
def test_images_of_several_frames_are_doubted(tmp_path, suffix, size):
    write_images(tmp_path, ["a/1.png", "b/2.png"])
    stack = [Image.new("RGB", size, (i, 100, 200)) for i in (0, 90)]
    stack[0].save(tmp_path / f"a/3{suffix}", save_all=True, append_images=stack[1:])
    with pytest.warns(ReadingWarning, match=rf"first frame or page is read of 1 .* a/3\{suffix};"):
        assert len(load_dataset(tmp_path).y) == 3


@pytest.mark.parametrize(
    ("image", "annotation"),
    [
        ("JPEGImages/1.png", "Annotations/1.xml"),
        ("train/1.png", "train/1.xml"),
        ("train/images/1.png", "train/labels/1.txt"),
    ],
)
def test_annotations_of_images_are_told(tmp_path, image, annotation):
    write_images(tmp_path, [image])
    (tmp_path / annotation).parent.mkdir(exist_ok=True)
    (tmp_path / annotation).touch()
    with pytest.raises(ValueError, match=rf"such as '{annotation}', .* Write labels\.csv"):
        load_dataset(tmp_path)
    assert len(read_dataset(tmp_path, Choice(needs_label=False)).y) == 1
    write_images(tmp_path / "classes", ["a/1.png", "b/2.png"])
    (tmp_path / "classes/a/1.txt").write_text("a caption")
    assert load_dataset(tmp_path / "classes").class_names == ("a", "b")


def png(width, height, *, whole=True):
    """A black gray image of any size, or its header with no pixels."""

    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    packed = zlib.compressobj(9)
    rows = (
        b"".join(packed.compress(bytes(width + 1)) for _ in range(height if whole else 0))
        + packed.flush()
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*part) for part in ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    )


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_500, 17_000])
def test_image_of_too_many_pixels_is_refused(tmp_path, side):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(png(side, side, whole=False))
    message = r"cat/a\.png: must have at most 89478485 pixels .* Resize it"
    with pytest.raises(ValueError, match=message):
        read_image_folder(tmp_path)


def test_images_that_take_too_much_together_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.001")
    (tmp_path / "cat").mkdir()
    for i in range(20):
        (tmp_path / "cat" / f"{i}.png").write_bytes(png(250, 250) if not i else b"")
    with pytest.raises(ValueError, match=r"takes 0\.0 GB in memory, .* SSDML_MAX_GB=1"):
        read_image_folder(tmp_path)


def test_other_formats_are_not_tried(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(ValueError, match=r"1 of 1 files are not images .*: cat/a\.png"):
        read_image_folder(tmp_path)


@pytest.mark.parametrize("read", [read_image_folder, read_image_zip])
@pytest.mark.parametrize(
    ("names", "above", "labels"),
    [
        (["pets/cat/1.png", "pets/dog/2.png"], "pets", ["cat", "dog"]),
        (["x/pets/cat/1.png", "x/pets/2.png"], "x/pets", ["cat", ""]),
        (["pets/train/cat/1.png", "pets/test/dog/2.png"], "pets", ["cat", "dog"]),
    ],
)
def test_class_folders_may_be_in_a_folder(tmp_path, read, names, above, labels):
    place = tmp_path / "place"
    write_images(place, names)
    write_images(place, ["__MACOSX/pets/cat/._1.png"])
    (place / above / "Thumbs.db").write_bytes(b"x")
    raw = read(place if read is read_image_folder else zipped(place, tmp_path / "pets.zip"))
    found = dict(zip(raw.ids.tolist(), raw.labels.tolist(), strict=True))
    assert found == dict(zip(names, labels, strict=True))
    assert raw.summary.facts["class folders"] == f"in {above}"
    assert not raw.summary.doubts


def test_settings_of_programs_beside_class_folders_are_no_tables(tmp_path):
    write_images(tmp_path, ["cat/1.png", "dog/2.png"])
    (tmp_path / "class_indices.json").write_text('{"0": "cat", "1": "dog"}')
    (tmp_path / "notes.txt").write_text('one, two\nthree\n"four\n')
    assert load_dataset(tmp_path).class_names == ("cat", "dog")
    (tmp_path / "t.csv").write_text("file,label\ncat/1.png,a\ndog/2.png,b,c\n")
    with pytest.raises(ValueError, match=r"t\.csv, line 3: must have 2 columns"):
        load_dataset(tmp_path)


def test_unlabeled_images_beside_train_and_test(tmp_path, read):
    write_images(tmp_path / "pets", [*SPLIT, "unlabeled/4.png", "unlabeled/more/5.png"])
    raw = read()
    assert raw.labels.tolist() == ["cat", "cat", "dog", "", ""]
    assert raw.test.tolist() == [True, False, False, False, False]


def test_class_folders_in_one_called_labeled(tmp_path, read):
    write_images(tmp_path / "pets", ["labeled/cat/1.png", "labeled/dog/2.png", "unlabeled/3.png"])
    raw = read()
    assert raw.labels.tolist() == ["cat", "dog", ""]
    assert not raw.summary.doubts


@pytest.mark.parametrize("in_zip", [False, True])
@pytest.mark.parametrize("sizes", [[(9, 8)], [(9, 8), (8, 9)]])
def test_equal_images_of_several_classes_are_doubted(tmp_path, rng, sizes, in_zip):
    for i, name in enumerate(["ant/1.png", "ant/2.png", "bee/3.png", "bee/4.png", "5.png"]):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (*sizes[i % len(sizes)], 3)
        Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)).save(path)

    def doubts():
        place = tmp_path / "pets"
        place = zipped(place, tmp_path / "p.zip") if in_zip else place
        return read_dataset(place, Choice()).summary.doubts

    for copy in ("ant/6.png", "7.png"):  # of one class, and without a label
        shutil.copy(tmp_path / "pets/ant/1.png", tmp_path / "pets" / copy)
        assert not any("several labels" in doubt for doubt in doubts())
    shutil.copy(tmp_path / "pets/ant/2.png", tmp_path / "pets/bee/8.png")
    [doubt] = [doubt for doubt in doubts() if "several labels" in doubt]
    assert doubt == (
        "1 image has several labels, as 'ant/2.png' and 'bee/8.png' are equal; keep one of each"
    )


@pytest.mark.parametrize(("folder", "is_told"), [("test", True), ("cat", False), ("", False)])
def test_a_folder_of_all_test_images_is_doubted(tmp_path, folder, is_told):
    write_images(tmp_path, ["train/cat/1.png", "train/dog/2.png", f"test/{folder}/3.png"])
    doubts = read_image_folder(tmp_path).summary.doubts
    assert [f"all held-out images are in the folder {folder!r}" in d for d in doubts] == [
        True
    ] * is_told


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("training_set", "test_set"),
        ("train1", "Test1"),
        ("01 Training Data", "02 Testing Data"),
        ("seg_train/seg_train", "seg_test/seg_test"),
        ("trainset", "valset"),
        ("train/images", "test/images"),
    ],
)
def test_parts_are_recognized_in_longer_names(tmp_path, read, train, test):
    names = [f"{train}/cat/1.png", f"{train}/dog/2.png", f"{test}/cat/3.png"]
    write_images(tmp_path / "pets", names)
    raw = read()
    assert dict(zip(raw.ids.tolist(), raw.labels.tolist(), strict=True)) == dict(
        zip(names, ["cat", "dog", "cat"], strict=True)
    )
    assert raw.ids[raw.test].tolist() == names[2:]
    assert not raw.summary.doubts


def test_folders_of_parts_without_classes_are_no_classes(tmp_path):
    write_images(tmp_path, ["train/cat.0.png", "train/dog.0.png", "test1/1.png"])
    with pytest.raises(ValueError, match="must contain class/image files"):
        read_image_folder(tmp_path)


@pytest.mark.parametrize(
    ("names", "doubt"),
    [
        (["cat/1.png", "dog/1.png", "test/1.png"], "'test' counts as a class; if it holds the"),
        (["train/1.png", "holdout/1.png"], "'train' counts as a class"),
        (["train/1.png", "bus/1.png", "car/1.png"], None),
        (["bullet train/1.png", "steam train/1.png"], None),
        (["bounding_box_train/1.png", "query/1.png"], "'bounding_box_train' counts as a class"),
        (["cat/1.png", "masks/1.png"], "1 image such as masks/1.png may be masks"),
        (["images/1.png", "masks/2.png"], None),
        (["cat/1.png", "dog/1.png", "dog/1.png_large"], "1 file beside images not read, such as"),
        (["cat/1.png", "dog/1.png", "dog/1.json", "cat/Thumbs.db"], None),
    ],
)
def test_folders_that_may_be_no_classes_are_doubted(tmp_path, names, doubt):
    write_images(tmp_path, [name for name in names if name.endswith(".png")])
    for name in names:
        (tmp_path / name).touch()
    raw = read_image_folder(tmp_path)
    tops = [name.partition("/")[0] for name in names if name.endswith(".png")]
    assert sorted(raw.labels) == sorted(tops)
    assert bool(raw.summary.doubts) == bool(doubt)
    assert doubt is None or raw.summary.doubts[0].startswith(doubt)


def test_labeled_and_unlabeled_folders_below_train(tmp_path):
    write_images(tmp_path, ["train/labeled/cat/1.png", "train/unlabeled/2.png", "test/cat/3.png"])
    raw = read_image_folder(tmp_path)
    assert dict(zip(raw.ids, raw.labels, strict=True)) == {
        "test/cat/3.png": "cat",
        "train/labeled/cat/1.png": "cat",
        "train/unlabeled/2.png": "",
    }
    assert not raw.summary.doubts


def test_folder_of_minus_one_is_told(tmp_path):
    write_images(tmp_path, ["-1/1.png", "1/2.png"])
    with pytest.warns(ReadingWarning, match="the only class is '1', as -1 means no label"):
        data = load_dataset(tmp_path)
    assert data.y.tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("cat/1.dcm", "Save images as .png"),
        ("cat/1", "texts as .txt"),
        ("cat/1.md", "texts as .txt"),
        ("t.npz", "Name the file itself"),
        ("cat.zip", "Unzip it"),
        ("cat/1.wav", "Compute a vector"),
    ],
)
def test_folder_of_other_files_has_a_way_out(tmp_path, name, way_out):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    message = rf"images, texts or tables; got 1 file such as '{name}'\. .*{way_out}"
    with pytest.raises(ValueError, match=message):
        read_image_folder(tmp_path)
