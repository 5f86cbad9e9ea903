"""Reader of the Street View House Numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.io import savemat

from ssdml.datasets import load_dataset


def test_digits_and_split_are_those_of_the_files(tmp_path, rng):
    folder = tmp_path / "svhn"
    folder.mkdir()
    images = rng.integers(0, 256, (32, 32, 3, 6), dtype=np.uint8)
    labels = np.array([[1], [10], [9], [10], [1], [9]], dtype=np.uint8)
    savemat(folder / "train_32x32.mat", {"X": images[..., :4], "y": labels[:4]})
    savemat(folder / "test_32x32.mat", {"X": images[..., 4:], "y": labels[4:]})
    data = load_dataset("svhn", data_dir=tmp_path)
    assert data.class_names == ("0", "1", "9")
    assert data.y.tolist() == [1, 0, 2, 0, 1, 2]
    assert data.test.tolist() == [False] * 4 + [True] * 2
    expected = images.transpose(3, 0, 1, 2).reshape(6, -1) / np.float32(255)
    np.testing.assert_array_equal(data.X, expected)
    (folder / "test_32x32.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"test_32x32.mat.*svhn must hold \{train,test\}"):
        load_dataset("svhn", data_dir=tmp_path)
