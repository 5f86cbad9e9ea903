"""Which column becomes what, and the samples, labels and ids of a table."""

from __future__ import annotations

import csv
import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.columns import Choice
from ssdml.datasets.reading.summary import ReadingWarning

N = 40


@pytest.fixture
def frame(rng):
    """Two features, ``p`` and ``q``, and the label of forty rows."""
    return pd.DataFrame(rng.normal(size=(N, 2)), columns=["p", "q"]).assign(
        label=np.array(["cat", "dog", "eel", ""])[np.arange(N) % 4]
    )


@pytest.fixture(params=["csv", "parquet", "jsonl"])
def read(request, tmp_path):
    """Writes a table in a format, and reads it without warnings; ``doubts`` are in the summary."""

    def read(frame, **choice):
        path = tmp_path / f"t.{request.param}"
        if request.param == "csv":
            frame.to_csv(path)
        elif request.param == "jsonl":
            frame.reset_index().to_json(path, orient="records", lines=True, date_format="iso")
        else:
            index = pd.Index(frame.index.tolist(), name=frame.index.name)
            frame.set_axis(index).to_parquet(path)
        names = {k: (v,) if k in ("features", "ignore") else v for k, v in choice.items()}
        return read_dataset(path, Choice(**names))

    return read


def assert_features(data, frame, *names):
    assert data.columns == names
    np.testing.assert_allclose(data.X, frame[list(names)], rtol=1e-6)


def test_index_of_pandas_is_no_feature(read, frame):
    data = read(frame)
    assert_features(data, frame, "p", "q")
    assert data.class_names == ("cat", "dog", "eel")
    np.testing.assert_array_equal(data.y, np.array([0, 1, 2, -1] * 10))
    assert not data.summary.doubts


def test_index_gives_the_ids(read, frame):
    frame.index = [f"row {i}" for i in range(N)]
    assert read(frame).ids.tolist() == frame.index.tolist()
    shuffled = frame.set_axis(np.random.default_rng(0).permutation(N)).rename_axis("key")
    assert list(map(int, read(shuffled).ids)) == shuffled.index.tolist()


@pytest.mark.parametrize(
    "form",
    ["{}%", "${}.50", "1 {:03d}", "1'{:03d}", "\u2212{}.5", "0x{:x}", "{}.0D+00", "{} \u20ac"],
)
def test_numbers_with_signs_are_no_ids(tmp_path, frame, form):
    frame.assign(sold=[form.format(i) for i in range(N)]).to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.ids is None
    [doubt] = data.summary.doubts
    assert doubt.startswith("column 'sold' is not a feature, as it holds text such as")
    with pytest.raises(ValueError, match=r"line 2, column 'sold': .* must be a number\."):
        read_dataset(tmp_path / "t.csv", Choice(features=("sold",)))


@pytest.mark.parametrize("form", ["r{}", "10.0.0.{}", "2020-01-{:02d}", "0x0123456789abcdef{:02x}"])
def test_distinct_texts_are_ids(tmp_path, frame, form):
    ids = [form.format(i) for i in range(N)]
    frame.assign(item=ids).to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert list(data.ids) == ids
    assert not data.summary.doubts


def test_index_may_be_the_label_or_the_text(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame.set_index("label").to_parquet(path)
    data = load_dataset(path)
    assert_features(data, frame, "p", "q")
    assert data.class_names == ("cat", "dog", "eel")
    texts = [f"the text number {i} here" for i in range(N)]
    frame[["label"]].set_index(pd.Index(texts, name="text")).to_parquet(path)
    assert read_dataset(path, Choice()).texts.tolist() == texts


def test_digits_with_leading_zeros_are_no_numbers(tmp_path, frame):
    codes = np.array(["01067", "10115", "80331"])[np.arange(N) % 3]
    months = np.array(["01", "02", "12"])[np.arange(N) % 3]
    frame.assign(code=codes, month=months).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(ReadingWarning, match="'code' is not a feature, .* leading zeros"):
        data = load_dataset(tmp_path / "t.csv")
    assert data.columns == ("p", "q", "month")


@pytest.mark.parametrize("levels", [(8, 5), (2, 4, 5)])
def test_levels_of_an_index_are_left_out(tmp_path, frame, levels):
    index = pd.MultiIndex.from_product([range(n) for n in levels])
    frame.set_axis(index).to_csv(tmp_path / "t.csv")
    data = load_dataset(tmp_path / "t.csv")
    assert_features(data, frame, "p", "q")
    left_out = {f"Unnamed: {i}": "index of pandas" for i in range(len(levels))}
    assert data.summary.left_out == left_out


def test_unnamed_columns_that_repeat_are_features(tmp_path, frame):
    table = frame.assign(**{"": np.arange(N) % 3, " ": np.arange(N) % 2})
    table = table[["", " ", *frame.columns]]
    table.to_csv(tmp_path / "t.csv", index=False)
    assert load_dataset(tmp_path / "t.csv").X.shape == (N, 4)


@pytest.mark.parametrize(
    "name", ["id", "ID", "customer_id", "customerId", "Unit ID", "uuid", "idx"]
)
def test_ids_are_known_by_name(read, frame, name, rng):
    data = read(frame.assign(**{name: rng.choice(10**6, N, replace=False)}))
    assert_features(data, frame, "p", "q")
    assert not data.summary.doubts


@pytest.mark.parametrize("name", ["humid", "acid", "width", "refractive_index", "grid"])
def test_names_that_contain_id_are_features(read, frame, name, rng):
    frame = frame.assign(**{name: rng.normal(size=N)})
    assert_features(read(frame), frame, "p", "q", name)


def test_repeated_ids_are_left_out_with_a_doubt(read, frame):
    data = read(frame.assign(store_id=np.arange(N) // 4))
    assert_features(data, frame, "p", "q")
    assert data.summary.left_out["store_id"] == "ids"
    assert "column 'store_id' is not a feature, as its name is that of an id" in str(data.summary)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N),
        np.arange(N)[::-1] + 1000,
        np.arange(N, dtype=float),
        np.random.default_rng(0).permutation(N),
        np.sort(np.random.default_rng(0).choice(10**9, N, replace=False)),
        1 + 2.0**53 + 4 * np.random.default_rng(0).permutation(10 * N)[:N],
    ],
    ids=["counter", "falling", "floats", "shuffled", "sorted", "large"],
)
def test_numbers_of_rows_are_no_features(read, frame, values):
    data = read(frame.assign(number=values))
    assert_features(data, frame, "p", "q")
    assert "integers" in data.summary.left_out["number"]
    assert "column 'number' is not a feature, as it holds" in str(data.summary)
    chosen = read(frame.assign(number=values), features="[npq]*")
    assert chosen.columns == ("p", "q", "number")
    assert not chosen.summary.doubts


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).choice(10**6, N, replace=False),
        np.random.default_rng(0).integers(0, 20, N),
        np.sort(np.random.default_rng(0).integers(0, 20, N)),
        np.sort(np.random.default_rng(0).normal(size=N)),
    ],
    ids=["wide", "repeated", "sorted repeated", "sorted fractions"],
)
def test_other_integers_are_features(read, frame, values):
    frame = frame.assign(number=values)
    assert_features(read(frame), frame, "p", "q", "number")


def test_few_rows_do_not_tell_ids(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,label\n1,2,x\n2,4,y\n3,1,x\n")
    np.testing.assert_array_equal(load_dataset(path).X, [[1, 2], [2, 4], [3, 1]])


def test_constant_features_are_told_without_a_doubt(read, frame):
    frame = frame.assign(one=1.0, two=2.0)
    data = read(frame)
    assert_features(data, frame, "p", "q", "one", "two")
    assert "constant columns: one, two (no effect)" in str(data.summary)
    assert not data.summary.doubts
    assert read(frame, ignore="two").columns == ("p", "q", "one")


def test_a_single_feature_that_varies_is_doubted(read, frame):
    [doubt] = read(frame.drop(columns="q").assign(price=1.5)).summary.doubts
    assert doubt.startswith("at most one feature varies, the other columns are constant (price)")


def test_left_out_columns_are_told(read, frame):
    dates = pd.date_range("2020-01-01", periods=N)
    more = frame.assign(city=["Ulm", "Bonn"] * 20, day=dates, void=None)
    data = read(more)
    assert_features(data, frame, "p", "q")
    assert data.summary.left_out["city"] == "text"
    assert data.summary.left_out["void"] == "nothing"
    told = str(data.summary)
    assert "column 'city' is not a feature, as it holds text such as 'Ulm'" in told or (
        "columns 'city', 'day' are not features, as they hold text" in told
    )
    assert not read(more, features="p").summary.doubts


def test_columns_left_out_for_one_reason_are_one_doubt(read, frame):
    data = read(frame.assign(city=["Ulm", "Bonn"] * 20, size=["small", "large"] * 20))
    [doubt] = data.summary.doubts
    assert doubt.startswith("columns 'city', 'size' are not features, as they hold text;")
    data = read(frame.assign(price=["$1,200.00", "$3.50"] * 20))
    assert "column 'price' is not a feature, as it holds text such as '$1,200.00'" in str(
        data.summary
    )


@pytest.mark.parametrize(
    "values",
    [
        np.cumsum(np.random.default_rng(0).random(N)),
        -np.cumsum(np.random.default_rng(0).random(N)),
        np.arange(N) // 4,
        np.arange(N) // 20,
    ],
    ids=["times", "falling", "groups", "halves"],
)
def test_features_in_the_order_of_rows_are_told(read, frame, values):
    data = read(frame.assign(batch=values))
    assert_features(data, frame.assign(batch=values), "p", "q", "batch")
    assert "1 feature in the order of the rows" in str(data.summary)
    assert "pass --ignore 'batch'" in str(data.summary)
    shuffled = np.random.default_rng(1).permutation(values)
    assert not read(frame.assign(batch=shuffled)).summary.doubts


def test_named_levels_of_an_index_are_told(tmp_path, frame):
    levels = [range(8), range(5)]
    frame.set_axis(pd.MultiIndex.from_product(levels, names=["patient", "visit"])).to_csv(
        tmp_path / "t.csv"
    )
    with pytest.warns(ReadingWarning, match="2 features in the order .*: patient, visit;"):
        load_dataset(tmp_path / "t.csv")


@pytest.mark.parametrize("name", ["label", "Labels", "target", "CLASS", "y", "category", "intent"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_label_is_known_by_name_anywhere(read, frame, name, place):
    labels = frame.pop("label")
    frame.insert(place, name, labels)
    assert read(frame).class_names == ("cat", "dog", "eel")
    frame[name] = pd.Series([3, 7, 11, None] * 10, dtype="Int64")
    data = read(frame)
    assert_features(data, frame, "p", "q")
    assert data.class_names == ("3", "7", "11")
    assert (data.y == -1).sum() == 10


def test_coordinates_beside_a_class_are_features(read, frame):
    frame = frame.rename(columns={"p": "x", "q": "y", "label": "class"})
    assert_features(read(frame), frame, "x", "y")
    assert_features(read(frame.rename(columns={"class": "kind"})), frame, "x", "y")


@pytest.mark.parametrize("name", ["true_label", "label_text", "fine label", "class_name"])
def test_label_is_known_by_a_word_of_its_name(read, frame, name):
    data = read(frame.rename(columns={"label": name}).assign(city=["Ulm", "Bonn"] * 20))
    assert data.class_names == ("cat", "dog", "eel")


def test_label_is_guessed_with_a_doubt(read, frame):
    data = read(frame.rename(columns={"label": "animal"}))
    assert data.class_names == ("cat", "dog", "eel")
    assert "the labels are taken from column 'animal', as no column is called" in str(data.summary)
    codes = frame.assign(label=np.arange(N) % 3).rename(columns={"label": "animal"})
    assert "the labels are taken from column 'animal'" in str(read(codes).summary)
    assert not read(codes, label="animal").summary.doubts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "which column holds the labels. None is called label, labels, target"),
        ({"label": None, "i": [1, 2] * 20, "j": [3, 4] * 20}, "which column holds the labels"),
        (
            {"label": None, "y": np.arange(N) / 7},
            "column 'y' holds numbers that hardly occur again",
        ),
        (
            {"label": None, "a_class": [1, 2] * 20, "b_class": [3, 4] * 20},
            "which .*, 'a_class' or",
        ),
    ],
)
def test_unclear_label_is_asked_for(read, frame, change, message):
    frame = frame.assign(**change).drop(columns=[k for k, v in change.items() if v is None])
    with pytest.raises(ValueError, match=rf"t\.\w+: {message}.*Pass --label NAME \(label='NAME'\)"):
        read(frame)
    assert read(frame, needs_label=False).class_names == ()


@pytest.mark.parametrize(
    "labels",
    [
        ["007", "7", "07", ""],
        ["1_2", "12", "1-2", ""],
        ["True", "False", "true", ""],
        ["1.0", "1", "1.00", ""],
        ["Yes", "No", "yes", ""],
        ["a b", "a", "b", "  "],
    ],
)
def test_labels_are_never_merged(read, frame, labels):
    data = read(frame.assign(label=labels * 10))
    assert sorted(data.class_names) == sorted(labels[:3])
    np.testing.assert_array_equal(data.y.reshape(10, 4)[:, 3], -1)


@pytest.mark.parametrize("labels", [[True, False], [1, 2], [1.0, 2.0], [10, 9]])
def test_labels_of_every_type_are_read(read, frame, labels):
    names = tuple(str(int(x) if isinstance(x, float) else x) for x in sorted(labels))
    data = read(frame.assign(label=labels * 20))
    assert tuple(n.removesuffix(".0") for n in data.class_names) == names


def test_categories_and_missing_labels_are_kept(read, frame):
    labels = pd.Categorical(["cat", None, "dog", None] * 10)
    data = read(frame.assign(label=labels))
    assert data.class_names == ("cat", "dog")
    np.testing.assert_array_equal(data.y, [0, -1, 1, -1] * 10)


@pytest.mark.parametrize(
    "mark", "NaN NA n/a null NONE <NA> ? -1 -1.0 unlabelled Unknown #N/A".split()
)
def test_marks_of_no_label_are_told(read, frame, mark):
    data = read(frame.assign(label=["a", "b", mark, f" {mark} "] * 10))
    assert data.class_names == ("a", "b")
    assert f"20 of 40 samples are unlabeled, marked {mark!r}" in str(data.summary)


@pytest.mark.parametrize("mark", ["-", "...", "n.a.", "TBD", "(blank)", "Not labeled", "_no_label"])
def test_classes_that_may_be_marks_are_told(read, frame, mark):
    data = read(frame.assign(label=frame["label"].replace("", mark)))
    assert f"{mark!r} counts as a class; if it means no label, pass --no-label {mark!r}" in str(
        data.summary
    )


@pytest.mark.parametrize("mark", ["NA", "None", "unknown"])
def test_marks_that_may_be_classes_are_told(read, frame, mark):
    data = read(frame.assign(label=frame["label"].replace("dog", mark)))
    assert data.class_names == ("cat", "eel")
    assert f"{mark!r} means no label, as empty cells do; if it is a class" in str(data.summary)
    assert not read(frame.assign(label=frame["label"].replace("", mark))).summary.doubts


WRITTEN = [("yes", "Yes"), ("7", "007"), ("1", "1.0"), ("a b", "a  b"), ("\u00e9", "e\u0301")]
WRITTEN += [("x", "x\u200b")]


@pytest.mark.parametrize("labels", WRITTEN)
def test_classes_that_differ_in_writing_only_are_told(read, frame, labels):
    data = read(frame.assign(label=np.array([*labels, "z", None], dtype=object)[np.arange(N) % 4]))
    assert sorted(data.class_names) == sorted([*labels, "z"])
    [doubt] = data.summary.doubts
    assert all(repr(label) in doubt for label in labels)
    assert "differ in writing only, and are kept apart" in doubt


def test_more_marks_can_be_named(tmp_path, frame):
    path = tmp_path / "t.csv"
    frame.replace({"label": {"": "to do"}}).to_csv(path, index=False)
    assert load_dataset(path, no_label="TO DO").class_names == ("cat", "dog", "eel")
    assert load_dataset(path, no_label=["to do", "eel"]).class_names == ("cat", "dog")


def test_spaces_around_labels_are_removed_and_told(read, frame):
    data = read(frame.assign(label=[" cat", "cat ", "cat", "dog"] * 10))
    assert data.class_names == ("cat", "dog")
    assert "spaces around 20 removed" in str(data.summary)


def test_minus_one_as_a_class_is_doubted(read, frame):
    data = read(frame.assign(label=[1, -1] * 20))
    assert "the only class is '1', as -1 means no label" in str(data.summary)


def test_several_labels_per_row_raise(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame.assign(label=[["a"], ["b", "c"]] * 20).to_parquet(path)
    with pytest.raises(
        ValueError, match=r"t\.parquet, row 1, column 'label': \"\['b', 'c'\]\" must be one label"
    ):
        load_dataset(path)


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl", "t.csv"])
def test_lists_of_at_most_one_label_are_labels(tmp_path, frame, name):
    frame = frame.assign(label=[["a"], [], ["it's"], ["a"]] * 10)
    write = {"t.parquet": frame.to_parquet, "t.csv": frame.to_csv}
    write.get(name, lambda path: frame.to_json(path, orient="records", lines=True))(tmp_path / name)
    data = load_dataset(tmp_path / name)
    assert (data.class_names, data.y[:4].tolist()) == (("a", "it's"), [0, -1, 1, 0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"label": "label", "features": ["a", "Label"]}, "features and label both name the column"),
        ({"label": "label", "ignore": "label"}, "ignore and label both name the column 'label'"),
        ({"features": ["a", "b"], "ignore": "b"}, "ignore and features both name the column 'b'"),
        ({"label": "label", "text": "label"}, "label and text both name the column 'label'"),
        ({"ignore": "label"}, r"which column holds the labels\? 'label' is ignored; the columns"),
        ({"features": "label"}, r"which column holds the labels\? 'label' is used otherwise"),
    ],
)
def test_columns_named_for_two_roles_are_told(tmp_path, given, message):
    (tmp_path / "t.csv").write_text("a,b,label\n1,0.5,x\n7,2.5,y\n2,0.1,x\n")
    with pytest.raises(ValueError, match=message):
        load_dataset(tmp_path / "t.csv", **given)


def test_patterns_leave_out_columns_of_other_roles(tmp_path):
    (tmp_path / "t.csv").write_text("a_x,a_id,a_label\n1,5,x\n7,6,y\n2,9,x\n")
    data = load_dataset(tmp_path / "t.csv", label="a_label", id="a_id", features="a_*")
    assert data.columns == ("a_x",)


def test_columns_of_split_names_are_no_labels(tmp_path):
    rows = "".join(f"{i * 0.3},{i % 2},{('Training', 'PrivateTest')[i % 2]}\n" for i in range(6))
    (tmp_path / "t.csv").write_text("x,kind,Usage\n" + rows)
    with pytest.warns(ReadingWarning, match="the labels are taken from column 'kind'"):
        data = load_dataset(tmp_path / "t.csv")
    assert data.test.tolist() == [False, True] * 3


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


def test_tokens_beside_embeddings_are_told(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame = frame.assign(embedding=frame[["p", "q"]].to_numpy().tolist(), input_ids=[[1, 2]] * N)
    frame.to_parquet(path)
    with pytest.warns(ReadingWarning) as told:
        data = load_dataset(path)
    np.testing.assert_allclose(data.X, frame[["p", "q"]], rtol=1e-6)
    [warning] = told
    assert "columns 'input_ids', 'p', 'q' are not features" in str(warning.message)
    frame.rename(columns={"embedding": "u", "input_ids": "v"}).assign(v=[[0.5]] * N).to_parquet(
        path
    )
    with pytest.raises(
        ValueError, match=r"which vectors are the features\? Columns u, v hold some"
    ):
        load_dataset(path)


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


def test_missing_text_is_named(read, frame):
    texts = ["one two", None, "three"] + ["four"] * (N - 3)
    with pytest.raises(ValueError, match=r"(row 1|line [23]), column 'text': .* must be a text"):
        read(frame[["label"]].assign(text=texts))


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        (["1", "two", "3"], "line 3, column 'a': 'two' must be a number"),
        (["1", "", "3"], "line 3, column 'a': an empty cell must be a number, not missing"),
        (["1", "NA", "null"], "line 3, column 'a': 'NA' must be a number, not missing .2 cells"),
        (["1", "2", "-inf"], "line 4, column 'a': '-inf' must be finite"),
        (["1", "1_000", "3"], "line 3, column 'a': '1_000' must be a number"),
        (["1", "0x10", "3"], "line 3, column 'a': '0x10' must be a number"),
    ],
)
def test_wrong_numbers_are_named(tmp_path, cells, problem):
    lines = [f"{cell},{i % 2},{'xy'[i % 2]}" for i, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,label", *lines]))
    with pytest.raises(ValueError, match=rf"t\.csv, {problem}.*--ignore 'a' \(ignore=\['a'\]\)"):
        load_dataset(tmp_path / "t.csv")
    np.testing.assert_array_equal(load_dataset(tmp_path / "t.csv", ignore="a").X, [[0], [1], [0]])


def test_chosen_feature_of_texts_is_named(tmp_path, frame):
    frame.assign(city=["Ulm", "Bonn"] * 20).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"line 2, column 'city': 'Ulm' must be a number"):
        load_dataset(tmp_path / "t.csv", features=["p", "city"])


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_decimal_commas_are_read(tmp_path, frame, separator):
    path = tmp_path / "t.csv"
    frame = frame.assign(n=np.random.default_rng(0).integers(0, 9, N), big=1234.5)
    frame["big"] = [f"1.234,{i % 7}" for i in range(N)]
    frame.to_csv(path, sep=separator, decimal=",", index=False)
    data = load_dataset(path)
    frame["big"] = [1234 + i % 7 / 10 for i in range(N)]
    assert_features(data, frame, "p", "q", "n", "big")
    assert "decimal commas" in str(data.summary)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'a,b,label\n"1,500",2,x\n"1,200",3,y\n',
            "'1,500' has a comma before thousands or decimals",
        ),
        (
            "a;b;label\n1,5;0.5;x\n2,5;0.7;y\n",
            "'0.5' has a decimal point, while column 'a' has deci",
        ),
    ],
)
def test_ambiguous_commas_are_named(tmp_path, text, problem):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"t\.csv, line 2, column '\w': {problem}"):
        load_dataset(tmp_path / "t.csv")


def test_numbers_of_every_type_are_features(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame = frame.assign(
        price=[decimal.Decimal(i * 7 % 41) / 7 for i in range(1, N + 1)],
        half=np.float16(np.arange(N) % 5 / 4),
        small=np.uint8(np.arange(N) % 7),
        logical=np.arange(N) % 2 == 0,
        nullable=pd.array(np.arange(N) % 3, "Int64"),
    )
    frame["price"] = frame["price"].map(lambda price: round(price, 4))
    frame.to_parquet(path)
    names = ("p", "q", "price", "half", "small", "logical", "nullable")
    assert_features(load_dataset(path), frame.astype(dict.fromkeys(names, float)), *names)


def test_logical_texts_are_features(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,label\nTrue,0.5,x\nfalse,0.25,y\n")
    np.testing.assert_array_equal(load_dataset(tmp_path / "t.csv").X, [[1, 0.5], [0, 0.25]])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"label": "lable"}, "label must be a column; got 'lable'.* Did you mean 'label'"),
        (
            {"features": ["p", "z"]},
            "features must be a column; got 'z'; the columns are p, q, label",
        ),
        (
            {"ignore": ["p", "q"]},
            "must have columns of numbers or of texts .*; p, q cannot be used",
        ),
        ({"text": "words"}, "text must be a column; got 'words'"),
    ],
)
def test_chosen_columns_must_exist(tmp_path, frame, choice, message):
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=rf"t\.csv: {message}"):
        load_dataset(tmp_path / "t.csv", **choice)


def test_columns_are_chosen_in_any_case(tmp_path, frame):
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = load_dataset(tmp_path / "t.csv", label="LABEL", features=["Q"], id="p")
    assert data.columns == ("q",)
    assert data.ids.tolist() == [str(p) for p in frame["p"]]


def test_chosen_features_keep_their_order(tmp_path, frame):
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert_features(load_dataset(tmp_path / "t.csv", features=["q", "p"]), frame, "q", "p")
    assert load_dataset(tmp_path / "t.csv", features=["[pq]"]).columns == ("p", "q")


def test_split_column_names_test_rows(read, frame):
    data = read(frame.assign(split=["train", "train", "val", "Test"] * 10))
    np.testing.assert_array_equal(data.test, [False, False, False, True] * 10)
    data = read(frame.assign(split=["train", "train", "train", "validation"] * 10))
    np.testing.assert_array_equal(data.test, [False, False, False, True] * 10)


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
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("id,label\n0,a\n1,b\n")
    with pytest.raises(ValueError, match=r"which table names the images, test.csv or train.csv\?"):
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


def test_dates_may_be_labels_if_chosen(tmp_path, frame):
    days = [datetime.date(2020, 1, 1 + i % 2) for i in range(N)]
    frame.assign(day=days).drop(columns="label").to_parquet(tmp_path / "t.parquet")
    data = load_dataset(tmp_path / "t.parquet", label="day")
    assert data.class_names == ("2020-01-01", "2020-01-02")


def test_doubts_are_warnings(tmp_path, frame):
    frame.assign(city=["Ulm", "Bonn"] * 20).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(
        ReadingWarning, match=r"t\.csv: 40 samples: column 'city' is not a fea"
    ) as told:
        load_dataset(tmp_path / "t.csv")
    assert told[0].filename == __file__


def test_summary_tells_what_became_what(tmp_path, frame):
    frame.assign(city=["Ulm", "Bonn"] * 20).to_csv(tmp_path / "t.csv")
    summary = str(read_dataset(tmp_path / "t.csv", Choice()).summary).replace(str(tmp_path), "")
    found = "column 'label': 3 classes (cat, dog, eel); 10 of 40 samples are unlabeled"
    assert summary.splitlines()[:5] == [
        "/t.csv: 40 samples",
        "  features: 2 columns: p, q",
        "  ids: column 'Unnamed: 0'",
        f"  labels: {found}",
        "  left out: city (text)",
    ]


def test_summary_of_rows_is_that_of_the_file(tmp_path, frame):
    frame.to_csv(tmp_path / "t.csv")
    data = load_dataset(tmp_path / "t.csv")
    assert data.of_rows(slice(3)).ids.tolist() == ["0", "1", "2"]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_fields_of_objects_are_columns(tmp_path, suffix):
    rows = [
        {"meta": {"source": "a b", "kind": "cat"}, "f": {"p": i / 3, "q": -i}} for i in range(9)
    ]
    path, frame = tmp_path / f"t{suffix}", pd.DataFrame(rows)
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    data = load_dataset(path, label="meta.kind", features=["f.p", "f.q"])
    assert data.columns == ("f.p", "f.q")
    np.testing.assert_allclose(data.X[:, 0], np.arange(9) / 3, rtol=1e-6)
    assert data.class_names == ("cat",)


def test_predictions_of_an_earlier_run_are_no_labels_and_no_features(tmp_path, frame):
    added = {"confidence": 0.5, "is_new_label": [True, False] * 20, "runner_up": "z"}
    written = frame.assign(**added, map_x=frame["p"], map_y=frame["q"])
    written.to_csv(tmp_path / "t.csv", index=False)
    data = load_dataset(tmp_path / "t.csv")
    assert_features(data, frame, "p", "q")
    assert data.class_names == ("dog",)  # row 1 of four; row 3 has no label
    np.testing.assert_array_equal(data.y, np.array([-1, 0, -1, -1] * 10))
    assert "without 20 predictions of an earlier `ssdml label`" in str(data.summary)


def test_other_separators_are_named_in_a_first_line(tmp_path):
    rows = "a^b^label\n0.5^1.5^x\n1.5^2.5^y\n"
    (tmp_path / "t.csv").write_text(rows)
    with pytest.raises(ValueError, match=r"name it in a first line, such as sep=\^\.$"):
        load_dataset(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text(f"sep=^\n{rows}")
    assert load_dataset(tmp_path / "t.csv").X.shape == (2, 2)


def test_folders_of_a_partitioned_table_are_columns(tmp_path, frame):
    frame = frame.assign(label=frame["label"].replace("", None), split_by=np.arange(N) // 20)
    frame.to_parquet(tmp_path / "t", partition_cols=["label", "split_by"])
    data = read_dataset(tmp_path / "t", Choice(ignore=("split_by",)))
    assert data.class_names == ("cat", "dog", "eel")
    found = dict(zip(data.X[:, 0].round(5).tolist(), data.y.tolist(), strict=True))
    codes = frame["label"].map({"cat": 0, "dog": 1, "eel": 2}).fillna(-1)
    given = frame["p"].to_numpy(np.float32).round(5).tolist()
    assert found == dict(zip(given, codes.tolist(), strict=True))


@pytest.mark.parametrize("form", ["{}.5 cm", "{} kg", "<{}.5", "{:02d}:30:15", "{}.25k"])
def test_quantities_in_a_text_are_no_ids(tmp_path, frame, form):
    frame.assign(size=[form.format(k) for k in range(N)]).to_csv(tmp_path / "t.csv", index=False)
    summary = read_dataset(tmp_path / "t.csv", Choice()).summary
    assert "ids" not in summary.facts
    assert "column 'size' is not a feature, as it holds text" in str(summary)
