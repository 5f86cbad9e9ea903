"""Encode the labels of a file, and doubt those that may be something else."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from hashlib import sha256
from pathlib import PureWindowsPath
from typing import Any

import numpy as np
from scipy.special import gammaln

from ssdml.datasets.base import RawItems
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.reading.cells import is_text
from ssdml.datasets.reading.names import PREDICTED
from ssdml.datasets.reading.summary import Summary, counted, listed
from ssdml.datasets.reading.table import folded, is_number, names_labels
from ssdml.utils.labels import NO_LABEL, encode_column
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import has_wrapped

# Labels that may say that there is none.
MAY_BE_MARKS = {"missing", "blank", "empty", "tbd", "todo", "to do", "to be done", "pending"}
MAY_BE_MARKS |= {"n.a.", "n.a", "na.", "n. a.", "n/k", "not available", "not applicable"}
MAY_BE_MARKS |= {"not labeled", "not labelled", "no label", "unassigned", "undefined", "unsorted"}
MAY_BE_MARKS |= {"unspecified", "unclassified", "not set", "not sure", "unsure", "skip", "skipped"}
MAY_BE_MARKS |= {"unlabeled", "unlabelled", "unknown"}  # in brackets, for instance
MAY_BE_MARKS |= {
    "unlabeled images",
    "unlabelled images",
    "unlabeled data",
    "unlabelled data",
    "inbox",
}
MAY_BE_MARKS |= {"tba", "nolabel", "no class", "undef", "void", "nil", "n\\a", "not labelled yet"}
MAY_BE_MARKS |= {"not labeled yet", "to label", "to be labeled", "to be labelled", "ohne"}
MAY_BE_MARKS |= {"k. a.", "k.a.", "keine angabe", "leer", "unbekannt", "inconnu", "vide", "n.c."}
MAY_BE_MARKS |= {"desconocido", "en blanco", "sin datos", "s/d", "sconosciuto", "vuoto", "onbekend"}
MAY_BE_MARKS |= {"desconhecido", "okänd", "nieznane", "неизвестно", "未知", "不明", "미상"}
ERROR = re.compile(r"#[A-ZÀ-Þ/0]+ ?[!?]|#N[/.]?[ADV]")  # of Excel in any language
MISSING_NUMBER = re.compile(r"-9{2,6}|-100")  # the latter is ignored by losses of torch
OF_STATA = re.compile(r"\.[A-Za-z_]")  # and SAS: missing, for a reason that a letter tells
WRAPPED = {2**bits - 1: f"uint{bits}" for bits in (8, 16, 32, 64)}  # what -1 becomes there
LOST = "\ufffd"  # stands for a sign that could not be read
WHOLE = re.compile(r"-?\d+")
FIRST_ROWS = 1000
LEAST_ROWS = 20  # that tell labels from quantities and ids
MOST_RATINGS = 20  # numbers that may be classes although they are fractions
LEAST_PER_CLASS = 5  # samples on average, if whole numbers are classes in spite of gaps
QUANTITY = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d{1,2})?")
FEW_ROWS = 5  # that do, if no label occurs twice
LEAST_BLOCK, MOST_UNEVEN = 3, 5  # rows of a class below each other, and times those of others
ANSWERS = {"yes", "no", "true", "false", "y", "n", "t", "f"}
WRITTEN = re.compile(r"-?(0|[1-9]\d*)(\.\d*)?(e[+-]\d+)?")  # a number by pandas, not 1E5
UNLIKELY = 0.05
BETWEEN = re.compile(r"\s*[,;|/+&#]\s*")  # several labels
MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mrz|mai|okt|dez)"
# As spreadsheets write "1-5" and "SEPT1", which they take for dates.
DATE = re.compile(
    rf"\d{{4}}-\d\d-\d\d( 00:00:00)?|\d\d?([./])\d\d?\2\d{{4}}|\d\d?[-.]{MONTH}|{MONTH}-\d\d",
    re.IGNORECASE,
)
BETWEEN_WORDS = re.compile(r"\s+|(?<=\w)[-_]+(?=\w)")
# As copies of web pages hold, and what makes a picture of a sign.
INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff]")
TYPED = str.maketrans(  # dashes and quotes, as word processors write them
    "\u2010\u2011\u2012\u2013\u2014\u2212\u2018\u2019\u02bc\u201c\u201d", "------'''\"\""
)


def encoded_labels(raw: RawItems, no_label: Sequence[str] = ()) -> tuple[Ints, Array]:
    """Encode the labels of what a reader returned, and tell of them in its summary.

    Parameters
    ----------
    raw : RawItems
    no_label : sequence of str
        More marks of a missing label.

    Returns
    -------
    codes : ndarray of shape (n,), int64
        -1 where unlabeled.
    classes : ndarray of shape (n_classes,)
        Texts of whole numbers, such as "9" and "10", are sorted as numbers.
    """
    where = "labels" if raw.summary is None else f"{raw.summary.title}, labels"
    codes, classes = encode_column(raw.labels, where, (*NO_LABEL, *no_label))
    if classes.dtype.kind == "U":
        classes = _as_whole(classes)
    if classes.dtype.kind == "U" and all(map(WHOLE.fullmatch, classes.tolist())):
        order = np.argsort([int(c) for c in classes.tolist()], kind="stable")
        ranks = np.append(np.argsort(order), -1)  # the last for no label
        codes, classes = ranks[codes], classes[order]
    if raw.summary is not None:
        raw.summary.doubts += _doubts_of_copies(raw, codes) or _doubts_of_names(raw, codes)
        raw.summary.doubts += _doubts_of_repeated(raw, codes)
        raw.summary.doubts += _doubts_of_images(raw, codes)
        raw.summary.doubts += _doubts_of_blocks(raw, codes)
        names = [class_name(c) for c in classes]
        raw.summary.doubts += _doubts_of_class_columns(raw, names)
        raw.summary.doubts += _doubts_of_test(raw, codes, names)
        raw.summary.doubts += _doubts_of_folders(raw, codes, names)
        decimal = "." if raw.table is None else raw.table.decimal
        _summarize(raw.summary, raw.labels, codes, names, decimal)
    return codes, classes


def _as_whole(classes: Array) -> Array:
    """Return "1.0", as pandas writes codes beside empty cells, as "1", if all classes are whole.

    Examples
    --------
    >>> _as_whole(np.array(["1.0", "2.0"])), _as_whole(np.array(["1.0", "1.5"]))
    (array(['1', '2'], dtype='<U1'), array(['1.0', '1.5'], dtype='<U3'))
    >>> _as_whole(np.array(["1e+05", "2e+05"])), _as_whole(np.array(["1E5", "2E3"]))
    (array(['100000', '200000'], dtype='<U6'), array(['1E5', '2E3'], dtype='<U3'))
    """
    names = classes.tolist()
    if not all(WRITTEN.fullmatch(name) and float(name).is_integer() for name in names):
        return classes
    whole = [str(int(float(name))) for name in names if abs(float(name)) < 2**53]
    return np.array(whole) if len(set(whole)) == len(names) > 0 else classes


def class_name(label: Any) -> str:
    """Return a label as text; 7.0 is "7", and bytes are in UTF-8.

    Examples
    --------
    >>> class_name(7.0), class_name("cat"), class_name(b"dog")
    ('7', 'cat', 'dog')
    """
    if (
        isinstance(label, float | np.floating)
        and float(label).is_integer()
        and abs(float(label)) < 2**53
    ):
        return str(int(label))
    return label.decode(errors="replace") if isinstance(label, bytes) else str(label)


def _summarize(
    summary: Summary, labels: Array, codes: Ints, names: Sequence[str], decimal: str
) -> None:
    """Complete the summary by the numbers of samples, labels and classes."""
    n_without = int((codes < 0).sum())
    without = labels[codes < 0].tolist()
    marks = ", ".join(sorted({repr(mark) for mark in without}))
    place = summary.facts.pop("labels", "")
    fact = f"{counted(len(names), 'class', 'classes')} ({listed(names)})" if names else "none"
    if n_without and names:
        fact += f"; {n_without:,} of {len(codes):,} samples are unlabeled"
        fact += f", marked {marks}" * (marks != "''")
    summary.facts["labels"] = f"{place}: {fact}" if place else fact
    summary.title = f"{summary.title}: {counted(len(codes), 'sample')}"
    if (len(names) == 1 or "-2" in names) and {"-1", "-1.0"} & {str(m).strip() for m in without}:
        found = f"the only class is {names[0]!r}" if len(names) == 1 else "'-2' is a class"
        summary.doubts.append(f"{found}, as -1 means no label; if -1 is a class, rename it")
    are_distinct = len(names) == len(codes) >= FEW_ROWS
    are_distinct |= 2 * len(names) > len(codes) >= LEAST_ROWS
    if (not n_without and are_distinct) or _are_quantities(names, len(codes)):
        summary.doubts.append(
            f"{len(names):,} classes of {len(codes):,} samples are rather quantities or ids; if "
            "the classes are in another column, pass --label NAME (label='NAME')"
        )
    if largest := _wrapped(names):
        summary.doubts.append(
            f"{largest!r} counts as a class, but is what -1 becomes in {WRAPPED[int(largest)]}; if "
            f"it means no label, pass --no-label {largest} (no_label={largest!r})"
        )
    summary.doubts += _doubts_of_labels(names, without)
    are_numbers = decimal == "," and all(map(is_number, names))
    if several := [] if are_numbers else _several(names):
        summary.doubts.append(
            f"{listed(several)} seem to be several labels of a row; if they are, keep one of each"
        )


def _doubts_of_copies(raw: RawItems, codes: Ints) -> list[str]:
    """Doubt features with one value for each class, unless chance gives such a column."""
    items, names = raw.items, raw.columns or ()
    if not isinstance(items, np.ndarray) or items.ndim != 2 or items.shape[1] != len(names):
        return []
    known = np.flatnonzero(codes >= 0)
    _, first, given, counts = np.unique(
        codes[known], return_index=True, return_inverse=True, return_counts=True
    )
    if not 1 < len(first) < len(known):
        return []
    copies = np.arange(len(names))
    for rows in (known[:FIRST_ROWS], known):  # hardly any column is left after the first rows
        classes = first[given[: len(rows)]]
        same = items[np.ix_(rows, copies)] == items[np.ix_(known[classes], copies)]
        copies = copies[same.all(axis=0)]
    values = items[np.ix_(known[first], copies)]
    copies = copies[[len(np.unique(column)) == len(first) for column in values.T]]
    # The probability that a column of such values, in random order, is a copy.
    chance = gammaln(len(first) + 1) + gammaln(counts + 1).sum() - gammaln(len(known) + 1)
    is_rare = np.exp(chance) * len(names) < UNLIKELY
    found = [repr(names[j]) for j in copies if is_rare or names_labels(names[j])]
    if not found:
        return []
    return [
        f"feature {listed(found)} has one value for each class, as a code of the labels has; if it "
        f"was made from the labels, pass --ignore {found[0]} (ignore=[{found[0]}])"
    ]


def _doubts_of_names(raw: RawItems, codes: Ints) -> list[str]:
    """Doubt features that are called like labels or predictions, if others are the labels.

    But a class of something may be a feature, and y beside x is a place.
    """
    columns = raw.columns or ()
    plain = {name: folded(name) for name in columns}
    others = {"y"} if "x" in plain.values() else set()
    others |= {name for name in plain.values() if "class" in name and name != "class"}
    predicted = [name for name in columns if PREDICTED.fullmatch(plain[name])]
    alike = [name for name in columns if names_labels(name) and plain[name] not in others]
    found = [repr(name) for name in dict.fromkeys([*alike, *predicted])]
    if not found or not (codes >= 0).any() or len(columns) < 2:
        return []
    return [
        f"feature {listed(found)} is called like labels; if it tells them, pass --ignore "
        f"{found[0]} (ignore=[{found[0]}])"
    ]


def _doubts_of_class_columns(raw: RawItems, names: Sequence[str]) -> list[str]:
    """Doubt features with a name for each class, such as votes_cat and votes_dog.

    Several for each, or for yes and no, are rather answers to several questions.
    """
    columns = {name.casefold(): name for name in raw.columns or ()}
    found = []  # what is before and behind the name of each class
    for name in map(str.casefold, names):
        form = re.compile(rf"(|.*[_\W]){re.escape(name)}([_\W].*|)", re.DOTALL)
        found.append({(m[1], m[2]) for m in map(form.fullmatch, columns) if m})
        if not found[-1] or name in ANSWERS or not any(map(str.isalpha, name)):
            return []
    around = set.intersection(*found) if len(found) > 1 else set()
    if len(around) != 1:
        return []
    ((before, behind),) = around
    alike = [repr(columns[f"{before}{name.casefold()}{behind}"]) for name in names]
    return [
        f"features {listed(alike)} are named after the classes; if they reveal the labels, as "
        "votes and probabilities do, pass --ignore A,B (ignore=['A', 'B'])"
    ]


def _doubts_of_test(raw: RawItems, codes: Ints, names: Sequence[str]) -> list[str]:
    """Doubt labels that are numbers in the training rows alone, or in the test rows alone."""
    if raw.test is None:
        return []
    train, test = (
        [names[code] for code in np.unique(codes[rows & (codes >= 0)])]
        for rows in (~raw.test, raw.test)
    )
    if not train or not test or all(map(WHOLE.fullmatch, train)) == all(map(WHOLE.fullmatch, test)):
        return []
    if not {*train}.isdisjoint(test):
        return []
    return [
        f"the classes of the test rows ({listed(test)}) are none of the training rows "
        f"({listed(train)}); if some are codes of the others, write names in their place"
    ]


def _doubts_of_repeated(raw: RawItems, codes: Ints) -> list[str]:
    """Doubt texts, and files of images, that several rows name with different labels."""
    assert raw.summary is not None
    if raw.table is None or raw.columns is None or "samples" not in raw.summary.facts:
        return []
    samples = raw.table.columns[raw.columns[0]]
    if not is_text(samples):  # but bytes of images
        return []
    known = np.flatnonzero(codes >= 0)
    texts = map(str.strip, samples.take(known).to_pylist())
    found = _of_several_classes(known.tolist(), texts, codes)
    if not found:
        return []
    places = " and ".join(map(raw.table.place, found[0]))
    is_one = len(found) == 1
    return [
        f"{counted(len(found), 'sample')} {'is' if is_one else 'are'} in several rows with "
        f"different labels, as in {places}; keep one row of each"
    ]


def _doubts_of_blocks(raw: RawItems, codes: Ints) -> list[str]:
    """Doubt one label per class, each above several empty cells, about equally many.

    Files of merged cells have these from the first row on.
    """
    rows = np.flatnonzero(codes >= 0)
    heights = np.diff([*rows, len(codes)])
    if raw.table is None or len(rows) < 2 or rows[0] or heights.min() < LEAST_BLOCK:
        return []
    if heights.max() > MOST_UNEVEN * heights.min():
        return []
    name = repr(raw.label_column)
    without = [label for label in raw.labels[codes < 0].tolist() if label == label and label]
    if without or len(np.unique(codes[rows])) < len(rows):
        return []
    return [
        "each class has one label, above empty cells, as merged cells are saved; if the rows below "
        f"have the same label, fill them: frame[{name}] = frame[{name}].ffill()"
    ]


def _doubts_of_folders(raw: RawItems, codes: Ints, names: Sequence[str]) -> list[str]:
    """Doubt labels of images in a table that are the folders of others of these images."""
    if raw.table is None or not raw.columns or len(getattr(raw.items, "shape", ())) < 3:
        return []
    samples = raw.table.columns[raw.columns[0]]
    if not is_text(samples):
        return []
    known: list[int] = np.flatnonzero(codes >= 0).tolist()
    folders = [PureWindowsPath(name).parent.name for name in samples.take(known).to_pylist()]
    others = [r for r, folder in zip(known, folders, strict=True) if names[codes[r]] != folder]
    if not others or len(set(folders)) < 2 or not set(folders).issubset(names):
        return []
    return [
        f"{counted(len(others), 'image is', 'images are')} in the folder of another class than "
        f"that of the table, as in {raw.table.place(others[0])}; correct the label, or move the "
        "image"
    ]


def _doubts_of_images(raw: RawItems, codes: Ints) -> list[str]:
    """Doubt images that are equal, byte by byte, but have different labels."""
    images = raw.items
    if images is None or len(images.shape) < 3:
        return []
    rows: Any = np.flatnonzero(codes >= 0).tolist()
    if isinstance(images, ImageFiles):
        names, rows_of = images.names.tolist(), defaultdict(list)
        for row in rows:
            rows_of[images.n_bytes(names[row])].append(row)
        alike = [same for same in rows_of.values() if len(set(codes[same].tolist())) > 1]
        rows = [row for same in alike for row in same]  # no other file is read
        contents: Any = (images.content(names[row]) for row in rows)
    else:
        contents = (np.ascontiguousarray(images[row]).data for row in rows)
    found = _of_several_classes(rows, (sha256(c).digest() for c in contents), codes)
    if not found:
        return []
    place = "row {}".format if raw.table is None else raw.table.place
    one, other = (place(r) if raw.ids is None else repr(str(raw.ids[r])) for r in found[0])
    has = "has" if len(found) == 1 else "have"
    return [
        f"{counted(len(found), 'image')} {has} several labels, as {one} and {other} are equal; "
        "keep one of each"
    ]


def _of_several_classes(
    rows: Iterable[int], contents: Iterable[Any], codes: Ints
) -> list[tuple[int, int]]:
    """Two rows of different labels, for each content that has some."""
    rows_of: dict[Any, dict[int, int]] = {}
    for row, content in zip(rows, contents, strict=True):
        rows_of.setdefault(content, {}).setdefault(int(codes[row]), row)
    pairs = (tuple(found.values())[:2] for found in rows_of.values())
    return [(pair[0], pair[1]) for pair in pairs if len(pair) > 1]


def _doubts_of_labels(names: Sequence[str], without: Sequence[Any]) -> list[str]:
    """Doubt classes that may be marks, marks that may be classes, and names that are alike."""
    doubts = []
    marks = _lone_negative(names)
    dotted = [name for name in names if name.startswith(".")]
    marks += dotted if all(map(OF_STATA.fullmatch, dotted)) else []
    marks += [
        name
        for name in names
        if _as_mark(name) in MAY_BE_MARKS
        or MISSING_NUMBER.fullmatch(name)
        or ERROR.fullmatch(name)
        or not any(map(_is_telling, name))
    ]
    if marks:
        doubts.append(
            f"{', '.join(map(repr, marks))} counts as a class; if it means no label, pass "
            f"--no-label {marks[0]!r} (no_label={marks[0]!r})"
        )
    doubts += _doubts_of_codes(names)
    dates = [repr(name) for name in names if DATE.fullmatch(name)]
    if 0 < len(dates) < len(names):
        doubts.append(
            f"among the classes are dates ({listed(dates)}), which spreadsheets make of names such "
            "as 1-5 or SEPT1; if they were names, write them again as text"
        )
    texts = {mark.strip() for mark in without if isinstance(mark, str)}
    words = sorted(text for text in texts if any(map(str.isalpha, text)))
    if words and any(mark is None or mark != mark or mark == "" for mark in without):
        doubts.append(
            f"{', '.join(map(repr, words))} means no label, as empty cells do; if it is a class, "
            "rename it"
        )
    if garbled := [repr(name) for name in names if LOST in name or _decoded(name) != name]:
        doubts.append(
            f"the classes {listed(garbled)} seem to have been read in another encoding than they "
            "were written; write the file again, in UTF-8"
        )
    alike: dict[Any, list[str]] = {}
    for name in names:
        alike.setdefault(_without_style(name), []).append(name)
    pairs = [" and ".join(map(repr, group)) for group in alike.values() if len(group) > 1]
    if pairs:
        doubts.append(
            f"classes {listed(pairs)} differ in writing only, and are kept apart; if they are one, "
            "write them alike"
        )
    return doubts


def _doubts_of_codes(names: Sequence[str]) -> list[str]:
    """Doubt numbers that count from 0 or 1 beside as many names, but not beside letters or bins.

    Examples
    --------
    >>> len(_doubts_of_codes(["0", "1", "no", "yes"])), len(_doubts_of_codes(["0", "1", "a", "b"]))
    (1, 0)
    """
    codes = [name for name in names if name.isdecimal()]
    others = [name for name in names if name not in codes]
    if codes[:2] not in (["0", "1"], ["1", "2"]) or len(codes) > len(others):
        return []
    if any(len(name) < 2 for name in others) or any(map(str.isdecimal, "".join(others))):
        return []
    return [
        f"classes {listed(codes)} are numbers, but {listed(others)} are names; if the numbers are "
        "codes of names, replace them with the names"
    ]


def _without_style(name: str) -> Any:
    """Return a name for comparison with others that may be the same class, written otherwise.

    Examples
    --------
    >>> _without_style("1.0"), _without_style("Non\u2013Spam. "), _without_style("non_spam")
    (Decimal('1.0'), 'non spam', 'non spam')
    >>> _without_style("True") == _without_style("1")
    True
    """
    if name.casefold() in ("true", "false"):
        return Decimal(name.casefold() == "true")
    if re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,3})?", name):
        return Decimal(name)
    plain = unicodedata.normalize("NFKC", INVISIBLE.sub("", name)).translate(TYPED).casefold()
    return BETWEEN_WORDS.sub(" ", plain).strip(" '\"").rstrip(".") or name


def _decoded(name: str) -> str:
    r"""Return a name of UTF-8 that was read as Western text as it was; others unchanged.

    Examples
    --------
    >>> _decoded("caf\xc3\xa9"), _decoded("caf\xe9")
    ('café', 'café')
    """
    for encoding in ("cp1252", "latin-1"):
        with suppress(UnicodeError):
            return name.encode(encoding).decode()
    return name


def _are_quantities(names: Sequence[str], n: int) -> bool:
    """Whether many numbers are rather measured than classes of n samples.

    Fractions are, and whole ones with gaps of which each has a few samples only.

    Examples
    --------
    >>> ratings, ages = [f"{n / 2}" for n in range(11)], [f"{n}" for n in range(9, 90, 3)]
    >>> _are_quantities(ratings, 100), _are_quantities(ages, 100), _are_quantities(ages, 10_000)
    (False, True, False)
    """
    written = [name.replace(",", ".") for name in names]
    if len(names) <= MOST_RATINGS or not all(map(QUANTITY.fullmatch, written)):
        return False
    values = sorted(map(float, written))
    has_gaps = values[-1] - values[0] >= len(values)
    is_rare = has_gaps and LEAST_PER_CLASS * len(names) > n
    return is_rare or any(not value.is_integer() for value in values)


def _wrapped(names: Sequence[str]) -> str | None:
    """Return the largest of whole numbers if it looks like -1 in an unsigned type.

    Examples
    --------
    >>> _wrapped(["0", "1", "255"]), _wrapped(["254", "255"])
    ('255', None)
    """
    if not names or not all(map(WHOLE.fullmatch, names)):
        return None
    numbers = [int(name) for name in names]
    largest = max(numbers)
    if largest not in WRAPPED or min(numbers) < 0:
        return None
    return str(largest) if has_wrapped(np.array(numbers, WRAPPED[largest])) else None


def _several(names: Sequence[str]) -> list[str]:
    """Return the names that consist of other names, such as "a;b" beside "a" and "b".

    Examples
    --------
    >>> _several(["a", "b", "a;b"]), _several(["a|b", "b|c", "a|c"]), _several(["pop", "pop/rock"])
    (["'a;b'"], ["'a|b'", "'b|c'", "'a|c'"], [])
    """
    parts = {name: BETWEEN.split(name) for name in names}
    known = set(names)
    parts |= {n: n.split() for n in names if len(parts[n]) < 2 and known.issuperset(n.split())}
    uses = Counter(part for name in names for part in set(parts[name]))
    return [
        repr(name)
        for name, found in parts.items()
        if len(found) > 1 and all(part and (uses[part] > 1) for part in found)
    ]


def _lone_negative(names: Sequence[str]) -> list[str]:
    """Return the only negative one of whole numbers, if its opposite is none, as -9 of surveys.

    Those that are marks anyway, and -2, a neighbor of -1, are none.

    Examples
    --------
    >>> _lone_negative(["-9", "1", "2"]), _lone_negative(["-5", "0", "5"])
    (['-9'], [])
    """
    if not all(WHOLE.fullmatch(name) for name in names):
        return []
    negative = [name for name in names if name.startswith("-")]
    is_lone = len(negative) == 1 < len(names) - 1 and negative[0][1:] not in (*names, "2")
    return negative if is_lone and not MISSING_NUMBER.fullmatch(negative[0]) else []


def _is_telling(sign: str) -> bool:
    """Whether a sign may tell a class: a letter, digit or picture, not a dash or a blank."""
    return sign.isalnum() or not (sign.isascii() or unicodedata.category(sign)[0] in "PZC")


def _as_mark(name: str) -> str:
    """Return a name of a class for comparison with marks: "_No-Label" is "no label"."""
    return re.sub(r"[-_\s]+", " ", name).strip("()[]<> ").casefold()
