"""Which column of a table becomes what, and which are features and ids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.summary import ReadingWarning
from ssdml.datasets.writing import write_rows
from tests.images import write_images
from tests.tables import N, assert_features


@pytest.mark.parametrize("unit", [1, 1000, 10**6])
@pytest.mark.parametrize("n", [4, N])
def test_times_since_1970_are_no_features(read, frame, rng, unit, n):
    times = unit * (1_700_000_000 + rng.integers(10**6, size=N))
    data = read(frame.assign(seen=times).head(n))
    assert_features(data, frame.head(n), "p", "q")
    [doubt] = data.summary.doubts
    assert "'seen' is not a feature" in doubt
    assert "like times" in doubt or "like ids" in doubt


@pytest.mark.parametrize("name", ["Total", "grand total", "Mean"])
def test_a_row_of_totals_is_doubted(read, frame, name):
    rows = frame.set_axis(pd.Index([*(f"r{i}" for i in range(N - 1)), name], name="id"))
    [doubt] = read(rows.assign(label=[*frame["label"][:-1], ""])).summary.doubts
    assert f"{name!r}, is read as a sample; if it sums up others, delete it" in doubt
    groups = frame.assign(group=["a", "a", "Total a", *["Total b-ware"] * (N - 3)])
    groups.loc[[2, 3], "label"] = ""
    assert "'Total a', is read as a sample; if it sums up" in str(read(groups).summary)
    assert not read(rows.assign(label=[*frame["label"][:-1], "cat"])).summary.doubts


@pytest.mark.parametrize("what", ["sum", "mean"])
def test_a_last_row_that_sums_up_others_is_doubted(read, frame, what):
    summed = frame.agg({"p": what, "q": what}).to_frame().T.assign(label="")
    told = str(read(pd.concat([frame, summed], ignore_index=True)).summary)
    assert f"is the {what} of the rows above it, but is read as a sample; delete it" in told
    told = str(read(pd.concat([frame, summed.assign(label="Total")], ignore_index=True)).summary)
    assert f"is the {what} of the rows above it" in told
    labeled = pd.concat([frame, summed.assign(label="cat")], ignore_index=True)
    assert not read(labeled).summary.doubts


@pytest.mark.parametrize("given", [["01067", "10115", "80331"], ["07e06", "12e05", "99e10"]])
def test_digits_with_leading_zeros_are_no_numbers(tmp_path, frame, given):
    codes = np.array(given)[np.arange(N) % 3]
    months = np.array(["01", "02", "12"])[np.arange(N) % 3]
    phones = [f"+4930{i % 20:07d}" for i in range(N)]
    frame = frame.assign(code=codes, month=months, phone=phones)
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(ReadingWarning, match="'code', 'phone' are not features, .* leading zeros"):
        data = load_dataset(tmp_path / "t.csv")
    assert data.columns == ("p", "q", "month")


def test_dates_in_digits_are_no_features(read, frame, rng):
    days = pd.Timestamp("2023-12-01") + pd.to_timedelta(rng.integers(90, size=N), "D")
    data = read(frame.assign(day=days.strftime("%Y%m%d").astype(int)))
    assert_features(data, frame, "p", "q")
    assert "'day' is not a feature, as it holds numbers that are dates" in str(data.summary)
    assert "day" in read(frame.assign(day=20231301 + rng.integers(90, size=N))).columns


def test_unnamed_columns_that_repeat_are_features(tmp_path, frame):
    table = frame.assign(**{"": np.arange(N) % 3, " ": np.arange(N) % 2})
    table = table[["", " ", *frame.columns]]
    table.to_csv(tmp_path / "t.csv", index=False)
    assert load_dataset(tmp_path / "t.csv").X.shape == (N, 4)


@pytest.mark.parametrize(
    "name",
    [
        *("fold", "kfold", "CV_fold", "is_test", "in_train", "sample_weight", "partition"),
        *("test", "Training", "val_set", "set", "subset"),
    ],
)
def test_folds_parts_and_weights_are_left_out_with_a_doubt(read, frame, name, rng):
    data = read(frame.assign(**{name: rng.permutation(N) % 2}))
    assert_features(data, frame, "p", "q")
    assert f"column '{name}' is not a feature, as its name is that of folds" in str(data.summary)


@pytest.mark.parametrize(
    "name",
    [
        *("weight", "fold", "skin_fold", "rdw_cv", "CV", "is_valid", "test_score"),
        *("Sample Weight", "test", "set", "blood_test"),
    ],
)
def test_measurements_with_such_names_are_features(read, frame, name, rng):
    frame = frame.assign(**{name: rng.normal(size=N)})
    assert_features(read(frame), frame, "p", "q", name)


def test_folds_beside_images_or_texts_change_nothing(tmp_path, rng):
    frame = pd.DataFrame({"file": [f"{i}.png" for i in range(8)], "label": [*"aabb", *[""] * 4]})
    for name in frame["file"]:
        Image.fromarray(rng.integers(256, size=(4, 4, 3), dtype=np.uint8)).save(tmp_path / name)
    frame.assign(fold=np.arange(8) % 2).to_csv(tmp_path / "images.csv", index=False)
    assert "8 images of 4 x 4" in str(read_dataset(tmp_path / "images.csv", Choice()).summary)
    texts = pd.DataFrame({"text": ["how do I pay"] * 8, "label": frame["label"]})
    texts = texts.assign(a=rng.normal(size=8), b=1.5, c=2.5, fold=np.arange(8) % 2)
    texts.to_csv(tmp_path / "t.csv", index=False)
    assert "texts in column" in str(read_dataset(tmp_path / "t.csv", Choice()).summary)


@pytest.mark.parametrize("n_numbers", [1, 3, 4, 9])
def test_images_are_rather_samples_than_few_numbers(tmp_path, rng, n_numbers):
    numbers = {f"x{j}": rng.normal(size=8) for j in range(n_numbers)}
    frame = pd.DataFrame({"image_id": [f"p{i}" for i in range(8)], **numbers, "label": [*"ab"] * 4})
    for name in frame["image_id"]:
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png")
    frame.to_csv(tmp_path / "t.csv", index=False)
    summary = str(read_dataset(tmp_path / "t.csv", Choice()).summary)
    assert ("8 images of 4 x 4" in summary) == (n_numbers <= 3)
    assert ("as the images in 'image_id' are" in summary) == (n_numbers <= 3)
    assert ("the images in column 'image_id' are not used" in summary) == (n_numbers == 4)
    frame.rename(columns={"image_id": "id"}).to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())  # images of the same ids
    assert data.columns == tuple(numbers)
    told = "the images in column 'id' are not used, but the numbers"
    assert (told in str(data.summary)) == (n_numbers <= 4)


def test_boxes_of_road_signs_are_no_features(tmp_path):
    write_images(tmp_path, [f"{i}.png" for i in range(4)])
    header = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n"
    rows = [f"{i}.png;{30 + i};40;5;6;{25 + i};33;{i % 2}\n" for i in range(4)]
    (tmp_path / "t.csv").write_text(header + "".join(rows))
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.item_shape is not None
    assert data.y.tolist() == [0, 1, 0, 1]


def test_classes_in_the_names_of_columns_are_doubted(tmp_path):
    rows = [f"r{i},{i % 5}.5,{i % 3}.25,{i % 4}.5,{i % 7}.5\n" for i in range(8)]
    for header, is_told in (("tumor,tumor,normal,normal", True), ("a,b,c,c", False)):
        (tmp_path / "t.csv").write_text("".join([f"class,{header}\n", *rows]))
        doubt = "2 columns have the name of another one, as labels do; if the samples are in"
        assert (doubt in str(read_dataset(tmp_path / "t.csv", Choice()).summary)) == is_told


@pytest.mark.parametrize(
    ("name", "form", "is_told"),
    [("gene", "g{}", True), ("", "ENSG{:011}", True), ("probe", "{}_at", True), ("", "r{}", False)],
)
def test_rows_named_like_genes_are_doubted(read, frame, name, form, is_told):
    named = frame.set_index(pd.Index([form.format(i) for i in range(N)], name=name or None))
    data = read(named)
    assert ("the rows are named like genes, in column" in str(data.summary)) == is_told


@pytest.mark.parametrize("names", [["a", "b"], ["e0", "e1"]])
def test_texts_beside_numbers_without_numbered_names_are_told(tmp_path, rng, names):
    columns = {f"{names[0]}{'x' * j}{names[1][1:]}": rng.normal(size=N) for j in range(9)}
    texts = [f"a text about number {i}" for i in range(N)]
    table = pd.DataFrame(columns).assign(text=texts, label=["x", "y"] * (N // 2))
    table.to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.X.shape == (N, 9)
    told = "the texts in column 'text' are not used, but the numbers"
    assert (told in str(data.summary)) == (names[0] == "a")


def test_boxes_and_sizes_beside_images_are_no_features(tmp_path):
    names = [f"{i}.png" for i in range(8)]
    for name in names:
        Image.new("L", (4, 4)).save(tmp_path / name)
    size = {"width": np.arange(8) + 60, "height": 50, "class": [*"ab"] * 4}
    boxes = dict.fromkeys(["xmin", "ymin", "xmax", "ymax"], np.arange(8) * 3 % 7)
    for frame in ({"filename": names, **size}, {"filename": names, **size, **boxes}):
        pd.DataFrame(frame).to_csv(tmp_path / "t.csv", index=False)
        assert "8 images of 4 x 4" in str(read_dataset(tmp_path / "t.csv", Choice()).summary)


@pytest.mark.parametrize("name", ["humid", "acid", "width", "refractive_index", "grid"])
def test_names_that_contain_id_are_features(read, frame, name, rng):
    frame = frame.assign(**{name: rng.normal(size=N)})
    assert_features(read(frame), frame, "p", "q", name)


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
    told = str(read(frame.assign(said=["it was too cold", "fine by me"] * 20)).summary)
    assert "to use it, write numbers, or for texts, pass --text 'said' (text='said')" in told
    data = read(frame.assign(price=["3.50", "$1,200.00", "$3.50", "$4"] * 10))
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
        np.arange(N) % 20,
    ],
    ids=["times", "falling", "groups", "halves", "levels"],
)
def test_features_in_the_order_of_rows_are_told(read, frame, values):
    data = read(frame.assign(batch=values))
    assert_features(data, frame.assign(batch=values), "p", "q", "batch")
    assert "1 feature in the order of the rows" in str(data.summary)
    assert "pass --ignore 'batch'" in str(data.summary)
    shuffled = np.random.default_rng(1).permutation(values)
    assert not read(frame.assign(batch=shuffled)).summary.doubts


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


def test_constant_columns_are_not_guessed_as_labels(tmp_path):
    rows = [f"{i * 0.7},0,me,{'ab'[i % 2]}" for i in range(6)]
    (tmp_path / "t.csv").write_text("\n".join(["x,multi_label,by,mood", *rows]))
    with pytest.warns(ReadingWarning) as told:
        assert load_dataset(tmp_path / "t.csv").class_names == ("a", "b")
    assert "the labels are taken from column 'mood'" in str(told[0].message)


def test_columns_of_label_studio_are_no_features(tmp_path):
    rows = [f"{i * 0.7},{'ab'[i % 2]},1,{i + 5},2022-01-01,{2.5 * i},2022-01-02" for i in range(6)]
    header = "x,label,annotator,annotation_id,created_at,lead_time,updated_at"
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]))
    assert load_dataset(tmp_path / "t.csv").columns == ("x",)


@pytest.mark.parametrize("name", ["upload/{}.jpg", "my red cat {}.jpg", "my cat {}.jpg?raw=1"])
def test_images_that_are_elsewhere_are_told(tmp_path, name):
    rows = [f"/data/{name.format(i)},{label}\n" for i, label in enumerate("ab")]
    (tmp_path / "t.csv").write_text("image,label\n" + "".join(rows))
    with pytest.raises(ValueError, match=r"'image' names images that are not in .*0\.jpg"):
        load_dataset(tmp_path / "t.csv")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_embeddings_that_are_no_vectors_are_told(tmp_path, frame, suffix):
    path = tmp_path / f"t{suffix}"
    cells = [f"J6BJP/AWWD8s{i}==" for i in range(N)]
    frame = frame.assign(embedding=cells if suffix == ".csv" else [c.encode() for c in cells])
    write_rows(path, frame.to_dict("list"))
    data = read_dataset(path, Choice())
    assert data.ids is None
    assert "column 'embedding' is not a feature, as it holds" in str(data.summary)
    write_rows(path, frame[["label"]].to_dict("list"))
    with pytest.raises(ValueError, match=r"besides the label; the columns are label\. Name feat"):
        read_dataset(path, Choice())
    write_rows(path, frame[["embedding", "label"]].to_dict("list"))
    with pytest.raises(ValueError, match=r"embedding cannot be used; .* Write numbers in their"):
        read_dataset(path, Choice())


def test_columns_without_numbers_are_empty(tmp_path):
    rows = [f'{{"a": {i / 7}, "b": NaN, "label": "{"xy"[i % 2]}"}}' for i in range(4)]
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    data = read_dataset(tmp_path / "t.jsonl", Choice())
    assert data.columns == ("a",)
    assert data.summary.left_out == {"b": "nothing"}


@pytest.mark.parametrize(
    "text",
    [
        "马晓旭意外受伤让国奥警惕无奈{}",
        "ฉันต้องการทราบว่าบัตรของฉัน{}",
        "カードはいつ届きますか教えてください{}",
    ],
)
def test_texts_without_blanks_between_words_are_texts(tmp_path, text):
    lines = [f"{['体育', '财经'][i % 2]}\t{text.format(i)}\n" for i in range(N)]
    (tmp_path / "t.txt").write_text("".join(lines), encoding="utf-8")
    data = read_dataset(tmp_path / "t.txt", Choice())
    assert data.texts.tolist() == [text.format(i) for i in range(N)]
    assert data.class_names == ("体育", "财经")


def test_texts_beside_constant_numbers_are_samples(tmp_path):
    texts = ["how do I pay", "please cancel it now", "pay by card", "what is it"]
    frame = pd.DataFrame({"source": texts, "confidence": 0.9, "label": ["a", "b"] * 2})
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.texts.tolist() == texts
    assert data.summary.left_out == {"confidence": "constant"}
    frame.assign(confidence=[0.9, 0.8] * 2).to_csv(tmp_path / "t.csv", index=False)
    assert read_dataset(tmp_path / "t.csv", Choice()).columns == ("confidence",)


@pytest.mark.parametrize(("values", "is_told"), [([True, False], True), ([3, 5, 7], False)])
@pytest.mark.parametrize("name", ["test", "is_train"])
def test_marks_of_test_rows_are_told(tmp_path, frame, name, values, is_told):
    frame.assign(**{name: np.resize(values, N)}).to_csv(tmp_path / "t.csv")
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.test is None
    assert (f"column {name!r} tells no test rows" in str(data.summary)) == is_told


@pytest.mark.parametrize(
    ("name", "values", "is_told"),
    [
        *(("subset", ["train", "holdout"], True), ("part", ["learn", "test"], True)),
        *(("where", ["Train set", "Test set"], True), ("vehicle", ["train", "bus"], False)),
    ],
)
def test_splits_in_columns_of_other_names_are_told(read, frame, name, values, is_told):
    data = read(frame.assign(**{name: np.resize(values, N)}))
    assert data.test is None
    told = f"column {name!r} does not tell the test rows, as it holds"
    assert (told in str(data.summary)) == is_told


@pytest.mark.parametrize("other", ["", "unassigned"])
def test_splits_of_other_names_are_told(read, frame, other):
    parts = np.array(["TRAIN", "TEST", "VALIDATE", other])[np.arange(N) % 4]
    data = read(frame.assign(split=parts))
    assert_features(data, frame, "p", "q")
    assert data.test is None
    [doubt] = data.summary.doubts
    assert doubt.startswith(f"column 'split' does not tell the test rows, as it holds {other!r}; w")
    data = read(frame.assign(ML_USE=np.where(parts == other, "TRAIN", parts)))
    assert data.test.tolist() == [part == "TEST" for part in parts]


@pytest.mark.parametrize(
    "words", [("treino", "teste"), ("Entrenamiento", "Prueba"), ("训练", "测试")]
)
def test_splits_may_be_in_other_languages(read, frame, words):
    data = read(frame.assign(conjunto=np.array(words)[np.arange(N) % 4 // 3]))
    np.testing.assert_array_equal(data.test, np.arange(N) % 4 == 3)


@pytest.mark.parametrize(("name", "words"), [("split", "ABC"), ("1st", ["TRAIN", "TEST", "OTHER"])])
def test_splits_of_unknown_words_are_told(read, frame, name, words):
    data = read(frame.assign(**{name: np.resize(list(words), N)}))
    told = f"column {name!r} does not tell the test rows, as it holds"
    assert told in str(data.summary)


def test_classes_in_a_second_row_of_names_are_doubted(tmp_path):
    rows = "".join(f"gene{i},{i % 5}.5,{i % 3}.25,{i % 4}.5,{i % 7}.5\n" for i in range(20))
    for second, is_told in (("class,ALL,AML,ALL,AML", True), (",mm,mm,kg,kg", False)):
        (tmp_path / "t.csv").write_text(f"sample,S1,S2,S3,S4\n{second}\n{rows}")
        choice = Choice(needs_label=False)
        told = "4 columns have the name of another one, as labels do; if the samples are in"
        assert (told in str(read_dataset(tmp_path / "t.csv", choice).summary)) == is_told


def test_names_that_occur_again_are_told_once(tmp_path):
    rows = "".join(f"{i},{i % 5}.5,k{i},{i % 3},{i % 7}.5,m{i}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"size,share,bank,size,share,bank\n{rows}")
    found = read_dataset(tmp_path / "t.csv", Choice(label="bank")).summary.doubts
    assert sum("have the name of another one" in doubt for doubt in found) == 1


@pytest.mark.parametrize(
    "form",
    [
        "Mon Apr 06 22:19:{:02} PDT 2009",
        "2015-02-24 11:35:{:02} -0800",
        "01/11/2023 10:00:{:02} AM",
    ],
)
def test_dates_of_several_words_are_no_texts(read, frame, form):
    texts = [f"the text number {i} here" for i in range(N)]
    rows = frame[["label"]].assign(said=texts, when=[form.format(i) for i in range(N)])
    assert read(rows).texts.tolist() == texts


@pytest.mark.parametrize(
    "values", [np.arange(-N, N, 2) // 4, np.arange(N) // 2 / 4, np.arange(N) % 8]
)
@pytest.mark.parametrize("names", ["xyz", "XY"])
def test_places_are_no_labels_but_features(tmp_path, rng, values, names):
    rows = pd.DataFrame({name: rng.permutation(values) for name in names})
    kinds = rows.assign(activity=np.resize(["run", "walk"], N))
    kinds.to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert_features(data, rows, *names)
    assert data.class_names == ("run", "walk")
    rows.assign(**{names[1]: np.arange(N) % 2}).to_csv(tmp_path / "t.csv", index=False)
    assert read_dataset(tmp_path / "t.csv", Choice()).class_names == ("0", "1")
