"""The picture of what was mined, and the words that say the same."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np

from ssdml.experiments.report.figures import INK, PAPER, class_texts, mined_svg, mined_words
from ssdml.experiments.runs.details import MinedSample


def test_the_words_count_what_is_right(mined):
    assert mined_words(mined, ["a", "b", "c"]) == (
        "A row of class b. Of its class are 1 of its 3 nearest rows and 1 of the 2 positives; "
        "of another class are 2 of the 2 negatives. It has 7 triplets, 2 of them shown."
    )


def test_rows_whose_class_nobody_knows_are_of_no_class(mined):
    unknown = MinedSample(mined.around, np.array([1, 1, -1, 2, -1, 0]), 7)
    names = ["a", "b", "c"]
    assert "1 of the 2 positives; of another class are 1 of the 2" in mined_words(unknown, names)
    texts = re.findall(r">(.)</text>", mined_svg(unknown, names, ""))
    assert texts == ["b", "b", "?", "c", "?", "a"]


def test_the_true_classes_stand_in_the_circles(mined):
    svg = mined_svg(mined, ["a", "b", "c"], "what <is> seen")
    root = ElementTree.fromstring(svg.replace("xlink:href", "href"))
    texts = [element.text for element in root.iter("text")]
    assert [text for text in texts if len(text) == 1] == ["b", "b", "a", "c", "c", "a"]
    assert {"labeled a", "labeled b", "unlabeled", "anchor"} <= set(texts)
    assert root.get("aria-label") == "what <is> seen"
    assert "Row 40" not in svg


def test_the_picture_takes_the_colors_of_the_page(mined):
    svg = mined_svg(mined, ["a", "b", "c"], "")
    assert INK not in svg
    assert PAPER not in svg
    assert "var(--paper)" in svg  # hollow circles
    assert "#ffa90e" in svg  # the second class, as on the maps


def test_it_is_as_high_as_its_legend_needs(mined):
    def ratio(picture):
        width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture).groups()
        return float(height) / float(width)

    around = mined.around._replace(labels=np.arange(6))
    more = MinedSample(around, np.arange(6), 7)
    names = list("abcdef")
    assert 1 < ratio(mined_svg(mined, names, "")) < ratio(mined_svg(more, names, "")) < 1.6


def test_long_names_of_classes_give_way_to_numbers():
    assert class_texts(["ab", "abc"]) == ["ab", "abc"]
    assert class_texts(["ab", "abcd"]) == ["0", "1"]
