"""What the script of a report reads: the same rows, in the order and form that it expects."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from ssdml.evaluation.predictions import Predictions
from ssdml.experiments.report.explorer import SURE, explorer_data
from ssdml.experiments.report.figures import ClassMap
from ssdml.experiments.runs.details import Answers, MapSample
from ssdml.experiments.runs.thumbnails import Cards

N, N_TEST, K = 9, 7, 3
ROWS = np.array([10, 12, 13, 15, 18, 30, 31, 2, 14])  # test rows, then labeled ones


def unpacked(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.fixture
def drawn(rng):
    y, is_labeled = np.arange(N) % 2, np.arange(N) >= N_TEST
    sample = MapSample(np.zeros((N, 2), np.float32), y, is_labeled)
    return {"ssdml": ClassMap(rng.normal(size=(N, 2)) * [5, 1], sample, ["a", "b"])}


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
    neighbors = unpacked(method["neighbors"], "<i4").reshape(N_TEST, method["width"])
    np.testing.assert_array_equal(neighbors, answers["ssdml"].neighbors)
    confidence = unpacked(method["confidence"], "<u1") / SURE
    np.testing.assert_allclose(confidence, answers["ssdml"].predictions.confidence, atol=0.5 / SURE)
    assert (data["n"], data["nTest"], data["cards"]) == (N, N_TEST, None)


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
    cards = Cards(np.arange(40), [f"text {i}" for i in range(40)], b"", (0, 0), 0)
    assert explorer_data(drawn, answers, cards)["cards"] == {"texts": [f"text {i}" for i in ROWS]}


def test_pictures_are_located_in_the_sheet(drawn, answers):
    rows = np.unique(np.append(ROWS, [0, 40]))
    cards = Cards(rows, [], b"sheet", (2, 3), 4)
    told = explorer_data(drawn, answers, cards)["cards"]
    np.testing.assert_array_equal(rows[unpacked(told["places"], "<i4")], ROWS)
    assert base64.b64decode(told["sheet"]) == b"sheet"


@pytest.mark.parametrize("rows", [np.arange(31), np.arange(3, 60)], ids=["not 31", "not 2"])
def test_incomplete_thumbnails_are_omitted(drawn, answers, rows):
    cards = Cards(rows, [f"text {i}" for i in rows], b"", (0, 0), 0)
    assert explorer_data(drawn, answers, cards)["cards"] is None


@pytest.mark.parametrize("lost", ["no answers", "other rows", "no maps"])
def test_no_data_without_answers_for_the_rows(drawn, answers, lost):
    short = {"ssdml": replace(answers["ssdml"], rows=np.arange(3))}
    kept = {"no answers": {}, "other rows": short, "no maps": answers}[lost]
    assert explorer_data({} if lost == "no maps" else drawn, kept, None) is None
