"""The published choice of a network, and the switches that explain the published method."""

from __future__ import annotations

import json

import explain_published
import numpy as np
import pytest
from reproduction.validation import WithoutValidation, chosen_methods, validation_rows

from ssdml.datasets import Budget, Dataset, label_scarce_split
from ssdml.experiments.methods.base import with_parameters
from ssdml.experiments.methods.deep import OfImages
from ssdml.experiments.methods.tuning import GRIDS
from ssdml.graphs import class_masses, knn_graph, mine_triplets, propagate_affinities
from tests.deep import small_images, small_published_model

BASELINES = ("lrml", "seraph", "isdml", "apllr", "apit", "triplet", "angular")


@pytest.fixture
def toy():
    X, y, _ = small_images(n=300)
    return Dataset("toy", X.reshape(len(X), -1), y, tuple("0123456789"), item_shape=(8, 8))


def test_the_published_method_and_its_baselines_are_tuned_alike():
    for name in BASELINES:
        assert GRIDS[f"deep-{name}"] == GRIDS["deep-ssdml-paper"]


def test_the_best_setting_and_epoch_by_validation_are_kept(toy):
    budget = Budget(3)
    split = label_scarce_split(toy, budget, seed=1)
    settings = [{"learning_rate": 1e-9}, {"learning_rate": 0.05}]
    estimator = small_published_model(partition_size=80, dampening=0.0)
    model = WithoutValidation(estimator, (8, 8), toy, budget, settings, 1)
    y = split.partial_labels(toy.y)
    model.fit(toy.X[split.train], y)
    scores = {}
    held_out = validation_rows(toy.y[split.train], y, 0.15, 1)
    assert (y[held_out] == -1).all()
    others = np.setdiff1d(np.arange(len(y)), held_out)
    images = toy.X[split.train].reshape(-1, 8, 8)
    for number, setting in enumerate(settings):
        other = small_published_model(partition_size=80, dampening=0.0, validation_fraction=0.15)
        other.set_params(**setting).fit(
            images[others],
            y[others],
            validation=(images[held_out], toy.y[split.train][held_out]),
        )
        scores[number] = max(s for entry in other.history_ for s in entry["R@1 per epoch"])
    assert model.best_params_ == settings[max(scores, key=scores.get)]
    assert model.transform(toy.X[split.test]).shape == (len(split.test), 16)


def test_the_last_network_is_that_of_the_training_whose_best_is_kept(toy):
    split = label_scarce_split(toy, Budget(3), seed=1)
    X, y = toy.X[split.train], split.partial_labels(toy.y)
    estimator = small_published_model(partition_size=80, dampening=0.0)
    last = WithoutValidation(estimator, (8, 8), toy, Budget(3), None, 1).fit(X, y)
    best = WithoutValidation(estimator, (8, 8), toy, Budget(3), [{}], 1).fit(X, y)
    for ours, theirs in zip(last.estimator_.history_, best.estimator_.history_, strict=True):
        assert ours["losses"] == theirs["losses"]
    assert "R@1 per epoch" not in last.estimator_.history_[0]


@pytest.mark.parametrize(
    ("keep", "tune", "names"),
    [
        ("last", False, ["input", "deep-lrml[decay=0.9]"]),
        ("best", False, ["input", "deep-lrml[decay=0.9;validation_fraction=0.15]"]),
        (
            "both",
            True,
            [
                "input",
                "deep-lrml[keep=last;decay=0.9;validation_fraction=0.15]",
                "deep-lrml[decay=0.9;validation_fraction=0.15;settings=6]",
            ],
        ),
    ],
)
def test_rows_last_and_best(toy, keep, tune, names):
    known = {
        "input": lambda seed, n_jobs: None,
        "deep-lrml": lambda seed, n_jobs: OfImages(small_published_model(), (8, 8)),
    }
    methods = ["input", "deep-lrml[decay=0.9]"]
    found = chosen_methods(methods, known, with_parameters, toy, Budget(3), keep, tune)
    assert list(found) == names
    if keep != "last":
        model = found[names[-1]](4, None)
        assert isinstance(model, WithoutValidation)
        assert (model.estimator.decay, model.random_state) == (0.9, 4)
        assert len(model.settings) == (6 if tune else 1)


@pytest.fixture
def graph(rng):
    return knn_graph(rng.normal(size=(80, 3)), 6)


def values(order, graph):
    truth = np.arange(80) % 4
    labels = np.where(np.arange(80) < 12, truth, -1)
    return explain_published.values_of(order, graph, labels, truth, 0.9), labels, truth


def test_published_order_and_negatives_are_those_of_the_method(graph):
    found, labels, _ = values("affinities", graph)
    expected = mine_triplets(
        graph, propagate_affinities(graph, labels, decay=0.9), strategy="neighborhood"
    )
    for part, other in zip(
        explain_published.neighborhood_triplets(graph, found), expected, strict=True
    ):
        np.testing.assert_array_equal(part, other)
    found, labels, _ = values("labels", graph)
    expected = mine_triplets(graph, class_masses(graph, labels, decay=0.9), strategy="neighborhood")
    mined = explain_published.neighborhood_triplets(graph, found)
    np.testing.assert_array_equal(mined.positive, expected.positive)


def test_the_oracle_puts_the_true_class_first(graph):
    found, _, truth = values("oracle", graph)
    mined = explain_published.neighborhood_triplets(graph, found)
    same = truth[graph.indices] == truth[:, None]
    right = (truth[mined.positive] == truth[mined.anchor]).reshape(80, 3).sum(axis=1)
    np.testing.assert_array_equal(right, np.minimum(same.sum(axis=1), 3))


def test_far_negatives_are_no_neighbors_and_of_other_classes(graph):
    found, _, truth = values("oracle", graph)
    mined = explain_published.neighborhood_triplets(graph, found, far=True)
    near = (graph.indices[mined.anchor] == mined.negative[:, None]).any(axis=1)
    assert not near.any()
    assert (truth[mined.negative] != truth[mined.anchor]).all()


def test_variants_of_mining_write_rows_and_resume(example, tmp_path):
    X, y, _ = small_images(n=120)
    np.savez(tmp_path / "toy.npz", X=X, y=y)
    given = [tmp_path / "toy.npz", "--order", "oracle", "--seeds", 1, "--out", tmp_path]
    given += ["--epochs", 2, "--epochs-per-partition", 1]
    shown = example("explain_published.py", *given)
    _, *lines = shown.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["oracle", negatives, "0", partition] for negatives in ("near", "far") for partition in "12"
    ]
    near, far = map(json.loads, (tmp_path / "toy.jsonl").read_text().splitlines())
    rights = [found["right"] for found in near["partitions"] + far["partitions"]]
    assert [line.split()[4] for line in lines] == [f"{right:.1f}%" for right in rights]
    assert far["partitions"][0]["right"] > near["partitions"][0]["right"]
    assert example("explain_published.py", *given) == shown
    assert len((tmp_path / "toy.jsonl").read_text().splitlines()) == 2
