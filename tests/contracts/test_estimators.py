"""Contract of all estimators: scikit-learn's checks, and properties of learned metrics."""

from __future__ import annotations

import copy
import pickle
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from ssdml import SSDML
from ssdml.baselines import APIT, APLLR, ISDML, LRML, SERAPH
from ssdml.metric.fitted.base import VERSION

ALONE = SSDML(input_weight=0.0, max_rounds=1)
ESTIMATORS = [
    SSDML(),
    ALONE,
    SSDML.paper(),
    LRML(),
    ISDML(),
    APLLR(),
    APIT(),
    SERAPH(tol=0.1),
]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)


@pytest.fixture(scope="module", autouse=True)
def few_triplets():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssdml.metric.alternation.N_TRIPLETS", 1000)
        yield


@pytest.fixture(scope="module")
def data():
    """Three clusters in five dimensions with four labels each, read-only."""
    X, y = make_blobs(120, 5, centers=3, cluster_std=2.0, random_state=0)
    labels = np.full(len(y), -1)
    for c in range(3):
        labels[np.flatnonzero(y == c)[:4]] = c
    for array in (X, y, labels):
        array.flags.writeable = False
    return X, y, labels


def fitted(estimator, X, y):
    return clone(estimator).set_params(random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def plain(data, few_triplets):
    """Fit each estimator once; tests do not change it."""
    X, _, labels = data
    return cache(lambda estimator: fitted(estimator, X, labels))


def departures(estimator):
    """Checks of scikit-learn that labels with gaps contradict, and why."""
    found = {"check_classifiers_classes": "the class -1 means unlabeled"}
    if not isinstance(estimator, SSDML):
        found["check_supervised_y_no_nan"] = "NaN means unlabeled, and no label is required"
    elif estimator.propagation == "one-sided":
        reason = "the published default is half the features: one of two here"
        found["check_classifiers_train"] = reason
    return found


# SSDML.paper() is without input as well.
@parametrize_with_checks(
    [e for e in ESTIMATORS if e is not ALONE], expected_failed_checks=departures
)
# The checks fit noise, a single class, and fewer samples than neighbors.
@pytest.mark.filterwarnings("ignore:SSDML:UserWarning", "ignore:mine_triplets:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:propagate_labels:UserWarning", "ignore:.*; .*:UserWarning")
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@every_estimator
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_same_seed_gives_equal_results(estimator, data, plain, n_jobs):
    """Beside None, with which the first was fitted."""
    X, _, labels = data
    again = fitted(clone(estimator).set_params(n_jobs=n_jobs), X, labels)
    np.testing.assert_array_equal(again.transform(X), plain(estimator).transform(X))


@every_estimator
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(estimator, data, dtype):
    X, _, labels = data
    model = fitted(estimator, X.astype(dtype), labels)
    for result in (model.transform(X.astype(dtype)), model.embedding_, model.components_):
        assert result.dtype == dtype


@every_estimator
def test_arguments_generators_and_output_are_left_alone(estimator, data, capfd):
    import torch

    X, _, labels = data  # read-only
    before = X.copy(), labels.copy()
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    model = fitted(estimator, X, labels)
    model.predict(X)
    model.pair_distance(np.stack([X[:5], X[5:10]], axis=1))
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(labels, before[1])
    np.testing.assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[1])
    assert capfd.readouterr() == ("", "")


@every_estimator
def test_metric_is_symmetric_and_positive_semidefinite(estimator, plain):
    M = plain(estimator).get_mahalanobis_matrix()
    np.testing.assert_array_equal(M, M.T)
    assert np.linalg.eigvalsh(M)[0] >= -1e-10 * np.trace(M) / len(M)


@every_estimator
@pytest.mark.parametrize("names", [[3, 40, 500, -1], ["ash", "birch", "cedar", ""]], ids=str)
def test_classes_may_be_renamed(estimator, data, plain, names, tmp_path):
    """In the same order: otherwise ties and random draws may differ."""
    X, y, labels = data
    names = np.array(names)
    model, other = plain(estimator), fitted(estimator, X, names[labels])
    other.save(tmp_path / "model")
    for named in (other, type(other).load(tmp_path / "model")):
        np.testing.assert_array_equal(named.transform(X), model.transform(X))
        np.testing.assert_array_equal(named.predict(X), names[model.predict(X)])
        np.testing.assert_array_equal(named.transduction_, names[model.transduction_])
        assert named.classes_.tolist() == names[:3].tolist()
        assert named.score(X, names[y]) == model.score(X, y)


@every_estimator
def test_predictions_are_accurate_distributions(estimator, data, plain):
    X, y, _ = data
    model = plain(estimator)
    proba = model.predict_proba(X)
    assert proba.shape == (len(X), 3)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)  # float32
    assert (model.predict(X) == model.transduction_).mean() > 0.9
    assert model.score(X, y) > 0.9


@every_estimator
def test_pickle_keeps_the_result(estimator, data, plain):
    X, _, _ = data
    model = plain(estimator)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).transform(X), model.transform(X)
    )
    state = model.__getstate__()
    for other in (state | {VERSION: "0.1"}, {k: v for k, v in state.items() if k != VERSION}):
        twin = clone(model)
        with pytest.warns(UserWarning, match=r"pickled by ssdml (0\.1|of another version), and th"):
            twin.__setstate__(other)
        assert vars(twin).keys() == vars(model).keys()


@every_estimator
def test_failed_fit_is_not_fitted(estimator, data, plain):
    """Not even as before: some attributes are of the new rows by then."""
    X, _, labels = data
    model = copy.copy(plain(estimator))
    with pytest.raises(ValueError, match="X must be finite"):
        model.fit(np.full((len(X), 3), np.nan), labels)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.transform(X)


@every_estimator
def test_unfitted_estimators_raise(estimator, data):
    X, _, _ = data
    model = clone(estimator)
    for method in (model.transform, model.predict, model.predict_proba):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            method(X)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.get_mahalanobis_matrix()
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.get_metric()
