"""The picture of what was mined, and the words that say the same."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np

from ssdml.experiments.report.figures import INK, PAPER, class_texts, mined_svg, mined_words
from ssdml.experiments.runs.details import MinedSample


def test_the_caption_counts_correct_triplets(mined):
    assert mined_words(mined, ["a", "b", "c"]) == (
        "A row of class b. Of its class are 1 of its 3 nearest rows and 1 of the 2 positives; "
        "of another class are 2 of the 2 negatives. It has 7 triplets, 2 of them shown."
    )


def test_unknown_classes_are_not_counted(mined):
    unknown = MinedSample(mined.around, np.array([1, 1, -1, 2, -1, 0]), 7)
    names = ["a", "b", "c"]
    assert "1 of the 2 positives; of another class are 1 of the 2" in mined_words(unknown, names)
    texts = re.findall(r">(.)</text>", mined_svg(unknown, names, ""))
    assert texts == ["b", "b", "?", "c", "?", "a"]


def test_circles_show_the_true_classes(mined):
    svg = mined_svg(mined, ["a", "b", "c"], "what <is> seen")
    root = ElementTree.fromstring(svg.replace("xlink:href", "href"))
    texts = [element.text for element in root.iter("text")]
    assert [text for text in texts if len(text) == 1] == ["b", "b", "a", "c", "c", "a"]
    assert {"labeled a", "labeled b", "unlabeled", "anchor"} <= set(texts)
    assert root.get("aria-label") == "what <is> seen"
    assert "Row 40" not in svg


def test_mined_svg_uses_the_page_colors(mined):
    svg = mined_svg(mined, ["a", "b", "c"], "")
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
    assert 1 < ratio(mined_svg(mined, names, "")) < ratio(mined_svg(more, names, "")) < 1.6


def test_long_class_names_become_numbers():
    assert class_texts(["ab", "abc"]) == ["ab", "abc"]
    assert class_texts(["ab", "abcd"]) == ["0", "1"]
