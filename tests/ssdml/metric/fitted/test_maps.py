"""Maps of the rows under the learned metric."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from ssdml import SSDML
from ssdml.graphs import knn_graph
from ssdml.metric.fitted.maps import (
    CLASS_COLORS,
    DARK_CLASS_COLORS,
    draw_map,
    map_rows,
    medoids,
    place_rows,
    spread_colors,
)


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


def test_a_new_fit_makes_a_new_map(digits):
    X, y, _ = digits
    model = SSDML(random_state=0)
    first = model.fit(X[:100], y[:100]).map()
    second = model.fit(X[100:250], y[100:250]).map()
    assert (len(first), len(second)) == (100, 150)


def test_the_map_is_kept_even_if_it_is_written_to(digits, monkeypatch):
    model = digits[2]
    points = model.map()
    kept = points.copy()
    points *= -1
    monkeypatch.setattr("ssdml.metric.fitted.metric.map_rows", None)  # not called again
    np.testing.assert_array_equal(model.map(), kept)


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


def in_oklab(colors):
    """Björn Ottosson's Oklab (2020) of linear sRGB colors."""
    cones = np.array([[0.41222147, 0.53633254, 0.05144599], [0.2119035, 0.6806995, 0.10739696],
                      [0.08830246, 0.28171884, 0.6299787]])  # fmt: skip
    lab = np.array([[0.21045426, 0.7936178, -0.00407205], [1.9779985, -2.4285922, 0.4505937],
                    [0.02590404, 0.78277177, -0.80867577]])  # fmt: skip
    return np.cbrt(colors.clip(0, 1) @ cones.T) @ lab.T


# Machado, Oliveira and Fernandes (2009), severity 1.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def linear_rgb(colors):
    rgb = np.array([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in colors])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


PAGES = {"light": (CLASS_COLORS, "#fefefe"), "dark": (DARK_CLASS_COLORS, "#12171e")}


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("page", PAGES)
def test_class_colors_differ_for_any_vision(vision, page):
    linear = linear_rgb(PAGES[page][0])
    seen = in_oklab(linear @ np.array(VISION[vision]).T)
    gaps = np.linalg.norm(seen[:, None] - seen, axis=2) + np.eye(len(seen))
    assert gaps.min() > (0.17 if vision == "normal" else 0.1)
    assert np.linalg.norm(in_oklab(linear)[:, 1:], axis=1).min() > 0.07  # none is gray


@pytest.mark.parametrize("n_classes", [2, 10, 77])
@pytest.mark.parametrize("page", PAGES)
def test_all_classes_contrast_with_the_page(rng, page, n_classes):
    """A contrast ratio of 3 by WCAG 2, which it asks of graphics."""
    colors, paper = PAGES[page]
    codes = np.arange(3 * n_classes) % n_classes
    shown = np.array(colors)[spread_colors(rng.random((len(codes), 2)), codes, n_classes)]
    light = linear_rgb([paper, *shown]) @ [0.2126, 0.7152, 0.0722] + 0.05
    ratios = np.maximum(light[0], light[1:]) / np.minimum(light[0], light[1:])
    assert len(ratios) == n_classes
    assert ratios.min() >= 3


def test_classes_of_one_color_are_far_apart(rng):
    points = rng.random((770, 2))
    codes = np.repeat(np.arange(77), 10)
    points[:] = rng.random((77, 2))[codes] + 0.001 * points
    colors = spread_colors(points, codes, 77)
    places = points[::10]
    gaps = np.linalg.norm(places[:, None] - places, axis=2)

    def nearest_twin(colors):
        return np.where((colors[:, None] == colors) & ~np.eye(77, dtype=bool), gaps, 9).min(axis=1)

    assert set(colors.tolist()) == set(range(10))
    assert nearest_twin(colors).min() > 3 * nearest_twin(np.arange(77) % 10).min()


def test_ten_classes_keep_their_colors(rng):
    codes = rng.integers(-1, 10, size=40)
    assert spread_colors(rng.random((40, 2)), codes, 10).tolist() == list(range(10))


def test_threads_of_blas_do_not_move_the_map(rng):
    rows = rng.normal(size=(700, 60)).astype(np.float32)
    maps = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, "blas"):
            maps.append(map_rows(rows))
    np.testing.assert_array_equal(*maps)
