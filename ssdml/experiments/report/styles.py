"""Colors, markers and wrapped names of methods in figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

MARKER_SCALES = {"*": 1.6, "P": 1.25, "X": 1.25}
MAX_WIDTH = 24  # characters of a method's name per line


class Style(NamedTuple):
    """Color and marker of a method."""

    color: str
    marker: str  # matplotlib's
    glyph: str  # the same in text

    def drawn(self, size: float) -> dict[str, Any]:
        """Return matplotlib's arguments for markers that look as large as a circle."""
        return {
            "color": self.color,
            "marker": self.marker,
            "markersize": size * MARKER_SCALES.get(self.marker, 1.0),
        }


# At least 3:1 on light and dark pages.
COLORS = {
    "gray": "#7d8794", "blue": "#0077bb", "orange": "#cc6611", "green": "#4c8f1f",
    "pink": "#e0408f", "teal": "#00907f", "purple": "#9a5fd0", "red": "#d0452f",
    "cyan": "#1c93b8", "olive": "#8f8000", "brown": "#a0694a",
}  # fmt: skip
GLYPHS = {
    "o": "●", "s": "■", "^": "▲", "v": "▼", "D": "◆",
    "X": "✖", "P": "✚", "*": "★", "<": "◀", ">": "▶",
}  # fmt: skip
STYLES = {
    name: Style(COLORS[color], marker, GLYPHS[marker])
    for name, (color, marker) in {
        "input": ("gray", "o"), "initial": ("gray", "s"), "logistic": ("orange", "s"),
        "knn": ("olive", "P"), "poisson": ("green", "^"), "tabpfn": ("brown", "o"),
        "pca": ("cyan", "<"), "lda": ("pink", "v"), "nca": ("teal", ">"), "umap": ("orange", "<"),
        "label-spreading": ("red", "*"), "self-training": ("brown", "s"),
        "lrml": ("green", "s"), "seraph": ("red", "v"), "isdml": ("cyan", "P"),
        "apllr": ("olive", "^"), "apit": ("pink", "o"),
        "ssdml": ("blue", "D"), "ssdml-paper": ("purple", "X"),
        "deep-ssdml": ("blue", "*"), "deep-ssdml-paper": ("purple", "P"),
        "deep-lrml": ("green", "D"), "deep-seraph": ("red", ">"), "deep-isdml": ("cyan", "X"),
        "deep-apllr": ("olive", "s"), "deep-apit": ("pink", "^"), "deep-triplet": ("teal", "o"),
        "deep-angular": ("orange", "P"), "deep-exemplar": ("brown", "v"),
        "deep-rotnet": ("teal", "<"), "deep-nce": ("orange", "o"),
        "deep-deepcluster": ("brown", "D"), "deep-suml": ("green", "o"),
    }.items()
}  # fmt: skip
OTHER_STYLES = [
    style
    for marker, glyph in GLYPHS.items()
    for color in COLORS.values()
    if (style := Style(color, marker, glyph)) not in STYLES.values()
]


def method_styles(methods: Sequence[str]) -> dict[str, Style]:
    """Assign a style to every method: its own, or one that its name gives.

    Of two methods with the same one, the later in the alphabet takes the next.
    """
    styles = {name: STYLES[name] for name in methods if name in STYLES}
    for name in sorted(set(methods) - STYLES.keys()):
        place = crc32(name.encode(errors="surrogateescape"))
        free = [style for style in OTHER_STYLES if style not in styles.values()] or OTHER_STYLES
        wanted = OTHER_STYLES[place % len(OTHER_STYLES)]
        styles[name] = wanted if wanted in free else free[place % len(free)]
    return {name: styles[name] for name in methods}


def wrap_name(name: str) -> str:
    r"""Break a method's name between its parameters.

    Examples
    --------
    >>> wrap_name("ssdml[n_neighbors=20;decay=0.9;angle=35]").split("\n")
    ['ssdml[n_neighbors=20;', 'decay=0.9;angle=35]']
    """
    lines = [""]
    for part in re.findall(r"[^;]+;?", name):
        if lines[-1] and len(lines[-1] + part) > MAX_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def max_lines(names: Iterable[str]) -> int:
    """Return the number of lines of the longest wrapped name."""
    return max(wrap_name(name).count("\n") + 1 for name in names)
