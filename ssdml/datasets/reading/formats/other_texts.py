"""Texts of other programs: lines of fastText, and those that are no tables, with the way out."""

from __future__ import annotations

import re
from pathlib import Path

from ssdml.datasets.reading.table import Table, of_cells
from ssdml.utils.files import WAYS_OUT

FASTTEXT = "__label__"
FOREIGN = (  # texts that are no tables, what they are, and the way out
    (
        re.compile(rb"""\s*(\[\s*)?\{\s*(["'])[^"'\n]*\2\s*:"""),
        "objects of JSON",
        "Let its name end in .jsonl for lines of objects, else in .json",
    ),
    (
        re.compile(
            rb"(?:#[^\n]*\n)*(?:[-+.\de]+ *[\r\n]+){,9}"  # remarks, and samples of zeros alone
            rb"[-+.,\de]+(?: +qid:\d+)?(?: +\d+:[-+.\de]+)+\s*(?:#.*)?[\r\n]"
        ),
        "pairs index:value, as svmlight writes",
        WAYS_OUT[".svm"],
    ),
    (
        re.compile(
            rb"(?>\s|--[^\n]*\n|/\*.*?\*/;?|(?:set|use|begin|pragma|lock|drop)\s[^;]*;)*+"
            rb"(?:create|insert)\s[\w ]*(?:into|table|database)\s[^\n(;,]*[(;]",
            re.IGNORECASE | re.DOTALL,
        ),
        "statements of SQL",
        WAYS_OUT[".sql"],
    ),
    (
        re.compile(
            rb"(?:\s|<!--.*?-->|>[^\n]*\n)*+##\s*(?:intent|synonym|regex|lookup):", re.DOTALL
        ),
        "intents, as Rasa writes",
        WAYS_OUT[".yml"],
    ),
    (
        re.compile(rb"-?[\d.]+ (?:[\d.]+ )?(?:'?\S+)?\|\S* (?:[^\s:|]+ )*[^\s:|]+:[-+.\de]+\s"),
        "pairs name:value, as Vowpal Wabbit reads",
        WAYS_OUT[".vw"],
    ),
    (
        re.compile(rb"# Created by Octave"),
        "variables of Octave",
        "Save them in Octave: save -v7 data.mat X y",
    ),
    (
        re.compile(rb"[!^](?:series|sample|database|platform|dataset)\b|!(?:series|sample)_", re.I),
        "a series of GEO",
        WAYS_OUT[".gct"],
    ),
)


def refuse_other_texts(path: Path, content: bytes) -> None:
    """Raise ValueError if a text has no rows, or none of cells."""
    if not content.strip():
        raise ValueError(f"{path}: must contain rows; got an empty file.")
    for pattern, what, way_out in FOREIGN:
        if pattern.match(content):
            raise ValueError(f"{path}: must have cells; got {what}. {way_out}.")


def read_fasttext(path: Path, content: bytes) -> Table:
    """Read lines of a label, "__label__" before it, and a text; or of a text alone."""
    labels: list[str | None] = []
    texts = []
    lines = content.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
    for number, line in enumerate((line.decode() for line in lines), 1):
        first, *rest = line.split(maxsplit=1) or [""]
        labels.append(first.removeprefix(FASTTEXT) if first.startswith(FASTTEXT) else None)
        texts.append(line if labels[-1] is None else "".join(rest).rstrip())
        if texts[-1].lstrip().startswith(FASTTEXT):
            raise ValueError(f"{path}, line {number}: must have one label; got {line[:40]!r}.")
    cells = of_cells(str(path), {"label": labels, "text": texts})
    return Table(path, cells, lambda row: f"line {row + 1}", ("labels and texts of fastText",))
