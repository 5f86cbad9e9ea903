"""Figures: positions, colors, names and self-contained SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from ssdml.experiments.analysis.statistics import Estimate
from ssdml.experiments.report.figures import (
    CLASS_COLORS,
    GRID,
    INK,
    MUTED,
    PAPER,
    STYLES,
    ClassMap,
    as_svg,
    class_colors,
    class_marks,
    describe_mined,
    draw_class_map,
    draw_curves,
    draw_estimates,
    max_lines,
    method_styles,
    mined_picture,
    new_figure,
    wrap_name,
)
from ssdml.experiments.runs.details import MapSample, MinedSample, RunDetails


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
        sample = MapSample(points.astype(np.float32), np.arange(10), is_labeled)
        draw_class_map(axes, ClassMap(points, sample, ["long name"]))
        dots, stars = axes.collections
    np.testing.assert_array_equal(dots.get_offsets(), points[:7])
    np.testing.assert_array_equal(stars.get_offsets(), points[7:])


def test_more_than_ten_classes_share_colors():
    colors = class_colors(np.array([0, 9, 10, 76, -1]))
    first, last, seventh = CLASS_COLORS[0], CLASS_COLORS[9], CLASS_COLORS[6]
    assert colors.tolist() == [first, last, first, seventh, MUTED]


def test_every_method_has_its_own_style():
    names = [*STYLES, "mine", "yours"]
    chosen = method_styles(names)
    assert len({style.color for style in chosen.values()}) == len(names)
    assert chosen["ssdml"] == STYLES["ssdml"]


@pytest.mark.parametrize("paper", ["#fefefe", "#12171e"])
def test_markers_contrast_with_both_themes(paper):
    # 2 instead of WCAG's 3, because every marker has its own shape and its name beside it.
    assert min(contrast(style.color, paper) for style in STYLES.values()) > 2


@pytest.mark.parametrize(("text", "paper"), [(INK, "#fefefe"), (MUTED, "#fefefe")])
def test_text_contrasts_with_the_figure(text, paper):
    assert contrast(text, paper) > 4.5


def mined_svg(mined, class_names, dataset="data") -> str:
    details = RunDetails({}, class_names=class_names, mined=mined)
    return mined_picture("ssdml", dataset, details).svg


def test_the_caption_counts_correct_triplets(mined):
    assert describe_mined(mined, ["a", "b", "c"]) == (
        "A sample of class b. 1 of its 3 nearest neighbors and 1 of 2 positives share its class; "
        "2 of 2 negatives have another one. 2 of its 7 triplets are shown."
    )


def test_unknown_classes_are_not_counted(mined):
    unknown = MinedSample(mined.around, np.array([1, 1, -1, 2, -1, 0]), 7)
    names = ["a", "b", "c"]
    told = describe_mined(unknown, names)
    assert "1 of 2 positives share its class; 1 of 2 negatives have another one" in told
    texts = re.findall(r">(.)</text>", mined_svg(unknown, names))
    assert texts == ["b", "b", "?", "c", "?", "a"]


def test_circles_show_the_true_classes(mined):
    svg = mined_svg(mined, ["a", "b", "c"], "<a> & co")
    root = ElementTree.fromstring(svg.replace("xlink:href", "href"))
    texts = [element.text for element in root.iter("text")]
    assert [text for text in texts if len(text) == 1] == ["b", "b", "a", "c", "c", "a"]
    assert {"labeled a", "labeled b", "unlabeled", "anchor"} <= set(texts)
    assert root.get("aria-label").startswith(
        "<a> & co: triplets mined by ssdml. A sample of class b."
    )
    assert "Row 40" not in svg


def test_mined_svg_uses_the_page_colors(mined):
    svg = mined_svg(mined, ["a", "b", "c"])
    assert INK not in svg
    assert PAPER not in svg
    assert "var(--paper)" in svg  # hollow circles
    assert "#ffa90e" in svg  # the second class, as on the maps


def test_height_fits_the_legend(mined):
    def ratio(picture):
        width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture).groups()
        return float(height) / float(width)

    around = mined.around._replace(labels=np.arange(6))
    more = MinedSample(around, np.arange(6), 7)
    names = list("abcdef")
    assert 1 < ratio(mined_svg(mined, names)) < ratio(mined_svg(more, names)) < 1.6


def test_long_class_names_become_numbers():
    assert class_marks(["ab", "abc"]) == ["ab", "abc"]
    assert class_marks(["ab", "abcd"]) == ["0", "1"]
