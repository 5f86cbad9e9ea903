"""SSDML() without a part."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from ssdml import SSDML
from tools.robust.parts import PARTS, WITHOUT, without


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    labels = np.where(np.arange(len(y)) % 12 == 0, y, -1)
    return X / X.std(axis=0), labels


def fitted(method, wine):
    with without(method) as name:
        assert name == "ssdml"
        return SSDML(random_state=0).fit(*wine)


@pytest.fixture(scope="module")
def few_triplets():
    """A tenth of the triplets per round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssdml.metric.alternation.N_TRIPLETS", 5000)
        yield


@pytest.fixture(scope="module")
def whole(wine, few_triplets):
    return fitted("ssdml", wine)


@pytest.mark.usefixtures("few_triplets")
@pytest.mark.parametrize("method", WITHOUT)
def test_every_part_changes_the_fit_and_comes_back(method, wine, whole):
    part = fitted(method, wine)
    same = whole.components_.shape == part.components_.shape and np.array_equal(
        whole.transform(wine[0]), part.transform(wine[0])
    )
    assert not same or method.endswith(("prior", "balance"))  # nothing to correct in even classes
    np.testing.assert_array_equal(
        fitted("ssdml", wine).transform(wine[0]), whole.transform(wine[0])
    )


def test_without_the_metric_its_columns_are_missing(wine):
    n_classes, d = 3, wine[0].shape[1]
    assert len(fitted("ssdml", wine).components_) == n_classes + n_classes - 1 + d
    assert len(fitted("ssdml-without-metric", wine).components_) == n_classes + d
    assert len(fitted("ssdml-without-classes", wine).components_) == n_classes - 1 + d


def test_the_parts_are_named_once():
    assert len(set(WITHOUT)) == len(PARTS)
