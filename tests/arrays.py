"""What tests of arrays in files share."""

import numpy as np

X = np.array([[0.5, 1.0], [2.0, -3.0], [4.0, 0.25]])
Y = np.array(["cat", "dog", "cat"])


def assert_read(raw, labels=Y, test=None, samples=X):
    np.testing.assert_array_equal(raw.items, samples)
    np.testing.assert_array_equal(raw.labels, labels)
    assert raw.test is None if test is None else (raw.test == test).all()
