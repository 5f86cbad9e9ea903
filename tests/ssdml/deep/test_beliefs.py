"""What network and graph together believe: the targets of consistency."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssdml.deep_run import DeepRun, beliefs
from tests.deep import small_model


@pytest.fixture
def given() -> torch.Tensor:
    return torch.softmax(torch.randn(50, 7, generator=torch.manual_seed(0)), dim=1)


def test_they_are_those_of_bayes_rule(given):
    """Two witnesses who know of each other no more than the prior that the first one has in it."""
    masses, known = given.mean(dim=0), given.flip(0)
    found = beliefs(given, masses, known)
    for i in range(len(given)):
        odds = [float(given[i, c] * known[i, c] / masses[c]) for c in range(7)]
        np.testing.assert_allclose(found[i], np.array(odds) / sum(odds), rtol=1e-5)


def test_without_masses_and_graph_they_are_the_networks(given):
    np.testing.assert_allclose(beliefs(given), given, rtol=1e-6)


def test_neither_even_masses_nor_an_undecided_graph_change_them(given):
    even = torch.full((7,), 1 / 7)
    np.testing.assert_allclose(beliefs(given, even, even.expand_as(given)), given, rtol=1e-5)


def test_what_a_network_says_of_every_item_counts_for_nothing(given):
    """A bias that favours classes by the same factor everywhere is divided away."""
    factors = torch.tensor([8.0, 1, 1, 1, 1, 1, 0.1])
    biased, even = given * factors, torch.ones(7)
    np.testing.assert_allclose(beliefs(biased, factors), beliefs(given, even), rtol=1e-5)


def test_a_graph_that_is_sure_decides_and_one_that_says_the_contrary_leaves_nothing(given):
    sure = torch.nn.functional.one_hot(torch.arange(50) % 7, 7).float()
    np.testing.assert_allclose(beliefs(given, known=sure), sure)
    assert not beliefs(sure, known=sure.roll(1, dims=1)).any()


def test_items_on_which_network_and_graph_contradict_each_other_are_not_trusted(
    digits, monkeypatch
):
    """Not even at threshold 0, where every other is."""
    X, _, labels = digits
    trusted = []
    targets = DeepRun._targets

    def spy(run, weak, rows):
        run.distributions = run.distributions * (np.arange(len(X)) % 2)[:, None]
        classes, found = targets(run, weak, rows)
        trusted.extend(zip(rows % 2, found.tolist(), strict=True))
        return classes, found

    monkeypatch.setattr(DeepRun, "_targets", spy)
    small_model(epochs=1, epochs_per_partition=1, threshold=0.0).fit(X, labels)
    assert set(trusted) == {(0, 0.0), (1, 1.0)}
