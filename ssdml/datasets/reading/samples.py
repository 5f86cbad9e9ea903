"""Choose the columns that hold the samples: vectors, images, numbers or texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import numpy as np

from ssdml.datasets.image_names import as_relative, find_images, is_image_name, names_image
from ssdml.datasets.reading.names import GENE, GENES, NUMBERED
from ssdml.datasets.reading.summary import counted, listed
from ssdml.datasets.reading.table import LABEL_NAMES, folded

if TYPE_CHECKING:
    from ssdml.datasets.reading.columns import Chooser

FILE_WORD = re.compile(r".*(path|file|image|img|photo|picture|frame).*")
ID_WORD = re.compile(
    r"(.*[_\-. ])?(id|name)([_\-. ]?code)?"
)  # of files, if nothing else is there to learn from
# Of manifests of images: marks of queries and gallery, groups, and boxes of objects.
MANIFEST = ("is_query", "is_gallery", "category", "sequence")
BOX = re.compile(r"(.*[_\-. ])?([xy]_[12]|[xy]_?(min|max)|bbox_?[xywh])|.*[_\-. ][xy][12]")
VECTORS = ("embedding", "embeddings", "vector", "features", "feature")
FEW_BESIDE = 3  # columns of numbers beside texts or images, which tell less than these
FEW = 8  # columns of numbers beside texts or images, which may be what was meant
CONTENT = {
    "number": "numbers",
    "text": "text",
    "vector": "vectors",
    "image": "images",
    "date": "dates",
    "empty": "nothing",
    "other": "neither numbers nor texts",
}


def names_files(name: str) -> bool:
    """Whether a column's name is that of files, or of ids, which may be names of files.

    Examples
    --------
    >>> names_files("Image_ID"), names_files("width")
    (True, False)
    """
    return any(word.fullmatch(folded(name)) for word in (FILE_WORD, ID_WORD))


def holds_images(name: str, first: str, folder: Path) -> bool:
    """Whether a column may name images, and its first cell names one of the folder."""
    return (names_files(name) or is_image_name(first)) and names_image(folder, first)


def choose_samples(chooser: Chooser) -> None:
    """Choose the column of the samples, or the columns of their features."""
    roles, choice = chooser.roles, chooser.choice
    if roles.features:
        _check_features(chooser)
    elif choice.text is not None or choice.texts:
        _texts(chooser)
        return
    else:
        roles.features = _vectors(chooser)
        if not roles.features and not _images(chooser) and not _are_texts(chooser):
            roles.features = _numbers(chooser)
            texts = [n for n in chooser.free("text") if chooser.has_words(n)]
            if texts and all(map(chooser.cells.is_constant, roles.features)):
                roles.left_out |= dict.fromkeys(roles.features, "constant")
                roles.features = []
        if not roles.features and roles.images is None and not _short_vectors(chooser):
            _texts(chooser)
            return
    numbers = [n for n in roles.features if chooser.kinds[n] == "number"]
    constant = [n for n in numbers if not choice.features and chooser.cells.is_constant(n)]
    if constant:
        roles.constant = constant
    if constant and len(numbers) - len(constant) < 2:
        roles.doubts.append(
            "at most one feature varies, the other columns are constant "
            f"({listed(constant)}); if you meant other columns, name them: --features A,B "
            "(features=['A', 'B'])"
        )
    ordered = [] if choice.features else _ordered(chooser, numbers)
    if ordered:
        roles.doubts.append(
            f"{counted(len(ordered), 'feature')} in the order of the rows, as times and "
            f"levels of an index are: {listed(ordered)}; to leave a column out, pass --ignore "
            f"{ordered[0]!r} (ignore=[{ordered[0]!r}])"
        )
    are_numbered = sum(name[-1:].isdigit() for name in numbers) > len(numbers) / 2
    few = len(numbers) <= FEW or not are_numbered  # and no vector in columns of its own
    if roles.text is not None and numbers and few and not choice.features:
        roles.doubts.append(
            f"the texts in column {roles.text!r} are not used, but the numbers in "
            f"{listed(roles.features)}; to learn from the texts, pass --text {roles.text!r} "
            f"(text={roles.text!r})"
        )


def _ordered(chooser: Chooser, numbers: Sequence[str]) -> list[str]:
    """Return the columns that are sorted, and those after one that number the rows with it."""
    found: dict[str, None] = {}
    for name in (n for n in numbers if chooser.cells.is_ordered(n)):
        levels = [name]
        for other in [] if chooser.is_distinct(name) else numbers[numbers.index(name) + 1 :]:
            values = [chooser.cells.numbers(n).values for n in [*levels, other]]
            if (np.lexsort(values[::-1]) != np.arange(chooser.n)).any():
                break
            levels.append(other)
            if len(np.unique(values, axis=1).T) == chooser.n:
                found |= dict.fromkeys(levels)
                break
        found[name] = None
    return list(found)


def _check_features(chooser: Chooser) -> None:
    """Raise unless the chosen features are columns of numbers, or one of vectors."""
    features = chooser.roles.features
    kinds = {n: chooser.kinds.get(n, "ignored") for n in features}
    if [*kinds.values()] == ["text"] and chooser.cells.may_be_vectors(features[0]):
        chooser.roles.vectors = True
        return
    wrong = [n for n, kind in kinds.items() if kind not in ("number", "vector")]
    if wrong:
        # A chosen column of text is read as numbers, so that its first cell is named.
        if kinds[wrong[0]] == "text":
            chooser.cells.feature(wrong[0])
        chooser.ask(
            f"features must hold numbers; {wrong[0]!r} holds "
            f"{CONTENT.get(kinds[wrong[0]], 'what is ignored')}",
            "Choose other features.",
        )
    if len(features) > 1 and "vector" in kinds.values():
        vector = next(n for n, kind in kinds.items() if kind == "vector")
        chooser.ask(
            f"features must be one column of vectors, or columns of numbers; {vector!r} holds "
            "vectors, and others are chosen beside it",
            "Choose it alone, or the others.",
        )


def _vectors(chooser: Chooser) -> list[str]:
    free = chooser.free("vector")
    if _has_others(chooser):
        places = [n for n in free if folded(n) not in VECTORS and chooser.cells.holds_places(n)]
        for name in places:
            chooser.roles.left_out[name] = "lists"
            chooser.note_unused(name, "it holds lists, as of places or tokens")
        free = chooser.free("vector")
    names = [n.removesuffix(".indices") for n in free if n.endswith(".indices")]
    sparse = [(f"{n}.indices", f"{n}.values") for n in names if f"{n}.values" in free]
    for pair in sparse:
        chooser.roles.left_out |= dict.fromkeys(pair, "sparse vectors")
    free = [n for n in free if n not in chooser.roles.left_out]
    if sparse and not free:
        chooser.ask(
            f"features must be dense vectors; {' and '.join(sparse[0])} are sparse",
            "Write all entries of each vector.",
        )
    named = [n for n in free if folded(n) in VECTORS]
    chosen = free if len(free) < 2 else named if len(named) == 1 else _of_fractions(chooser, free)
    if len(chosen) > 1:
        chooser.ask(
            f"which vectors are the features? Columns {listed(chosen)} hold some",
            "Pass --features NAME (features=['NAME']).",
        )
    for name in [
        *(n for n in free if n not in chosen),
        *(chooser.free("number") if chosen else []),
    ]:
        chooser.roles.left_out[name] = f"beside the vectors in {chosen[0]}"
        if not (chooser.kinds[name] == "number" and chooser.cells.key_reason(name)):
            chooser.note_unused(name, f"the vectors in {chosen[0]!r} are")
    return chosen


def _has_others(chooser: Chooser) -> bool:
    """Whether there are images, numbers, or texts of several words beside vectors."""
    free = chooser.free("number", "text")
    if any(chooser.kinds[n] == "number" or chooser.has_words(n) for n in free):
        return True
    named = any(_names_images(chooser, n) for n in [*free, chooser.roles.id] if n)
    return named or chooser.roles.text is not None or bool(chooser.free("image"))


def _short_vectors(chooser: Chooser) -> bool:
    """Choose a column of a few numbers side by side, as there is nothing else to learn from."""
    found = [n for n in chooser.free("text") if chooser.cells.may_be_vectors(n)]
    if len(found) == 1:
        chooser.roles.features, chooser.roles.vectors = found, True
    return chooser.roles.vectors


def _of_fractions(chooser: Chooser, names: list[str]) -> list[str]:
    """Prefer vectors of floating-point numbers to those of integers, such as tokens."""
    import pyarrow as pa

    floats = []
    for name in names:
        kind = chooser.cells[name].type
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        if not pa.types.is_integer(kind):
            floats.append(name)
    return floats or names


def _images(chooser: Chooser) -> bool:
    """Choose a column of images or of their files, unless more than a few numbers are beside it."""
    roles = chooser.roles
    inside = chooser.free("image")
    ids = [n for n, reason in roles.left_out.items() if reason == "ids"]
    named = [n for n in [*chooser.free("text", "number"), roles.id, *ids] if n]
    named = [n for n in named if _names_images(chooser, n)]
    if not inside and not named:
        return False
    numbers = [
        n
        for n in chooser.free("number")
        if folded(n) not in MANIFEST and not BOX.fullmatch(folded(n)) and not names_files(n)
        if chooser.cells.key_reason(n) is None
    ]
    if len(inside) > 1 and not numbers and not _are_texts(chooser):
        chooser.ask(
            f"which images are the samples? Columns {listed(inside)} hold some",
            "Leave the others out: --ignore NAME (ignore=['NAME']).",
        )
    roles.images = inside[0] if len(inside) == 1 else _file_column(chooser, named, numbers)
    if roles.images is None:
        return False
    if not inside:
        _ask_which_images(chooser, named)
    _leave_others_out(chooser, roles.images, numbers)
    return True


def _file_column(chooser: Chooser, named: Sequence[str], numbers: Sequence[str]) -> str | None:
    """Return the column of files of images; None, and a doubt, if the rest are the samples."""
    with_others = bool(numbers) or _are_texts(chooser)
    sure = [n for n in named if not with_others or _names_files_alone(chooser, n)]
    if sure and len(numbers) <= FEW_BESIDE:
        return sure[0]
    if named and len(numbers) <= FEW:
        text = chooser.roles.text
        used = f"the texts in {text!r}; to learn from the images, ignore the texts: "
        used += f"--ignore {text!r} (ignore=[{text!r}])"
        if numbers:
            used = f"the numbers in {listed(numbers)}; to learn from the images, ignore the "
            used += "numbers: --ignore A,B (ignore=['A', 'B'])"
        name = [*sure, *named][0]
        chooser.roles.doubts.append(f"the images in column {name!r} are not used, but {used}")
    return None


def _leave_others_out(chooser: Chooser, images: str, numbers: Sequence[str]) -> None:
    """Leave numbers and boxes beside a column of images out, and say so."""
    left_out = chooser.roles.left_out
    left_out.pop(images, None)
    for name in numbers:
        chooser.note_unused(name, f"the images in {images!r} are")
    boxes = [n for n in chooser.free("number") if BOX.fullmatch(folded(n))]
    if boxes:
        chooser.note_unused(boxes[0], "whole images are read")
    left_out |= dict.fromkeys(boxes, "boxes")
    left_out |= dict.fromkeys(chooser.free("number"), "beside the images")


def _ask_which_images(chooser: Chooser, named: Sequence[str]) -> None:
    """Raise if several columns name files of images, and not the same."""
    folder = chooser.cells.table.folder
    cells = {n: chooser.cells.first(n) for n in chooser.names if n in named}
    files = {n: as_relative(folder, cell) for n, cell in cells.items() if is_image_name(cell)}
    found = (find_images(folder, [file], once=False) or [""] for file in files.values())
    if len({PurePath(name) for [name] in found}) > 1:
        chooser.ask(
            f"which images are the samples? Columns {listed(list(files))} name some",
            "Leave the others out: --ignore NAME (ignore=['NAME']).",
        )


def _names_images(chooser: Chooser, name: str) -> bool:
    """Whether a column names images of the folder."""
    first = chooser.cells.first(name)
    return bool(first) and holds_images(name, first, chooser.cells.table.folder)


def _names_files_alone(chooser: Chooser, name: str) -> bool:
    """Whether a column that names images is not a mere id."""
    return is_image_name(chooser.cells.first(name)) or bool(FILE_WORD.fullmatch(folded(name)))


def _numbers(chooser: Chooser) -> list[str]:
    found = []
    for name in chooser.free("number"):
        reason = chooser.cells.key_reason(name)
        if reason is None:
            found.append(name)
        else:
            chooser.roles.left_out[name] = reason
            chooser.note_unused(name, f"it holds {reason}")
    return found


def _are_texts(chooser: Chooser) -> bool:
    """Whether the samples are the texts of a column of a usual name, beside a few numbers."""
    text = chooser.roles.text
    if text is None or not chooser.has_words(text) or not all(chooser.cells.texts(text)):
        return False
    numbers = [n for n in chooser.free("number") if chooser.cells.key_reason(n) is None]
    return len(numbers) <= FEW_BESIDE


def _texts(chooser: Chooser) -> None:
    roles = chooser.roles
    wordy = [n for n in chooser.free("text") if chooser.has_words(n)]
    wordy = [n for n in wordy if not is_image_name(chooser.cells.first(n).partition("?")[0])]
    if wordy and roles.text and not chooser.choice.text and not chooser.has_words(roles.text):
        wordy, roles.text = [roles.text, *wordy], None
    if roles.text is None:
        if not wordy:
            held = [n for n in chooser.names if n not in (roles.label, roles.split)]
            cells = {n: chooser.cells.first(n) for n in held}
            if lost := [n for n, c in cells.items() if is_image_name(c.partition("?")[0])]:
                chooser.ask(
                    f"column {lost[0]!r} names images that are not in "
                    f"{chooser.cells.table.folder}, such as {cells[lost[0]]!r}",
                    "Copy them there, or write their paths from there.",
                )
            wanted = "texts" if chooser.choice.texts else "numbers or of texts"
            name_features = "Name features with --features A,B (features=['A', 'B'])"
            if held and not {"number", "vector"} & {chooser.kinds.get(n) for n in held}:
                name_features = "Write numbers in their place"
            chooser.ask(
                f"must have columns of {wanted} besides the label"
                + (f"; {listed(held)} cannot be used" if held else ""),
                f"{name_features}, or name texts with --text NAME (text='NAME').",
            )
        if len(wordy) > 1:
            chooser.ask(
                f"which texts are the samples? Columns {listed(wordy)} hold some",
                "Pass --text NAME (text='NAME').",
            )
        roles.text = wordy[0]
        roles.doubts.append(
            f"the samples are the texts in column {roles.text!r}, as no column is called text; "
            "if others are, pass --text NAME (text='NAME')"
        )
    for name in chooser.free("number", "vector"):
        roles.left_out[name] = f"beside the texts in {roles.text}"
        if not chooser.choice.text and not (
            chooser.kinds[name] == "number" and chooser.cells.key_reason(name)
        ):
            chooser.note_unused(name, f"the texts in {roles.text!r} are")


def doubt_genes(chooser: Chooser) -> None:
    """Doubt rows that are named as genes are, or below labels: samples may be in columns."""
    roles, numbers = chooser.roles, chooser.free("number")
    again = [n for n in numbers if NUMBERED.sub("", n) in {*chooser.names} - {n}]
    last_words = Counter(n.rpartition(" ")[2] for n in numbers)
    for name in filter(None, (roles.id, roles.label)):
        if chooser.kinds.get(name) != "text" or not chooser.is_distinct(name):
            continue
        first = list(filter(None, chooser.cells.texts(name)[:3]))
        if " " in name and folded(name).rpartition(" ")[2] in LABEL_NAMES:  # of two rows
            again = [n for n in numbers if last_words[n.rpartition(" ")[2]] > 1]
        if GENES.fullmatch(folded(name)) or all(map(GENE.fullmatch, first)):
            what = f"the rows are named like genes, in column {name!r}"
        elif len(again) > 1 and 2 * len(again) >= len(numbers):
            what = f"{counted(len(again), 'column')} have the name of another one, as labels do"
        else:
            continue
        roles.doubts.append(
            f"{what}; if the samples are in the columns, turn the table and write their labels "
            "into a column: frame.T"
        )
        return
