"""The best network by validation, and warnings of networks that have learned nothing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from ssdml import DeepSSDML
from ssdml.baselines import DeepBaseline, DeepSupervised, DeepUnsupervised
from ssdml.deep.collapse import CONSTANT, loss_at_chance, single_prediction, spread
from ssdml.deep.held_out import held_out_rows
from ssdml.deep.trainer import PartitionTrainer
from ssdml.evaluation import evaluate
from tests.deep import small_model, small_network

SHORT = {"epochs": 3, "epochs_per_partition": 2, "random_state": 0}
EVERY = [
    DeepSSDML(small_network(), 16, input_edges=0.0, input_weight=0.0, **SHORT),
    DeepSSDML.paper(small_network(), 16, partition_size=60, learning_rate=0.05, **SHORT),
    DeepBaseline("lrml", small_network(), 16, partition_size=60, **SHORT),
    DeepSupervised("triplet", small_network(), 16, n_triplets=200, learning_rate=0.05, **SHORT),
    DeepUnsupervised("nce", small_network(), 16, **SHORT),
]


@pytest.mark.parametrize("estimator", EVERY, ids=lambda e: type(e).__name__)
def test_the_best_epoch_is_kept(digits, monkeypatch, estimator):
    """The scores of the epochs are made up; the weights of the best come back at the end."""
    X, y, labels = digits
    scores, states = iter([50.0, 70.0, 60.0]), []

    def made_up(model, network, held_out, seed):
        states.append({name: part.clone() for name, part in network.state_dict().items()})
        return next(scores)

    monkeypatch.setattr(type(estimator), "_score", made_up)
    model = estimator.set_params(validation_fraction=0.15)
    model.fit(X, labels, validation=(X[:99], y[:99]))
    assert [entry["R@1 per epoch"] for entry in model.history_] == [[50.0, 70.0], [60.0]]
    kept = {k: v for k, v in model.network_.state_dict().items() if k != "proxies"}
    for name, part in kept.items():
        torch.testing.assert_close(part, states[1][name], rtol=0, atol=0)
    assert any(not torch.equal(kept[name], states[2][name]) for name in kept)


def test_validation_score_is_r_at_1_of_the_epoch(digits):
    X, y, labels = digits
    model = small_model(epochs=2, epochs_per_partition=1, validation_fraction=0.2)
    model.fit(X, labels, validation=(X[:99], y[:99]))
    per_epoch = [score for entry in model.history_ for score in entry["R@1 per epoch"]]
    found = evaluate(model.transform(X[:99]), y[:99], scores=["R@1"])["R@1"]
    assert found == pytest.approx(max(per_epoch))
    assert model.history_[0]["validation"]["R@1"] == per_epoch[0]


def test_labels_are_held_out_of_the_training(digits, monkeypatch):
    X, _, labels = digits
    seen, init = [], PartitionTrainer.__init__

    def spy(run, samples, known, *args):
        seen.append(known.copy())
        init(run, samples, known, *args)

    monkeypatch.setattr(PartitionTrainer, "__init__", spy)
    model = small_model(epochs=1, epochs_per_partition=1, validation_fraction=0.4)
    model.fit(X, labels)
    hidden = (labels != -1) & (seen[0] == -1)
    counts = [np.count_nonzero(labels == code) for code in np.unique(labels[labels != -1])]
    assert hidden.sum() == sum(round(0.4 * count) for count in counts)
    assert set(np.unique(seen[0])) == set(np.unique(labels))
    assert {"R@1", "accuracy"} <= set(model.history_[0]["validation"])  # a held-out estimate
    given = labels != -1
    np.testing.assert_array_equal(model.transduction_[given], labels[given])


def test_a_resumed_fit_keeps_the_best(digits, tmp_path):
    X, _, labels = digits
    options = {"epochs": 4, "epochs_per_partition": 2, "validation_fraction": 0.4}
    whole = small_model(**options).fit(X, labels)
    resumed = small_model(checkpoint_dir=tmp_path, **options).fit(X, labels)
    sorted(tmp_path.glob("partition-*"))[-1].unlink()
    resumed = small_model(checkpoint_dir=tmp_path, **options).fit(X, labels)
    np.testing.assert_array_equal(resumed.transform(X), whole.transform(X))


@pytest.mark.parametrize(
    ("fraction", "labels", "message"),
    [
        (0.15, np.repeat([0, 1, -1], 5), "two labels of a class; got 0.15 of at most 5 labels per"),
        (0.5, np.full(9, -1), "two labels of a class; got 0.5 of at most 0 labels per class"),
    ],
)
def test_too_few_labels_to_hold_out_raise(fraction, labels, message):
    with pytest.raises(ValueError, match=f"^fit: validation_fraction must hold out {message}"):
        held_out_rows(labels, fraction, 0, "fit")


def test_validation_without_pairs_raises(digits):
    X, y, labels = digits
    first = np.unique(y, return_index=True)[1]
    with pytest.raises(ValueError, match="validation must label two samples of a class to choose"):
        small_model(validation_fraction=0.2).fit(X, labels, validation=(X[first], y[first]))


class Constant(nn.Module):
    """The same features for all images, up to rounding."""

    def __init__(self):
        super().__init__()
        self.inner = small_network()

    def forward(self, samples):
        features = self.inner(samples)
        return 1e-5 * features + torch.ones_like(features)


def test_a_constant_embedding_is_told(digits):
    X, _, labels = digits
    options = {"epochs": 1, "epochs_per_partition": 1, "input_edges": 0.0, "input_weight": 0.0}
    model = DeepSSDML(Constant(), 16, **options, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, labels)
    told = [str(w.message) for w in caught if w.category is RuntimeWarning]
    message = "after partition 1, the embedding is almost constant: its spread is"
    assert any(line.startswith(message) and "Lower learning_rate=" in line for line in told)
    assert model.history_[0]["spread"] < CONSTANT


def test_spread_of_a_fit_is_in_its_history(digits):
    X, _, labels = digits
    model = small_model(epochs=1, epochs_per_partition=1).fit(X, labels)
    rows = model.transform(X)[:, :16]
    assert 0.5 * spread(rows) < model.history_[0]["spread"] < 2 * spread(rows)


def test_loss_at_chance_and_one_class_are_described():
    stuck = loss_at_chance([2.4, 2.31, 2.305, 2.303, 2.3026], np.log(10), 1e-3)
    assert "hardly below chance: 2.303 in epoch 5" in stuck
    assert "Raise epochs or learning_rate=0.001" in stuck
    assert loss_at_chance([2.4, 2.3], np.log(10), 1e-3) is None  # too early
    assert loss_at_chance([2.4] * 9, None, 1e-3) is None
    single = single_prediction(np.zeros(5, int), 3)
    assert single.startswith("all 5 checked samples are predicted as one of 3 classes. Raise")
    assert single_prediction(np.zeros(5, int), 1) is None


@pytest.mark.parametrize(
    "sign", ["the loss is hardly below chance", "all 400 checked samples|all 500"]
)
def test_a_fit_that_learned_nothing_is_told(digits, monkeypatch, sign):
    X, _, labels = digits
    monkeypatch.setattr("ssdml.deep.collapse.AT_CHANCE", 0.0)
    monkeypatch.setattr("ssdml.deep.collapse.MIN_EPOCHS", 1)
    monkeypatch.setattr(
        "ssdml.deep.trainer.likeliest", lambda values: np.zeros(len(values), np.int64)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        small_model(epochs=1, epochs_per_partition=1).fit(X, labels)
    told = [str(w.message) for w in caught if w.category is RuntimeWarning]
    assert any(line.startswith(tuple(sign.split("|"))) for line in told)
