"""DeepSSDML: embedding, predictions, validation scores, progress and reproducibility."""

from __future__ import annotations

import pickle
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from ssdml import DeepSSDML
from ssdml.deep import alternation, trainer
from ssdml.deep.checkpoints import run_seed
from ssdml.evaluation import evaluate, triplet_purity
from ssdml.metric.alternation import learn_metric
from ssdml.networks.augmentation import RandomViews
from ssdml.utils.labels import confidences
from ssdml.utils.progress import Stages
from tests.deep import DEVICE, assert_same_weights, small_model, small_network


class Noisy(RandomViews):
    def __call__(self, samples, generator):
        views = super().__call__(samples, generator)
        return views + 0.1 * torch.rand_like(views)


class TestWhatIsLearned:
    def test_embedding_beats_the_input(self, fitted, digits):
        X, y, _ = digits
        before = evaluate(X.reshape(len(X), -1), y, random_state=0)
        after = evaluate(fitted.transform(X), y, random_state=0)
        assert after["NMI"] > before["NMI"]
        assert after["R@1"] >= before["R@1"] - 1
        assert (fitted.transduction_ == y).mean() > 0.85

    def test_metric_is_orthonormal(self, fitted):
        L = fitted.components_
        assert L.shape == (16, 32)
        np.testing.assert_allclose(L @ L.T, np.eye(16), atol=1e-6)

    def test_given_labels_stay_and_distributions_sum_to_one(self, fitted, digits):
        _, _, labels = digits
        known = labels >= 0
        assert (fitted.transduction_[known] == labels[known]).all()
        np.testing.assert_allclose(fitted.label_distributions_.sum(axis=1), 1, atol=1e-5)

    def test_transform_joins_unit_embedding_and_weighted_input(self, fitted, digits):
        X, _, _ = digits
        Z = fitted.transform(X)
        assert Z.shape[1] == len(fitted.get_feature_names_out())
        np.testing.assert_allclose(np.linalg.norm(Z[:, :16], axis=1), 1, atol=1e-5)
        side = fitted.input_projection_(X.reshape(len(X), -1))
        np.testing.assert_allclose(Z[:, 16:], fitted.input_weight_ * side, atol=1e-6)

    def test_transform_does_not_depend_on_the_batch(self, fitted, digits):
        X, _, _ = digits
        each = np.vstack([fitted.transform(X[i : i + 1]) for i in range(5)])
        np.testing.assert_allclose(each, fitted.transform(X[:5]), atol=1e-5)

    def test_predicts_classes_from_the_proxies(self, fitted, digits):
        X, y, _ = digits
        distributions = fitted.predict_proba(X)
        np.testing.assert_allclose(distributions.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(fitted.predict(X), distributions.argmax(axis=1))
        assert (fitted.predict(X) == y).mean() > 0.6

    @pytest.mark.parametrize("stay", [True, False])
    def test_keeps_proxies_unless_class_means_agree_better(self, digits, monkeypatch, stay):
        X, _, labels = digits
        asked = []

        def proxy_accuracy(classes, embedding, proxies):
            asked.append((classes, embedding, proxies.copy()))
            return 0.5 if stay else float(len(asked))

        monkeypatch.setattr(trainer, "proxy_accuracy", proxy_accuracy)
        model = small_model(epochs=1).fit(X, labels)
        (classes, embedding, learned), (_, _, means) = asked
        np.testing.assert_array_equal(classes, model.transduction_)
        np.testing.assert_allclose(embedding, model.transform(X)[:, :16], atol=1e-5)
        np.testing.assert_allclose(means, model.label_distributions_.T @ embedding, atol=1e-4)
        found = model.network_.proxies.detach().numpy()
        directions = means / np.linalg.norm(means, axis=1, keepdims=True)
        np.testing.assert_allclose(found, learned if stay else directions, atol=1e-6)
        assert np.array_equal(found, learned) == stay

    def test_predicts_classes_after_few_steps(self, digits):
        X, _, labels = digits
        model = small_model(epochs=1, learning_rate=1e-4).fit(X, labels)
        assert (model.predict(X) == model.transduction_).mean() > 0.6

    def test_propagation_accuracy_needs_informative_labels(self, fitted, digits):
        X, _, labels = digits
        assert fitted.history_[0]["propagation_accuracy"] > 0.6
        known = np.flatnonzero(labels >= 0)
        labels = labels.copy()
        labels[known] = np.random.default_rng(0).permutation(labels[known])
        model = small_model(epochs=1, epochs_per_partition=1, input_edges=0.2).fit(X, labels)
        assert model.history_[0]["propagation_accuracy"] < 0.4

    def test_metric_starts_where_it_ended(self, digits, monkeypatch):
        X, _, labels = digits
        starts, ends = [], []

        def spy(features, triplets, start, **options):
            expected = {"angle": 40.0, "max_iter": 3, "rescale": True, "device": DEVICE}
            assert options == expected
            starts.append(start)
            found = learn_metric(features, triplets, start, **options)
            ends.append(found.point)
            return found

        monkeypatch.setattr(alternation, "learn_metric", spy)
        small_model(epochs=3, epochs_per_partition=1).fit(X, labels)
        assert len(starts) == 3
        np.testing.assert_allclose(starts[1:], ends[:-1], atol=1e-6)

    def test_proxies_start_random_then_at_class_means(self, digits, monkeypatch):
        """The class means of random features share one direction."""
        X, _, labels = digits
        seen, prepare = [], alternation.AlternationTrainer._prepare

        def spy(run, rng):
            features, found = run.embed("features"), prepare(run, rng)
            seen.append((found, features))
            return found

        monkeypatch.setattr(alternation.AlternationTrainer, "_prepare", spy)
        small_model(epochs=3, epochs_per_partition=1).fit(X, labels)
        first, *later = seen
        assert first[0].proxies is None
        assert len(later) == 2
        for found, features in later:
            means = found.distributions.T @ (features @ found.metric)
            np.testing.assert_allclose(found.proxies, means, rtol=1e-5, atol=1e-4)

    def test_batches_follow_confidence_and_views_are_new(self, digits, monkeypatch):
        X, _, labels = digits
        seen, seeds = [], []
        batches, draw = alternation.AlternationTrainer._batches, alternation.balanced_batches

        def of_run(run, rows, number, rng):
            seen.append((rows, confidences(run.distributions)))
            drawn = batches(run, rows, number, rng)
            seeds.append(run._generator.initial_seed())
            return drawn

        def spy(classes, weights, *args):
            rows, expected = seen[-1]
            np.testing.assert_array_equal(weights[rows], expected[rows])
            assert not np.delete(weights, rows).any()
            return draw(classes, weights, *args)

        monkeypatch.setattr(alternation.AlternationTrainer, "_batches", of_run)
        monkeypatch.setattr(alternation, "balanced_batches", spy)
        small_model(epochs=3, epochs_per_partition=1).fit(X, labels)
        assert len(set(seeds)) == 3

    def test_history_and_seconds_per_partition(self, fitted):
        assert [entry["partition"] for entry in fitted.history_] == [1, 2, 3]
        assert all(np.isfinite(entry["loss"]) for entry in fitted.history_)
        for entry in fitted.history_:
            before, after = entry["objective"]
            assert after <= before
        assert set(fitted.stage_seconds_) == {
            "input",
            *(f"partition {i}" for i in (1, 2, 3)),
            "end",
        }


class TestValidation:
    def test_validation_scores_the_embedding_after_each_partition(self, digits, fitted):
        X, y, labels = digits
        model = small_model().fit(X, labels, validation=(X[:200], y[:200]))
        assert_same_weights(model, fitted)
        assert [set(e["validation"]) >= {"NMI", "R@1"} for e in model.history_] == [True] * 3
        seed = run_seed(0, None)
        scores = evaluate(model.transform(X[:200]), y[:200], random_state=seed)
        assert model.history_[-1]["validation"] == pytest.approx(scores)

    def test_warns_of_validation_on_another_scale(self, digits):
        X, y, labels = digits
        with pytest.warns(UserWarning, match="^validation: samples must have the scale") as told:
            small_model(epochs=1).fit(X, labels, validation=(255 * X, y))
        assert told[0].filename == __file__

    @pytest.mark.parametrize(("rows", "size"), [(20, 8), (21, 7)])
    def test_rejects_validation_of_another_shape(self, digits, rows, size):
        X, y, labels = digits
        message = r"validation must be samples of shape \(1, 8, 8\).*got 21 of shape"
        with pytest.raises(ValueError, match=message):
            small_model().fit(X, labels, validation=(X[:21, :size, :size], y[:rows]))

    def test_rejects_validation_that_is_no_pair(self, digits):
        X, _, labels = digits
        for given, kind in ((X[:20], "ndarray"), ((X[:20],), "tuple")):
            with pytest.raises(ValueError, match=rf"validation must be a pair.*got {kind}"):
                small_model().fit(X, labels, validation=given)

    def test_rejects_validation_without_labels(self, digits):
        X, _, labels = digits
        for none in (np.full(20, -1), np.full(20, np.nan)):
            with pytest.raises(ValueError, match="validation must label some of its samples"):
                small_model().fit(X, labels, validation=(X[:20], none))


class TestProgress:
    def test_progress_shows_epoch_loss_accuracy_and_changes(self, digits, monkeypatch):
        X, _, labels = digits
        told = []
        monkeypatch.setattr(Stages, "_show", lambda stages, done, note="": told.append(note))
        model = small_model(epochs=3).fit(X, labels)
        notes = [note for note in told if note]
        assert len(notes) == 13 + 7  # a step each
        assert notes[7].startswith("epoch 2 of 3, loss ")
        share, changed = model.history_[0]["propagation_accuracy"], model.history_[1]["changed"]
        assert notes[7].endswith(f", propagation accuracy {100 * share:.0f}%")
        told = rf"epoch 3 of 3, loss \d+\.\d{{3}}, {100 * changed:.1f}% changed class"
        assert re.fullmatch(told, notes[-1])
        assert [len(entry["losses"]) for entry in model.history_] == [2, 1]
        means = [float(note.split("loss ")[1].split(",")[0]) for note in notes[-7:]]
        assert model.history_[-1]["loss"] == pytest.approx(np.mean(means), abs=1e-3)

    def test_published_method_shows_triplet_purity(self, digits, monkeypatch):
        X, y, _ = digits
        told = []
        monkeypatch.setattr(Stages, "_show", lambda stages, done, note="": told.append(note))
        options = {"partition_size": 300, "epochs": 1, "epochs_per_partition": 1}
        model = DeepSSDML.paper(small_network(), 16, **options, random_state=0).fit(X, y)
        right = triplet_purity(model.triplets_, y)
        assert model.history_[0]["purity"] == right
        *_, last = filter(None, told)
        assert last.endswith(f", triplet purity {right['both']:.0f}%")


class TestTheSameAgain:
    def test_same_seed_gives_the_same_bits(self, fitted, digits):
        X, _, labels = digits
        assert_same_weights(fitted, small_model().fit(X, labels))

    def test_dataset_type_and_threads_do_not_matter(self, fitted, digits):
        X, y, labels = digits
        pairs = [(torch.from_numpy(x.copy())[None], int(c)) for x, c in zip(X, y, strict=True)]
        assert_same_weights(fitted, small_model(n_jobs=2).fit(pairs, labels))

    def test_fit_does_not_train_the_given_module(self, digits):
        X, _, labels = digits
        model = small_model(epochs=2)
        before = [p.clone() for p in model.backbone.parameters()]
        clone(model)
        model.fit(X, labels)
        for parameter, kept in zip(model.backbone.parameters(), before, strict=True):
            assert torch.equal(parameter, kept)

    def test_fit_keeps_the_state_of_torchs_generator(self, digits):
        X, _, labels = digits
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        small_model(epochs=2).fit(X, labels)
        assert torch.equal(torch.rand(1), expected)

    def test_views_that_use_torchs_generator_are_the_same(self, digits):
        X, _, labels = digits
        models = [small_model(epochs=2, augment=Noisy()).fit(X, labels) for _ in range(2)]
        assert_same_weights(*models)


class TestPaper:
    def test_published_method_learns_from_neighborhood_triplets(self, digits):
        """Which drive samples away from their own class."""
        X, y, labels = digits
        options = {"partition_size": 300, "epochs": 4, "epochs_per_partition": 2}
        model = DeepSSDML.paper(
            small_network(), 16, **options, learning_rate=1e-2, dampening=0.0, random_state=0
        ).fit(X, labels)
        anchor, positive, negative = model.triplets_[:3]
        assert (y[anchor] == y[positive]).mean() > (y[anchor] == y[negative]).mean() > 0.5
        L = model.components_
        np.testing.assert_allclose(L @ L.T, np.eye(16), atol=1e-6)
        before = evaluate(X.reshape(len(X), -1), y, random_state=0)["R@1"]
        assert evaluate(model.transform(X), y, random_state=0)["R@1"] < before - 5

    def test_published_proxies_are_the_class_means(self, digits):
        X, _, labels = digits
        options = {"partition_size": 300, "epochs": 1, "epochs_per_partition": 1}
        model = DeepSSDML.paper(small_network(), 16, **options, random_state=0).fit(X, labels)
        means = model.label_distributions_.T @ model.transform(X)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        np.testing.assert_allclose(model.network_.proxies.detach(), means, atol=1e-4)
        assert (model.predict(X) == model.transduction_).mean() > 0.5

    def test_published_metric_may_be_free(self, digits):
        X, _, labels = digits
        options = {"partition_size": 300, "epochs": 1, "epochs_per_partition": 1}
        model = DeepSSDML.paper(
            small_network(), 16, **options, orthogonal=False, learning_rate=0.1, random_state=0
        ).fit(X, labels)
        L = model.components_
        assert np.abs(L @ L.T - np.eye(16)).max() > 1e-3


class TestTheFirstPartition:
    @pytest.mark.parametrize("edges", [0.0, 0.2])
    def test_first_batches_hold_known_classes(self, digits, monkeypatch, edges):
        X, y, labels = digits
        seen = []
        loss = alternation.AlternationTrainer._loss

        def spy(run, batch):
            seen.append((batch.rows, batch.classes))
            return loss(run, batch)

        monkeypatch.setattr(alternation.AlternationTrainer, "_loss", spy)
        small_model(epochs=2, input_edges=edges).fit(X, labels)
        rows, classes = (np.concatenate(part) for part in zip(*seen, strict=True))
        assert (labels[rows] >= 0).all() == (edges == 0)
        assert (classes == y[rows]).mean() > 0.9
        np.testing.assert_array_equal(classes[labels[rows] >= 0], labels[rows][labels[rows] >= 0])

    def test_epochs_match_the_parameter(self, digits, monkeypatch):
        X, _, labels = digits
        steps = []
        loss = alternation.AlternationTrainer._loss
        monkeypatch.setattr(
            alternation.AlternationTrainer,
            "_loss",
            lambda run, *args: (steps.append(1), loss(run, *args))[1],
        )
        # 250 rows make 6.25 batches of 40 an epoch: 13 in 2 epochs, then 7 in the third.
        model = small_model(epochs=3).fit(X, labels)
        assert len(model.history_) == 2
        assert len(steps) == 13 + 7


@pytest.fixture(scope="module")
def table(digits):
    """Digits whose pixels are named columns."""
    return pd.DataFrame(digits[0].reshape(len(digits[0]), -1)).add_prefix("pixel")


def flat_model(**options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
    return small_model(backbone=network, epochs=2, partition_size=100, **options)


def test_columns_are_those_of_the_fit(table, digits, tmp_path):
    labels = digits[2]
    model = flat_model().fit(table, labels)
    np.testing.assert_array_equal(model.feature_names_in_, table.columns)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", backbone=model.backbone)
    for fitted in (model, loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(fitted.predict(table), model.predict(table))
        for method in (fitted.predict, fitted.transform, fitted.predict_proba):
            with pytest.raises(ValueError, match="feature names should match"):
                method(table[table.columns[::-1]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(table.to_numpy())
    with pytest.raises(ValueError, match="feature names should match"):
        flat_model().fit(table, labels, validation=(table[table.columns[::-1]], labels))
    assert not hasattr(model.fit(table.to_numpy(), labels), "feature_names_in_")


def test_labels_of_a_table_in_another_order_are_doubted(table, digits):
    labels = pd.Series(digits[2])
    for given in ({"y": labels[::-1]}, {"y": labels, "validation": (table, labels[::-1])}):
        with pytest.warns(UserWarning, match=r"must be in the order of .*\.index\]") as record:
            flat_model().fit(table, **given)
        assert record[0].filename == __file__


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_fit_trains_where_gradients_are_off(table, digits, mode):
    expected = flat_model().fit(table, digits[2]).transform(table)
    with mode():
        found = flat_model().fit(table, digits[2])
        assert not torch.is_grad_enabled()
    np.testing.assert_array_equal(found.transform(table), expected)


@pytest.mark.parametrize(
    "setting", [partial(torch.autocast, "cpu", torch.bfloat16), partial(torch.device, "meta")]
)
def test_settings_of_torch_around_an_estimator_do_not_matter(table, digits, setting, tmp_path):
    model, new = flat_model(), flat_model()
    expected = model.fit(table, digits[2])
    with setting():
        new.fit(table, digits[2]).save(tmp_path / "model")
        loaded = type(new).load(tmp_path / "model", backbone=model.backbone)
        for found in (new, loaded):
            np.testing.assert_array_equal(found.transform(table), expected.transform(table))
            np.testing.assert_array_equal(found.predict_proba(table), expected.predict_proba(table))


def test_device_may_be_one_of_torch(table, digits, tmp_path):
    model = flat_model(device=torch.device("cpu")).fit(table, digits[2])
    model.save(tmp_path / "model")
    assert type(model).load(tmp_path / "model", backbone=model.backbone).device == "cpu"
