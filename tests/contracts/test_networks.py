"""Contract of all estimators that train a network."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from ssdml import DeepSSDML
from ssdml.baselines import DeepBaseline, DeepSupervised, DeepUnsupervised
from ssdml.deep.trainer import PartitionTrainer
from ssdml.networks.metric_network import MetricNetwork
from tests.deep import DEVICE, N_TRIPLETS, assert_same_weights, small_images, small_network

SHORT = {"epochs": 2, "epochs_per_partition": 1, "batch_size": 40, "device": DEVICE}
TRIPLETS = SHORT | {"batch_size": 100}
# Baselines with options that make them fast: the contract does not score the metric.
METHODS = {
    "lrml": {},
    "seraph": {"tol": 0.1},
    "isdml": {"tol": 0.01},
    "apllr": {},
    "apit": {"prior": "gmml"},
}
ESTIMATORS = {
    "ssdml": DeepSSDML(small_network(), 16, partition_size=90, **SHORT),
    "paper": DeepSSDML.paper(small_network(), 16, partition_size=90, **TRIPLETS),
    **{
        name: DeepBaseline(name, small_network(), 16, method_params=few, partition_size=90, **SHORT)
        for name, few in METHODS.items()
    },
    "triplet": DeepSupervised("triplet", small_network(), 16, n_triplets=300, **TRIPLETS),
    "angular": DeepSupervised("angular", small_network(), 16, n_triplets=300, **TRIPLETS),
    "exemplar": DeepUnsupervised("exemplar", small_network(), 16, **SHORT),
    "rotnet": DeepUnsupervised("rotnet", small_network(), 16, **SHORT),
    "nce": DeepUnsupervised("nce", small_network(), 16, **SHORT),
    "deepcluster": DeepUnsupervised(
        "deepcluster", small_network(), 16, method_params={"n_clusters": 12}, **SHORT
    ),
    "suml": DeepUnsupervised(
        "suml", small_network(), 16, method_params={"n_triplets": 60, "max_iter": 2}, **SHORT
    ),
}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", autouse=True)
def few_triplets():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssdml.deep.alternation.N_TRIPLETS", N_TRIPLETS)
        yield


@pytest.fixture(scope="module")
def data():
    """Read-only digits, some of them labeled."""
    X, _, labels = small_images(n=140)
    X.flags.writeable = labels.flags.writeable = False
    return X, labels


def fitted(estimator, data, **changes):
    return clone(estimator).set_params(**({"random_state": 0} | changes)).fit(*data)


@pytest.fixture(scope="module")
def plain(data, few_triplets):
    """Fit each estimator once."""
    return cache(lambda estimator: fitted(estimator, data))


@every_estimator
def test_unfitted_estimators_raise(estimator, data):
    for method in ("transform", "predict", "predict_proba"):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            getattr(clone(estimator), method)(data[0])


@every_estimator
def test_same_seed_gives_the_same_bits(estimator, data, plain):
    before = torch.get_rng_state()
    again = fitted(estimator, data, n_jobs=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same_weights(plain(estimator), again)


@every_estimator
def test_interrupted_fit_is_not_fitted(estimator, data, plain, monkeypatch):
    """Not even as before: the input projection is that of the new samples by then."""

    def stop(run, show):
        raise KeyboardInterrupt

    model = copy.copy(plain(estimator))
    monkeypatch.setattr(PartitionTrainer, "partition", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.transform(data[0])


@every_estimator
def test_interrupted_fit_resumes_to_the_same_bits(estimator, data, plain, tmp_path, monkeypatch):
    partition = PartitionTrainer.partition

    def stop(run, show):
        if run.history:
            raise KeyboardInterrupt
        return partition(run, show)

    monkeypatch.setattr(PartitionTrainer, "partition", stop)
    with pytest.raises(KeyboardInterrupt):
        fitted(estimator, data, checkpoint_dir=tmp_path)
    monkeypatch.undo()
    resumed = fitted(estimator, data, checkpoint_dir=tmp_path)
    assert "partition 1" not in resumed.stage_seconds_
    assert_same_weights(plain(estimator), resumed)


@every_estimator
def test_rejects_a_loss_that_is_not_finite(estimator, data):
    with pytest.raises(FloatingPointError, match=r"got \S+ at step .*Lower learning_rate=1e\+30"):
        fitted(estimator, data, learning_rate=1e30, epochs=4, epochs_per_partition=4)


@every_estimator
def test_epochs_have_losses_and_steps_show_progress(estimator, data, monkeypatch):
    told = []
    monkeypatch.setattr(
        "ssdml.utils.progress.Stages._show", lambda stages, done, note="": told.append((done, note))
    )
    model = fitted(estimator, data, epochs=3, epochs_per_partition=2)
    assert [len(entry["losses"]) for entry in model.history_] == [2, 1]
    assert np.isfinite(np.concatenate([entry["losses"] for entry in model.history_])).all()
    steps = [(done, note) for done, note in told if note]
    assert [done for done, _ in steps].count(1.0) == 2
    epochs = [int(note.split()[1]) for _, note in steps]
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2, 3}


@every_estimator
def test_batch_may_exceed_the_partition(estimator, data):
    model = fitted(estimator, data, batch_size=400, epochs=3, epochs_per_partition=3)
    assert np.isfinite(model.history_[0]["losses"]).all()


@every_estimator
def test_mixed_precision_is_for_steps_only(estimator, data, plain, monkeypatch):
    seen = set()
    outputs = MetricNetwork.outputs

    def spy(network, samples):
        made = outputs(network, samples)
        seen.add((torch.is_grad_enabled(), network.mixed, made.dtype))
        return made

    monkeypatch.setattr(MetricNetwork, "outputs", spy)
    model = fitted(estimator, data, mixed_precision=True)
    assert {mixed for steps, mixed, _ in seen if steps} == {True}
    assert (False, False, torch.float32) in seen
    assert {dtype for _, _, dtype in seen} == {torch.float32}
    weights, exact = (one.network_.state_dict() for one in (model, plain(estimator)))
    assert {part.dtype for part in weights.values()} == {torch.float32}
    name = next(name for name in weights if name.startswith("backbone") and "weight" in name)
    assert 0 < (weights[name] - exact[name]).norm() < 0.2 * exact[name].norm()


@every_estimator
def test_loaded_model_embeds_and_predicts_alike(estimator, data, plain, tmp_path):
    model = plain(estimator)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", backbone=small_network())
    np.testing.assert_array_equal(loaded.transform(data[0]), model.transform(data[0]))
    np.testing.assert_array_equal(loaded.predict(data[0]), model.predict(data[0]))
    assert loaded.get_params().keys() == model.get_params().keys()


def test_names_come_back_from_a_loaded_model(data, plain, tmp_path):
    X, labels = data
    names = np.array([*(f"digit {d}" for d in range(10)), None], dtype=object)
    model = fitted(ESTIMATORS["ssdml"], (X, names[labels]))
    model.save(tmp_path / "model")
    expected = names[plain(ESTIMATORS["ssdml"]).predict(X)]
    for named in (model, type(model).load(tmp_path / "model", backbone=small_network())):
        np.testing.assert_array_equal(named.predict(X), expected)
        np.testing.assert_array_equal(named.transduction_[labels >= 0], names[labels[labels >= 0]])


@every_estimator
def test_embedding_has_unit_rows_and_n_components(estimator, data, plain):
    model = plain(estimator)
    assert model.components_.shape == (16, 32)
    Z = model.transform(data[0])[:, :16]
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-5)


@every_estimator
def test_labeled_samples_keep_their_labels(estimator, data, plain):
    _, labels = data
    model = plain(estimator)
    known = labels != -1
    np.testing.assert_array_equal(model.transduction_[known], labels[known])


@every_estimator
def test_predictions_agree_with_the_transduction(estimator, data, plain):
    model = plain(estimator)
    assert (model.predict(data[0]) == model.transduction_).mean() > 0.3


@every_estimator
def test_score_is_accuracy_on_labeled_samples(estimator, data, plain):
    model, (X, labels) = plain(estimator), data
    right = sum(c == label for c, label in zip(model.predict(X), labels, strict=True) if label >= 0)
    assert model.score(X, labels) == pytest.approx(right / 50)
    with pytest.raises(ValueError, match=r"score: y must contain labels.*Score rows with labels"):
        model.score(X, np.full(len(X), -1))


@every_estimator
def test_faiss_index_finds_the_nearest_samples(estimator, data, plain):
    model, (X, _) = plain(estimator), data
    queries = model.transform(X[:5])
    squares, samples = model.to_faiss(X[5:]).search(queries, 3)
    full = ((queries[:, None] - model.transform(X[5:])) ** 2).sum(axis=2)
    np.testing.assert_allclose(squares, np.sort(full, axis=1)[:, :3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(full, samples, 1), squares, rtol=1e-4, atol=1e-5)
