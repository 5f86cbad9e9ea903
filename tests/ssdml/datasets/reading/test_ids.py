"""Columns of ids, of an index and of row numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.summary import ReadingWarning
from tests.tables import N, assert_features


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
    [
        *("{}%", "${}.50", "1 {:03d}", "1'{:03d}", "\u2212{}.5", "0x{:x}", "{}.0D+00"),
        *("1\u2019{:03d}", "{} \u20ac", "\uff11.{}", "\u0663{}", "({}.50)", "{}-", "EUR{}"),
    ],
)
def test_numbers_with_signs_are_no_ids(tmp_path, frame, form):
    frame.assign(sold=[form.format(i) for i in range(N)]).to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.ids is None
    [doubt] = data.summary.doubts
    assert doubt.startswith("column 'sold' is not a feature, as it holds text such as")
    assert doubt.endswith("to use it, write numbers")
    with pytest.raises(ValueError, match=r"line 2, column 'sold': .* must be a number\."):
        read_dataset(tmp_path / "t.csv", Choice(features=("sold",)))


@pytest.mark.parametrize(
    "form", ["r{}", "EUR{:03d}", "10.0.0.{}", "2020-01-{:02d}", "0x0123456789abcdef{:02x}"]
)
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


@pytest.mark.parametrize("levels", [(8, 5), (2, 4, 5)])
def test_levels_of_an_index_are_left_out(tmp_path, frame, levels):
    index = pd.MultiIndex.from_product([range(n) for n in levels])
    frame.set_axis(index).to_csv(tmp_path / "t.csv")
    data = load_dataset(tmp_path / "t.csv")
    assert_features(data, frame, "p", "q")
    left_out = {f"Unnamed: {i}": "index of pandas" for i in range(len(levels))}
    assert data.summary.left_out == left_out


@pytest.mark.parametrize("name", ["", "index", "row", "nr", "id", "sample_id"])
@pytest.mark.parametrize("shift", [0, 5])  # of the second table's numbers
def test_numbers_of_joined_tables_are_no_features(tmp_path, frame, name, shift, rng):
    numbers = np.concatenate([np.arange(N // 2), np.arange(N // 2) + shift])
    table = pd.concat([pd.Series(numbers, name=name), frame], axis=1)
    table.iloc[rng.permutation(N)].to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(ReadingWarning) as told:
        data = load_dataset(tmp_path / "t.csv")
    assert data.columns == ("p", "q")
    assert data.ids is None
    found = f"{N // 2 - shift} ids in column {name or 'Unnamed: 0'!r} are in several rows"
    assert found in str(told[0].message)


def test_ids_with_different_labels_are_named_by_line(tmp_path, frame):
    ids = [f"s{i}" for i in [*range(N - 2), 3, 5]]
    labels = ["x", "y"] * (N // 2)
    labels[N - 1] = None
    frame.assign(sample_id=ids, label=labels).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(ReadingWarning, match="2 ids .* several rows, 1 of them with different lab"):
        told = str(load_dataset(tmp_path / "t.csv").summary)
    assert f"as in line 5 and line {N}; if these are the same sample, keep one row of each" in told


def test_named_ids_in_several_rows_are_told(tmp_path, frame):
    frame.assign(key=[f"s{i // 2}" for i in range(N)]).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(ReadingWarning, match="20 ids in column 'key' are in several rows"):
        data = load_dataset(tmp_path / "t.csv", id="key")
    assert data.ids.tolist()[:3] == ["s0", "s0", "s1"]


def test_ids_of_groups_are_no_doubt(read, frame):
    assert not read(frame.assign(user_id=[f"u{i // 8}" for i in range(N)])).summary.doubts


@pytest.mark.parametrize(
    "name", ["id", "ID", "customer_id", "customerId", "Unit ID", "uuid", "idx"]
)
def test_ids_are_known_by_name(read, frame, name, rng):
    data = read(frame.assign(**{name: rng.choice(10**6, N, replace=False)}))
    assert_features(data, frame, "p", "q")
    assert not data.summary.doubts


def test_texts_are_samples_although_ids_name_images(tmp_path):
    for i in range(4):
        Image.new("L", (4, 4)).save(tmp_path / f"{i}.png")
    rows = [f"{i},how do I pay,{'ab'[i % 2]}" for i in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(["id,text,label", *rows]))
    summary = read_dataset(tmp_path / "t.csv", Choice()).summary
    assert "texts in column 'text'" in str(summary)
    assert "--ignore 'text' (ignore=['text'])" in summary.doubts[0]
    ignored = read_dataset(tmp_path / "t.csv", Choice(ignore=("text",)))
    assert "4 images of 4 x 4" in str(ignored.summary)


@pytest.mark.parametrize("name", ["customer", "user no", "device", "fid", "código"])
def test_numbers_are_ids_or_of_a_few_kinds(read, frame, name, rng):
    few = frame.assign(**{name: rng.integers(20, size=N)})
    assert_features(read(few), few, "p", "q", name)
    many = frame.assign(**{name: np.arange(N) % 30 * 7 % 30})
    assert_features(read(many), many, "p", "q")


@pytest.mark.parametrize(
    "name", ["subject", "Patient No", "study_patient_no", "Sample code number", "paciente"]
)
def test_numbers_of_persons_and_samples_are_ids(read, frame, name, rng):
    data = read(frame.assign(**{name: rng.integers(9, size=N)}))
    assert_features(data, frame, "p", "q")
    assert f"column '{name}' is not a feature, as its name is that of ids" in str(data.summary)
    for values in (rng.normal(size=N), rng.permutation(N) % 2):
        measured = frame.assign(**{name: values})
        assert_features(read(measured), measured, "p", "q", name)


@pytest.mark.parametrize("name", ["age_patient", "bits_per_sample", "n_sample"])
def test_whole_numbers_about_persons_and_samples_are_features(read, frame, name, rng):
    frame = frame.assign(**{name: rng.integers(20, 90, size=N)})
    assert_features(read(frame), frame, "p", "q", name)


@pytest.mark.parametrize(
    "name",
    [
        *("zip", "ZipCode", "postal_code", "plz", "EAN", "MRN", "home_phone", "Phone Number"),
        *("account_number", "Customer No.", "OrderNr", "Ticket #", "Kundennummer", "hash"),
    ],
)
def test_codes_are_no_features(read, frame, name, rng):
    data = read(frame.assign(**{name: rng.integers(10_000, 99_999, size=N)}))
    assert_features(data, frame, "p", "q")
    assert "as it holds codes by its name, such as postal codes" in str(data.summary)


@pytest.mark.parametrize("name", ["crimes_per_zip", "zip", "geo.ean", "order_num", "mobile"])
def test_small_numbers_are_no_codes(read, frame, name, rng):
    frame = frame.assign(**{name: rng.integers(40, size=N)})
    assert_features(read(frame), frame, "p", "q", name)


def test_repeated_ids_are_left_out_with_a_doubt(read, frame):
    data = read(frame.assign(store_id=np.arange(N) // 4))
    assert_features(data, frame, "p", "q")
    assert data.summary.left_out["store_id"] == "ids"
    assert "column 'store_id' is not a feature, as its name is that of ids" in str(data.summary)


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


def test_few_rows_do_not_tell_ids(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,label\n1,2,x\n2,4,y\n3,1,x\n")
    np.testing.assert_array_equal(load_dataset(path).X, [[1, 2], [2, 4], [3, 1]])


def test_named_levels_of_an_index_are_told(tmp_path, frame):
    levels = [range(8), range(5)]
    frame.set_axis(pd.MultiIndex.from_product(levels, names=["plate", "well"])).to_csv(
        tmp_path / "t.csv"
    )
    with pytest.warns(ReadingWarning, match="2 features in the order .*: plate, well;"):
        load_dataset(tmp_path / "t.csv")


AMOUNTS = ["1,23,0{:02d}", "USD {}.50", "{}.50 EUR", "6{} x 480", "{}.5±0.1", "{}.5(2)", "5'1{}"]


@pytest.mark.parametrize("form", ["{}.5 cm", "{} kg", "<{}.5", "{:02d}:30:15", "{}.25k", *AMOUNTS])
def test_quantities_in_a_text_are_no_ids(tmp_path, frame, form):
    frame.assign(size=[form.format(k) for k in range(N)]).to_csv(tmp_path / "t.csv", index=False)
    summary = read_dataset(tmp_path / "t.csv", Choice()).summary
    assert "ids" not in summary.facts
    assert "column 'size' is not a feature, as it holds text" in str(summary)


@pytest.mark.parametrize("name", ["userid", "customerid", "movieid", "pid", "Patientennummer"])
def test_ids_in_one_word_are_no_features(read, frame, name):
    data = read(frame.assign(**{name: 7000 + np.arange(N) * 13 % 20}))
    assert_features(data, frame, "p", "q")
    assert name in data.summary.left_out


@pytest.mark.parametrize("name", ["acid", "humid", "grid", "bid"])
def test_other_words_that_end_like_ids_are_features(read, frame, name):
    assert name in read(frame.assign(**{name: 7000 + np.arange(N) * 13 % 20})).columns
