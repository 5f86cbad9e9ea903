"""Figures: positions, colors, names and self-contained SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ssdml.experiments.analysis.statistics import Estimate
from ssdml.experiments.report.figures import (
    GRID,
    INK,
    MUTED,
    ClassMap,
    as_svg,
    class_maps,
    draw_class_map,
    draw_curves,
    draw_estimates,
    history_pictures,
    new_figure,
)
from ssdml.experiments.report.files import save_figures
from ssdml.experiments.report.styles import COLORS, STYLES, max_lines, method_styles, wrap_name
from ssdml.experiments.runs.details import MapSample
from ssdml.experiments.runs.results import RESULTS
from ssdml.metric.fitted.maps import CLASS_COLORS, spread_colors
from tests.rows import append_row


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colors as WCAG 2 defines it."""

    def luminance(color):
        channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        return linear @ [0.2126, 0.7152, 0.0722]

    high, low = sorted([luminance(first), luminance(second)], reverse=True)
    return (high + 0.05) / (low + 0.05)


def svg_of(draw) -> str:
    with new_figure(4, 3) as figure:
        draw(figure.subplots())
        return as_svg(figure, 'the <map> of "x"')


def estimates():
    return {"input": Estimate(70.0, 68.0, 72.0, 5), "ssdml": Estimate(80.0, np.nan, np.nan, 1)}


def test_svg_is_valid_and_self_contained():
    svg = svg_of(lambda axes: draw_estimates(axes, estimates(), method_styles(list(estimates()))))
    ElementTree.fromstring(svg.replace("xlink:href", "href"))
    assert "http" not in svg
    assert "<style" not in svg
    assert 'aria-label="the &lt;map&gt; of &quot;x&quot;"' in svg


def test_long_names_leave_room_for_the_plot():
    name = "ssdml[n_neighbors=20;decay=0.9;angle=35;input_weight=0.5;max_rounds=1;guard=false]"
    assert wrap_name(name).replace("\n", "") == name
    assert max_lines(["input", name]) == 5
    with new_figure(3.7, 2.5) as figure:
        axes = figure.subplots()
        draw_estimates(axes, {name: Estimate(70.0, 68.0, 72.0, 5)}, method_styles([name]))
        as_svg(figure, "difference")  # matplotlib warns if nothing is left
    assert axes.get_position().width > 0.3


def test_svg_uses_the_page_colors():
    svg = svg_of(lambda axes: draw_estimates(axes, estimates(), method_styles(list(estimates()))))
    assert "var(--ink)" in svg
    assert "var(--line)" in svg
    assert not any(color in svg for color in (INK, MUTED, GRID))
    assert STYLES["ssdml"].color in svg


def test_figures_have_distinct_ids():
    svgs = []
    for name in ("first", "second"):
        with new_figure(4, 3) as figure:
            draw_estimates(figure.subplots(), estimates(), method_styles(list(estimates())))
            svgs.append(as_svg(figure, name))
    ids = [{e.get("id") for e in ElementTree.fromstring(s.replace("xlink:href", "href")).iter()}
           - {None} for s in svgs]  # fmt: skip
    assert ids[0]
    assert not ids[0] & ids[1]


def test_dollar_signs_are_not_math():
    assert "a$b$" in svg_of(lambda axes: axes.set_title("a$b$"))


def test_estimates_are_drawn_with_intervals():
    with new_figure(4, 3) as figure:
        axes = figure.subplots()
        draw_estimates(axes, estimates(), method_styles(list(estimates())))
        zero, *_ = axes.lines
        points = [container.lines[0].get_xdata()[0] for container in axes.containers]
        spans = [container.lines[2][0].get_segments()[0][:, 0] for container in axes.containers]
        names = [label.get_text() for label in axes.get_yticklabels()]
    assert list(zero.get_xdata()) == [0, 0]
    assert points == [70, 80]
    np.testing.assert_allclose(spans, [[68, 72], [80, 80]])
    assert names == ["input", "ssdml"]


def test_curves_skip_missing_budgets():
    curves = {
        "input": {1: Estimate(50.0, 49.0, 51.0, 3), 10: Estimate(60.0, 59.0, 61.0, 3)},
        "ssdml": {10: Estimate(70.0, 69.0, 71.0, 3)},
    }
    with new_figure(4, 3) as figure:
        axes = figure.subplots()
        draw_curves(axes, curves, method_styles(list(curves)))
        lines = [container.lines[0] for container in axes.containers]
        ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert ticks == ["1", "10"]
    assert list(lines[0].get_ydata()) == [50, 60]
    assert list(lines[1].get_ydata()) == [70]
    assert abs(lines[1].get_xdata()[0] - 1) < 0.2  # near the tick of 10


def test_labeled_samples_are_stars(rng):
    points, is_labeled = rng.normal(size=(10, 2)), np.arange(10) >= 7
    with new_figure(4, 4) as figure:
        axes = figure.subplots()
        sample = MapSample(points.astype(np.float32), np.zeros(10, int), is_labeled)
        draw_class_map(axes, ClassMap(points, sample, ["a rather long name"], np.array([3])))
        dots, stars = axes.collections
    np.testing.assert_array_equal(dots.get_offsets(), points[:7])
    np.testing.assert_array_equal(stars.get_offsets(), points[7:])
    assert {to_hex(color) for color in stars.get_facecolors()} == {CLASS_COLORS[3]}
    assert not axes.texts


def test_short_names_are_written_on_the_map(rng):
    points = rng.normal(size=(10, 2))
    with new_figure(4, 4) as figure:
        axes = figure.subplots()
        sample = MapSample(points.astype(np.float32), np.arange(10) % 2 * 2 - 1, np.zeros(10, bool))
        draw_class_map(axes, ClassMap(points, sample, ["a", "b"], np.arange(2)))
    (text,) = axes.texts  # half of the samples are of no class
    assert text.get_text() == "b"
    assert (points == text.get_position()).all(axis=1).any()


def test_both_maps_share_colors(rng):
    y = np.arange(60) % 20
    samples = {
        name: MapSample((rng.normal(size=(60, 3)) + 9 * y[:, None]).astype(np.float32), y, y < 0)
        for name in ("before", "after")
    }
    before, after = class_maps(samples, [str(c) for c in range(20)])
    np.testing.assert_array_equal(before.colors, after.colors)
    np.testing.assert_array_equal(after.colors, spread_colors(after.points, y, 20))


def test_score_axes_end_at_100_percent():
    curves = {"input": {c: Estimate(96.0, 80.0, 112.0, 3) for c in (1, 10)}}
    with new_figure(4, 3) as figure:
        axes = figure.subplots()
        draw_curves(axes, curves, method_styles(list(curves)))
    assert 100 < axes.get_ylim()[1] < 102


def test_short_histories_are_left_out():
    histories = {"ssdml": [{"objective": 0.0282}, {"objective": 0.0268}]}
    styles = method_styles(list(histories))
    assert history_pictures(histories, "data", styles) == []
    histories["ssdml"].append({"objective": 0.0267})
    (picture,) = history_pictures(histories, "data", styles)
    assert re.search(r">0\.0+</text>", picture.svg)  # from zero: a small change looks small


def test_every_known_method_has_its_own_style():
    from ssdml.experiments.methods.registry import DEEP_METHODS, METHODS

    assert {*METHODS, *DEEP_METHODS} <= STYLES.keys()
    assert len({style[:2] for style in STYLES.values()}) == len(STYLES)
    common = "input logistic knn poisson label-spreading lda nca pca ssdml ssdml-paper".split()
    assert len({STYLES[name].marker for name in common}) == len(common)
    assert len({STYLES[name].color for name in common}) == len(common)


def test_a_method_looks_alike_in_every_report():
    names = ["input", "ssdml", "mine", "package:Yours", "ssdml[n_neighbors=20]", "lda-tuned"]
    together = method_styles(names)
    assert together == method_styles(names[::-1])
    assert all(method_styles([name])[name] == together[name] for name in names)


def test_many_other_methods_differ():
    names = [f"ssdml[n_neighbors={k}]" for k in range(40)]
    chosen = method_styles([*STYLES, *names])
    assert len(set(chosen.values())) == len(chosen)


@pytest.mark.parametrize("paper", ["#fefefe", "#12171e"])
def test_markers_contrast_with_both_themes(paper):
    assert min(contrast(color, paper) for color in COLORS.values()) >= 3


@pytest.mark.parametrize(("text", "paper"), [(INK, "#fefefe"), (MUTED, "#fefefe")])
def test_text_contrasts_with_the_figure(text, paper):
    assert contrast(text, paper) > 4.5


def test_the_legend_of_a_figure_covers_nothing(tmp_path, make_row, monkeypatch):
    figures = {}
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **_: figures.setdefault(path.name, self)
    )
    for method in ("input", "ssdml", "label-spreading", "ssdml[n_neighbors=20;decay=0.9;angle=35]"):
        for labels in (2, 5):
            for seed in range(3):
                row = make_row(method=method, labels_per_class=labels, seed=seed)
                append_row(tmp_path / RESULTS, row)
    save_figures(tmp_path, "pdf")
    figure = figures["blobs-accuracy-labels.pdf"]
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    frame = legend.get_window_extent()
    assert frame.x0 >= axes.get_window_extent().x1
    assert frame.x1 <= figure.bbox.x1
    assert axes.get_position().width > 0.4
