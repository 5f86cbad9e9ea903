"""Readers of arrays in the files of NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import sparse

from ssdml.datasets import load_dataset
from ssdml.datasets.reading.arrays import read_arrays, read_npy_pair, read_npz
from ssdml.datasets.reading.formats.npy import label_file, read_npy
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.paths import read_path
from ssdml.datasets.reading.summary import ReadingWarning
from tests.arrays import X, Y, assert_read

RECORDS = np.array(
    [(0.5, b"cat", (1, 2)), (2.0, b"", (3, 4)), (4.0, b"dog", (5, 6))],
    dtype=[("a", "f8"), ("label", "S3"), ("vector", "f4", 2)],
)


def test_npz_with_optional_test_mask(tmp_path):
    path = tmp_path / "items.npz"
    np.savez(path, X=X, y=Y)
    assert_read(read_npz(path))
    test = np.array([False, True, False])
    np.savez(path, X=X, y=Y, test=test, notes=np.array("ignored"), more=np.array([None]))
    assert_read(read_npz(path), test=test)
    assert read_npz(path).summary.left_out == {"notes": "other arrays", "more": "other arrays"}


@pytest.mark.parametrize(
    ("name", "array", "is_told"),
    [
        ("mask", [True, False, True], True),
        ("train_mask", [True, False, True], True),
        ("labeled", [0, 2], True),
        ("train_idx", [2, 0], True),
        ("idx", [7, 0], False),
        ("sizes", [0, 2], False),
        ("labels_of_parts", ["a"], False),
        ("isTest", [0.0, 1.0, 0.0], True),  # as MATLAB has masks and indices
        ("trainIdx", [[1.0], [3.0]], True),
        ("idxLabs", [[1, 3], [2, 3]], True),  # of two draws
        ("train_loss", [0.5, 0.25], False),
        ("edge_index", [[0, 1], [1, 2]], False),
    ],
)
def test_arrays_that_select_rows_are_told(tmp_path, name, array, is_told):
    np.savez(tmp_path / "t.npz", X=X, y=Y, **{name: np.array(array)})
    raw = read_npz(tmp_path / "t.npz")
    assert_read(raw)
    doubts = [f"array {name!r} is not read; if it tells which rows are labeled"] * is_told
    assert [doubt.partition(", save")[0] for doubt in raw.summary.doubts] == doubts


@pytest.mark.parametrize(
    ("samples", "labels"),
    [
        ("x", "Y"),
        ("data", "target"),
        ("embeddings", "labels"),
        ("features", "label"),
        ("arr_0", "arr_1"),
    ],
)
def test_npz_with_other_usual_names(tmp_path, samples, labels):
    np.savez(tmp_path / "items.npz", **{samples: X, labels: Y[:, None]})
    assert_read(read_npz(tmp_path / "items.npz"))


@pytest.mark.parametrize(
    "names",
    ["x_{}, y_{}", "{}_images, {}_labels", "X_{}, y_{}", "X{}, y{}", "{}X, {}Y", "{}/x, {}.y"],
)
@pytest.mark.parametrize(
    "parts", ["train test", "train val", "train validation", "train dev", "train eval", "tr te"]
)
def test_npz_with_parts(tmp_path, names, parts):
    train, held_out = parts.split()
    rows = {train: [0, 1], held_out: [2]}
    samples, labels = names.split(", ")
    arrays = {samples.format(part): X[r] for part, r in rows.items()}
    arrays |= {labels.format(part): Y[r] for part, r in rows.items()}
    np.savez(tmp_path / "items.npz", **arrays)
    raw = read_npz(tmp_path / "items.npz")
    assert_read(raw, test=[False, False, True])
    assert raw.summary.facts["test rows"].startswith(f"1, array {samples.format(held_out)}, 1 x")


def test_arrays_beside_parts_are_used_or_told(tmp_path):
    arrays = {"x_train": X[:2], "y_train": [1, 0], "x_test": X[2:], "y_test": [1], "mean": X[0]}
    arrays |= {"class_names": ["cat", "dog"], "test_masks": X[2:], "testament": X}
    np.savez(tmp_path / "items.npz", **arrays)
    raw = read_npz(tmp_path / "items.npz")
    assert raw.labels.tolist() == ["dog", "cat", "dog"]
    assert raw.summary.left_out.keys() == {"mean", "test_masks", "testament"}


@pytest.mark.parametrize("names", ["idx_{}", "{}_mask"])
def test_rows_of_parts_are_no_parts(tmp_path, names):
    rows = {
        names.format(part): np.array([part == "test", False, True]) for part in ("train", "test")
    }
    np.savez(tmp_path / "items.npz", features=X, labels=Y, **rows)
    raw = read_npz(tmp_path / "items.npz")
    assert_read(raw)
    assert "is not read; if it tells which rows are labeled" in raw.summary.doubts[0]


def test_samples_of_parts_are_their_own(tmp_path):
    arrays = {
        "train_embeddings": X[:2],
        "y_train": Y[:2],
        "test_embeddings": X[2:],
        "y_test": Y[2:],
    }
    np.savez(tmp_path / "items.npz", data=np.zeros((1, 2)), label=["cow"], **arrays)
    raw = read_npz(tmp_path / "items.npz")
    assert_read(raw, test=[False, False, True])
    assert raw.summary.left_out.keys() == {"data", "label"}


def test_bytes_are_not_mixed_with_fractions(tmp_path):
    images = np.full((2, 4, 4), 255, np.uint8)
    arrays = {"x_train": images, "y_train": [0, 1], "x_test": images / 255, "y_test": [0, 1]}
    np.savez(tmp_path / "items.npz", **arrays)
    with pytest.raises(
        ValueError, match=r"must have one type; got uint8 and float64: .* Save them"
    ):
        read_npz(tmp_path / "items.npz")


def test_validation_rows_are_training_rows_beside_a_test(tmp_path):
    arrays = {f"x_{part}": X[[i]] for i, part in enumerate(("train", "val", "test"))}
    arrays |= {f"y_{part}": Y[[i]] for i, part in enumerate(("train", "val", "test"))}
    np.savez(tmp_path / "items.npz", **arrays)
    assert_read(read_npz(tmp_path / "items.npz"), test=[False, False, True])


def test_npz_with_unknown_names_is_read_by_shape(tmp_path):
    np.savez(tmp_path / "items.npz", p=X, q=Y)
    with pytest.warns(ReadingWarning, match="array 'p' holds the samples and 'q' the labels"):
        mine = load_dataset(tmp_path / "items.npz")
    np.testing.assert_array_equal(mine.X, X)
    np.savez(tmp_path / "items.npz", p=X, paths=["a.png", "b.png", "c.png"])
    with pytest.raises(ValueError, match=r"must contain arrays X and y; got \['p', 'paths'\]"):
        load_dataset(tmp_path / "items.npz")
    np.savez(tmp_path / "items.npz", p=X, q=Y, r=Y[::-1])
    assert_read(read_npz(tmp_path / "items.npz", Choice(features=("p",), label="r")), Y[::-1])


def test_rows_and_columns_are_vectors(tmp_path):
    test, names = np.array([False, True, False]), np.array(["a", "b", "c"])
    for shape in ((1, 3), (3, 1)):
        arrays = {"y": Y, "test": test, "names": names}
        arrays = {name: array.reshape(shape) for name, array in arrays.items()}
        np.savez(tmp_path / "t.npz", X=X, **arrays)
        assert_read(read_npz(tmp_path / "t.npz"), test=test)
        assert read_npz(tmp_path / "t.npz").ids.tolist() == names.tolist()
        np.savez(tmp_path / "t.npz", p=X, q=Y.reshape(shape))
        assert_read(read_npz(tmp_path / "t.npz"))


def test_arrays_of_one_name_in_two_cases_are_chosen_by_name(tmp_path):
    np.savez(tmp_path / "t.npz", x=X[:, :1], X=X, Y=Y, y=Y[::-1])
    read = load_dataset(tmp_path / "t.npz", features="x", label="y")
    np.testing.assert_array_equal(read.X, X[:, :1])
    assert read.y.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(read_npz(tmp_path / "t.npz").items, X)


def test_parts_are_read_by_shape(tmp_path):
    arrays = {"train_patterns": X, "train_labels": Y, "test_patterns": X[:2], "test_labels": Y[:2]}
    np.savez(tmp_path / "t.npz", **arrays)
    raw = read_npz(tmp_path / "t.npz")
    assert raw.test.tolist() == [False] * 3 + [True] * 2
    assert "'train_patterns' holds the samples" in raw.summary.doubts[0]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(label="class"), "label must name an array; got 'class'. Name one of X, y."),
        (Choice(id="names"), "id must name an array; got 'names'. Name one of X, y."),
        (Choice(text="texts"), "text must name an array; got 'texts'. Name one of X, y."),
        (Choice(features=("F",)), "features must name an array; got 'F'. Name one of X, y."),
        (Choice(features=("X", "y")), "features must name one array; got X, y. Name one"),
    ],
)
def test_named_arrays_must_be_there(tmp_path, choice, message):
    np.savez(tmp_path / "t.npz", X=X, y=Y)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_npz(tmp_path / "t.npz", choice)


def test_names_that_cannot_be_read_are_left_out(tmp_path):
    np.savez(tmp_path / "t.npz", X=X, y=Y, filenames=np.array(["a", "b", None]))
    assert_read(read_npz(tmp_path / "t.npz"))
    assert read_npz(tmp_path / "t.npz").summary.left_out.keys() == {"filenames"}
    with pytest.raises(ValueError, match="filenames cannot be read"):
        read_npz(tmp_path / "t.npz", Choice(id="filenames"))


@pytest.mark.parametrize("kind", ["U", "S"])
def test_npz_with_texts_and_ids(tmp_path, kind):
    path, texts = tmp_path / "items.npz", np.array(["one", "two", "three"])
    np.savez(path, X=X, y=Y, text=texts.astype(kind), ids=[7, 8, 9])
    assert read_npz(path).texts.tolist() == texts.tolist()
    assert read_npz(path).ids.tolist() == [7, 8, 9]
    np.savez(path, X=texts, y=Y)
    raw = read_npz(path)
    assert raw.items is None
    assert raw.texts.tolist() == texts.tolist()


def test_labels_need_not_be_there_for_predictions(tmp_path):
    np.savez(tmp_path / "items.npz", X=X)
    np.save(tmp_path / "items.npy", X)
    choice = Choice(needs_label=False)
    assert_read(read_npz(tmp_path / "items.npz", choice), ["", "", ""])
    assert_read(read_npy_pair(tmp_path / "items.npy", choice), ["", "", ""])


def test_samples_and_labels_in_two_files(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", Y)
    assert_read(read_arrays(tmp_path / "a.npy", tmp_path / "b.npy"))
    for name, array in (("a.npz", X), ("b.npz", Y)):
        np.savez(tmp_path / name, array)
    assert_read(read_arrays(tmp_path / "a.npz", tmp_path / "b.npz"))
    np.save(tmp_path / "b.npy", Y[:2])
    with pytest.raises(ValueError, match=r"b\.npy: y must have 3 labels, one per row; got"):
        read_arrays(tmp_path / "a.npy", tmp_path / "b.npy")


def test_labels_in_a_table(tmp_path):
    np.save(tmp_path / "X.npy", X)
    labels = tmp_path / "y.csv"

    def read(text, **choice):
        labels.write_text(text)
        return read_arrays(tmp_path / "X.npy", labels, Choice(**choice)).labels.tolist()

    assert read("label\na\n-1\nb\n") == ["a", "-1", "b"]
    assert read("kind\n1\n2\n1\n") == ["1", "2", "1"]
    assert read(",label,note\n0,a,x\n1,,y\n2,b,\n") == ["a", "", "b"]
    assert read("kind,note\na,x\nb,y\na,z\n", label="Kind") == ["a", "b", "a"]
    assert read("note; label\nx; a\ny; b\nz; a\n") == ["a", "b", "a"]
    predicted = [f"{c},0.5,{new},a,1,2" for c, new in (("a", "false"), ("b", "true"), ("b", ""))]
    added = "label,confidence,is_new_label,runner_up,map_x,map_y"
    assert read("\n".join([added, *predicted])) == ["a", "", "b"]
    with pytest.raises(ValueError, match=r"which column holds the labels\? .*kind, note\. Pass"):
        read("kind,note\na,x\nb,y\na,z\n")
    with pytest.raises(ValueError, match=r"y\.csv: must have 3 labels, .* got 2\. Name the column"):
        read("label\na\n\nb\n")


@pytest.mark.parametrize("n_channels", [1, 3])
def test_channels_may_come_first(tmp_path, n_channels):
    images = np.arange(2 * n_channels * 30).reshape(2, n_channels, 5, 6)
    np.savez(tmp_path / "first.npz", X=images, y=[0, 1])
    np.savez(tmp_path / "last.npz", X=images.transpose(0, 2, 3, 1), y=[0, 1])
    first, last = (read_npz(tmp_path / f"{name}.npz").items for name in ("first", "last"))
    np.testing.assert_array_equal(first, last)
    assert first.shape == (2, 5, 6, n_channels)


def test_several_arrays_are_not_an_npy(tmp_path):
    np.savez(tmp_path / "data.npz", X=X, y=Y)
    for name in ("data.npz", "data.mat"):
        with pytest.raises(ValueError, match="file with one array; got several arrays"):
            read_npy(tmp_path / name)
    with pytest.raises(ValueError, match="file with one array; got a folder"):
        read_npy(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X}, r"must contain arrays X and y; got \['X'\]"),
        ({"X": np.array([[1], [2], [1]])}, r"must contain arrays X and y; got \['X'\]"),
        ({"X": X, "y": Y[:2]}, r"y must have 3 labels, one per row; got shape \(2,\)"),
        ({"X": X[0], "y": Y[:2]}, r"X must be an array of numbers .*; got shape \(2,\)"),
        ({"X": Y[:, None], "y": Y}, "X must be an array of numbers .*dtype <U3"),
        ({"X": X[:0], "y": Y[:0]}, r"X must be an array of numbers .*; got shape \(0, 2\)"),
        ({"X": X, "y": Y, "test": [0, 1, 0]}, "test must have 3 booleans, .*: test == 1"),
        ({"X": X, "y": Y, "test": [2]}, "test must have 3 booleans, .*: a mask, not the numbers"),
        ({"X": X.astype(object), "other": Y}, "X cannot be read .*Save plain arrays"),
        ({"X": X, "y": Y.astype(object)}, "y cannot be read .*Save plain arrays"),
        ({"X": X, "y": RECORDS}, "y must hold numbers or texts; got records of a, label, vector"),
        ({"X": RECORDS, "y": Y}, "X must be .*structured_to_unstructured"),
        ({"X_train": X, "y_train": Y, "X_test": X}, r"must contain .* got \['X_test'\]"),
        (
            {"X": X, "y": np.eye(3)},
            r"y must have 3 .* \(3, 3\)\. If they are one-hot, save",
        ),
        ({"X": np.where(X < 0, np.nan, X), "y": Y}, "X must be finite; got nan at row 1, column 1"),
        (
            {"p": X, "q": Y, "r": Y},
            r"must contain arrays X and y; got \['p', 'q', 'r'\]\. Name",
        ),
    ],
)
def test_invalid_npz_is_named(tmp_path, arrays, message):
    path = tmp_path / "items.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=rf"items\.npz: {message}"):
        read_npz(path)


@pytest.mark.parametrize("kept", [0, 100, -30])
def test_truncated_npz_is_named(tmp_path, kept):
    path = tmp_path / "items.npz"
    np.savez(path, X=X, y=Y)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"items\.npz: cannot be read"):
        read_npz(path)


@pytest.mark.parametrize(
    ("items", "labels"),
    [("X.npy", "y.npy"), ("test_X.npy", "test_y.npy"), ("embeddings.npy", "embeddings_y.npy")],
)
def test_labels_are_beside_the_items(tmp_path, items, labels):
    assert label_file(tmp_path / items) == tmp_path / labels
    np.save(tmp_path / items, X)
    np.save(tmp_path / labels, Y)
    assert_read(read_npy_pair(tmp_path / items))


def test_missing_label_file_is_named(tmp_path):
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(FileNotFoundError, match=r"X\.npy: its labels must be in .*y\.npy"):
        read_npy_pair(tmp_path / "X.npy")


@pytest.mark.parametrize("kept", [0, 20, -8])
def test_truncated_npy_is_named(tmp_path, kept):
    for name, array in (("X.npy", X), ("y.npy", Y)):
        np.save(tmp_path / name, array)
    path = tmp_path / "X.npy"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"X\.npy: cannot be read"):
        read_npy_pair(path)


def test_npy_with_wrong_magic_raises(tmp_path):
    np.save(tmp_path / "y.npy", Y)
    path = tmp_path / "X.npy"
    path.write_text("0.5,1\n2,-3\n")
    begins = r"X\.npy: cannot be read \(the magic string is not correct.* got"
    with pytest.raises(ValueError, match=rf"{begins} b'0\.5,1\\n'\)\. Save plain arrays"):
        read_npy_pair(path)
    np.savez(tmp_path / "several.npz", X=X)
    (tmp_path / "several.npz").replace(path)
    with pytest.raises(ValueError, match=f"{begins} b'PK"):
        read_npy(path, in_place=True)


def test_npz_that_would_take_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.001")
    path = tmp_path / "items.npz"
    np.savez_compressed(path, X=np.zeros((10**5, 3)), y=np.zeros(10**5))
    with pytest.raises(ValueError, match=r"items\.npz: takes 0\.0 GB in memory"):
        read_npz(path)


def test_parts_of_two_shapes_are_named(tmp_path):
    np.savez(tmp_path / "items.npz", X_train=X, y_train=Y, X_test=X[:, :1], y_test=Y)
    with pytest.raises(ValueError, match=r"items\.npz: training and test samples must have one"):
        read_npz(tmp_path / "items.npz")
    texts = np.array(["a", "b", "c"])
    np.savez(tmp_path / "texts.npz", X_train=texts, y_train=Y, X_test=texts, y_test=Y)
    assert read_npz(tmp_path / "texts.npz").texts.tolist() == [*"abcabc"]


def test_sparse_matrix_of_scipy_is_named(tmp_path):
    for matrix in (
        np.eye(3),
        np.ones((3, 2)),
    ):  # the second has equal indices, which could be labels
        for form in ("csr", "csc", "coo", "bsr", "dia"):
            sparse.save_npz(tmp_path / "x.npz", sparse.csr_array(matrix).asformat(form))
            with pytest.raises(ValueError, match=r"got a sparse matrix of SciPy. Save numpy.savez"):
                read_npz(tmp_path / "x.npz")


def test_labels_in_bytes_are_text(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=np.array([b"cat", b"", "\u00e9".encode()]))
    assert load_dataset(tmp_path / "t.npz").class_names == ("cat", "\u00e9")


def test_structured_arrays_are_tables(tmp_path):
    np.savez(tmp_path / "t.npz", r=RECORDS)
    np.save(tmp_path / "t.npy", RECORDS)
    for raw in (read_npz(tmp_path / "t.npz"), read_npy_pair(tmp_path / "t.npy")):
        assert raw.labels.tolist() == ["cat", "", "dog"]
        assert raw.items.tolist() == [[1, 2], [3, 4], [5, 6]]
        assert raw.columns == ("vector",)


@pytest.mark.parametrize("name", ["class_names", "target_names"])
def test_names_of_classes_beside_codes_are_used(tmp_path, name):
    path = tmp_path / "t.npz"
    np.savez(path, X=X, y=[1, -1, 0], **{name: ["cat", "dog"]})
    assert read_npz(path).labels.tolist() == ["dog", "", "cat"]
    assert not read_npz(path).summary.left_out
    for codes, names in (
        ([2, -1, 0], ["cat", "dog"]),
        ([1, -1, 0], [0.5, 1.5]),
        ([1, -1, 0], np.array(["cat", None])),
        ([1, -1, 1], ["cat", "dog"]),  # -1 may be a class
        ([1, 0, 2], ["dog", "cat", "cat"]),  # names of the samples, not of the classes
    ):
        np.savez(path, X=X, y=codes, **{name: names})
        assert read_npz(path).labels.tolist() == codes
        assert name in read_npz(path).summary.left_out


def test_array_without_its_labels_is_named(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "labels.npy", Y)
    message = r"y\.npy, which is missing\. Rename their file, or"
    with pytest.raises(FileNotFoundError, match=message):
        read_path(tmp_path / "X.npy")


def test_samples_in_columns_are_to_be_turned(tmp_path):
    np.savez(tmp_path / "t.npz", X=X[:2], y=Y[:2])
    assert len(read_npz(tmp_path / "t.npz").labels) == 2
    np.savez(tmp_path / "t.npz", X=X.T, y=Y)
    with pytest.raises(
        ValueError, match=r"y must have 2 labels, .* got shape \(3,\)\. Save X\.T\."
    ):
        read_npz(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("arrays", "doubt"),
    [
        ({"labels": Y[::-1]}, "'y' holds the labels, and 'labels' is not read; .* --label labels"),
        ({"embeddings": X[:, :1]}, "'X' holds the samples, and 'embeddings' is not read"),
        ({"images": X[:, None]}, None),  # the same numbers in another shape
        ({"split": ["train", "train", "test"]}, "'split' is not read; .* booleans called test"),
        ({"place": ["up", "up", "down"]}, None),
        ({"Y": Y[::-1]}, "'y' holds the labels, and 'Y' is not read; .* --label Y"),
        ({"x": X[:, :1]}, "'X' holds the samples, and 'x' is not read; .* --features x"),
        ({"x": 3.0}, None),
        ({"X_unlabeled": X}, "'X_unlabeled' is not read; .* append them to X, and their labels"),
        ({"X_test": X}, "'X_test' is not read; if it holds more samples"),
        ({"test": X}, "'test' is not read; if it holds more samples"),
        ({"arr_2": X}, "'arr_2' is not read; if it holds more samples"),
    ],
)
def test_arrays_that_could_be_read_instead_are_told(tmp_path, arrays, doubt):
    np.savez(tmp_path / "t.npz", X=X, y=Y, **arrays)
    raw = read_npz(tmp_path / "t.npz")
    assert_read(raw)
    assert bool(raw.summary.doubts) == bool(doubt)
    assert doubt is None or re.search(doubt, raw.summary.doubts[0])


@pytest.mark.parametrize("shape", [(3, 1, 5), (3, 5, 1), (3, 5, 1, 1), (3, 1, 1, 5)])
def test_vectors_of_several_axes_are_no_images(tmp_path, shape):
    rows = np.arange(15.0).reshape(3, 5)
    np.savez(tmp_path / "t.npz", X=rows.reshape(shape), y=Y)
    np.testing.assert_array_equal(read_npz(tmp_path / "t.npz").items, rows)


@pytest.mark.parametrize(
    ("samples", "labels", "way_out"),
    [
        (np.zeros((8, 9, 3)), Y, "Save np.moveaxis(X, -1, 0)."),
        (X, np.eye(3)[:, :2], "If they are one-hot, save y.argmax(axis=1)."),
        (X, np.eye(3)[:2], "If they are one-hot, save y.argmax(axis=0)."),
        (
            np.zeros((3, 4, 5)),
            np.eye(3, 4),
            "If each pixel is a sample, save X.reshape(-1, X.shape[-1]) and y.ravel().",
        ),
    ],
)
def test_axes_in_another_order_have_a_way_out(tmp_path, samples, labels, way_out):
    np.savez(tmp_path / "t.npz", X=samples, y=labels)
    with pytest.raises(ValueError, match=rf"one per row; got shape .*\. {re.escape(way_out)}$"):
        read_npz(tmp_path / "t.npz")
