"""Retrieval from a gallery."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ssdml.cli.app import app
from ssdml.evaluation import evaluate, retrieval as ranking


@pytest.fixture
def searched(rng):
    """Queries and a gallery, each with classes that the other lacks."""
    Z, Zg = rng.random((60, 3)), rng.random((90, 3))
    y, yg = rng.integers(0, 6, 60), rng.integers(1, 8, 90)
    for array in (Z, y, Zg, yg):
        array.flags.writeable = False
    return Z, y, Zg, yg


def scored_slowly(Z, y, Zg, yg, ks):
    """Slow twin: one query at a time, by sums of squared differences."""
    each = []
    for row, label in zip(Z, y, strict=True):
        R = int((yg == label).sum())
        if R == 0:
            continue
        squared = np.square(Zg - row).sum(axis=1)
        right = yg[np.lexsort((np.arange(len(yg)), squared))] == label
        precisions = right.cumsum() / np.arange(1, len(yg) + 1)
        scores = [right[:k].any() for k in ks]
        each.append([*scores, (precisions * right)[:R].sum() / R, right[:R].sum() / R])
    return dict(zip([*(f"R@{k}" for k in ks), "MAP@R", "RP"], 100 * np.mean(each, 0), strict=True))


def test_gallery_scores_match_their_definition(searched):
    ks = (1, 3, 20, 500)
    scores = evaluate(*searched[:2], ks, gallery=searched[2:])
    for name, score in scored_slowly(*searched, ks).items():
        assert scores[name] == pytest.approx(score, rel=1e-12), name
    assert scores["R@500"] == 100


def test_block_size_does_not_matter(searched, monkeypatch):
    whole = evaluate(*searched[:2], gallery=searched[2:])
    monkeypatch.setattr(ranking, "BLOCK_ENTRIES", 200)
    assert evaluate(*searched[:2], gallery=searched[2:]) == pytest.approx(whole, rel=1e-14)


def test_clusters_ignore_the_gallery(searched):
    Z, y, Zg, yg = searched
    alone, among = evaluate(Z, y), evaluate(Z, y, gallery=(Zg, yg))
    assert list(among) == list(alone)
    assert (among["NMI"], among["F1"]) == (alone["NMI"], alone["F1"])
    assert among["R@1"] != alone["R@1"]


def test_query_in_gallery_finds_itself(rng):
    Z = rng.normal(size=(30, 4)).astype(np.float32)
    Z[:, 0] = -0.0
    same = np.abs(Z[:, :1]), Z[:, 1:].astype(np.float64)
    with pytest.warns(UserWarning, match="gallery must hold other rows .* all 30 rows of Z in it"):
        scores = evaluate(Z, np.arange(30), gallery=(np.hstack(same), np.arange(30)))
    assert (scores["R@1"], scores["MAP@R"]) == (100, 100)
    few = Z.round(0)  # equal by chance
    evaluate(few, np.arange(30), gallery=(few, np.arange(30)))


def test_unlabeled_gallery_rows_are_not_searched(searched):
    Z, y, Zg, yg = searched
    more = np.concatenate([Zg, Z]), np.concatenate([yg, np.full(len(Z), -1)])
    assert evaluate(Z, y, gallery=more) == evaluate(Z, y, gallery=(Zg, yg))


def test_classes_without_queries_are_neighbors(rng):
    Z = rng.normal(size=(20, 2))
    y = np.zeros(20, int)
    far = (Z + 100, y)
    assert evaluate(Z, y, ks=(1,), gallery=far)["R@1"] == 100
    with_others = np.concatenate([Z + 1e-9, Z + 100]), np.repeat([5, 0], 20)
    assert evaluate(Z, y, ks=(1,), gallery=with_others)["R@1"] == 0


def test_labels_are_compared_by_name():
    gallery = ([[0.0], [1.0]], ["b", "c"])
    assert evaluate([[0.1], [0.9]], ["b", "c"], ks=(1,), gallery=gallery)["R@1"] == 100
    assert evaluate([[0.1], [0.9]], ["a", "b"], ks=(1,), gallery=gallery)["R@1"] == 0


def test_gallery_without_query_classes_gives_nan(rng):
    with pytest.warns(UserWarning, match=r"y and gallery\[1\] must share a class; got \[0, 1, 2\]"):
        scores = evaluate(rng.normal(size=(9, 2)), np.arange(9) // 3, gallery=([[0.0, 0.0]], [7]))
    assert all(np.isnan(scores[name]) for name in ("R@1", "MAP@R", "RP"))
    assert np.isfinite(scores["NMI"])


def test_command_line_searches_gallery(searched, tmp_path):
    files = [str(tmp_path / f"{name}.npy") for name in ("Z", "y", "Zg", "yg")]
    for file, array in zip(files, searched, strict=True):
        np.save(file, array)
    command = ["evaluate", *files[:2], "--gallery", *files[2:], "--ks", "1,5", "--json"]
    scores = evaluate(*searched[:2], (1, 5), gallery=searched[2:])
    assert json.loads(CliRunner().invoke(app, command).stdout) == pytest.approx(scores)
    failed = CliRunner().invoke(app, [*command[:3], "--gallery", files[2], files[1]])
    assert failed.exit_code == 1
    assert "y must have 90 labels, one per row" in failed.stderr


@pytest.mark.parametrize(
    ("gallery", "message"),
    [
        (([[0.0]], [1]), "gallery must have the 2 columns of Z; got 1"),
        (([[0.0, 1.0]], [1, 2]), r"gallery\[1\] must have a label for each of the 1 rows"),
        (([[0.0, 1.0]], [-1]), r"gallery\[1\] must contain labels"),
        (([[0.0, np.nan]], [1]), r"gallery\[0\]"),
        (([[0.0, 1.0]],), r"gallery must be a pair \(rows, labels\); got tuple of 1"),
        (np.zeros((2, 2)), r"gallery must be a pair \(rows, labels\); got ndarray\."),
    ],
)
def test_bad_gallery_is_refused(gallery, message):
    with pytest.raises(ValueError, match=message):
        evaluate([[0.0, 1.0], [1.0, 1.0]], [0, 0], gallery=gallery)


def test_gallery_of_other_columns_is_refused():
    with pytest.raises(ValueError, match="gallery must have the 3 columns of embeddings; got 2"):
        ranking.retrieval_scores(np.eye(3), [0, 0, 1], 1, gallery=(np.eye(2), [0, 1]))
