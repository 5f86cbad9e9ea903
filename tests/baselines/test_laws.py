"""Laws that hold for every baseline."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.datasets import make_blobs

from ssdml.baselines import APIT, APLLR, ISDML, LRML, SERAPH
from ssdml.evaluation import evaluate

METHODS = [
    LRML(),
    LRML(normalized=True),
    ISDML(),
    ISDML(density="neighbors"),
    APLLR(),
    APIT(),
    APIT(prior="gmml"),
    SERAPH(),
    SERAPH(solver="em", unlabeled_pairs="both"),
]
# Without similar pairs, or labels, nothing but a bound ends the growth of SERAPH's M.
grows_without_end = pytest.mark.filterwarnings("ignore:SERAPH. max_iter=200 steps must come to tol")
every_method = pytest.mark.parametrize("method", METHODS, ids=repr)


@pytest.fixture(scope="module")
def data():
    """Three clusters in four dimensions, five labels each."""
    X, y = make_blobs(90, 4, centers=3, cluster_std=2.0, random_state=0)
    labels = np.full(len(y), -1)
    for c in range(3):
        labels[np.flatnonzero(y == c)[:5]] = c
    return X, y, labels


@pytest.fixture(scope="module")
def plain(data):
    """The matrix of each method on the data, learned once."""
    X, _, labels = data
    return cache(lambda method: matrix(method, X, labels))


@pytest.fixture(scope="module")
def plain_exact(data):
    """Likewise, of `exact` methods."""
    X, _, labels = data
    return cache(lambda method: matrix(exact(method), X, labels))


def exact(method):
    """ITML converges to one solution from any order of its pairs, with enough passes."""
    if "prior" not in method.get_params():
        return method
    return clone(method).set_params(tol=1e-12, max_iter=20_000)


def matrix(method, X, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of guards, which have tests of their own
        return clone(method).set_params(random_state=0).fit(X, labels).get_mahalanobis_matrix()


@every_method
def test_matrix_is_positive_semidefinite_with_trace_d(method, data, plain):
    X, _, labels = data
    M = plain(method)
    assert np.linalg.eigvalsh(M)[0] >= -1e-10
    assert np.trace(M) == pytest.approx(4)
    learned, _ = clone(method)._learn(method._pose(X, labels, np.random.default_rng(0)))
    np.testing.assert_array_equal(learned, learned.T)  # before it is factored
    assert np.linalg.eigvalsh(learned)[0] >= -1e-10 * np.trace(learned) / 4


@every_method
def test_translation_invariance(method, data, plain):
    X, _, labels = data
    moved = X + np.array([5.0, -3.0, 0.5, 20.0])
    np.testing.assert_allclose(matrix(method, moved, labels), plain(method), atol=1e-8)


@every_method
def test_rotation_equivariance(method, data, plain):
    X, _, labels = data
    R = ortho_group.rvs(4, random_state=1)
    turned = matrix(method, X @ R, labels)
    np.testing.assert_allclose(turned, R.T @ plain(method) @ R, atol=1e-8)


@every_method
def test_class_names_do_not_matter(method, data, plain_exact):
    X, _, labels = data
    renamed = np.where(labels < 0, -1, np.array([30, 7, 11])[labels])
    found = matrix(exact(method), X, renamed)
    np.testing.assert_allclose(found, plain_exact(method), atol=1e-8)


@every_method
@pytest.mark.parametrize("unit", [1e-200, 1e-20, 1e-3, 1e15])
def test_scale_invariance(method, data, plain, unit):
    X, _, labels = data
    np.testing.assert_allclose(matrix(method, unit * X, labels), plain(method), atol=1e-8)


@every_method
@pytest.mark.parametrize("unit", [1e-200, 1e100])
def test_scale_invariance_with_fewer_components(method, data, unit):
    """The covariance of the rows decides which components are kept."""
    X, _, labels = data
    few = clone(method).set_params(n_components=2, random_state=0)
    G = [quiet(few, rows, labels) for rows in (X, unit * X)]
    np.testing.assert_allclose(*(part / np.linalg.norm(part) for part in G), atol=1e-8)


def quiet(method, X, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        components = method.fit(X, labels).components_
    return components.T @ components


@every_method
def test_row_order_does_not_matter(method, data, plain_exact):
    X, _, labels = data
    order = np.random.default_rng(2).permutation(len(X))
    shuffled = matrix(exact(method), X[order], labels[order])
    np.testing.assert_allclose(shuffled, plain_exact(method), atol=1e-8)


@every_method
def test_labels_suppress_a_nuisance_direction(method):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = rng.standard_normal((200, 4)) * [1, 1, 1, 10]
    X[:, 0] += 4 * y
    labels = np.full(200, -1)
    for c in range(2):
        labels[np.flatnonzero(y == c)[:5]] = c
    method = clone(method).set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Z = method.fit(X, labels).transform(X)
    assert evaluate(X, y)["R@1"] < 91
    assert evaluate(Z, y)["R@1"] > evaluate(X, y)["R@1"] + 2


class TestDegenerate:
    @every_method
    @grows_without_end
    def test_fit_without_labels_warns(self, method, data):
        X, _, _ = data
        with pytest.warns(UserWarning, match="no row has a label; ") as told:
            model = clone(method).set_params(random_state=0).fit(X, np.full(len(X), -1))
        assert {warning.filename for warning in told} == {__file__}  # the line that fits
        assert np.isfinite(model.transform(X)).all()
        if not isinstance(method, APLLR | APIT):  # their graph knows of labels too
            assert np.abs(model.get_mahalanobis_matrix() - np.eye(4)).max() > 1e-6
        assert (model.transduction_ == -1).all()
        assert model.label_distributions_.shape == (len(X), 0)
        with pytest.raises(ValueError, match="predict needs classes; it was fitted without"):
            model.predict(X)

    @every_method
    def test_one_class(self, method, data):
        X, _, labels = data
        with pytest.warns(UserWarning, match="only one class is labeled, so no pair is dissimilar"):
            model = clone(method).set_params(random_state=0).fit(X, np.where(labels == 1, 1, -1))
        assert np.isfinite(model.components_).all()
        assert (model.predict(X) == 1).all()

    @every_method
    @grows_without_end
    def test_one_label_per_class(self, method, data):
        X, y, _ = data
        labels = np.full(len(X), -1)
        for c in range(3):
            labels[np.flatnonzero(y == c)[0]] = c
        with pytest.warns(UserWarning, match="every class has one label, so no pair is similar"):
            model = clone(method).set_params(random_state=0).fit(X, labels)
        assert np.isfinite(model.components_).all()

    @every_method
    def test_more_features_than_rows(self, method, data):
        _, _, labels = data
        wide = np.random.default_rng(0).standard_normal((20, 40))
        M = matrix(method, wide, labels[:20])
        assert np.isfinite(M).all()

    @every_method
    def test_fewer_rows_than_neighbors(self, method, data):
        X, y, _ = data
        with pytest.warns(UserWarning, match="n_neighbors must be below n_samples = 5"):
            model = clone(method).set_params(random_state=0).fit(X[:5], y[:5])
        assert np.isfinite(model.components_).all()

    @every_method
    def test_all_rows_labeled(self, method, data):
        X, y, _ = data
        assert np.isfinite(matrix(method, X, y)).all()

    @every_method
    def test_all_rows_equal(self, method, data):
        _, _, labels = data
        assert np.isfinite(matrix(method, np.ones((90, 4)), labels)).all()

    @every_method
    def test_duplicated_rows(self, method, data):
        X, _, labels = data
        assert np.isfinite(matrix(method, np.vstack([X, X]), np.tile(labels, 2))).all()


@every_method
def test_few_components_preserve_distances_best(method, data, plain):
    X, _, labels = data
    M = plain(method)
    few = matrix(clone(method).set_params(n_components=2), X, labels)
    spread = np.cov(X.T)
    kept = np.sort(np.linalg.eigvals(M @ spread).real)[2:]
    assert np.trace(few @ spread) == pytest.approx(kept.sum(), rel=1e-6)  # 1e-9 I is added
    assert np.linalg.eigvalsh(M - few).min() > -1e-8


@every_method
def test_more_components_than_features_raise(method, data):
    X, _, labels = data
    with pytest.raises(ValueError, match=r"n_components must be at most n_features = 4; got 5"):
        clone(method).set_params(n_components=5).fit(X, labels)


@every_method
def test_save_and_load_round_trip(method, data, tmp_path):
    X, _, labels = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(method).set_params(random_state=0).fit(X, labels)
    model.save(tmp_path / "model")
    loaded = type(method).load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
