"""Images that stay in their files."""

from __future__ import annotations

import pickle
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from ssdml.datasets.image_files import ImageFiles
from ssdml.networks.data import as_samples


@pytest.fixture
def folder(tmp_path, rng):
    """Eleven photographs of many sizes, and their pixels."""
    for number in range(11):
        height, width = rng.integers(20, 60, 2)
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return tmp_path


@pytest.fixture
def images(folder):
    return ImageFiles(folder, [f"{number}.png" for number in range(11)], size=16)


def test_image_is_resized_and_center_cropped(tmp_path, rng):
    wide = Image.fromarray(rng.integers(0, 256, (32, 80, 3), np.uint8))
    wide.save(tmp_path / "wide.png")
    bilinear = Image.Resampling.BILINEAR
    as_long = wide.resize((20, 8), bilinear).crop((6, 0, 14, 8))
    twice_as_long = wide.resize((40, 16), bilinear).crop((16, 4, 24, 12))
    for enlarged, square in ((1.0, as_long), (2.0, twice_as_long)):
        read = ImageFiles(tmp_path, ["wide.png"], size=8, enlarged=enlarged)[0]
        np.testing.assert_array_equal(read, np.asarray(square).transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "CMYK"])
def test_images_of_every_mode_have_three_channels(tmp_path, mode):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.new("RGB", (20, 20), "white").convert(mode).save(path)
    read = ImageFiles(tmp_path, [path.name], size=4)[0]
    np.testing.assert_array_equal(read, np.full((3, 4, 4), 255, np.uint8))


TURNS = [2, 3, 4, 5, 6, 7, 8]  # EXIF's orientations other than upright


@pytest.mark.parametrize("orientation", TURNS)
def test_photographs_are_turned_upright(tmp_path, orientation, rng):
    """The camera stores the inverse of the turn that EXIF asks for."""
    upright = Image.fromarray(np.kron(rng.integers(0, 256, (2, 3)), np.ones((16, 16))).astype("u1"))
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = next(
        image
        for turn in (None, *Image.Transpose)
        for image in [upright if turn is None else upright.transpose(turn)]
        if _as_seen(image, exif, tmp_path).tobytes() == upright.tobytes()
    )
    turned.save(tmp_path / "a.png", exif=exif)
    upright.save(tmp_path / "b.png")
    images = ImageFiles(tmp_path, ["a.png", "b.png"], size=16, enlarged=1.0)
    np.testing.assert_array_equal(images[0], images[1])


def _as_seen(image, exif, folder):
    image.save(folder / "turned.png", exif=exif)
    with Image.open(folder / "turned.png") as saved:
        return ImageOps.exif_transpose(saved)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparent_pixels_are_white(tmp_path, mode):
    clear = Image.new("RGBA", (8, 8), (200, 30, 30, 0)).convert(mode)
    clear.save(tmp_path / ("a.tif" if mode == "PA" else "a.png"))
    (name,) = (path.name for path in tmp_path.iterdir())
    np.testing.assert_array_equal(ImageFiles(tmp_path, [name], size=4)[0], 255)


def test_transparent_color_of_a_palette_is_white(tmp_path):
    Image.new("P", (8, 8), 3).save(tmp_path / "a.gif", transparency=3)
    np.testing.assert_array_equal(ImageFiles(tmp_path, ["a.gif"], size=4)[0], 255)


@pytest.mark.parametrize(
    ("values", "shade"),
    [
        (np.full((8, 8), 32768, np.uint16), 128),
        (np.full((8, 8), 0.2, np.float32), 51),
        (np.full((8, 8), 257 * 9, np.int32), 9),
    ],
)
def test_deep_images_are_scaled_to_bytes(tmp_path, values, shade):
    Image.fromarray(values).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(ImageFiles(tmp_path, ["a.tif"], size=4)[0], shade)


def test_images_of_unknown_units_raise(tmp_path):
    Image.fromarray(np.full((8, 8), -1000, np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(
        ValueError, match=r"a\.tif: its pixels are from -1000 to -1000; scale them to 0"
    ):
        ImageFiles(tmp_path, ["a.tif"], size=4)[0]


def test_large_photographs_are_decoded_small(tmp_path):
    ramp = np.linspace(0, 255, 1600).astype(np.uint8)
    image = Image.fromarray(np.broadcast_to(ramp[:, None, None], (1600, 2048, 3)))
    image.save(tmp_path / "a.jpg", quality=95)
    image.save(tmp_path / "a.png")
    small, whole = ImageFiles(tmp_path, ["a.jpg", "a.png"], size=32)
    np.testing.assert_allclose(small.astype(int), whole, atol=3)


def test_images_in_a_zip_file_equal_those_in_a_folder(images, folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("zip") / "images.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in images.names.tolist():
            archive.write(folder / name, name)
    inside = ImageFiles(path, images.names, size=16)
    for part in (inside, pickle.loads(pickle.dumps(inside))):
        np.testing.assert_array_equal(np.stack(part.__getitems__(range(11))), np.stack([*images]))
    assert inside.fingerprint() == images.fingerprint()
    assert ImageFiles(path, ["0.png", "no.png"]).missing() == ["no.png"]


def test_batch_equals_single_images(images):
    order = [7, 0, 7, 10, 3]
    for read, number in zip(images.__getitems__(order), order, strict=True):
        np.testing.assert_array_equal(read, images[number])


def test_indexing_matches_arrays(images):
    assert images.shape == (11, 3, 16, 16)
    mask = np.arange(11) % 4 == 1
    for rows in (slice(2, 9, 3), np.array([5, 1]), mask, [0, -1]):
        chosen = images[rows]
        assert chosen.names.tolist() == images.names[rows].tolist()
        np.testing.assert_array_equal(chosen[0], images[int(np.arange(11)[rows][0])])
    assert len(images[np.zeros(11, bool)]) == 0
    with pytest.raises(IndexError):
        images[11]


def test_files_are_read_on_access_only(tmp_path):
    images = ImageFiles(tmp_path, ["a.png", "b.png"])
    assert images[:1].resized(8).shape == (1, 3, 8, 8)
    assert images.missing() == ["a.png", "b.png"]
    with pytest.raises(FileNotFoundError, match=r"a\.png"):
        images[0]


def test_damaged_file_is_named(images, folder):
    content = (folder / "3.png").read_bytes()
    for damaged in (content[: len(content) // 2], b"no image"):
        (folder / "3.png").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"3\.png is not an image that Pillow can read"):
            images.__getitems__(range(11))


def test_size_zero_raises(tmp_path):
    with pytest.raises(ValueError, match=r"size and enlarged must be at least 1; got size=0, "):
        ImageFiles(tmp_path, [], size=0)
    with pytest.raises(ValueError, match=r"enlarged=0\.5"):
        ImageFiles(tmp_path, [], enlarged=0.5)


def test_training_from_files_equals_training_from_array(images):
    array = np.stack([images[number] for number in range(11)])
    lazy, stored = as_samples(images, "fit"), as_samples(array, "fit")
    assert lazy.shape == stored.shape == (3, 16, 16)
    assert len(lazy) == 11
    rows = np.array([4, 4, 1])
    torch.testing.assert_close(lazy.batch(rows), stored.batch(rows), rtol=0, atol=0)


def test_data_loader_reads_whole_batches(images, monkeypatch):
    asked = []
    read = ImageFiles.__getitems__

    def noted(self, rows):
        asked.append(list(rows))
        return read(self, rows)

    monkeypatch.setattr(ImageFiles, "__getitems__", noted)
    as_samples(images, "fit").batch(np.array([3, 1, 2]))
    assert asked == [[3, 1, 2]]


def test_fingerprint_depends_on_files_and_size(images, folder):
    others = [images[1:], images.resized(15), images.resized(16, 1.0)]
    marks = {part.fingerprint() for part in (images, *others)}
    assert len(marks) == 4
    assert images.resized(16).fingerprint() in marks
    (folder / "3.png").write_bytes((folder / "3.png").read_bytes() + b"more")
    assert images.fingerprint() not in marks
