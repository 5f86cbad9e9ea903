"""The pool of classifiers: its members, its folds and its weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ssdml.classification import pool, softmax as regressions
from ssdml.classification.forms import forms_with_graphs
from ssdml.classification.pool import (
    N_FOLDS,
    PROPAGATIONS,
    PULL,
    REGRESSIONS,
    SHARPNESS,
    TEMPER,
    best_sharpness,
    pool_members,
    pool_weights,
    stratified_folds,
)
from ssdml.classification.softmax import softmax
from ssdml.classification.trees import TreeClassifier, grow_trees
from ssdml.graphs import adjacency
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.parallel import threads

# Folds


@pytest.mark.parametrize("seed", range(5))
def test_no_class_is_held_out_entirely(seed):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(4), [1, 2, 7, 30]))
    folds = stratified_folds(codes, rng)
    assert (folds[codes == 0] == -1).all()
    assert (folds[codes > 0] >= 0).all()
    for fold in range(N_FOLDS):
        assert set(codes[folds != fold]) == {0, 1, 2, 3}
    sizes = [np.bincount(folds[codes == c], minlength=N_FOLDS) for c in (2, 3)]
    assert all(np.ptp(size) <= 1 for size in sizes)


# Members


@pytest.fixture
def problem(rng):
    """150 rows of three clusters, 30 of them labeled."""
    truth = np.arange(150) % 3
    X = rng.standard_normal((150, 6)) + 2.5 * np.eye(3, 6)[truth]
    labeled = np.sort(rng.permutation(150)[:30])
    labels = np.full(150, -1)
    labels[labeled] = truth[labeled]
    (form,) = forms_with_graphs(X, 8, labels=labels, rng=rng)
    return form, labeled, truth[labeled], stratified_folds(truth[labeled], rng)


def members(form, labeled, codes, folds, n_classes=3):
    with threads(1) as pool:
        diffusion = Diffusion(adjacency(form.graph), pool)
        found = list(pool_members(form, labeled, codes, n_classes, folds, diffusion))
        return found, [member.classifier.logits(slice(None)) for member in found]


def test_members_are_regressions_clusters_trees_and_propagations(problem):
    found, logits = members(*problem)
    assert len(found) == len(REGRESSIONS) + 2 + len(PROPAGATIONS)
    assert [member.on_graph for member in found] == [False] * 3 + [True, False, False, True]
    for scores in logits:
        assert scores.shape == (150, 3)
        assert (scores.argmax(axis=1) == np.arange(150) % 3).mean() > 0.7


def test_logits_of_some_rows_are_a_part_of_all(problem):
    found, logits = members(*problem)
    rows = np.array([3, 77, 149])
    for member, scores in zip(found, logits, strict=True):
        np.testing.assert_allclose(member.classifier.logits(rows), scores[rows], atol=1e-5)


def test_held_out_logits_do_not_see_their_labels(problem):
    """Rows of one fold exchange their classes in a circle: none of their logits changes."""
    form, labeled, codes, folds = problem
    inside = folds == 2
    assert inside.sum() >= 3
    other = codes.copy()
    other[inside] = (codes[inside] + 1) % 3
    (plain, _), (changed, _) = (
        members(form, labeled, codes, folds),
        members(form, labeled, other, folds),
    )
    for before, after in zip(plain, changed, strict=True):
        np.testing.assert_array_equal(after.held_out[inside], before.held_out[inside])
        assert not np.array_equal(after.held_out[~inside], before.held_out[~inside])


def test_regressions_see_the_smoothed_rows(problem):
    """The logits are linear in the rows, or in their low-pass filter."""
    form, *_ = problem
    _, logits = members(*problem)
    with threads(1) as one:
        diffusion = Diffusion(adjacency(form.graph), one)
        for (reach, _), scores in zip(REGRESSIONS, logits, strict=False):
            view = diffusion.smooth(form.rows, reach) if reach else form.rows
            design = np.column_stack([view, np.ones(150)])
            fitted = design @ np.linalg.lstsq(design, scores, rcond=None)[0]
            np.testing.assert_allclose(fitted, scores, atol=1e-3)


def test_propagated_member_agrees_with_a_dense_solve(problem):
    form, labeled, codes, folds = problem
    found, logits = members(*problem)
    W = adjacency(form.graph).toarray()
    roots = np.sqrt(W.sum(axis=1))
    kernel = np.linalg.inv(np.eye(150) - PROPAGATIONS[0] * W / np.outer(roots, roots))
    sources = np.zeros((150, 3))
    sources[labeled] = np.eye(3)[codes]

    def log_shares(scores):
        return np.log(scores / scores.sum(axis=1, keepdims=True) + 1e-4)

    np.testing.assert_allclose(logits[-1], log_shares(kernel @ sources), atol=0.01)
    inside = folds == 0
    sources[labeled[inside]] = 0
    expected = log_shares(kernel @ sources)[labeled[inside]]
    np.testing.assert_allclose(found[-1].held_out[inside], expected, atol=0.1)  # a loose solver


def test_learning_again_equals_learning_from_the_other_labels(problem, monkeypatch):
    """Labels added, changed and removed, in few rows and in many; solvers do not stop early."""
    monkeypatch.setattr(pool, "TOL", 1e-9)
    monkeypatch.setattr(pool, "UPDATE_TOL", 1e-9)
    monkeypatch.setattr(regressions, "MAX_STEPS", 1000)
    form, labeled, codes, _ = problem
    none = np.full(len(labeled), -1)
    before, _ = members(form, labeled, codes, none)
    for kept, changed in ((slice(1, None), slice(0, 1)), (slice(3, None), slice(0, 9))):
        other = np.union1d(labeled[kept], [0, 4])
        others = np.arange(150)[other] % 3
        others[changed] = (others[changed] + 1) % 3
        _, logits = members(form, other, others, np.full(len(other), -1))
        with threads(1) as one:
            diffusion = Diffusion(adjacency(form.graph), one)
            for member, expected in zip(before, logits, strict=True):
                if isinstance(member.classifier, TreeClassifier):
                    continue  # trees do not grow again
                found = member.classifier.again(other, others, diffusion).logits(slice(None))
                gaps = np.abs(
                    (found - found.mean(axis=1, keepdims=True))
                    - (expected - expected.mean(axis=1, keepdims=True))
                )
                assert gaps.mean() < 0.01 * expected.std()


def test_clusters_and_trees_are_left_out_of_many_columns(problem, monkeypatch):
    monkeypatch.setattr(pool, "TABLE_COLUMNS", 5)
    assert [m.on_graph for m in members(*problem)[0]] == [False, False, False, True, True]


def test_propagation_and_trees_of_many_classes_are_left_out(problem, monkeypatch):
    monkeypatch.setattr(pool, "MAX_PROPAGATED", 150 * 3 * (N_FOLDS + 1) - 1)
    assert len(members(*problem)[0]) == len(REGRESSIONS) + 1


def test_trees_need_four_labels_per_class(problem):
    form, _, _, _ = problem
    for n, expected in ((11, False), (12, True)):
        codes = np.arange(n) % 3
        folds = stratified_folds(codes, np.random.default_rng(0))
        found, _ = members(form, np.arange(n), codes, folds)
        assert any(isinstance(m.classifier, TreeClassifier) for m in found) == expected


def test_trees_see_the_labels_of_all_folds(problem):
    """Each tree grows on four of them; the leaves hold those of the fifth as well."""
    form, labeled, codes, folds = problem
    found, _ = members(*problem)
    (trees,) = (m.classifier.trees for m in found if isinstance(m.classifier, TreeClassifier))
    assert len(trees.nodes.roots) == pool.N_TREES
    np.testing.assert_array_equal(trees.codes, codes)
    rows = trees.standardized(form.rows[labeled[folds != 0]])
    first = grow_trees(rows, codes[folds != 0], pool.N_TREES // N_FOLDS)
    np.testing.assert_array_equal(trees.nodes.thresholds[: len(first.columns)], first.thresholds)


def test_renamed_classes_rename_the_logits(problem):
    form, labeled, codes, folds = problem
    names = np.array([1, 2, 0])
    _, plain = members(form, labeled, codes, folds)
    _, renamed = members(form, labeled, names[codes], folds)
    for one, other in zip(plain, renamed, strict=True):
        spread = one.std()
        np.testing.assert_allclose(other[:, names], one, atol=0.02 * spread)


# Weights


def slow_objective(weights, held_out, codes, prior):
    """Negative penalized likelihood, as the docstring has it."""

    def likelihood(logits):
        rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return sum(np.log(row[code] + 1e-9) for row, code in zip(rows, codes, strict=True))

    sharpness = np.array([best_sharpness(logits, codes) for logits in held_out])
    fits = np.array([likelihood(s * logits) for s, logits in zip(sharpness, held_out, strict=True)])
    likely = np.exp(TEMPER * (fits - fits.max()))
    center = (likely / likely.sum() * sharpness + sharpness.mean() * prior) / 2
    pull = sum(((a - c) / c) ** 2 for a, c in zip(weights, center, strict=True))
    pooled = sum(a * logits for a, logits in zip(weights, held_out, strict=True))
    return -likelihood(pooled) + PULL / 2 * pull


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_weights_are_best_on_a_grid(rng, noise):
    codes = np.arange(24) % 3
    held_out = np.stack(
        [
            2 * np.eye(3)[codes] + rng.standard_normal((24, 3)),
            np.eye(3)[codes] + noise * rng.standard_normal((24, 3)),
        ]
    )
    prior = np.array([0.5, 0.5])
    weights = pool_weights(held_out, codes, prior)
    best = slow_objective(weights, held_out, codes, prior)
    grid = np.linspace(0, 2.5 * weights.max(), 13)
    for pair in np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2):
        assert best <= slow_objective(pair, held_out, codes, prior) + 1e-4


def test_better_members_weigh_more(rng):
    codes = np.arange(90) % 3
    held_out = np.eye(3)[codes] + np.array([0.2, 1.0, 5.0])[:, None, None] * rng.standard_normal(
        (3, 90, 3)
    )
    weights = pool_weights(held_out, codes, np.full(3, 1 / 3))
    assert weights[0] > weights[1] > weights[2] >= 0


def test_few_labels_leave_the_weights_near_the_prior():
    held_out = np.tile(np.eye(2)[[0, 1]], (3, 1, 1))
    weights = pool_weights(held_out, np.array([0, 1]), np.array([0.6, 0.3, 0.1]))
    assert weights[0] > weights[1] > weights[2] > 0


def test_pooled_logits_are_calibrated(rng):
    """Weights of logits that are three times too sharp sum to a third."""
    codes = rng.integers(3, size=3000)
    logits = rng.standard_normal((3000, 3))
    codes = (softmax(logits).cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    weights = pool_weights(np.stack([3 * logits] * 2), codes, np.array([0.5, 0.5]))
    assert weights.sum() == pytest.approx(1 / 3, rel=0.1)


def test_misleading_members_get_no_weight():
    codes = np.arange(60) % 3
    wrong = np.eye(3)[(codes + 1) % 3]
    weights = pool_weights(np.stack([wrong, wrong]), codes, np.array([0.5, 0.5]))
    np.testing.assert_array_equal(weights, 0)


def test_order_of_rows_and_members_does_not_matter(rng):
    codes, order = np.arange(30) % 3, rng.permutation(30)
    held_out = np.eye(3)[codes] + rng.standard_normal((2, 30, 3))
    plain = pool_weights(held_out, codes, np.array([0.7, 0.3]))
    other = pool_weights(held_out[::-1, order], codes[order], np.array([0.3, 0.7]))
    np.testing.assert_allclose(other[::-1], plain, rtol=1e-3)


# Sharpness


@pytest.mark.parametrize("temperature", [0.5, 2.0, 6.0])
def test_sharpness_recovers_the_temperature(rng, temperature):
    logits = 2 * rng.standard_normal((20_000, 4))
    codes = (softmax(logits).cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
    assert best_sharpness(temperature * logits, codes) == pytest.approx(1 / temperature, rel=0.05)


def test_sharpness_maximizes_the_penalized_likelihood(rng):
    codes = np.arange(12) % 3
    logits = np.eye(3)[codes] + rng.standard_normal((12, 3))

    def loss(exponent):
        chosen = softmax(np.exp(exponent) * logits)[np.arange(12), codes]
        return -np.log(chosen).sum() + (exponent - np.log(SHARPNESS)) ** 2

    best = minimize_scalar(loss, bounds=(-3, 3), method="bounded").x
    assert best_sharpness(logits, codes) == pytest.approx(np.exp(best), rel=1e-3)


def test_sharpness_is_finite_where_all_labels_are_right():
    codes = np.arange(9) % 3
    few, many = (
        best_sharpness(np.tile(np.eye(3)[codes], (k, 1)), np.tile(codes, k)) for k in (1, 99)
    )
    assert SHARPNESS < few < many < 20
    assert best_sharpness(np.zeros((9, 3)), codes) == pytest.approx(SHARPNESS, rel=1e-3)
