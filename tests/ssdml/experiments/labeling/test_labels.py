"""The labels of all rows and the columns of the table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.datasets import load_iris

from ssdml import SSDML, suggest_labels
from ssdml.datasets.base import RawItems
from ssdml.datasets.reading.names import ADDED
from ssdml.datasets.reading.table import Table
from ssdml.experiments.labeling.labels import label_rows, labeled_columns
from ssdml.experiments.report.labeled import render_page


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    labels = np.where(np.arange(150) % 10 == 0, y, -1)
    labels[10] = 2  # it is a 0
    return X, y, labels, SSDML(random_state=0).fit(X, labels)


def test_rows_have_the_labels_of_the_fit(iris):
    _, y, labels, model = iris
    found = label_rows(model, labels < 0)
    np.testing.assert_array_equal(found.classes[found.codes], model.transduction_)
    assert (found.runner_up != found.codes).all()
    new = found.is_new
    assert found.confidence[new].mean() == pytest.approx(found.accuracy.estimate, abs=1e-6)
    np.testing.assert_array_equal(found.next_rows, suggest_labels(model, 25))
    assert new[found.next_rows].all()
    assert found.suspects.rows[0] == 10
    assert found.confidence[10] < 0.5
    assert found.runner_up[10] == 0  # what the other labels say
    assert (found.codes == y).mean() > 0.85
    np.testing.assert_array_equal(found.points, model.map())


def test_one_label_per_class_has_no_estimate(iris):
    X, y, *_ = iris
    labels = np.where(np.isin(np.arange(150), [0, 60, 120]), y, -1)
    found = label_rows(SSDML(random_state=0).fit(X, labels), labels < 0)
    assert found.accuracy is None
    assert not len(found.suspects.rows)
    assert (found.confidence[labels >= 0] == 1).all()


def test_one_class_has_no_runner_up(iris):
    X, *_ = iris
    labels = np.where(np.arange(150) < 5, 0, -1)
    with pytest.warns(UserWarning, match="a single class"):
        model = SSDML(random_state=0).fit(X, labels)
    found = label_rows(model, labels < 0)
    assert set(found.runner_up) == {-1}


def table_of(columns, **about):
    return Table("t.csv", pa.table(columns), lambda row: f"row {row}", **about)


def test_a_table_keeps_its_columns_and_its_labels_are_filled(iris):
    X, _, labels, model = iris
    found = label_rows(model, labels < 0)
    given = np.array(["0", "1", "2", ""])[labels]
    columns = {"label": given, "note": ["n"] * 150, "confidence": X[:, 0]}
    raw = RawItems(X, given, None, table=table_of(columns), label_column="label")
    written = labeled_columns(raw, found)
    assert list(written) == [*columns, "confidence.1", *ADDED[1:]]
    assert written["label"].tolist() == [str(c) for c in model.transduction_]
    assert written["confidence"].to_pylist() == X[:, 0].tolist()
    assert written["runner_up"].tolist() == [str(c) for c in found.runner_up]
    again = raw._replace(table=table_of({"label": given} | dict.fromkeys(ADDED, given)))
    assert list(labeled_columns(again, found)) == ["label", *ADDED]


def test_numbers_stay_numbers_among_the_labels(iris):
    X, _, labels, model = iris
    raw = RawItems(X, labels, None, table=table_of({"y": labels}), label_column="y")
    written = labeled_columns(raw, label_rows(model, labels < 0))
    np.testing.assert_array_equal(written["y"], model.transduction_)


def test_samples_without_a_table_have_ids_or_row_numbers(iris):
    X, _, labels, model = iris
    found = label_rows(model, labels < 0)
    assert list(labeled_columns(RawItems(X, labels, None), found)) == ["row", "label", *ADDED]
    ids = np.array([f"{i}.jpg" for i in range(150)])
    written = labeled_columns(RawItems(X, labels, None, ids=ids), found)
    assert list(written) == ["id", "label", *ADDED]
    np.testing.assert_array_equal(written["id"], ids)


def test_the_page_shows_texts_and_escapes_them(iris):
    from ssdml.datasets.base import Dataset

    X, _, labels, model = iris
    texts = np.array([f"<b>{i}</b>" for i in range(150)], dtype=object)
    dataset = Dataset("iris", X, labels, ("0", "1", "2"), texts=texts)
    page = render_page(
        label_rows(model, labels < 0),
        dataset,
        [f"r{i}" for i in range(150)],
        lead="A",
        advice="Go on.",
        footer="B",
    )
    assert "Label these next" in page
    assert "Go on." in page
    assert "&lt;b&gt;10&lt;/b&gt;" in page  # suspected
    assert "<b>10</b>" not in page
    assert page.count("<script") == 5
