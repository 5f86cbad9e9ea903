"""Randomized trees as arrays: against scikit-learn's, and with other labels in their leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from ssdml.classification.forms import Form, LinearForm
from ssdml.classification.trees import (
    COLUMNS,
    FLOOR,
    Columns,
    TreeClassifier,
    Trees,
    grow_trees,
    join_trees,
    standardized_columns,
)
from ssdml.graphs import knn_graph

AS_GIVEN = Columns(np.zeros(4), np.ones(4))


@pytest.fixture
def quadrants(rng):
    """200 rows of three classes; two of them share the quadrants of the plane crosswise."""
    rows = rng.standard_normal((200, 4)).astype(np.float32)
    codes = np.where(rows[:, 2] > 1, 2, (rows[:, 0] * rows[:, 1] > 0).astype(np.int64))
    return rows, codes


def grown(rows, codes, n_trees=9):
    nodes = grow_trees(rows, codes, n_trees)
    return Trees(AS_GIVEN, nodes, nodes.find_leaves(rows), codes, 3)


def peer(rows, codes, n_trees=9):
    model = ExtraTreesClassifier(n_trees, max_features=COLUMNS, random_state=0)
    return model.fit(rows, codes)


def centered_logs(shares):
    logs = np.log(shares + FLOOR)
    return logs - logs.mean(axis=1, keepdims=True)


def test_scores_are_those_of_the_peer(quadrants):
    rows, codes = quadrants
    expected = centered_logs(peer(rows[:80], codes[:80]).predict_proba(rows))
    np.testing.assert_allclose(grown(rows[:80], codes[:80]).scores(rows), expected, atol=1e-5)


def test_rows_next_to_a_threshold_go_where_the_peer_sends_them(quadrants):
    """Thresholds are rounded to float32: the nearest numbers above and below must not change."""
    rows, codes = quadrants
    nodes, model = grow_trees(rows[:80], codes[:80], 9), peer(rows[:80], codes[:80])
    inner = nodes.thresholds[~nodes.are_leaves]
    sides = [np.nextafter(inner, np.float32(side)) for side in (-np.inf, np.inf)]
    queries = np.repeat(np.concatenate([inner, *sides])[:, None], 4, axis=1)
    starts = np.cumsum([0, *(tree.tree_.node_count for tree in model[:-1])])
    np.testing.assert_array_equal(nodes.find_leaves(queries), model.apply(queries) + starts)


def test_they_learn_what_no_line_separates(quadrants):
    rows, codes = quadrants
    found = grown(rows[:100], codes[:100], 50).scores(rows[100:]).argmax(axis=1)
    assert (found == codes[100:]).mean() > 0.8


def test_shares_are_those_of_the_labeled_rows_in_a_leaf(quadrants, rng):
    rows, codes = quadrants
    others = rng.integers(3, size=60)
    trees = grown(rows[:40], codes[:40], 3).with_labels(rows[100:160], others)
    shares = trees.shares.toarray()
    for node in range(len(shares)):
        inside = others[(trees.leaves == node).any(axis=1)]
        expected = np.bincount(inside, minlength=3) / max(len(inside), 1)
        np.testing.assert_allclose(shares[node], expected, atol=1e-12)


def test_an_empty_leaf_says_nothing(quadrants):
    rows, codes = quadrants
    trees = grown(rows[:40], codes[:40], 1).with_labels(rows[:1], codes[:1])
    elsewhere = trees.find_leaves(rows)[:, 0] != trees.leaves[0, 0]
    assert 0 < elsewhere.sum() < 200
    np.testing.assert_array_equal(trees.scores(rows)[elsewhere], 0)


def test_joined_trees_average_their_shares(quadrants):
    rows, codes = quadrants
    parts = [grow_trees(rows[a : a + 50], codes[a : a + 50], 4) for a in (0, 50)]
    nodes = join_trees(parts)
    joined = Trees(AS_GIVEN, nodes, nodes.find_leaves(rows[:100]), codes[:100], 3)
    means = []
    for part in parts:
        trees = Trees(AS_GIVEN, part, part.find_leaves(rows[:100]), codes[:100], 3)
        shares = trees.shares.toarray()[part.find_leaves(rows)]
        means.append(shares.mean(axis=1))
    np.testing.assert_allclose(joined.scores(rows), centered_logs(np.mean(means, 0)), atol=1e-5)


def test_names_of_the_classes_do_not_matter(quadrants):
    rows, codes = quadrants
    names = np.array([2, 0, 1])
    plain, renamed = (grown(rows[:80], y[:80]).scores(rows) for y in (codes, names[codes]))
    np.testing.assert_allclose(renamed[:, names], plain, atol=1e-6)


def test_a_weight_multiplies_the_scores(quadrants):
    rows, codes = quadrants
    trees = grown(rows[:80], codes[:80])
    twice = replace(trees, weight=2.0).scores(rows)
    np.testing.assert_allclose(twice, 2 * trees.scores(rows), rtol=1e-6)


def test_depth_is_that_of_the_peer(quadrants):
    rows, codes = quadrants
    for n in (1, 10, 80):
        depth = max(tree.get_depth() for tree in peer(rows[:n], codes[:n], 5))
        assert grow_trees(rows[:n], codes[:n], 5).depth == depth


def test_no_rows_have_no_leaves(quadrants):
    rows, codes = quadrants
    trees = grown(rows[:80], codes[:80])
    assert trees.find_leaves(rows[:0]).shape == (0, 9)
    assert trees.scores(rows[:0]).shape == (0, 3)


# Columns


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_columns_of_any_scale_are_split(quadrants, scale):
    """Beside a column of unit variance; scikit-learn takes differences of 1e-7 for none."""
    rows, codes = quadrants
    X = rows * np.array([scale, scale, scale, 1.0])
    total = X.var(axis=0).sum()
    linear = LinearForm(X.mean(axis=0), np.eye(4) / np.sqrt(total))
    form = Form(linear, linear(X), knn_graph(rows, 5))
    columns, _ = standardized_columns(form)
    nodes = grow_trees(columns(form.rows[:100]), codes[:100], 50)
    leaves = nodes.find_leaves(columns(form.rows[:100]))
    found = Trees(columns, nodes, leaves, codes[:100], 3).scores(form.rows[100:])
    assert (found.argmax(axis=1) == codes[100:]).mean() > 0.8


def test_rows_of_a_form_and_as_given_have_the_same_leaves(quadrants):
    rows, codes = quadrants
    X = np.hstack([rows * [1.0, 100.0, 0.01, 7.0] + [3, -4, 5, 1e4], np.full((200, 1), 0.1)])
    linear = LinearForm(X.mean(axis=0), np.diag([0.1, 0.02, 3.0, 0.5, 1.0]))
    form = Form(linear, linear(X), knn_graph(rows, 5))
    columns, given = standardized_columns(form)
    assert columns.scale[4] == given.scale[4] == 0
    np.testing.assert_allclose(given(X), columns(form.rows), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(given(X)[:, :4].std(axis=0), 1, rtol=1e-3)
    nodes = grow_trees(columns(form.rows[:50]), codes[:50], 9)
    labeled = nodes.find_leaves(columns(form.rows[:50]))
    trees = Trees(columns, nodes, labeled, codes[:50], 3)
    of_form = TreeClassifier(form.rows, given, trees, trees.scores(form.rows))
    of_given = of_form.weighted(0.5)
    np.testing.assert_array_equal(of_given.find_leaves(X), trees.find_leaves(form.rows))
    np.testing.assert_allclose(of_given.scores(X), 0.5 * of_form.scores, atol=1e-6)


def test_far_rows_are_clipped_not_lost(quadrants):
    rows, codes = quadrants
    trees = grown(rows[:80], codes[:80])
    far = np.array([[1e300, -1e300, 1e300, 0.0]])
    np.testing.assert_array_equal(trees.scores(far), trees.scores(np.sign(far) * 1e6))
    small = Columns(np.zeros(4), np.full(4, 1e9))  # the largest overflow
    np.testing.assert_array_equal(small(far), np.float32(1e12) * np.sign(far))


def test_learning_again_puts_the_labels_into_the_leaves(quadrants):
    rows, codes = quadrants
    trees = grown(rows[:50], codes[:50])
    classifier = TreeClassifier(rows, AS_GIVEN, trees, trees.scores(rows))
    same = classifier.again(np.arange(50), codes[:50], None)
    np.testing.assert_array_equal(same.scores, classifier.scores)
    other = classifier.again(np.arange(20, 90), codes[20:90], None)
    expected = trees.with_labels(rows[20:90], codes[20:90]).scores(rows)
    np.testing.assert_array_equal(other.logits(slice(None)), expected)
    np.testing.assert_array_equal(other.logits(np.array([7, 3])), expected[[7, 3]])
