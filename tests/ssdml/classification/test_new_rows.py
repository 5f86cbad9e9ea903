"""Class probabilities of new rows, interpolated between known ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from ssdml.classification import new_rows
from ssdml.classification.forms import Form, LinearForm, principal_form
from ssdml.classification.new_rows import (
    FAINT,
    FAR,
    MOST_POWER,
    RIDGE,
    TREND,
    DirectScores,
    interpolator,
    nearness,
    warn_of_far_rows,
)
from ssdml.classification.trees import Columns, Trees, grow_trees
from ssdml.graphs import knn_graph
from ssdml.graphs.laplacian import WEIGHT_FLOOR, heat_scales
from ssdml.graphs.neighbors.copies import first_equal_rows, graph_of_distinct


def form_of(X, k=6):
    linear = principal_form(X)
    return Form(linear, linear(X), knn_graph(linear(X), k))


@pytest.fixture
def X(rng):
    return rng.standard_normal((80, 4))


@pytest.fixture
def known(rng):
    return rng.dirichlet(np.ones(3), 80)


def nothing(rows):
    return 0 * rows[:, :3]


def slow_interpolation(
    X, known, queries, *, k=6, linear=nothing, trees=nothing, share=1.0, from_others=False
):
    """The formula of the class, row by row; ``linear`` and ``trees`` score centered rows.

    ``from_others``: queries are the rows, and not their own neighbors.
    """
    center = X.mean(axis=0)
    rows, queries = X - center, queries - center
    logs = np.log(np.maximum(known, FAINT))
    G = logs - logs.mean(axis=1, keepdims=True)
    level = (rows**2).sum() / rows.shape[1]
    ridge = Ridge(alpha=RIDGE * level).fit(rows, TREND * G + linear(rows))
    lengths = np.linalg.norm(rows[:, None] - rows, axis=2)
    scales = heat_scales(np.sort(lengths, axis=1)[:, k])
    found = []
    for query in queries:
        away = np.linalg.norm(rows - query, axis=1)
        nearest = np.argsort(away, kind="stable")[from_others:][:k]
        own = max(away[nearest[-1]], scales.min())
        weights = np.maximum(np.exp(-(away[nearest] ** 2) / (own * scales[nearest])), WEIGHT_FLOOR)
        rest = G[nearest] - ridge.predict(rows[nearest]) - trees(rows[nearest])
        trend = (ridge.predict(query[None]) + trees(query[None]))[0]
        logits = trend + share * weights @ rest / weights.sum()
        found.append(np.exp(logits) / np.exp(logits).sum())
    return np.array(found)


def test_new_rows_follow_the_formula(X, known, rng):
    queries = np.vstack([rng.standard_normal((9, 4)), 30 * np.ones((1, 4)), X[:3]])
    found = interpolator(form_of(X), known)(queries)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, slow_interpolation(X, known, queries), atol=2e-4)


def pool_of(X, known, share=1.0):
    """A regression, and trees of the first 30 rows, with their scores of all."""
    columns, codes = Columns(np.zeros(4), np.ones(4)), known[:30].argmax(axis=1)
    nodes = grow_trees(columns(X[:30]), codes, 5)
    trees = Trees(columns, nodes, nodes.find_leaves(columns(X[:30])), codes, 3, 0.7)
    of_regressions = (X @ MAP).astype(np.float32)
    return DirectScores(of_regressions, trees, trees.scores(X), share)


MAP = np.random.default_rng(1).standard_normal((4, 3))


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_the_pool_joins_the_trend_and_residuals_count_by_their_share(X, known, rng, share):
    queries, center = rng.standard_normal((9, 4)), X.mean(axis=0)
    pool = pool_of(X, known, share)
    found = interpolator(form_of(X), known, pool)(queries)
    expected = slow_interpolation(
        X,
        known,
        queries,
        linear=lambda rows: (rows + center) @ MAP,
        trees=lambda rows: pool.trees.scores(rows + center),
        share=share,
    )
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert np.abs(found - interpolator(form_of(X), known)(queries)).max() > 0.05


def to_power(probabilities, power):
    powers = probabilities**power
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("n_certain", [0, 4])
def test_the_power_makes_rows_as_sure_as_they_are_known(X, n_certain):
    """If they are interpolated from the others; labeled rows do not count."""
    known = np.exp(3 * X[:, :3])
    known /= known.sum(axis=1, keepdims=True)
    known[:n_certain] = np.eye(3)[known[:n_certain].argmax(axis=1)]
    power = interpolator(form_of(X), known).sharpened(form_of(X), known).power
    assert 1.02 < power < MOST_POWER
    found = slow_interpolation(X, known, X, from_others=True)[n_certain:]
    expected = known[n_certain:].max(axis=1).mean()
    assert found.max(axis=1).mean() < expected - 0.01
    np.testing.assert_allclose(to_power(found, power).max(axis=1).mean(), expected, atol=2e-3)


def test_the_power_is_at_least_1_and_at_most_2(X, known, rng):
    form = form_of(X)
    for distributions, expected in (
        (np.tile([0.7, 0.2, 0.1], (80, 1)), 1.0),
        (rng.dirichlet(np.full(3, 0.05), 80), MOST_POWER),  # neighbors contradict each other
    ):
        power = interpolator(form, distributions).sharpened(form, distributions).power
        np.testing.assert_allclose(power, expected, rtol=5e-3)
    certain = np.eye(3)[known.argmax(axis=1)]
    assert interpolator(form, certain).sharpened(form, certain).power is None


def test_the_power_ignores_copies(X):
    linear, some = principal_form(X), np.r_[np.arange(80), np.repeat(np.arange(20), 30)]
    known, rows = to_power(np.exp(X[:, :3]), 3), linear(X[some])
    form = Form(linear, rows, graph_of_distinct(rows, 6, first_equal_rows(rows)))
    one, other = form_of(X), interpolator(form, known[some])
    expected = interpolator(one, known)._replace(trend=other.trend, residuals=other.residuals[:80])
    found = [expected.sharpened(one, known), other.sharpened(form, known[some])]
    np.testing.assert_allclose(found[0].power, found[1].power, rtol=5e-3)


def test_a_power_holds_for_probabilities_but_not_for_roots(X, known, rng):
    queries = rng.standard_normal((9, 4))
    usual = interpolator(form_of(X), known, pool_of(X, known, 0.5))
    sharper = usual._replace(power=np.array(1.7))
    assert sharper(queries).dtype == np.float32
    np.testing.assert_allclose(sharper(queries), to_power(usual(queries), 1.7), rtol=1e-4)
    np.testing.assert_array_equal(sharper.roots(queries), usual.roots(queries))


def test_what_the_pool_alone_knows_is_predicted(rng):
    """Distributions that are those of a regression are found between rows."""
    X = rng.standard_normal((300, 4))
    scores = (X @ MAP).astype(np.float32)
    known = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    predict = interpolator(form_of(X), known, DirectScores(scores, None, None, 0.5))
    queries = rng.standard_normal((200, 4))
    expected = (queries @ MAP).argmax(axis=1)
    assert (predict(queries).argmax(axis=1) == expected).mean() > 0.97


def test_new_rows_are_compared_with_distinct_rows(X, known):
    linear, some = principal_form(X), np.r_[np.arange(80), np.repeat(np.arange(20), 30)]
    rows = linear(X[some])
    form = Form(linear, rows, graph_of_distinct(rows, 6, first_equal_rows(rows)))
    predict, queries = interpolator(form, known[some]), linear(X[:60] + X[20:])
    usual = interpolator(form_of(X), known)
    for found, expected in zip(
        predict.neighbors(queries, None), usual.neighbors(queries, None), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(predict.roots_at_rows(form), predict.roots(X[some]), atol=1e-5)


@pytest.mark.parametrize("pool", [False, True])
def test_roots_at_training_rows_are_those_of_a_call(X, known, pool):
    """From their graph instead of a search."""
    form, direct = form_of(X), pool_of(X, known, 0.5) if pool else None
    predict = interpolator(form, known, direct)
    of_trees = direct.of_trees if pool else None
    np.testing.assert_allclose(predict.roots_at_rows(form, of_trees), predict.roots(X), atol=1e-5)


def test_probabilities_sum_to_one_even_far_away(X, known, rng):
    predict, far = interpolator(form_of(X), known), 1e6 * rng.standard_normal((20, 4))
    with pytest.warns(UserWarning, match="most of the 20 rows of X are farther from the training"):
        found = predict(far)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


def test_a_loop_over_far_rows_shows_one_warning():
    reference = np.arange(1.0, 101)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for n_far in (12, 13, 20):
            warn_of_far_rows(np.where(np.arange(20) < n_far, 900.0, 1.0), reference)
    assert len(shown) == 1


def test_constant_distributions_are_kept_everywhere(X, rng):
    found = interpolator(form_of(X), np.tile([0.7, 0.2, 0.1], (80, 1)))(
        10 * rng.standard_normal((9, 4))
    )
    np.testing.assert_allclose(found, np.tile([0.7, 0.2, 0.1], (9, 1)), atol=1e-4)


def test_certain_classes_are_predicted_within_clusters(rng):
    truth = np.arange(90) % 3
    X = rng.standard_normal((90, 4)) + 8 * np.eye(3, 4)[truth]
    predict = interpolator(form_of(X), np.eye(3)[truth])
    new = rng.standard_normal((30, 4)) + 8 * np.eye(3, 4)[truth[:30]]
    assert (predict(new).argmax(axis=1) == truth[:30]).all()
    assert predict(new).max(axis=1).min() > 0.9


def test_order_of_rows_and_of_classes_does_not_matter(X, known, rng):
    order, names, queries = rng.permutation(80), [2, 0, 1], rng.standard_normal((9, 4))
    plain = interpolator(form_of(X), known)(queries)
    other = interpolator(form_of(X[order]), known[order][:, names])(queries)
    np.testing.assert_allclose(other, plain[:, names], atol=1e-4)


def test_rows_are_predicted_one_by_one(X, known, rng, monkeypatch):
    queries = rng.standard_normal((25, 4))
    predict = interpolator(form_of(X), known)
    together = predict(queries)
    np.testing.assert_array_equal(predict(queries, n_jobs=2), together)
    monkeypatch.setattr(new_rows, "BLOCK_ROWS", 7)
    np.testing.assert_allclose(predict(queries), together, atol=1e-6)
    np.testing.assert_allclose(np.vstack([predict(q[None]) for q in queries]), together, atol=1e-5)


def test_form_of_the_rows_comes_first(X, known, rng):
    """A column with another unit, scaled back by the form, changes nothing."""
    scale, queries = np.array([1, 1, 100, 1]), rng.standard_normal((9, 4))
    plain = LinearForm(np.zeros(4), np.eye(4))
    scaled = LinearForm(np.zeros(4), np.diag(1 / scale))
    forms = [
        Form(f, f(rows), knn_graph(f(rows), 6)) for f, rows in ((plain, X), (scaled, X * scale))
    ]
    one, other = (interpolator(form, known) for form in forms)
    np.testing.assert_allclose(one(queries), other(queries * scale), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.* rows of X are farther")
@pytest.mark.parametrize(
    ("rows", "distributions"),
    [
        (np.repeat(np.eye(3), 4, axis=0), np.eye(3)[np.arange(12) % 3]),  # duplicates that disagree
        (np.ones((12, 2)), np.eye(2)[np.arange(12) % 2]),
        (np.zeros((12, 1)), np.eye(2)[np.arange(12) % 2]),
        (np.eye(3), np.eye(3)),
        (np.eye(12, 3), np.ones((12, 1))),  # a single class
        (np.eye(12, 2), np.eye(12)),  # more classes than columns
    ],
    ids="duplicates constant zeros three-rows one-class many-classes".split(),
)
def test_degenerate_rows_give_finite_probabilities(rows, distributions):
    form = form_of(rows.astype(float), k=2)
    predict = interpolator(form, distributions)
    for found in (predict(rows), predict(rows + 5.0)):
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    shares = (predict.roots_at_rows(form) ** 2).sum(axis=1)
    assert (shares > 0).all()
    assert (shares < 1 + 1e-5).all()


# Nearness


@pytest.mark.filterwarnings("ignore:.* rows of X are farther")
def test_roots_are_those_of_near_classes(X, known, rng):
    predict = interpolator(form_of(X), known)
    queries = np.vstack([X[:5], 3 * rng.standard_normal((20, 4)), np.full((2, 4), 50.0)])
    gaps = np.sort(np.linalg.norm(queries[:, None] - X, axis=2), axis=1)[:, 5]
    beyond = (predict.scales >= 0.999 * gaps[:, None]).mean(axis=1)
    near = (1 + FAR) * beyond / (FAR + beyond)
    np.testing.assert_allclose(predict.roots(queries), np.sqrt(near[:, None] * predict(queries)))
    assert near[:5].min() > 0.5
    assert not predict.roots(queries)[-2:].any()


def test_rows_as_far_as_all_others_are_near():
    """Whatever the rounding of their distances."""
    equal = np.full(50, 3.0, np.float32)
    for change in (1 - 1e-6, 1.0, 1 + 1e-6):
        np.testing.assert_array_equal(nearness(equal[:2] * np.float32(change), equal), 1)


@pytest.mark.parametrize(
    ("n", "change"), [(10, lambda X: X * [1, 1, 100, 1]), (60, lambda X: X - [0, 0, 0, 30])]
)
def test_other_units_of_one_column_are_told(X, known, n, change, rng):
    predict, queries = interpolator(form_of(X), known), rng.standard_normal((n, 4))
    predict(queries)
    predict(change(queries)[:9])  # too few to tell
    predict(np.vstack([queries, change(queries)]))  # half of them may be novel
    for function in (predict, predict.roots):
        with pytest.warns(UserWarning, match="Pass the columns of the fit, in the same units"):
            function(change(queries))
