"""Which column of a table is the label, and what its cells mean."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pytest

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from tests.images import write_images
from tests.tables import N, assert_features


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


WORDED = [
    "true_label",
    "label_text",
    "fine label",
    "class_name",
    "Label:",
    "[class]",
    "class\n(b/c)",
]
WORDED += ["\u200blabel", "\uff2c\uff41\uff42\uff45\uff4c"]  # an invisible sign, and wide letters


@pytest.mark.parametrize("name", WORDED)
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


HINTS = [
    "Klasse",
    "etiqueta",
    "Catégorie",
    "etichetta 1",
    "класс",
    "标签",
    "Ground truth",
    "Outcome",
]


@pytest.mark.parametrize("name", HINTS)
def test_other_names_of_labels_decide_between_columns(read, frame, name):
    frame = frame.rename(columns={"label": name})
    frame["codes"] = np.arange(N) % 2
    for other in (["Ulm", "Bonn"], ["one of the texts", "another of the texts"]):
        data = read(frame.assign(other=other * (N // 2)))
        assert data.class_names == ("cat", "dog", "eel")
        assert f"the labels are taken from column {name!r}" in str(data.summary)
    frame["codes"] = frame[name].map({"cat": 1, "dog": 2, "eel": 3})
    coded = frame.rename(columns={name: "other", "codes": name}).dropna()
    assert read(coded).class_names == ("1", "2", "3")
    partly = frame.drop(columns="codes").rename(columns={name: "rel"})
    with pytest.raises(ValueError, match=rf"holds the labels, '{name}' or 'rel'\?"):
        read(partly.assign(**{name: ["Ulm", "Bonn"] * (N // 2)}))
    with pytest.raises(ValueError, match="which column holds the labels, 'label_a' or 'label_b'"):
        read(frame.assign(label_a=["a", "b"] * (N // 2), label_b=["c", "d"] * (N // 2)))


def test_last_column_before_ids_and_predictions_is_guessed(tmp_path, frame):
    frame = frame.rename(columns={"label": "kind"}).assign(city=["Ulm", "Bonn"] * 20)
    frame = frame[["city", "p", "q", "kind"]].assign(customer=[f"n{i}" for i in range(N)])
    frame.set_index("customer").to_parquet(tmp_path / "t.parquet")  # which has the index last
    added = {"confidence": 0.5, "is_new_label": False, "runner_up": "z", "map_x": 1, "map_y": 2}
    frame.assign(**added).to_csv(tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        data = read_dataset(tmp_path / name, Choice())
        assert data.class_names == ("cat", "dog", "eel")
        assert "the labels are taken from column 'kind'" in str(data.summary)


def test_columns_with_empty_cells_are_rather_the_labels(read, frame):
    city = ["Ulm", "Bonn"] * 20
    frame = frame.rename(columns={"label": "kind"})
    data = read(frame.assign(city=city, r=frame["q"]))
    assert data.class_names == ("cat", "dog", "eel")
    assert "the labels are taken from column 'kind'" in str(data.summary)
    question = "which column holds the labels, 'city' or 'kind'[?] The columns are"
    with pytest.raises(ValueError, match=question):
        read(frame.assign(city=city))
    codes = frame.assign(kind=pd.array([1, 2, 3, None] * 10, "Int64"), city=city)
    with pytest.raises(ValueError, match=question):
        read(codes)


def test_codes_and_names_beside_sentences_are_asked_for(tmp_path):
    rows = [f"{['gj', 'bc'][i % 2]}\t{i % 3 % 2}\t\tthey rode the breeze {i}\n" for i in range(9)]
    (tmp_path / "t.tsv").write_text("".join(rows))  # as of CoLA
    with pytest.raises(ValueError, match="which column holds the labels, '1' or '2'"):
        read_dataset(tmp_path / "t.tsv", Choice())
    data = read_dataset(tmp_path / "t.tsv", Choice(label="2"))
    assert data.texts[3] == "they rode the breeze 3"
    assert data.y.tolist() == [0, 1, 0] * 3


def test_codes_and_names_beside_images_are_asked_for(tmp_path):
    write_images(tmp_path, [f"{i}.png" for i in range(6)])
    rows = [f"{i},{'LR'[i % 2]},{i % 3}\n" for i in range(6)]
    (tmp_path / "t.csv").write_text("file,view,breed\n" + "".join(rows))
    with pytest.raises(ValueError, match="which column holds the labels, 'view' or 'breed'"):
        read_dataset(tmp_path / "t.csv", Choice())


def test_quantities_of_classes_are_no_labels(read, frame):
    sizes = np.random.default_rng(0).integers(20, 30, N)
    frame = frame.rename(columns={"label": "grade"}).assign(class_size=sizes)
    data = read(frame)
    assert data.class_names == ("cat", "dog", "eel")
    assert_features(data, frame, "p", "q", "class_size")
    data = read(frame.assign(label_value=np.arange(N) % 3))
    assert data.class_names == ("0", "1", "2")


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
    assert data.class_names == names


def test_whole_numbers_beside_empty_cells_stay_whole(read, frame):
    codes = np.array([10, 9, np.nan, 9])[np.arange(N) % 4]
    data = read(frame.assign(label=codes))
    assert data.class_names == ("9", "10")
    np.testing.assert_array_equal(data.y, [1, 0, -1, 0] * 10)
    assert read(frame.assign(label=codes + 0.5)).class_names[-1] in ("9.5", "10.5")


def test_categories_and_missing_labels_are_kept(read, frame):
    labels = pd.Categorical(["cat", None, "dog", None] * 10)
    data = read(frame.assign(label=labels))
    assert data.class_names == ("cat", "dog")
    np.testing.assert_array_equal(data.y, [0, -1, 1, -1] * 10)


@pytest.mark.parametrize(
    "mark", "NaN NA n/a null NONE <NA> ? -1 -1.0 unlabelled Unknown #N/A \\N".split()
)
def test_marks_of_no_label_are_told(read, frame, mark):
    data = read(frame.assign(label=["a", "b", mark, f" {mark} "] * 10))
    assert data.class_names == ("a", "b")
    assert f"20 of 40 samples are unlabeled, marked {mark!r}" in str(data.summary)


@pytest.mark.parametrize("form", ["{}", "n{}"])
def test_labels_that_hardly_occur_again_are_doubted(read, frame, form):
    labels = [form.format(i * i) for i in range(N)]
    assert "40 classes of 40 samples are rather" in str(read(frame.assign(label=labels)).summary)
    for usual in (labels[: N // 2] * 2, [*labels[:9], *[""] * (N - 9)]):
        assert not read(frame.assign(label=usual)).summary.doubts


@pytest.mark.parametrize(
    "mark",
    [
        "-",
        "–",
        "-999",
        "-100",
        "(Leer)",
        "...",
        "n.a.",
        "TBD",
        "(blank)",
        "Not labeled",
        "_no_label",
        "#NAME?",
        "#NV",
        "#BEZUG!",
        ".a",
        "TBA",
        "to label",
    ],
)
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
WRITTEN += [("x", "x\u200b"), ("e.", "e"), ("a b", "a_b"), ("a-b", "a\u2013b"), ("it's", "it’s")]
WRITTEN += [("True", "1"), ("0", "FALSE"), ("1e3", "1000"), ("'x", "x"), ("\u201cx\u201d", "x")]
WRITTEN += [("\u2764", "\u2764\ufe0f")]  # a heart, plain and in color


@pytest.mark.parametrize("labels", WRITTEN)
def test_classes_that_differ_in_writing_only_are_told(read, frame, labels):
    data = read(frame.assign(label=np.array([*labels, "z", None], dtype=object)[np.arange(N) % 4]))
    assert sorted(data.class_names) == sorted([*labels, "z"])
    [doubt] = data.summary.doubts
    assert all(repr(label) in doubt for label in labels)
    assert "differ in writing only, and are kept apart" in doubt


@pytest.mark.parametrize(
    "labels",
    [
        ("x", "y", "x;y"),
        ("x", "y", "x#y"),
        ("x, y", "y, z", "x, z"),
        ("x y", "x", "y"),
        ("x|y", "y|z", "x|z"),
    ],
)
def test_several_labels_in_a_cell_are_doubted(read, frame, labels):
    data = read(frame.assign(label=[labels[i % 3] for i in range(N)]))
    assert data.class_names == tuple(sorted(labels))
    [doubt] = data.summary.doubts
    assert "seem to be several labels of a row" in doubt
    assert not read(frame.assign(label=["pop", "pop/rock", "R&B", "a b"] * 10)).summary.doubts


def test_texts_with_different_labels_are_doubted(read):
    texts = ["one of the texts", "another of the texts"] * (N // 2)
    rows = pd.DataFrame({"text": texts, "label": ["x", "y", "", "y"] * (N // 4)})
    assert not any("several rows" in doubt for doubt in read(rows).summary.doubts)
    rows.loc[7, "label"] = "z"
    [doubt] = [d for d in read(rows).summary.doubts if "several rows" in d]
    assert doubt.startswith("1 sample is in several rows with different labels, as in ")
    assert doubt.endswith("; keep one row of each")


def test_columns_called_label_in_two_cases_are_asked_for(read, frame):
    with pytest.raises(ValueError, match=r"holds the labels, '(l|L)abel' or '(l|L)abel'\?"):
        read(frame.assign(Label=frame["label"]))
    assert read(frame.assign(Label=frame["label"]), label="label").class_names


def test_empty_lists_are_nothing(tmp_path):
    rows = [{"text": f"this is text {i}", "label": ["ab"[i]], "Comments": []} for i in range(2)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = read_dataset(tmp_path / "t.jsonl", Choice())
    assert data.summary.left_out == {"Comments": "nothing"}
    assert not any("Comments" in doubt for doubt in data.summary.doubts)


@pytest.mark.parametrize("date", ["5-Jan", "Mrz-01", "1/9/2024", "2024-09-01 00:00:00"])
def test_dates_among_other_classes_are_doubted(read, frame, date):
    data = read(frame.assign(label=[date, "6-10"] * 20))
    [doubt] = data.summary.doubts
    assert f"among the classes are dates ({date!r})" in doubt
    assert not read(frame.assign(label=["1.2.10", "1.2.3"] * 20)).summary.doubts


def test_minus_one_in_unsigned_integers_is_doubted(tmp_path, frame):
    labels = np.array([0, 1, 255, 0] * 10, dtype=np.uint8)
    np.savez(tmp_path / "t.npz", X=frame[["p", "q"]], y=labels)
    with pytest.warns(
        UserWarning, match="'255' counts as a class, but is what -1 becomes in uint8"
    ):
        data = load_dataset(tmp_path / "t.npz")
    assert load_dataset(tmp_path / "t.npz", no_label=255).class_names == data.class_names[:2]


@pytest.mark.parametrize("wrapped", [255, 65535, 2**32 - 1])
def test_minus_one_of_unsigned_integers_is_doubted_in_tables(read, frame, wrapped):
    data = read(frame.assign(label=[0, 1, wrapped, 0] * 10))
    assert f"'{wrapped}' counts as a class, but is what -1 becomes in uint" in str(data.summary)
    assert not read(frame.assign(label=[wrapped - 1, wrapped] * 20)).summary.doubts


@pytest.mark.parametrize("name", ["caf\u00c3\u00a9", "caf\ufffd"])
def test_classes_in_another_encoding_are_doubted(read, frame, name):
    [doubt] = read(frame.assign(label=[name, "dog"] * 20)).summary.doubts
    assert doubt.startswith(f"the classes {name!r} seem to have been read in another encoding")
    assert not read(frame.assign(label=["caf\u00e9", "\u00c3"] * 20)).summary.doubts


@pytest.mark.parametrize("name", ["code", "label_encoded", "y"])
@pytest.mark.parametrize("codes", [[7, 3, 5, 9], [0.5, 0.25, -1.5, -1]])
def test_features_made_from_the_labels_are_doubted(read, frame, name, codes):
    data = read(frame.assign(**{name: codes * 10}))
    assert_features(data, frame.assign(**{name: codes * 10}), "p", "q", name)
    [doubt] = data.summary.doubts
    assert doubt.startswith(f"feature {name!r} has one value for each class")
    assert f"--ignore {name!r}" in doubt


@pytest.mark.parametrize("codes", [[1, 1, 0, 0], [1, 2, 2, 0]])
def test_features_of_few_values_are_no_copies_of_the_labels(read, frame, codes):
    assert not read(frame.assign(code=codes * 10)).summary.doubts
    few = frame.head(8).assign(code=[1, 2, 3, 0] * 2, p=0.5 - frame["p"].head(8))
    assert not read(few.assign(label=["cat", "dog", "", "", "", "dog", "", ""])).summary.doubts


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        *[("target", True), ("class", True), ("label_score", True), ("MSSubClass", False)],
        *[("w", False), ("y_pred", True), ("prediction", True), ("predator", False)],
    ],
)
def test_features_called_like_labels_are_doubted(read, frame, name, is_told, rng):
    more = frame.assign(**{name: rng.normal(size=N)})
    data = read(more)
    assert_features(data, more, "p", "q", name)
    told = f"feature {name!r} is called like labels; if it tells them, pass --ignore {name!r}"
    assert (told in str(data.summary)) == is_told


def test_places_are_no_labels(read, frame):
    places = frame.rename(columns={"p": "x", "q": "y"})
    assert not read(places).summary.doubts


def test_names_of_images_are_no_labels(read, frame):
    with pytest.raises(ValueError, match=r"'label' holds names of images, which are no classes"):
        read(frame.assign(label=[f"cut{i % 4}.png" for i in range(N)]))


def test_labels_that_are_all_distinct_are_doubted(read, frame):
    few = frame[:6].assign(label=list("abcdef"))
    [doubt] = read(few).summary.doubts
    assert doubt.startswith("6 classes of 6 samples are rather quantities or ids")
    assert not read(few.assign(label=list("abcdee"))).summary.doubts


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
    data = read(frame.assign(label=[-2, -1, 0, 1] * 10))
    assert "'-2' is a class, as -1 means no label; if -1 is a class, rename" in str(data.summary)


def test_large_whole_numbers_are_told_apart(read, frame):
    classes = [str(2**64), str(2**64 + 1)]
    data = read(frame.assign(label=classes * 20))
    assert (list(data.class_names), data.summary.doubts) == (classes, [])


def test_a_lone_negative_number_may_be_a_mark(read, frame):
    told = "'-9' counts as a class; if it means no label, pass --no-label '-9'"
    assert told in str(read(frame.assign(label=[1, 2, -9, 3] * 10)).summary)
    for classes in ([-9, 0, 9, 0], [-9, 1, -9, 1], [-9, -8, 1, 2], [-2, 0, 1, 0]):
        assert not read(frame.assign(label=classes * 10)).summary.doubts


def test_polarities_beside_names_without_a_header_are_asked_for(tmp_path):
    rows = [f"{2 * (i % 3)},user{i % 5},switchfoot said {i} that\n" for i in range(20)]
    (tmp_path / "t.csv").write_text("".join(rows))
    with pytest.raises(ValueError, match=r"which column holds the labels, '2' or '1'\?"):
        load_dataset(tmp_path / "t.csv")
    data = read_dataset(tmp_path / "t.csv", Choice(label="1"))
    assert data.class_names == ("0", "2", "4")


def test_several_labels_per_row_raise(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame.assign(label=[["a"], ["b", "c"]] * 20).to_parquet(path)
    with pytest.raises(
        ValueError, match=r"t\.parquet, row 1, column 'label': \"\['b', 'c'\]\" must be one label"
    ):
        load_dataset(path)


def test_dates_may_be_labels_if_chosen(tmp_path, frame):
    days = [datetime.date(2020, 1, 1 + i % 2) for i in range(N)]
    frame.assign(day=days).drop(columns="label").to_parquet(tmp_path / "t.parquet")
    data = load_dataset(tmp_path / "t.parquet", label="day")
    assert data.class_names == ("2020-01-01", "2020-01-02")


def test_predictions_of_an_earlier_run_are_no_labels_and_no_features(tmp_path, frame):
    added = {"confidence": 0.5, "is_new_label": [True, False] * 20, "runner_up": "z"}
    written = frame.assign(**added, map_x=frame["p"], map_y=frame["q"])
    written.to_csv(tmp_path / "t.csv", index=False)
    data = load_dataset(tmp_path / "t.csv")
    assert_features(data, frame, "p", "q")
    assert data.class_names == ("dog",)  # row 1 of four; row 3 has no label
    np.testing.assert_array_equal(data.y, np.array([-1, 0, -1, -1] * 10))
    assert "without 20 predictions of an earlier `ssdml label`" in str(data.summary)


def test_predictions_are_known_by_their_mark_alone(tmp_path, frame):
    added = {"confidence": frame["p"], "is_new_label": [True, False] * 20}
    for number, written in enumerate((added, {name.upper(): added[name] for name in added})):
        frame.assign(**written).to_csv(tmp_path / f"{number}.csv", index=False)
        data = load_dataset(tmp_path / f"{number}.csv")
        assert_features(data, frame, "p", "q")
        np.testing.assert_array_equal(data.y, np.array([-1, 0, -1, -1] * 10))


def test_an_own_confidence_stays_a_feature_after_labeling(tmp_path, frame):
    own = frame.assign(confidence=frame["p"] ** 2)
    added = {"confidence.1": frame["q"] ** 2, "is_new_label": False, "runner_up": "z"}
    own.assign(**added).to_csv(tmp_path / "t.csv", index=False)
    data = load_dataset(tmp_path / "t.csv")
    assert_features(data, own, "p", "q", "confidence")


@pytest.mark.parametrize("missing", [(), ("map_x",), ("confidence",)])
def test_predictions_without_is_new_label_are_told(read, frame, missing):
    added = {"confidence": 0.5, "runner_up": "z", "map_x": frame["q"], "map_y": frame["p"]}
    written = frame.assign(**added).drop(columns=list(missing))
    data = read(written)
    assert data.columns == ("p", "q")
    (doubt,) = data.summary.doubts
    assert "'map_y' are of an earlier `ssdml label`, whose predictions count as given" in doubt
    assert "map_x" in read(frame.assign(map_x=frame["q"] ** 2, map_y=frame["p"] ** 2)).columns


@pytest.mark.parametrize(
    ("true", "false"), [("WAHR", "FALSCH"), ("VRAI", "FAUX"), ("yes", ""), ("TRUE", "NA")]
)
def test_marks_of_predictions_may_come_from_excel(tmp_path, frame, true, false):
    added = {"confidence": 0.5, "runner_up": "z", "map_x": 1, "map_y": 2}
    written = frame.assign(**added, is_new_label=[true, false] * 20)
    written.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_array_equal(load_dataset(tmp_path / "t.csv").y, [-1, 0, -1, -1] * 10)
    written.replace({true: "maybe"}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"line 2, column 'is_new_label': 'maybe' must be true or"):
        load_dataset(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("Unnamed: 7", ["x", "y", "", ""] * 10),
        ("user_id", ["u1", "u2"] * 20),
        ("mark", ["*", ""] * 20),
        ("user", [f"u{i % 30}" for i in range(N)]),
        ("labeled_by", ["ann", "bob"] * 20),
    ],
)
def test_columns_that_are_no_labels_are_not_guessed(tmp_path, frame, name, cells):
    frame = frame.drop(columns="label").assign(stars=[1, 3, 5, 5] * 10, **{name: cells})
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.class_names == ("1", "3", "5")
    assert "the labels are taken from column 'stars'" in str(data.summary)
    frame.drop(columns="stars").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"which column holds the labels\?"):
        read_dataset(tmp_path / "t.csv", Choice())


def test_missing_numbers_are_no_labels_beside_a_last_column_of_codes(tmp_path, frame, rng):
    age = rng.integers(20, 30, N).astype(str)
    age[3] = "?"
    frame = frame.drop(columns="label").assign(age=age, sex=[1, 2] * 20, disease=np.arange(N) % 3)
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="which column holds the labels, 'disease' or 'age'"):
        read_dataset(tmp_path / "t.csv", Choice())


def test_labels_in_another_column_of_other_rows_are_doubted(read, frame):
    kinds = frame["label"].where(frame.index % 2 == 0, "")
    more = frame.assign(label=frame["label"].where(frame.index % 2 == 1, ""), Class=kinds)
    told = "column 'Class' is filled only in rows that have no label in 'label'; if it holds"
    assert told in str(read(more).summary)
    more.loc[1, "Class"] = "cat"
    assert told not in str(read(more).summary)


def test_questions_about_labels_name_each_column_once(tmp_path):
    rows = [f"some words of {i},{i % 3},{'xyz'[i % 3]}" for i in range(9)]
    (tmp_path / "t.csv").write_text("\n".join(["text,class_id,class_name", *rows]))
    with pytest.raises(ValueError, match=r"labels, 'class_name' or 'class_id'\? The"):
        load_dataset(tmp_path / "t.csv")


def test_numbers_with_commas_are_no_several_labels(tmp_path):
    rows = [f"{i % 7},5;{i % 5},25;{1 + i % 2},{i % 4 // 2 * 5}\n" for i in range(N)]
    (tmp_path / "t.csv").write_text("p;q;label\n" + "".join(rows))
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.class_names == ("1,0", "1,5", "2,0", "2,5")
    assert not data.summary.doubts


@pytest.mark.parametrize(
    ("labels", "is_told"),
    [
        (np.arange(30) / 10 + 2.05, True),  # measured
        (np.arange(10) / 2 + 0.5, False),  # stars
        (np.arange(30) * 3, True),  # counted
        (np.arange(30), False),
    ],
)
def test_labels_that_are_measured_are_doubted(read, frame, labels, is_told):
    rows = pd.concat([frame] * 3, ignore_index=True)
    rows["p"] += np.arange(len(rows))
    doubts = read(rows.assign(label=np.resize(labels, len(rows)))).summary.doubts
    assert any("are rather quantities or ids" in doubt for doubt in doubts) == is_told


def test_columns_of_labels_of_one_name_are_asked_for(tmp_path):
    rows = [f"{i % 7}.5,{'xy'[i % 2]},{'xyz'[i % 3]}\n" for i in range(N)]
    (tmp_path / "t.csv").write_text("p,label,label\n" + "".join(rows))
    with pytest.raises(ValueError, match=r"holds the labels, 'label' or 'label\.1'\? The columns"):
        read_dataset(tmp_path / "t.csv", Choice())
    assert read_dataset(tmp_path / "t.csv", Choice(label="label.1")).class_names == tuple("xyz")
    rows = [f"{i % 7}.5,{'xy'[i % 2]},{'xy'[i % 2]}\n" for i in range(N)]
    (tmp_path / "t.csv").write_text("p,label,label\n" + "".join(rows))
    assert read_dataset(tmp_path / "t.csv", Choice()).class_names == ("x", "y")


@pytest.mark.parametrize(("name", "is_told"), [("class", True), ("label", False)])
def test_other_labels_beside_a_kind_are_told(read, frame, name, is_told):
    data = read(frame.rename(columns={"label": name}).assign(survived=np.arange(N) % 2))
    assert data.class_names == ("cat", "dog", "eel")
    told = f"the labels are taken from column {name!r}; if they are in 'survived', pass --label"
    assert (told in str(data.summary)) == is_told
