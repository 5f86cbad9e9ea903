"""Classes by classifiers and graph together: their formula, what they may see, hard cases."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from ssdml import SSDML
from ssdml.classification import learning, pool
from ssdml.classification.confidence import confidence_power
from ssdml.classification.forms import forms_with_graphs
from ssdml.classification.learning import (
    Evidence,
    HeldOut,
    learn_evidence,
    other_rows,
    without_copies,
)
from ssdml.classification.trees import TreeClassifier
from ssdml.graphs import adjacency, knn_graph
from ssdml.graphs.propagation.class_prior import balance_factors, estimate_prior, reweighted
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.linalg import random_orthonormal
from ssdml.utils.parallel import threads


def learned(X, labels, k=10):
    """Evidence and distributions of a fit with one round."""
    rng = np.random.default_rng(0)
    forms = forms_with_graphs(X, min(k, len(X) - 1), labels=labels, rng=rng)
    with threads(1) as pool:
        diffusions = [Diffusion(adjacency(form.graph), pool) for form in forms]
        evidence = learn_evidence(forms, labels, diffusions)
        return evidence, evidence.on(diffusions[evidence.form])


def clusters(rng, n=180, d=6, n_classes=3, distance=3.0):
    truth = np.arange(n) % n_classes
    return rng.standard_normal((n, d)) + distance * np.eye(n_classes, d)[truth], truth


@pytest.fixture
def problem(rng):
    """180 rows of three clusters, ten of each labeled."""
    X, truth = clusters(rng)
    return X, truth, np.where(np.arange(180) < 30, truth, -1)


def folds_by_rank(codes, rng):
    """Folds that depend on the order of the rows alone, so that renaming changes nothing."""
    ranks = np.array([(codes[:i] == code).sum() for i, code in enumerate(codes)])
    return np.where(np.bincount(codes)[codes] > 1, ranks % 5, -1)


# Held-out labels


def test_explained_is_the_gain_in_likelihood_over_the_shares_of_the_classes(rng):
    codes, distributions = np.arange(30) % 3 % 2, rng.dirichlet([1, 1, 1], 30)
    distributions[np.arange(30), codes] += 1
    distributions /= distributions.sum(axis=1, keepdims=True)
    by_chance = np.log(np.bincount(codes) / 30)[codes].sum()
    ours = np.log(distributions[np.arange(30), codes]).sum()
    found = HeldOut(np.arange(30), codes, distributions).explained
    assert found == pytest.approx((1 - ours / by_chance) * 30 / 40)
    order = rng.permutation(30)
    again = HeldOut(order, codes[order], distributions[order]).explained
    assert again == pytest.approx(found)


def test_shares_of_the_classes_explain_nothing_and_errors_not_less():
    codes = np.array([0, 0, 0, 1])
    for first in (0.75, 0.01):
        distributions = np.tile([first, 1 - first], (4, 1))
        assert HeldOut(np.arange(4), codes, distributions).explained == pytest.approx(0)


@pytest.mark.parametrize("codes", [[], [1, 1, 1]])
def test_labels_of_one_class_cannot_contradict(codes):
    held_out = HeldOut(np.arange(len(codes)), np.array(codes, int), np.eye(2)[[0] * len(codes)])
    assert held_out.explained == 1


def test_factors_are_a_newton_step_toward_those_of_greatest_likelihood(rng):
    """Against the slope and curvature of the penalized likelihood by differences, at zero."""
    codes, distributions = rng.integers(4, size=60), rng.dirichlet(np.ones(4), 60)

    def likelihood(logs):
        moved = np.log(distributions) + logs
        chosen = moved[np.arange(60), codes] - np.log(np.exp(moved).sum(axis=1))
        return chosen.sum() - 5 / 2 * (logs**2).sum()

    found, step = HeldOut(np.arange(60), codes, distributions).factors, 1e-3
    for c, unit in enumerate(step * np.eye(4)):
        ahead, here, behind = (likelihood(sign * unit) for sign in (1, 0, -1))
        slope, curvature = (ahead - behind) / (2 * step), (ahead - 2 * here + behind) / step**2
        assert np.log(found[c]) == pytest.approx(-slope / curvature, rel=1e-4)


def test_factors_of_no_held_out_label_are_one():
    empty = np.empty(0, np.int64)
    np.testing.assert_array_equal(HeldOut(empty, empty, np.empty((0, 3))).factors, 1)


def test_factors_find_shares_that_a_biased_classifier_hides(rng):
    """Probabilities that favor the rare class twofold; ten held-out labels of each class."""
    truth = np.repeat([0, 1], [900, 100])
    logits = 2.5 * np.eye(2)[truth] + rng.standard_normal((1000, 2)) + [0, np.log(2)]
    Q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    held = np.r_[0:10, 900:910]
    factors = HeldOut(held, truth[held], Q[held]).factors
    even = np.full(2, 0.5)
    plain, corrected = (
        estimate_prior(Q, even, 10, correction).shares[1] for correction in (None, factors)
    )
    assert 0.1 < corrected < plain


# The formula


@pytest.mark.parametrize("beside", [False, True])
def test_distributions_follow_the_formula(rng, beside):
    """(I - γ S) F = Y + μ Q, balanced without copies, sharpened, labels kept."""
    graph = knn_graph(rng.standard_normal((40, 3)), 6)
    pooled = rng.dirichlet(np.ones(3), 40).astype(np.float32)
    earlier = rng.dirichlet(np.ones(3), 40) if beside else None
    labeled, prior = np.array([3, 8, 20]), np.array([0.5, 0.3, 0.2])
    labels = np.eye(3, dtype=np.float32)
    held_out = HeldOut(labeled[:0], labeled[:0], np.empty((0, 3)))
    copies = labeled[2:]
    evidence = Evidence(labels, labeled, copies, pooled, prior, prior, 0.25, 0.6, 0.7, held_out, 0)
    with threads(1) as pool:
        found = evidence.on(Diffusion(adjacency(graph), pool), beside=earlier)

    reach = 0.7 + 0.3 * 0.3 * beside
    Q = pooled.astype(float)
    if beside:
        Q = np.sqrt(Q * earlier)
        Q /= Q.sum(axis=1, keepdims=True)
    sources = 3 * (1 - reach) * Q
    sources[labeled] = labels
    W = adjacency(graph).toarray()
    roots = np.sqrt(W.sum(axis=1))
    F = np.linalg.solve(np.eye(40) - reach * W / np.outer(roots, roots), sources)
    F /= F.sum(axis=1, keepdims=True)
    counted = np.delete(F, copies, axis=0)
    F = reweighted(F, balance_factors(counted, prior) ** (0.75 * 0.6))
    free = np.setdiff1d(np.arange(40), labeled)
    F **= confidence_power(F[free], pooled[free].max(axis=1).mean())
    F /= F.sum(axis=1, keepdims=True)
    F[labeled] = labels
    np.testing.assert_allclose(found, F, atol=5e-3)
    assert found[free].max(axis=1).mean() == pytest.approx(evidence.confidence, abs=5e-3)


def test_other_rows_are_all_rows_if_there_are_no_others():
    assert other_rows(np.array([1, 3]), 5).tolist() == [0, 2, 4]
    assert other_rows(np.arange(5), 5).tolist() == [0, 1, 2, 3, 4]


# What is found


def test_clusters_are_found(problem):
    X, truth, labels = problem
    evidence, found = learned(X, labels)
    assert (found.argmax(axis=1) == truth).mean() > 0.95
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(found[:30], np.eye(3)[truth[:30]])
    np.testing.assert_array_equal(evidence.held_out.rows, np.arange(30))
    assert (evidence.held_out.distributions.argmax(axis=1) == truth[:30]).mean() > 0.9


def test_graph_is_trusted_where_classes_bend(rng):
    X, truth = make_moons(400, noise=0.08, random_state=0)
    labels = np.where(np.arange(400) < 16, truth, -1)
    evidence, found = learned(X, labels)
    assert (found.argmax(axis=1) == truth).mean() > 0.95
    assert evidence.trust > 0.3
    assert evidence.reach > 0.3


def test_graph_is_not_trusted_where_it_misleads(rng):
    """Many columns of noise, and a direction that only many labels show."""
    truth = rng.integers(2, size=600)
    X = np.column_stack([3 * truth, 4 * rng.standard_normal((600, 30))])
    labels = np.where(np.arange(600) < 300, truth, -1)
    by_graph, by_rows = (learned(part, labels)[0].trust for part in (X[:, :1], X))
    assert by_rows < by_graph
    assert by_rows < 0.3


def test_skewed_classes_are_seen_through_even_labels(rng):
    truth = rng.choice(3, 600, p=[0.9, 0.06, 0.04])
    X = rng.standard_normal((600, 6)) + 4 * np.eye(3, 6)[truth]
    rows = np.concatenate([np.flatnonzero(truth == c)[:8] for c in range(3)])
    labels = np.full(600, -1)
    labels[rows] = truth[rows]
    evidence, found = learned(X, labels)
    assert evidence.skew == 1
    assert evidence.prior[0] > 0.75
    assert (found.argmax(axis=1) == truth).mean() > 0.95


def test_with_one_label_per_class_a_skew_halves_the_balance(rng):
    """No label can confirm an estimate of other shares."""
    truth = np.concatenate([np.arange(20), rng.choice(20, 980, p=[0.81] + 19 * [0.01])])
    X = rng.standard_normal((1000, 20)) + 6 * np.eye(20)[truth]
    evidence, found = learned(X, np.where(np.arange(1000) < 20, truth, -1))
    np.testing.assert_allclose(evidence.prior, 0.05)
    assert evidence.skew == 0.5
    assert evidence.reach > 0.5
    assert (found.argmax(axis=1) == truth).mean() > 0.95


def test_one_label_per_class_of_unequal_classes_beats_the_labels_alone():
    """On digits, of which some classes have a fortieth of the rows of others."""
    X, y = load_digits(return_X_y=True)
    gains = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(y))
        kept = order[rng.random(len(y)) < 40 ** (-rng.permutation(10) / 9)[y[order]]]
        rows, truth = X[kept], y[kept]
        labels, first = np.full(len(truth), -1), np.unique(truth, return_index=True)[1]
        labels[first] = truth[first]
        evidence, found = learned(rows, labels)
        if evidence.skew == 0.5:
            alone = LogisticRegression(max_iter=1000).fit(rows[first], truth[first])
            gains.append((found.argmax(axis=1) == truth).mean() - alone.score(rows, truth))
    assert len(gains) > 3
    assert min(gains) > 0.05


# What it may see


def test_held_out_labels_of_noise_are_at_chance(rng):
    """300 labels of five classes at random: two standard errors are 5%."""
    X, labels = rng.standard_normal((600, 20)), np.full(600, -1)
    labels[:300] = rng.integers(5, size=300)
    held_out = learned(X, labels)[0].held_out
    right = held_out.distributions.argmax(axis=1) == held_out.codes
    assert abs(right.mean() - 0.2) < 0.07
    chosen = held_out.distributions[np.arange(300), held_out.codes]
    assert np.log(chosen).mean() < np.log(0.2) + 0.02


def test_held_out_accuracy_is_that_of_other_rows():
    """On digits, five labels per class: as many of the held-out as of the unlabeled rows."""
    X, y = load_digits(return_X_y=True)
    rates = []
    for seed in range(3):
        rng, labels = np.random.default_rng(seed), np.full(len(y), -1)
        for c in range(10):
            labels[rng.choice(np.flatnonzero(y == c), 5, replace=False)] = c
        evidence, found = learned(X / 16, labels)
        held_out, free = evidence.held_out, labels == -1
        right = held_out.distributions.argmax(axis=1) == held_out.codes
        rates.append((right.mean(), (found.argmax(axis=1) == y)[free].mean()))
    held_out, unlabeled = np.mean(rates, axis=0)
    assert unlabeled - 0.08 < held_out < unlabeled + 0.02  # they see a fifth fewer labels


def test_labels_repeat_by_chance_in_a_table_of_few_categories(rng):
    """They all count, while those of oversampled rows count once; cells of two classes keep all."""
    first = rng.integers(0, 8, 400)  # cells of the table
    first = np.array([np.flatnonzero(first == cell)[0] for cell in first])
    codes = np.where(rng.random(400) < 0.1, first % 2, -1)
    labeled = np.flatnonzero(codes >= 0)
    assert len(without_copies(labeled, codes, first)) == len(labeled)
    apart = np.where(codes < 0, np.arange(400), first)  # unlabeled rows occur once
    kept = without_copies(labeled, codes, apart)
    assert sorted(first[kept]) == sorted(set(first[labeled]))
    codes[labeled[-1]] = 1 - codes[labeled[-1]]
    mixed = first == first[labeled[-1]]
    assert set(np.flatnonzero(mixed & (codes >= 0))) <= set(without_copies(labeled, codes, apart))


def test_bounded_rows_are_learned_from(problem, monkeypatch):
    monkeypatch.setattr(learning, "MAX_LABELED", 12)
    X, truth, labels = problem
    evidence, found = learned(X, labels)
    assert len(evidence.held_out.rows) == 12
    assert set(truth[evidence.held_out.rows]) == {0, 1, 2}
    np.testing.assert_array_equal(found[:30], np.eye(3)[truth[:30]])  # all labels are kept


def test_work_of_many_classes_holds_out_fewer_labels(problem, monkeypatch):
    X, _, labels = problem
    monkeypatch.setattr(learning, "MAX_FOLD_PRODUCTS", 6 * 3 * 30 * 2)  # of two folds
    held_out = learned(X, labels)[0].held_out
    assert len(held_out.rows) == 12
    np.testing.assert_allclose(held_out.distributions.sum(axis=1), 1)


# Invariances


def test_renamed_classes_rename_the_columns(problem, monkeypatch):
    monkeypatch.setattr(learning, "stratified_folds", folds_by_rank)
    X, _, labels = problem
    names = np.array([1, 2, 0, -1])
    plain, renamed = (learned(X, part)[1] for part in (labels, names[labels]))
    np.testing.assert_allclose(renamed[:, names[:3]], plain, atol=0.01)


def test_order_of_rows_does_not_matter(problem, rng, monkeypatch):
    """Labeled rows keep their order among themselves, which makes the folds."""
    monkeypatch.setattr(learning, "stratified_folds", folds_by_rank)
    X, _, labels = problem
    order = rng.permutation(180)
    order[np.isin(order, np.arange(30))] = np.arange(30)
    plain, shuffled = (learned(X[o], labels[o])[1] for o in (np.arange(180), order))
    np.testing.assert_allclose(shuffled, plain[order], atol=0.01)


@pytest.mark.parametrize(
    ("change", "d"),
    [
        *(("rotation", 6), ("scale", 6), ("translation", 6)),
        *(("rotation", 120), ("scale", 120), ("lengths", 120)),
    ],
)
def test_changes_that_do_not_matter(rng, d, change, monkeypatch):
    """Tables may be moved; in more than 100 columns only directions count."""
    if change == "rotation":  # splits are along the columns
        monkeypatch.setattr(pool, "FEWEST_GROWING", 1000)
    X, truth = clusters(rng, d=d)
    labels = np.where(np.arange(180) < 30, truth, -1)
    moved = {
        "rotation": lambda: X @ random_orthonormal(d, d, rng),
        "scale": lambda: 1e4 * X,
        "translation": lambda: X + 50,
        "lengths": lambda: X * rng.uniform(0.2, 5, (180, 1)),
    }[change]()
    plain, other = (learned(rows, labels)[1] for rows in (X, moved))
    np.testing.assert_allclose(other, plain, atol=0.01)


# Trees


@pytest.fixture
def crossing(rng):
    """400 rows, 80 of them labeled, whose two classes neither a line nor neighbors separate."""
    X = rng.standard_normal((400, 8))
    X[:, 5:] += 9 * rng.standard_normal((400, 1))
    truth = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    return X, truth, np.where(np.arange(400) < 80, truth, -1)


def test_trees_are_once_in_the_pool_and_choose_no_form(crossing):
    """They say nothing of the graphs, of which the second is the better one here."""
    X, _, labels = crossing
    forms = forms_with_graphs(X, 10, labels=labels, rng=np.random.default_rng(0))
    assert len(forms) == 2
    evidence, _ = learned(X, labels)
    (voter,) = (v for v in evidence.voters if isinstance(v.classifier, TreeClassifier))
    assert evidence.form == 1
    scores = evidence.direct.of_trees
    np.testing.assert_allclose(evidence.direct.trees.scores(X), scores, atol=1e-5)
    np.testing.assert_allclose(scores, voter.weight * voter.classifier.scores, atol=1e-5)


def test_scores_without_a_graph_are_those_of_rows_as_they_are_given(crossing):
    """Of the regressions on both forms, not of those on smoothed rows, and of the trees."""
    X, _, labels = crossing
    evidence, _ = learned(X, labels)
    found, light = evidence.direct.scores(len(X)), evidence.direct.of(X[:0])
    given = light.of(X).scores(len(X))
    np.testing.assert_allclose(given.of_regressions, found.of_regressions, atol=1e-5)
    np.testing.assert_allclose(given.of_trees, found.of_trees, atol=1e-5)
    assert all(part.view.size == 0 for _, part in light.regressions)
    regressions = [v for v in evidence.voters if isinstance(v.classifier, pool.Linear)]
    raw = [v for v in regressions if v.classifier.linear is not None]
    assert 0 < len(raw) < len(regressions)
    overlap = np.minimum(evidence.prior, evidence.drawn).sum()
    weight = (1 - evidence.reach) * overlap ** (1 + 20 / 40)
    logits = sum(v.weight * v.classifier.logits(slice(None)) for v in raw)
    logits = logits + sum(v.share for v in raw) * np.log(evidence.prior / evidence.drawn)
    np.testing.assert_allclose(found.of_regressions, weight * logits, atol=1e-5)
    assert given.share == found.share == pytest.approx(1 - weight / 2)


def test_neighbors_count_fully_where_no_regression_is_in_the_pool(crossing):
    X, _, labels = crossing
    evidence, _ = learned(X, labels)
    assert sum(voter.share for voter in evidence.voters) == pytest.approx(1)
    evidence.prior = np.array([0.9, 0.1])
    evidence.voters = tuple(
        voter for voter in evidence.voters if not isinstance(voter.classifier, pool.Linear)
    )
    assert evidence.direct.share == 1
    assert not evidence.direct.scores(len(X)).of_regressions.any()


def test_regressions_of_classes_that_labels_do_not_represent_count_little(crossing):
    X, _, labels = crossing
    evidence, _ = learned(X, labels)
    evidence.prior, evidence.drawn = np.array([0.99, 0.01]), np.array([0.01, 0.99])
    assert evidence.direct.share == pytest.approx(1, abs=0.01)
    assert np.abs(evidence.direct.scores(len(X)).of_regressions).max() < 0.1


def test_new_samples_follow_half_planes_of_unequal_classes(rng):
    """The graph says nothing of them; as many labels of each class, of which one is rare."""
    X = rng.standard_normal((1800, 20))
    truth = (X @ rng.standard_normal(20) > 3).astype(np.int64)
    rows = np.concatenate([np.flatnonzero(truth[:1200] == c)[:60] for c in (0, 1)])
    labels = np.full(1200, -1)
    labels[rows] = truth[rows]
    model = SSDML(random_state=0).fit(X[:1200], labels)
    linear = LogisticRegression(C=10).fit(X[rows], truth[rows])
    balanced = balanced_accuracy_score(truth[1200:], model.predict(X[1200:]))
    assert balanced > balanced_accuracy_score(truth[1200:], linear.predict(X[1200:])) - 0.03


def test_trees_find_classes_that_cross(crossing, monkeypatch):
    """On the rows of a fit and on new ones."""
    X, truth, labels = crossing
    X = X[:, :4]

    def accuracies():
        model = SSDML(guard=False, random_state=0).fit(X[:250], labels[:250])
        found = model.transduction_[80:], model.predict(X[250:])
        return [
            (classes == truth[80:][part]).mean() for classes, part in zip(found, parts, strict=True)
        ]

    parts = slice(0, 170), slice(170, None)
    assert min(accuracies()) > 0.8
    monkeypatch.setattr(pool, "FEWEST_GROWING", 1000)
    assert min(accuracies()) < 0.7


# Hard cases


@pytest.mark.parametrize(
    "case",
    [
        "one label per class",
        "one class with one label",
        "all rows labeled",
        "constant features",
        "zero rows",
        "duplicates",
        "more classes than features",
        "three rows",
        "labels that contradict",
    ],
)
def test_hard_cases_give_distributions(rng, case):
    X, truth = clusters(rng, n=60)
    labels = np.where(np.arange(60) < 30, truth, -1)
    if case == "one label per class":
        labels[3:] = -1
    elif case == "one class with one label":
        labels[3:][truth[3:] == 2] = -1
    elif case == "all rows labeled":
        labels = truth
    elif case == "constant features":
        X = np.ones((60, 3))
    elif case == "zero rows":
        X[::4] = 0
    elif case == "duplicates":
        X, labels = np.repeat(X[:12], 5, axis=0), np.repeat(truth[:12], 5)
        labels[::2] = -1
    elif case == "more classes than features":
        X, labels = X[:, :2], np.where(np.arange(60) < 40, np.arange(60) % 20, -1)
    elif case == "three rows":
        X, labels = X[:3], np.array([0, 1, -1])
    elif case == "labels that contradict":
        X, labels = np.repeat(rng.standard_normal((30, 120)), 3, axis=0), np.tile([0, 1, -1], 30)
    evidence, found = learned(X, labels)
    known = labels != -1
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(found[known].argmax(axis=1), labels[known])
    np.testing.assert_allclose(evidence.prior.sum(), 1)
    assert 0 <= evidence.trust <= 1
    assert 0 <= evidence.reach < 1
    assert (len(evidence.held_out.rows) == 0) == (case in ("one label per class", "three rows"))
    if case == "labels that contradict":  # held-out labels give no member a weight
        np.testing.assert_allclose(found[~known], 0.5, atol=0.02)
