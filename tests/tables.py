"""What tests of tables share."""

import numpy as np

N = 40  # rows


def assert_features(data, frame, *names):
    assert data.columns == names
    np.testing.assert_allclose(data.X, frame[list(names)], rtol=1e-6)
