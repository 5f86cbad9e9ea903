"""Maps of the rows under the learned metric."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from ssdml import SSDML
from ssdml.graphs import knn_graph
from ssdml.metric.maps import draw_map, map_rows, medoids, place_rows


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:700] / 16, y[:700]
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "9"])
    labels = np.where(np.arange(700) < 60, names[y], "")
    return X, names[y], SSDML(random_state=0).fit(X[:600], labels[:600])


def test_neighbors_on_the_map_share_a_class(digits):
    _, y, model = digits
    points = model.map()
    assert points.shape == (600, 2)
    nearest = knn_graph(points, 5).indices
    assert (y[nearest] == y[:600, None]).mean() > 0.9
    assert model.map() is points  # kept


def test_a_new_fit_makes_a_new_map(digits):
    X, y, _ = digits
    model = SSDML(random_state=0)
    first = model.fit(X[:100], y[:100]).map()
    second = model.fit(X[100:250], y[100:250]).map()
    assert (len(first), len(second)) == (100, 150)


def test_new_rows_are_placed_among_their_class(digits):
    X, y, model = digits
    placed, points = model.map(X[600:]), model.map()
    nearest = ((placed[:, None] - points[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (y[nearest] == y[600:]).mean() > 0.85


def test_a_loaded_model_has_the_same_map(digits, tmp_path):
    *_, model = digits
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(SSDML.load(tmp_path / "model").map(), model.map())


def test_names_stand_at_their_classes(digits):
    X, y, model = digits
    axes = model.plot_map(axes=Figure().subplots())
    assert sorted(text.get_text() for text in axes.texts) == sorted(set(y))
    points = model.map()
    for text in axes.texts:
        row = ((points - text.get_position()) ** 2).sum(axis=1).argmin()
        assert model.transduction_[row] == text.get_text()
    assert len(axes.collections[0].get_offsets()) == 600
    assert (
        len(model.plot_map(X[600:], axes=Figure().subplots()).collections[0].get_offsets()) == 100
    )


def test_rows_without_a_class_are_gray_and_unnamed():
    points = np.arange(8.0).reshape(4, 2)
    axes = draw_map(points, np.array([-1, 0, -1, 0]), ["a"], axes=Figure().subplots(), marked=[1])
    assert [text.get_text() for text in axes.texts] == ["a"]
    colors = axes.collections[0].get_facecolors()
    np.testing.assert_allclose(colors[0, :3], 187 / 255)
    assert not np.allclose(colors[0], colors[1])
    assert len(axes.collections[1].get_offsets()) == 1


def test_many_names_are_left_out():
    points, codes = np.random.default_rng(0).random((200, 2)), np.arange(200)
    axes = draw_map(points, codes, [str(code) for code in codes], axes=Figure().subplots())
    assert not axes.texts


def test_medoids_are_rows_of_their_class(rng):
    points, codes = rng.random((50, 2)), rng.integers(4, size=50)
    found, rows = medoids(points, codes)
    np.testing.assert_array_equal(codes[rows], found)


@pytest.mark.parametrize("shape", [(2, 1), (3, 5), (30, 1)])
def test_small_embeddings_have_a_map(rng, shape):
    points = map_rows(rng.standard_normal(shape))
    assert points.shape == (shape[0], 2)
    assert np.isfinite(points).all()


def test_a_reference_is_placed_near_itself(rng):
    rows = np.repeat(np.arange(4.0), 10)[:, None] + 0.01 * rng.random((40, 1))
    points = np.hstack([rows, -rows])
    np.testing.assert_allclose(place_rows(points, rows, rows[:3]), points[:3], atol=0.02)
