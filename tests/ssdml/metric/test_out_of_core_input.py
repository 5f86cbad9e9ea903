"""Difficult and invalid dask arrays: a correct result, or an actionable error."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml import SSDML
from ssdml.metric import out_of_core
from tests.chunks import in_chunks

da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.usefixtures("small_partitions")


@pytest.fixture
def rows(overlapping):
    return overlapping


def test_one_labeled_class_returns_the_input(rows):
    X, labels, _ = rows
    message = (
        "returns the input instead: propagation finds a single class. Label at least one other"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        model = SSDML(random_state=0).fit(in_chunks(X), np.where(labels == 1, 1, -1))
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(model.transform(X), X)
    np.testing.assert_array_equal(model.predict(X), 1)


def test_more_labels_than_partition_rows_warn(rows):
    X, _, y = rows
    message = r"SSDML: labeled rows must be fewer .*; got 600 for 200\. Set some .*X.rechunk"
    with pytest.warns(UserWarning, match=message) as caught:
        model = SSDML(random_state=0).fit(in_chunks(X), y)
    assert caught[0].filename == __file__
    assert model.score(X, y) > 0.9


def test_fewer_rows_than_neighbors_warn(rows, monkeypatch):
    """Eight rows in the first partition, four of them labeled; twelve in each other one."""
    monkeypatch.setattr(out_of_core, "PARTITION_ROWS", 8)
    X, _, y = rows
    X = np.stack([X[y == 0][:16], X[y == 1][:16]], axis=1).reshape(32, 5)  # in turn
    labels = np.r_[0, 1, 0, 1, np.full(28, -1)]
    message = "SSDML: n_neighbors must be below n_samples = 8; got 10. Using 7."
    with pytest.warns(UserWarning, match=message) as caught:
        model = SSDML(random_state=0, guard=False).fit(in_chunks(X, 4), labels)
    assert caught[0].filename == __file__
    assert len(model.history_) == 4
    assert (model.transduction_ == np.arange(32) % 2).mean() > 0.9


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (
            lambda X: X,
            {"partition_size": 9},
            r"partition_size must be None .*got 9.*X\[:n\].compute",
        ),
        (lambda X: X, {"n_components": 6}, "n_components must be at most n_features = 5; got 6"),
        (
            lambda X: X[X[:, 0] > -99],
            {},
            r"known chunk sizes.*Call X.compute_chunk_sizes\(\) first",
        ),
        (lambda X: X.rechunk({1: 2}), {}, r"got 3 chunks of columns. Use X.rechunk\({1: -1}\)"),
        (lambda X: X[:0], {}, r"at least 2 rows and 1 column; got shape \(0, 5\)"),
        (lambda X: X[:, :0], {}, r"at least 2 rows and 1 column; got shape \(600, 0\)"),
        (lambda X: X[:-1], {}, r"y must have shape \(599,\)"),
        (lambda X: X * 1e200, {}, "X must have a finite variance; it overflows. Scale X down"),
    ],
)
def test_invalid_input_raises(rows, spoil, options, message):
    model = SSDML(random_state=0, **options)
    with pytest.raises(ValueError, match=f"SSDML: .*{message}"):
        model.fit(spoil(in_chunks(rows[0])), rows[1])


def test_distant_partitions_may_overflow(rows):
    X, labels, _ = rows
    far = X + np.repeat([-1e160, 0, 1e160], 200)[:, None]
    with pytest.raises(ValueError, match="X must have a finite variance; it overflows"):
        SSDML(random_state=0).fit(in_chunks(far), labels)


def test_blocks_of_wrong_size_raise(rows):
    X, labels, _ = rows
    lying = in_chunks(X).map_blocks(lambda block: block[1:], dtype=X.dtype, meta=X[:0])
    with pytest.raises(
        ValueError, match=r"got \(49, 5\) for \(50, 5\). Call X.compute_chunk_sizes"
    ):
        SSDML(random_state=0).fit(lying, labels)


def test_new_rows_of_another_width_raise(rows):
    fitted = SSDML(random_state=0).fit(in_chunks(rows[0]), rows[1])
    with pytest.raises(ValueError, match="X has 4 features, but SSDML is expecting 5 features"):
        fitted.transform(in_chunks(rows[0][:, :4]))
