"""Randomized trees as arrays: against scikit-learn's, and with other labels in their leaves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from ssdml.classification.forms import LinearForm
from ssdml.classification.trees import COLUMNS, FLOOR, TreeClassifier, grow_trees, join_trees


@pytest.fixture
def quadrants(rng):
    """200 rows of three classes; two of them share the quadrants of the plane crosswise."""
    rows = rng.standard_normal((200, 4)).astype(np.float32)
    codes = np.where(rows[:, 2] > 1, 2, (rows[:, 0] * rows[:, 1] > 0).astype(np.int64))
    return rows, codes


def peer(rows, codes, n_trees):
    model = ExtraTreesClassifier(n_trees, max_features=COLUMNS, random_state=0)
    return model.fit(rows, codes)


def test_scores_are_those_of_the_peer(quadrants):
    rows, codes = quadrants
    trees, model = grow_trees(rows[:80], codes[:80], 9), peer(rows[:80], codes[:80], 9)
    logs = np.log(model.predict_proba(rows) + FLOOR)
    expected = logs - logs.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(trees.scores(rows, 3), expected, atol=1e-5)


def test_rows_next_to_a_threshold_go_where_the_peer_sends_them(quadrants):
    """Thresholds are rounded to float32: the nearest numbers above and below must not change."""
    rows, codes = quadrants
    trees, model = grow_trees(rows[:80], codes[:80], 9), peer(rows[:80], codes[:80], 9)
    inner = trees.children[:, 0] != np.arange(len(trees.columns))
    near = np.concatenate(
        [
            np.nextafter(trees.thresholds[inner], np.float32(side), dtype=np.float32)
            for side in (-np.inf, np.inf)
        ]
        + [trees.thresholds[inner]]
    )
    queries = np.repeat(near[:, None], 4, axis=1)
    starts = np.cumsum([0, *(tree.tree_.node_count for tree in model[:-1])])
    np.testing.assert_array_equal(trees.find_leaves(queries), model.apply(queries) + starts)


def test_they_learn_what_no_line_separates(quadrants):
    rows, codes = quadrants
    found = grow_trees(rows[:100], codes[:100], 50).scores(rows[100:], 3).argmax(axis=1)
    assert (found == codes[100:]).mean() > 0.8


def test_shares_are_those_of_the_labeled_rows_in_a_leaf(quadrants, rng):
    rows, codes = quadrants
    grown = grow_trees(rows[:40], codes[:40], 3)
    others = rng.integers(3, size=60)
    trees = grown.with_labels(rows[100:160], others)
    shares = trees.shares(3).toarray()
    for node in range(len(trees.columns)):
        inside = others[(trees.leaves == node).any(axis=1)]
        expected = np.bincount(inside, minlength=3) / max(len(inside), 1)
        np.testing.assert_allclose(shares[node], expected, atol=1e-12)


def test_an_empty_leaf_says_nothing(quadrants):
    rows, codes = quadrants
    trees = grow_trees(rows[:40], codes[:40], 1).with_labels(rows[:1], codes[:1])
    scores = trees.scores(rows, 3)
    elsewhere = trees.find_leaves(rows)[:, 0] != trees.leaves[0, 0]
    assert 0 < elsewhere.sum() < 200
    np.testing.assert_array_equal(scores[elsewhere], 0)


def test_joined_trees_average_their_shares(quadrants):
    rows, codes = quadrants
    parts = [grow_trees(rows[a : a + 50], codes[a : a + 50], 4) for a in (0, 50)]
    joined = join_trees(parts).with_labels(rows[:100], codes[:100])
    both = [part.with_labels(rows[:100], codes[:100]) for part in parts]
    means = [np.asarray(part.shares(3)[part.find_leaves(rows).ravel()].todense()) for part in both]
    mean = np.mean([m.reshape(200, 4, 3).mean(axis=1) for m in means], axis=0)
    logs = np.log(mean + FLOOR)
    expected = logs - logs.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(joined.scores(rows, 3), expected, atol=1e-5)


def test_names_of_the_classes_do_not_matter(quadrants):
    rows, codes = quadrants
    names = np.array([2, 0, 1])
    plain = grow_trees(rows[:80], codes[:80], 9).scores(rows, 3)
    renamed = grow_trees(rows[:80], names[codes[:80]], 9).scores(rows, 3)
    np.testing.assert_allclose(renamed[:, names], plain, atol=1e-6)


def test_a_weight_multiplies_the_scores(quadrants):
    rows, codes = quadrants
    trees = grow_trees(rows[:80], codes[:80], 9)
    twice = trees._replace(weight=np.asarray(2.0)).scores(rows, 3)
    np.testing.assert_allclose(twice, 2 * trees.scores(rows, 3), rtol=1e-6)


def test_another_form_of_the_columns_leaves_the_leaves(quadrants):
    rows, codes = quadrants
    before = LinearForm(np.array([0.0, 1.0, -2.0, 3.0]), np.eye(4) / 2)
    after = LinearForm(np.zeros(4), np.diag([4.0, 2.0, 1.0, 0.5]))
    X = rows / np.float32(0.5) + before.mean.astype(np.float32)
    trees = grow_trees(before(X), codes, 9)
    moved = trees.moved(before, after)
    np.testing.assert_array_equal(moved.find_leaves(after(X)), trees.find_leaves(before(X)))
    assert trees.moved(before, before) is trees


def test_depth_is_that_of_the_peer(quadrants):
    rows, codes = quadrants
    for n in (1, 10, 80):
        trees = grow_trees(rows[:n], codes[:n], 5)
        assert trees.depth == max(tree.get_depth() for tree in peer(rows[:n], codes[:n], 5))


def test_learning_again_puts_the_labels_into_the_leaves(quadrants):
    rows, codes = quadrants
    trees = grow_trees(rows[:50], codes[:50], 9)
    linear = LinearForm(np.zeros(4), np.eye(4))
    classifier = TreeClassifier(linear, rows, trees, trees.scores(rows, 3))
    same = classifier.again(np.arange(50), codes[:50], None)
    np.testing.assert_array_equal(same.scores, classifier.scores)
    other = classifier.again(np.arange(20, 90), codes[20:90], None)
    expected = trees.with_labels(rows[20:90], codes[20:90]).scores(rows, 3)
    np.testing.assert_array_equal(other.logits(slice(None)), expected)
    np.testing.assert_array_equal(other.logits(np.array([7, 3])), expected[[7, 3]])
