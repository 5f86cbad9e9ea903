"""Headers of tables: whether the first rows name the columns, and what else they tell."""

from __future__ import annotations

from datetime import date

import pytest

from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.table import find_header, has_header

TEXTS = [f"some text {i % 7}" for i in range(20)]


@pytest.mark.parametrize("first", ["0", "1"])
def test_a_label_and_a_text_are_no_header_although_some_texts_occur_twice(first):
    rows = [[first, "the first text"], *([str(i % 2), text] for i, text in enumerate(TEXTS))]
    assert not has_header(rows)
    assert not has_header([[first, "good"], ["0", "bad"], ["1", "nice"], ["0", "bad"]])
    assert has_header(
        [[first, "kind"], ["1.5", "bad"], ["2.5", "nice"], ["0.5", "bad"], ["3.5", "bad"]]
    )


@pytest.mark.parametrize("mark", ["?", "NA", "null", "-", "<0.1", "4.2*", "5%", "1 200", "12:30"])
def test_marks_in_the_first_row_are_no_names(mark):
    below = [[f"{i}.5", f"{i * 7 % 5}.25", "ab"[i % 2]] for i in range(9)]
    for columns in (slice(3), slice(2)):
        assert not has_header([row[columns] for row in (["5.1", mark, "a"], *below)])


def test_marks_alone_are_no_header():
    below = [[f"{i}.5", f"{i * 7 % 5}.25"] for i in range(9)]
    assert not has_header([["?", "?"], *below])
    assert has_header([["Fe", "Na"], *below])


@pytest.mark.parametrize(
    "names",
    [
        ["2020-01-01", "2020-01-02"],
        ["0-14", "15+"],
        ["%", "$"],
        [date(2020, 1, 1), date(2020, 2, 1)],
    ],
)
@pytest.mark.parametrize("first", [[], ["kind"], [None]])
def test_dates_and_ages_above_numbers_are_names(names, first):
    below = [["ab"[i % 2], i / 2, i / 3][1 - len(first) :] for i in range(9)]
    assert has_header([[*first, *names], *below])


def test_a_missing_number_in_the_first_row_is_no_index():
    assert not has_header([["0", "", "1"], ["1", "2", "0"], ["1", "0", "2"]])


def test_letters_of_orange_are_flags():
    rows = [["a", "b", "c", "kind"], ["c", "c", "c", "d"], ["m", "i", "", "c"], *[["1"] * 4] * 3]
    assert find_header(rows).names == ["a meta", "b ignore", "c", "kind class"]


@pytest.mark.parametrize(
    "header",
    [
        "a,t,w,i,c,kind,name\nc,c,c,c,c,d,string\n,meta,weight,ignore,,class,meta\n",
        "C#a,mC#t,w#w,i#i,C#c,cD#kind,mS#name\n",
    ],
)
def test_meta_ignored_and_weights_of_orange_are_no_features(tmp_path, header):
    rows = [
        f"{i}.5,{i % 3}.25,{i % 2}.5,{i % 5}.5,{i % 7}.5,{'xy'[i % 2]},n{i}\n" for i in range(9)
    ]
    (tmp_path / "t.csv").write_text("".join([header, *rows]))
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert data.columns == ("a", "c")
    assert data.class_names == ("x", "y")
    assert data.ids.tolist() == [f"n{i}" for i in range(9)]
    assert data.summary.left_out["w weight"] == "weight in Orange"
    named = read_dataset(tmp_path / "t.csv", Choice(features=("a", "t meta")))
    assert named.columns == ("a", "t meta")


def test_the_second_row_of_surveymonkey_has_no_answers(tmp_path):
    header = "Respondent ID,Collector ID,What do you use?,,Why?,Group\n"
    second = ",,Phone,Web,Open-Ended Response,Response\n"
    rows = [
        f"{90 + i * 7},5,{i % 3},{i % 4},{text},{'xy'[i % 2]}\n" for i, text in enumerate(TEXTS)
    ]
    (tmp_path / "t.csv").write_text("".join([header, second, *rows]))
    data = read_dataset(tmp_path / "t.csv", Choice("Group", "Why?"))
    assert data.texts.tolist() == TEXTS
    assert data.class_names == ("x", "y")
    data = read_dataset(tmp_path / "t.csv", Choice("Group", ignore=("Why?",)))
    assert data.columns == ("What do you use? Phone", "What do you use? Web")


@pytest.mark.parametrize(
    "axis",
    [
        [415, 445, 480, 515, 555, 590, 630, 680],
        ["4000", "3998,5", "3996", "3995", "3990", "3989", "3980", "3970", "3965"],
        ["450.5", "500.5", "550.5", "570.5", "600.5", "650.5"],
    ],
)
@pytest.mark.parametrize("name", ["Cultivar", "", None])
def test_wavelengths_above_numbers_are_names(rng, axis, name):
    values = rng.normal(size=(30, len(axis))).round(3).astype(str).tolist()
    rows = [[*row, "ab"[i % 2]] for i, row in enumerate(values)]
    assert has_header([[*axis, name], *rows])
    assert not has_header([[*axis, "a"], *rows])
    assert not has_header([[*axis[1:], axis[0], name], *rows])
    rising = [[*sorted(row[:-1], key=float), row[-1]] for row in rows]
    assert not has_header([[*axis, name], *rising])
    even = [397.3 + 20.5 * j for j in range(len(axis))]
    assert has_header([[*even, name], *rising])
    for first in ("0", "3"):  # a blank image, or counts of no word
        assert not has_header([[first] * len(axis) + [name], *rows])
    inside = sorted(values[0], key=float)
    assert not has_header([[*inside, "1 May"], *rows])  # a row of a date


def test_units_and_statistics_below_names_belong_to_the_header(tmp_path):
    above = "DATA7,north,x\ntime,air,wind,rain,gust,state\ns,deg,m/s,mm,m/s,\n"
    below = "".join(f"{i},{i * 7 % 5}.5,{i % 3},1.5,2,{'ab'[i % 2]}\n" for i in range(9))
    (tmp_path / "t.csv").write_text(f"{above},Avg,Max,Tot,Min,Smp\n{below}")
    dataset = read_dataset(tmp_path / "t.csv", Choice(label="state Smp"))
    assert dataset.columns[:3] == ("air deg Avg", "wind m/s Max", "rain mm Tot")
    assert len(dataset.X) == 9


def test_rows_of_marks_below_names_are_samples():
    rows = [["a", "b"], ["n.d.", "n.d."], ["n.d.", "n.d."], *([str(i), "2"] for i in range(9))]
    assert find_header(rows).start == 1
