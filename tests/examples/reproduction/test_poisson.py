"""The protocol of Calder et al. (2020) on small data, and the autoencoder's objective."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from reproduction import poisson
from reproduction.poisson import PUBLISHED, draw_labels, table_lines, transductive_accuracy
from reproduction.vae import Autoencoder, vae_codes
from torch.distributions import Bernoulli, Normal, kl_divergence

from ssdml.datasets import Dataset
from ssdml.experiments import METHODS
from tests.deep import small_images


@pytest.fixture
def small_sets(monkeypatch):
    """200 images in two classes take the place of MNIST."""
    X, y, _ = small_images(n=200)
    X = X.reshape(200, -1)
    X = 255 * (X - X.min()) / (X.max() - X.min())
    data = Dataset("mnist", X.astype(np.float32), y, tuple("0123456789"))
    monkeypatch.setattr("ssdml.datasets.load_dataset", lambda name: data)
    return data


def test_the_loss_is_the_negative_evidence_bound(monkeypatch):
    torch.manual_seed(0)
    network, rows = Autoencoder(6, 2), torch.rand(5, 6)
    noise = torch.randn(5, 2)
    monkeypatch.setattr(torch, "randn_like", lambda mean: noise)
    hidden = network.encoder(rows)
    codes = Normal(network.mean(hidden), (network.log_variance(hidden) / 2).exp())
    logits = network.decoder(codes.mean + codes.stddev * noise)
    # The cross entropy of a gray value is the log probability, continued from 0 and 1.
    kept = Bernoulli(logits=logits, validate_args=False).log_prob(rows).sum()
    divergence = kl_divergence(codes, Normal(torch.zeros(5, 2), torch.ones(5, 2))).sum()
    torch.testing.assert_close(network.loss(rows), divergence - kept)


def test_codes_separate_what_pixels_separate(rng):
    y = np.arange(400) % 2
    X = np.clip(np.where(y[:, None], [1, 1, 0, 0], [0, 0, 1, 1]) + 0.1 * rng.random((400, 4)), 0, 1)
    before = torch.random.get_rng_state()
    Z = vae_codes(X, 2, epochs=30)
    assert torch.equal(before, torch.random.get_rng_state())
    means = np.stack([Z[y == c].mean(axis=0) for c in (0, 1)])
    assert (np.linalg.norm(Z[:, None] - means, axis=2).argmin(axis=1) == y).all()
    np.testing.assert_array_equal(Z, vae_codes(X, 2, epochs=30))


def test_draws_are_balanced_and_nested(rng):
    y = rng.integers(3, size=90) + 4
    few, many = draw_labels(y, 2, 7), draw_labels(y, 5, 7)
    assert np.unique(many[many >= 0], return_counts=True)[1].tolist() == [5, 5, 5]
    assert (many[few >= 0] == few[few >= 0]).all()
    assert (many[many >= 0] == y[many >= 0]).all()
    assert (draw_labels(y, 5, 8) != many).any()


def test_accuracy_is_of_unlabeled_rows(rng, monkeypatch):
    """By the transduction where there is one, which ``predict`` need not repeat."""
    X, y = rng.standard_normal((60, 3)), rng.integers(3, size=60)
    labels = draw_labels(y, 2, 1)

    class Told:
        def fit(self, X, given):
            np.testing.assert_array_equal(given, labels)
            self.transduction_ = np.where(given >= 0, -9, 1)  # wrong where labeled

    monkeypatch.setitem(METHODS, "told", lambda seed, n_jobs: Told())
    wanted = 100 * np.mean(y[labels < 0] == 1)
    assert transductive_accuracy("told", X, y, 2, 1) == pytest.approx(wanted)
    knn = METHODS["knn"](1, None).fit(X, labels).predict(X)
    wanted = 100 * np.mean(y[labels < 0] == knn[labels < 0])
    assert transductive_accuracy("knn", X, y, 2, 1) == pytest.approx(wanted)


@pytest.mark.usefixtures("small_sets")
def test_the_script_prints_published_scores_and_resumes(example, tmp_path, monkeypatch):
    given = ["mnist", "--trials", 2, "--rows", 150, "--epochs", 2, "--out", tmp_path]
    given += ["--labels-per-class", 1, 2, "--methods", "logistic", "poisson[n_neighbors=5]"]
    shown = example("reproduce_poisson.py", *given)
    title, heads, *lines, published = shown.splitlines()
    assert title == "mnist, 150 rows: accuracy on the unlabeled rows in percent"
    assert heads.split() == ["labels", "per", "class", "1", "2"]
    assert [line.split()[0] for line in lines] == ["logistic", "poisson[n_neighbors=5]"]
    assert re.fullmatch(r"poisson, published +90\.2 \(4\.0\) +93\.6 \(1\.6\)", published)
    (path,) = tmp_path.glob("*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 8
    monkeypatch.setattr(poisson, "transductive_accuracy", None)
    assert example("reproduce_poisson.py", *given) == shown


@pytest.mark.usefixtures("small_sets")
def test_unknown_methods_are_a_usage_error(example, tmp_path, capsys):
    given = ["mnist", "--rows", 50, "--epochs", 1, "--out", tmp_path, "--methods", "nosuch"]
    with pytest.raises(SystemExit, match="2"):
        example("reproduce_poisson.py", *given)
    assert "method must be one of" in " ".join(capsys.readouterr().err.split())


def test_published_accuracies_rise_with_labels():
    """Copied by hand: the spread falls, too."""
    for scores in PUBLISHED.values():
        means, deviations = zip(*(scores[n] for n in poisson.BUDGETS), strict=True)
        assert sorted(means) == [*means]
        assert sorted(deviations, reverse=True) == [*deviations]
    (_, *lines) = table_lines("digits", [{"method": "knn", "labels": 3, "accuracy": 1.0}])
    assert lines == ["knn                      1.0 (0.0)"]
