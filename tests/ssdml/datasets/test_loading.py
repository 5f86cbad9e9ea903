"""Loading known data sets and user files."""

from __future__ import annotations

import gzip
import hashlib
import struct
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssdml.datasets import dataset_status, label_scarce_split, load_dataset, loading as datasets
from ssdml.datasets.known.layouts import data_folders


@pytest.fixture(autouse=True)
def nowhere(request, monkeypatch, tmp_path_factory):
    """No data set of this machine is found unless a test asks for them."""
    if "data_dir" in request.fixturenames:
        return
    monkeypatch.delenv("SSDML_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def write_mnist(root, name="MNIST"):
    """A toy of torchvision's layout: 3 training and 2 test images of 2 x 2 pixels."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    for prefix, labels in (("train", [9, 0, 4]), ("t10k", [4, 9])):
        images = np.full((len(labels), 2, 2), 51, dtype=np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", np.uint8(labels))):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            path = folder / f"{prefix}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(header + array.tobytes()))


def test_digits_come_with_scikit_learn():
    digits = load_dataset("digits")
    assert digits.X.shape == (1797, 64)
    assert digits.X.dtype == np.float32
    assert (digits.X.min(), digits.X.max()) == (0.0, 1.0)
    assert digits.item_shape == (8, 8)
    assert digits.class_names == tuple("0123456789")
    assert digits.test is None


def test_images_are_flattened_and_scaled(tmp_path):
    write_mnist(tmp_path)
    toy = load_dataset("mnist", data_dir=tmp_path)
    np.testing.assert_array_equal(toy.X, np.full((5, 4), 51 / 255, dtype=np.float32))
    assert toy.X.dtype == np.float32
    assert toy.item_shape == (2, 2)
    assert toy.class_names == ("0", "4", "9")
    np.testing.assert_array_equal(toy.y, [2, 0, 1, 1, 2])
    np.testing.assert_array_equal(toy.test, [False, False, False, True, True])


@cache
def published(name, data_dir):
    """Two tests look at Fashion-MNIST."""
    return load_dataset(name, data_dir=data_dir)


def test_fashion_mnist_has_class_names(tmp_path):
    write_mnist(tmp_path, "FashionMNIST")
    toy = load_dataset("fashion_mnist", data_dir=tmp_path)
    assert toy.class_names == ("T-shirt/top", "Coat", "Ankle boot")


@pytest.mark.parametrize(
    ("name", "shape", "n_test", "item_shape", "names"),
    [
        ("mnist", (70_000, 784), 10_000, (28, 28), ("0", "1")),
        ("fashion_mnist", (70_000, 784), 10_000, (28, 28), ("T-shirt/top", "Trouser")),
        ("banking77", (13_083, 384), 3_080, None, ("Refund_not_showing_up", "activate_my_card")),
        ("caltech101", (8_677, 1280), None, None, ("Faces", "Faces_easy")),
    ],
)
def test_published_files_are_read(data_dir, name, shape, n_test, item_shape, names):
    real = published(name, data_dir)
    assert real.X.shape == shape
    assert n_test == (None if real.test is None else real.test.sum())
    assert real.item_shape == item_shape
    assert real.class_names[:2] == names
    assert set(np.unique(real.y)) == set(range(len(real.class_names)))
    assert np.isfinite(real.X).all()


def test_fashion_mnist_images_match_their_names(data_dir):
    # Trousers (1) are narrow: their outer columns are dark. Ankle boots (9) fill the lower half.
    real = published("fashion_mnist", data_dir)
    means = np.stack([real.X[real.y == c].mean(axis=0) for c in (1, 9)]).reshape(2, 28, 28)
    assert means[0, :, :6].mean() < 0.01
    assert means[1, 14:].mean() > means[1, :14].mean()


@pytest.mark.slow
def test_cifar10_zip_is_read(data_dir):
    real = load_dataset("cifar10", data_dir=data_dir)
    assert real.X.shape == (60_000, 3072)
    assert real.item_shape == (32, 32, 3)
    assert real.class_names[:3] == ("airplane", "automobile", "bird")
    np.testing.assert_array_equal(np.bincount(real.y[real.test]), [1000] * 10)
    sky = real.X[real.y == 0].reshape(-1, 32, 32, 3).mean(axis=(0, 1, 2))
    assert sky[2] > sky[0]  # aeroplanes fly in the blue: the channels are not swapped


def test_folders_are_searched_in_order(tmp_path, monkeypatch):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    monkeypatch.setenv("SSDML_DATA", str(second))
    monkeypatch.setenv("XDG_CACHE_HOME", str(third))
    first.mkdir()
    assert data_folders(first) == [first, second, third / "ssdml"]
    for folder in (third / "ssdml", second, first):
        write_mnist(folder)
        [found] = [s.path for s in dataset_status(data_dir=first) if s.name == "mnist"]
        assert found == folder / "MNIST" / "raw"


def test_default_cache_is_below_home(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folders(None) == [Path.home() / ".cache" / "ssdml"]


def test_missing_data_dir_raises(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setenv("SSDML_DATA", str(tmp_path))
    message = r"data_dir must be a folder; got '.*/no'\. Omit it"
    for ask in (dataset_status, lambda data_dir: load_dataset("mnist", data_dir=data_dir)):
        with pytest.raises(NotADirectoryError, match=message):
            ask(data_dir=tmp_path / "no")


def test_missing_data_set_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_DATA", str(tmp_path / "no"))
    message = (
        r"'mnist' not found. Searched for MNIST/raw \(\{train,t10k\}-.* in .*/no "
        r"\(no such folder\), .*Put it into one of these folders, or name another with data_dir"
    )
    with pytest.raises(FileNotFoundError, match=message):
        load_dataset("mnist", data_dir=tmp_path)


def test_missing_file_says_what_belongs_there(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    message = r"t10k-labels-idx1-ubyte\[.gz\] is missing.* MNIST/raw must hold \{train,t10k\}"
    with pytest.raises(FileNotFoundError, match=message.replace(" MNIST", ".*MNIST")):
        load_dataset("mnist", data_dir=tmp_path)


def test_wrong_checksum_is_named(tmp_path):
    write_mnist(tmp_path)
    folder = tmp_path / "MNIST/raw"
    sums = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    lines = [f"{digest}  ./{path.relative_to(tmp_path)}" for path, digest in sums.items()]
    lines.append(f"{'0' * 64}  ./other/not-of-this-data-set")
    (tmp_path / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    assert len(load_dataset("mnist", data_dir=tmp_path).y) == 5
    labels = folder / "train-labels-idx1-ubyte.gz"
    labels.write_bytes((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
    with pytest.raises(ValueError, match=rf"{labels.name}: damaged; its SHA-256 is .* says"):
        load_dataset("mnist", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{digest}  {name}", None),
        ("{digest} *{name}", None),  # of sha256sum -b
        ("{upper}  {name}", None),
        ("# a comment", None),
        ("{other}  {name}", "damaged; its SHA-256 is"),
        ("{other} *{name}", "damaged; its SHA-256 is"),
        ("{digest} {name}", r"SHA256SUMS, line 1: must be a SHA-256 and a name; got"),
        ("SHA256 ({name}) = {digest}", r"SHA256SUMS, line 1: must be a SHA-256 and a name"),
        ("\udcff", r"SHA256SUMS: must be text in UTF-8"),
    ],
)
def test_lines_of_checksums_are_understood_or_errors(tmp_path, line, message):
    write_mnist(tmp_path)
    path = tmp_path / "MNIST/raw/train-labels-idx1-ubyte.gz"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = path.relative_to(tmp_path)
    line = line.format(digest=digest, upper=digest.upper(), other="0" * 64, name=name)
    (tmp_path / "SHA256SUMS").write_bytes(f"{line}\n".encode(errors="surrogateescape"))
    if message is None:
        assert len(load_dataset("mnist", data_dir=tmp_path).y) == 5
    else:
        with pytest.raises(ValueError, match=message):
            load_dataset("mnist", data_dir=tmp_path)


def test_one_long_label_among_many_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.01")
    path = tmp_path / "x.csv"
    path.write_text("a,label\n" + "1,b\n" * 5000 + f"2,{'z' * 20_000}\n")
    with pytest.raises(ValueError, match=r"x\.csv: takes 0\.4 GB in memory"):
        load_dataset(path)


def test_status_lists_found_and_missing_data_sets(tmp_path):
    write_mnist(tmp_path)
    status = {entry.name: entry for entry in dataset_status(data_dir=tmp_path)}
    assert list(status) == list(datasets.LAYOUTS)
    assert list(status)[:4] == ["digits", "mnist", "fashion_mnist", "cifar10"]
    assert list(status)[4:8] == ["kmnist", "cifar100", "svhn", "banking77"]
    assert list(status)[8:] == ["caltech101", "caltech101_images", "cub", "cars", "sop", "inshop"]
    assert {name for name, entry in status.items() if entry.available} == {"digits", "mnist"}
    assert status["mnist"].path == tmp_path / "MNIST" / "raw"
    assert "cifar-10-batches-py" in status["cifar10"].note


@pytest.mark.parametrize("name", ["minst", "MNIST", "digit"])
def test_misspelled_name_gets_a_suggestion(name):
    with pytest.raises(
        FileNotFoundError, match=r"neither a data set .* Did you mean '(mnist|digits)'"
    ):
        load_dataset(name)


def test_unknown_file_type_raises(tmp_path):
    for suffix, way_out in (
        (".doc", "Save it as"),
        (".pkl", "Pickles can"),
        (".xls", r"\.xlsx or"),
    ):
        path = tmp_path / f"items{suffix}"
        path.write_text("")
        message = rf"ends in \.npz, \.npy, \.mat, \.csv, .*; got '\{suffix}'\. .*{way_out}"
        with pytest.raises(ValueError, match=message):
            load_dataset(path)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("-", {}, r"got '-'\. Write standard input to a file first"),
        (np.eye(2), {}, r"name_or_path must be a path .*; got ndarray\. .* SSDML\(\)\.fit"),
        ("", {}, r"got ''\. Name one"),
        ("https://host/t.csv", {}, r"got 'https://host/t\.csv'\. Download"),
        ("t.csv", {"label": 2}, r"label must be names of columns, .*; got 2\. Pass '2'"),
        ("t.csv", {"features": [0, 1]}, r"features must be names of columns, .*; got 0\."),
        ("t.csv", {"ignore": 1}, r"ignore must be names of columns, .*; got 1\."),
    ],
)
def test_arguments_of_another_type_are_named(tmp_path, monkeypatch, given, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("1,2,a\n3,5,b\n")
    with pytest.raises((TypeError, ValueError), match=message):
        load_dataset(given, **options)


def test_a_mark_may_be_a_number(tmp_path):
    (tmp_path / "t.csv").write_text("p,label\n0.1,1\n0.5,2\n0.2,-9\n0.3,1\n")
    assert load_dataset(tmp_path / "t.csv", no_label=-9).y.tolist() == [0, 1, -1, 0]


def test_columns_are_chosen_in_own_files_only(tmp_path):
    for chosen in ({"label": "a"}, {"text_model": "words"}, {"ignore": ["a"]}):
        with pytest.raises(ValueError, match=rf"{next(iter(chosen))} is for files of your own"):
            load_dataset("digits", **chosen)


def write_npz(root):
    np.savez(root / "mine.npz", X=np.eye(3), y=["b", "", "a"])
    return root / "mine.npz"


def write_npy(root):
    np.save(root / "mine.npy", np.eye(3))
    np.save(root / "mine_y.npy", np.array(["b", "", "a"]))
    return root / "mine.npy"


def write_csv(root):
    (root / "mine.CSV").write_text("p,q,r,label\n1,0,0,b\n0,1,0,\n0,0,1,a\n")
    return root / "mine.CSV"


def write_parquet(root):
    polars = pytest.importorskip("polars")
    path = root / "mine.parquet"
    polars.DataFrame({"v": np.eye(3).tolist(), "y": ["b", None, "a"]}).write_parquet(path)
    return path


@pytest.mark.parametrize("write", [write_npz, write_npy, write_csv, write_parquet])
@pytest.mark.parametrize("kind", [str, Path])
def test_user_files_may_have_missing_labels(tmp_path, write, kind):
    mine = load_dataset(kind(write(tmp_path)))
    np.testing.assert_array_equal(mine.X, np.eye(3, dtype=np.float32))
    np.testing.assert_array_equal(mine.y, [1, -1, 0])
    assert mine.class_names == ("a", "b")
    assert mine.name == "mine"
    assert mine.test is None
    assert mine.item_shape is None


def write_images(root):
    for name in ("a/1.png", "b/2.png"):
        (root / name).parent.mkdir()
        Image.new("L", (2, 2)).save(root / name)
    return root


@pytest.mark.parametrize(
    ("write", "roles"),
    [
        (write_images, ("label", "text", "id", "features", "ignore")),
        (write_npy, ("label", "text", "id", "features", "ignore")),
        (write_npz, ("ignore",)),
    ],
)
def test_columns_are_named_in_tables_only(tmp_path, write, roles):
    path = write(tmp_path)
    for role in roles:
        with pytest.raises(ValueError, match=f"{role} must name a column of a table; got .*'a'"):
            load_dataset(path, **{role: "a"})


def test_samples_without_labels_are_read_if_asked_for(tmp_path):
    table, folder = tmp_path / "new.csv", tmp_path / "flat"
    table.write_text("a,b\n1.0,2.0\n3.0,4.0\n")
    folder.mkdir()
    for i in range(3):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(folder / f"{i}.png")
    for path, shape in ((table, (2, 2)), (folder, (3, 48))):
        with pytest.raises(ValueError, match="needs_label=False"):
            load_dataset(path)
        dataset = load_dataset(path, needs_label=False)
        assert dataset.X.shape == shape
        assert (dataset.y == -1).all()
        assert dataset.class_names == ()


def test_npz_images_keep_their_shape(tmp_path):
    images = np.full((4, 5, 6, 3), 255, dtype=np.uint8)
    images[:, 0, 0, 0] -= np.arange(4, dtype=np.uint8)  # equal ones would be doubted
    np.savez(tmp_path / "mine.npz", X=images, y=[0, 0, 1, 1], test=[True, False, True, False])
    mine = load_dataset(tmp_path / "mine.npz")
    assert mine.X.shape == (4, 90)
    assert mine.X.max() == 1.0
    assert mine.item_shape == (5, 6, 3)
    np.testing.assert_array_equal(mine.test, [True, False, True, False])


def test_folder_of_class_folders_is_loaded(tmp_path):
    for name, gray in {"train/cat/1.png": 255, "train/dog/2.png": 9, "test/cat/3.png": 80}.items():
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True)
        Image.new("L", (2, 2), gray).save(path)
    pets = load_dataset(tmp_path / "pets")
    assert (pets.name, pets.class_names, pets.item_shape) == ("pets", ("cat", "dog"), (2, 2))
    assert pets.test.sum() == 1
    assert pets.X.max() == 1.0


def test_tilde_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_npz(tmp_path)
    assert load_dataset("~/mine.npz").name == "mine"


def test_loading_leaves_the_file_unchanged(tmp_path):
    path = write_npz(tmp_path)
    before = path.read_bytes()
    load_dataset(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["mine.npz"]


def test_real_data_set_keeps_its_standard_split(data_dir):
    real = published("banking77", data_dir)
    split = label_scarce_split(real, 2, seed=0)
    np.testing.assert_array_equal(split.test, np.flatnonzero(real.test))
    assert len(split.labeled) == 2 * 77


def test_public_names_exist():
    assert all(hasattr(datasets, name) for name in datasets.__all__)


def test_file_of_texts_without_words_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na b c,x\nd e f,y\n")
    with pytest.raises(ValueError, match=r"t\.csv: texts must contain words of two letters"):
        load_dataset(tmp_path / "t.csv")
