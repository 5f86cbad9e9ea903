"""Data of the page's script, and confusion tables."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from ssdml.evaluation.predictions import Confusion, Predictions
from ssdml.experiments.report.explorer import (
    CERTAIN,
    MAX_CLASSES,
    MAX_PAIRS,
    confusion_table,
    explorer_data,
)
from ssdml.experiments.report.figures import ClassMap
from ssdml.experiments.runs.details import Answers, MapSample
from ssdml.experiments.runs.thumbnails import Thumbnails

N, N_TEST, K = 9, 7, 3
ROWS = np.array([10, 12, 13, 15, 18, 30, 31, 2, 14])  # test rows, then labeled ones


def unpacked(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.fixture
def drawn(rng):
    y, is_labeled = np.arange(N) % 2, np.arange(N) >= N_TEST
    sample = MapSample(np.zeros((N, 2), np.float32), y, is_labeled)
    return {"ssdml": ClassMap(rng.normal(size=(N, 2)) * [5, 1], sample, ["a", "b"], np.arange(2))}


@pytest.fixture
def answers(rng):
    found = Predictions(np.arange(N_TEST) % 2, np.linspace(0, 1, N_TEST, dtype=np.float32))
    neighbors = rng.integers(0, N_TEST, (N_TEST, K))
    return {"ssdml": Answers(ROWS, neighbors, found, None, None)}


def test_packed_arrays_round_trip(drawn, answers):
    data = json.loads(json.dumps(explorer_data(drawn, answers, None)))
    (method,) = data["methods"]
    np.testing.assert_array_equal(unpacked(data["rows"], "<i4"), answers["ssdml"].rows)
    np.testing.assert_array_equal(unpacked(data["classes"], "<i4"), drawn["ssdml"].sample.y)
    neighbors = unpacked(method["neighbors"], "<u2").reshape(N_TEST, method["width"])
    np.testing.assert_array_equal(neighbors, answers["ssdml"].neighbors)
    confidence = unpacked(method["confidence"], "<u1") / CERTAIN
    np.testing.assert_allclose(
        confidence, answers["ssdml"].predictions.confidence, atol=0.5 / CERTAIN
    )
    assert (data["n"], data["nTest"], data["thumbnails"]) == (N, N_TEST, None)


def test_maps_keep_aspect_and_orientation(drawn, answers):
    data = explorer_data(drawn, answers, None)
    points = unpacked(data["methods"][0]["points"], "<u2").reshape(N, 2) / 65535
    given = drawn["ssdml"].points
    scale = np.ptp(given, axis=0).max()
    np.testing.assert_allclose(
        points[:, 0] - points[0, 0], (given[:, 0] - given[0, 0]) / scale, atol=1e-4
    )
    np.testing.assert_allclose(
        points[:, 1] - points[0, 1], (given[0, 1] - given[:, 1]) / scale, atol=1e-4
    )
    assert np.ptp(points, axis=0).max() == pytest.approx(1, abs=1e-4)


def test_identical_points_lie_in_the_middle(drawn, answers):
    at_one = {"ssdml": drawn["ssdml"]._replace(points=np.ones((N, 2)))}
    data = explorer_data(at_one, answers, None)
    np.testing.assert_allclose(unpacked(data["methods"][0]["points"], "<u2"), 32767, atol=1)


def test_unknown_confidence_is_null(drawn, answers):
    found = Predictions(np.zeros(N_TEST, int), np.full(N_TEST, np.nan, np.float32))
    kept = {"ssdml": replace(answers["ssdml"], predictions=found)}
    (method,) = explorer_data(drawn, kept, None)["methods"]
    assert method["confidence"] is None
    assert method["predicted"] is not None


def test_texts_follow_the_order_of_the_map(drawn, answers):
    thumbnails = Thumbnails(np.arange(40), [f"text {i}" for i in range(40)], b"", (0, 0), 0)
    assert explorer_data(drawn, answers, thumbnails)["thumbnails"] == {
        "texts": [f"text {i}" for i in ROWS]
    }


def test_pictures_are_located_in_the_sheet(drawn, answers):
    rows = np.unique(np.append(ROWS, [0, 40]))
    thumbnails = Thumbnails(rows, [], b"sheet", (2, 3), 4)
    sheet = explorer_data(drawn, answers, thumbnails)["thumbnails"]
    np.testing.assert_array_equal(rows[unpacked(sheet["places"], "<i4")], ROWS)
    assert base64.b64decode(sheet["sheet"]) == b"sheet"


@pytest.mark.parametrize("rows", [np.arange(31), np.arange(3, 60)], ids=["not 31", "not 2"])
def test_incomplete_thumbnails_are_omitted(drawn, answers, rows):
    thumbnails = Thumbnails(rows, [f"text {i}" for i in rows], b"", (0, 0), 0)
    assert explorer_data(drawn, answers, thumbnails)["thumbnails"] is None


@pytest.mark.parametrize("lost", ["no answers", "other rows", "no maps"])
def test_no_data_without_answers_for_the_rows(drawn, answers, lost):
    short = {"ssdml": replace(answers["ssdml"], rows=np.arange(3))}
    kept = {"no answers": {}, "other rows": short, "no maps": answers}[lost]
    assert explorer_data({} if lost == "no maps" else drawn, kept, None) is None


def of_matrix(counts):
    true, predicted = np.nonzero(counts)
    return Confusion(true, predicted, counts[true, predicted])


def test_few_classes_have_a_confusion_matrix():
    shown = confusion_table(of_matrix(np.array([[6, 2], [0, 0]])), ["a", "b"])
    assert [cell.n_samples for cell in shown.matrix[0]] == [6, 2]
    assert [cell.share for cell in shown.matrix[0]] == [0.75, 0.25]
    assert [cell.share for cell in shown.matrix[1]] == [0, 0]  # a class without test samples
    assert shown.pairs == []


def test_many_classes_list_the_commonest_confusions():
    n = MAX_CLASSES + 3
    counts = 50 * np.eye(n, dtype=int)
    counts[2, 7], counts[7, 2] = 9, 30
    shown = confusion_table(of_matrix(counts), [f"c{i}" for i in range(n)])
    assert shown.matrix == []
    assert [(pair.true, pair.predicted, pair.n_samples) for pair in shown.pairs] == [
        ("c7", "c2", 30),
        ("c2", "c7", 9),
    ]
    assert shown.pairs[0].share == 30 / 80


def test_the_list_of_confusions_is_limited(rng):
    n = MAX_CLASSES + 8
    shown = confusion_table(of_matrix(rng.integers(1, 9, (n, n))), [str(i) for i in range(n)])
    assert len(shown.pairs) == MAX_PAIRS
