"""Choose the role of each column of a table: label, id, text, split or samples."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations, takewhile
from typing import NoReturn

import numpy as np

from ssdml.datasets.image_names import is_image_name
from ssdml.datasets.reading.cells import Cells
from ssdml.datasets.reading.formats.delimited import ONE_COLUMN
from ssdml.datasets.reading.names import (
    IS_ID,
    IS_NEW,
    IS_USE,
    KEY,
    NO_CLASSES,
    NUMBERED,
    PLURALS,
    PREDICTED,
    QUANTITY,
    TIME,
    Choice,
    added_columns,
    may_tell_split,
    most_kinds,
    use_of_rows,
)
from ssdml.datasets.reading.samples import (
    CONTENT,
    VECTORS,
    choose_samples,
    doubt_genes,
    holds_images,
)
from ssdml.datasets.reading.summary import counted, listed
from ssdml.datasets.reading.table import (
    ID_NAMES,
    LABEL_NAMES,
    LABEL_STUDIO,
    MISSING,
    NO_HEADER,
    SPLIT_NAMES,
    SPLITS,
    TEXT_NAMES,
    folded,
    hints_at_labels,
    names_labels,
)
from ssdml.utils.linalg import INDEX
from ssdml.utils.typing import Floats

MOST_TABLES = 4  # that are joined, and may each have an id once
MANY_LABELS = 20  # in a column of classes, most of which occur again
MOST_CODES = 20  # of classes beside short texts
NO_CLASS = {"date": "dates", "text": "names of images", "number": "numbers that hardly occur again"}
KINDS = ("class", "category", "species")  # names of labels that may be kinds of something else
UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")  # Thai, Japanese, Chinese
WORDS = 3  # of a text, on average
ASK_LABEL = "Pass --label NAME (label='NAME')."
NO_NUMBERS = [f"it holds {CONTENT[kind]}" for kind in ("text", "date", "other")]


@dataclass
class Roles:
    """Roles of the columns of a table; ``left_out`` gives the reason for each without one."""

    label: str | None = None
    id: str | None = None
    text: str | None = None
    images: str | None = None
    split: str | None = None
    is_new: str | None = None  # tells which labels are predictions of an earlier `ssdml label`
    features: list[str] = field(default_factory=list)
    vectors: bool = False  # whether the features are one column of vectors
    constant: list[str] = field(default_factory=list)  # features that are one number
    left_out: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


def choose_columns(cells: Cells, choice: Choice) -> Roles:
    """Choose the role of each column.

    - Labels: the column called label, labels, target, class, y, category, intent or species; else
      the only one with such a word in its name; else, with a doubt, the only one with a word such
      as outcome or Klasse; else the only column of short texts that occur again, or the last of
      several; else the only column of integers that occur again; else the only one of these with
      empty cells, which is asked for beside another one.
    - Ids: a column with a name such as id or ..._id, or patient or subject if it holds whole
      numbers, without two equal cells; else the index that pandas wrote; else a column of short
      texts that are all distinct, but not numbers with signs.
    - Samples: the column of vectors; else images that a column holds, or whose files it names, if
      at most three columns of numbers are beside it; else the texts of a column with a name such as
      text, if it has several words in each row and as few numbers beside it; else the columns of
      numbers that do not number the rows, also of a few joined tables, nor have a name of folds,
      parts or weights; else the texts of such a column, or of the only column of several words.

    Raises
    ------
    ValueError
        If a chosen name is no column, or the rule leaves a question.
    """
    return Chooser(cells, choice).roles


class Chooser:
    """Chooses one role after another, among the columns that have none."""

    def __init__(self, cells: Cells, choice: Choice) -> None:
        self.cells, self.choice, self.where = cells, choice, str(cells.table.path)
        self.names: list[str] = cells.table.columns.column_names
        self.n = len(cells.table)
        roles = self.roles = Roles()
        self.unused: dict[str, list[str]] = {}  # by the reason
        given = {role: getattr(choice, role) for role in ("label", "text", "id")}
        self.named = {r: self._named(name, r) for r, name in given.items() if name is not None}
        for role, name in self.named.items():
            setattr(roles, role, name)
        roles.left_out |= dict.fromkeys(self._matching(choice.ignore, "ignore"), "ignored")
        added = added_columns(self.names)
        roles.left_out |= dict.fromkeys(added.values(), "from an earlier `ssdml label`")
        roles.is_new = added.get(IS_NEW)
        if added and roles.is_new is None:
            roles.doubts.append(
                f"columns {listed(list(map(repr, added.values())))} are of an earlier `ssdml "
                f"label`, whose predictions count as given labels, as its column {IS_NEW!r} is "
                "missing"
            )
        if set(LABEL_STUDIO).issubset(self.names):
            roles.left_out |= dict.fromkeys(LABEL_STUDIO, "of Label Studio")
        roles.features = self._matching(choice.features, "features")
        for name in cells.table.marks.keys() - {*self.named.values(), *roles.features}:
            mark = cells.table.marks[name]
            if mark != "meta" or cells.kind(name) == "number":  # but texts may be the samples
                roles.left_out.setdefault(name, f"{mark} in Orange")
        self.kinds = {n: cells.kind(n) for n in self.names if n not in roles.left_out}
        self._check_once()
        index = self._index()
        if roles.text is None:
            roles.text = self._first_text(TEXT_NAMES, inside=True)
        self._split()
        if roles.label is None:
            roles.label = self._label()
        self._id(index)
        doubt_genes(self)
        uses = self._uses_of_rows()
        roles.left_out |= dict.fromkeys(uses, "folds, parts or weights")
        choose_samples(self)
        for name in uses if roles.features else []:
            self.note_unused(name, IS_USE)
        self._rest()
        self._doubt_unused()

    def free(self, *kinds: str) -> list[str]:
        """Return the columns of these kinds that have no role."""
        r = self.roles
        taken = {r.label, r.id, r.text, r.images, r.split, *r.features, *r.left_out}
        return [
            n for n, kind in self.kinds.items() if n not in taken and (kind in kinds or not kinds)
        ]

    def ask(self, problem: str, way_out: str) -> NoReturn:
        """Raise ValueError with the columns and a question."""
        if self.cells.table.separator == ONE_COLUMN:
            way_out += (
                " If a sign other than a comma, semicolon, tab or bar separates the cells, name it "
                "in a first line, such as sep=^."
            )
        way_out += "".join(f" Note: {doubt}." for doubt in self.cells.table.doubts)
        columns = " The" if problem.endswith("?") else "; the"
        raise ValueError(
            f"{self.where}: {problem}{columns} columns are {listed(self.names, 20)}. {way_out}"
        )

    def _named(self, name: str, role: str) -> str:
        """Return the column of this name, in any case."""
        if name in self.names:
            return name
        alike = [n for n in self.names if folded(n) == folded(name)]
        if len(alike) == 1:
            return alike[0]
        if self.choice.model is not None and name in (*self.choice.features, self.choice.text):
            way_out = "Add it, or rename a column."
            if NO_HEADER in self.cells.table.notes:
                if name == self.choice.text and len(self.names) == 1:
                    return self.names[0]  # one text per line
                way_out = "Write the names of the columns into a first line."
            self.ask(
                f"must have the columns of the fit of {self.choice.model}; {name!r} is missing",
                way_out,
            )
        nearest = "".join(
            f"Did you mean {n!r}?" for n in difflib.get_close_matches(name, self.names, n=1)
        )
        self.ask(f"{role} must be a column; got {name!r}", nearest or "Name one of them.")

    def _matching(self, patterns: Iterable[str], role: str) -> list[str]:
        """Return the columns of these names and patterns, in this order."""
        found: dict[str, None] = {}
        others = {*self.roles.left_out, *self.named.values()}
        for pattern in patterns:
            matches = [n for n in self.names if fnmatchcase(n, pattern)]
            if pattern in self.names or not matches:
                found[self._named(pattern, role)] = None
            else:
                found |= dict.fromkeys(n for n in matches if n not in others)
        return list(found)

    def _check_once(self) -> None:
        """Raise if the user names a column for two roles; an id may be a feature or text too."""
        r = self.roles
        ignored = [n for n, reason in r.left_out.items() if reason == "ignored"]
        uses = {"ignore": ignored, "features": r.features}
        uses |= {role: [name] for role, name in self.named.items()}
        for one, other in combinations(uses, 2):
            both = set(uses[one]).intersection(uses[other])
            if both and (one, other) not in (("features", "id"), ("text", "id")):
                self.ask(f"{one} and {other} both name the column {both.pop()!r}", "Name it once.")

    def _first_text(self, names: Sequence[str], *, inside: bool = False) -> str | None:
        """Return the text of the first of these names, or the only one such as a.text inside.

        Those inside are preferred to a constant one.
        """
        free = {folded(n): n for n in reversed(self.free("text"))}
        found = next((free[name] for name in names if name in free), None)
        if inside and (found is None or not self._varies(found)):
            parts = [n for n in free.values() if folded(n).rpartition(".")[2] in names]
            if parts := [n for n in parts if self._varies(n)]:
                return parts[0] if len(parts) == 1 else None
        return found

    def is_distinct(self, name: str) -> bool:
        """Whether no two cells of a column are equal, and none is empty."""
        import pyarrow.compute as pc

        column = self.cells[name]
        return column.null_count == 0 and pc.count_distinct(column).as_py() == self.n

    def _repeats(self, name: str) -> bool:
        """Whether a column could be labels: some occur twice, or many rows have none."""
        known = [cell for cell in self.cells.texts(name) if cell]
        return len(set(known)) < len(known) or 2 * len(known) <= self.n

    def has_words(self, name: str) -> bool:
        """Whether the texts of a column have several words on average, but are no dates."""
        known = [cell for cell in self.cells.texts(name)[:1000] if cell]
        if known and all(map(TIME.fullmatch, known)):
            return False
        n_words = sum(max(cell.count(" ") + 1, len(UNSPACED.findall(cell)) // 4) for cell in known)
        return n_words >= WORDS * len(known)

    def _index(self) -> str | None:
        """Leave out the index that pandas wrote; return it if it identifies the rows."""
        known = {*self.cells.table.index, *self._levels()}
        known -= {n for n in known if self._may_be_label_or_text(n)}
        index = [
            n
            for n in self.free("number", "text", "date")
            if n in known
            or (INDEX.fullmatch(folded(n)) and (self.is_distinct(n) or self._numbers_joined(n)))
        ]
        self.roles.left_out |= dict.fromkeys(index, "index of pandas")
        return next((n for n in index if self.is_distinct(n)), None)

    def _may_be_label_or_text(self, name: str) -> bool:
        """Whether a column of an index is rather what its name says."""
        is_label = folded(name) in LABEL_NAMES and not self.is_distinct(name)
        return is_label or (folded(name) in TEXT_NAMES and self.kinds.get(name) == "text")

    def _levels(self) -> list[str]:
        """Leading columns without names that identify the rows together: levels of an index."""
        unnamed = (
            folded(n) in (f"unnamed: {i}", f"level_{i}") and self._is_level(n)
            for i, n in enumerate(self.names)
        )
        levels = [n for n, _ in zip(self.names, takewhile(bool, unnamed), strict=False)]
        if len(levels) < 2:
            return []
        rows = set(zip(*(self.cells.texts(n) for n in levels), strict=True))
        return levels if len(rows) == self.n else []

    def _is_level(self, name: str) -> bool:
        if self.kinds.get(name) != "number":
            return self.kinds.get(name) in ("text", "date")
        return _are_whole(self.cells.numbers(name).values)

    def _label(self) -> str | None:
        free = [n for n in self.free() if self._may_be_classes(n) and not self._is_place(n)]
        if self.choice.label_of_fit in free:
            return self.choice.label_of_fit
        if (named := self._usual_label(free)) is not None:
            self._doubt_usual(named, free)
            return named
        free = list(filter(self._varies, free))
        alike = [n for n in free if names_labels(n) and not self._counts(n)]
        if len(alike) == 1:
            return alike[0]
        return self._guessed_label(free, alike) if self.choice.needs_label else None

    def _usual_label(self, free: Sequence[str]) -> str | None:
        """Return the column called label or the like, or the only one such as a.label inside."""
        by_name = {folded(n): n for n in reversed(free)}
        named = next((by_name[n] for n in LABEL_NAMES if n in by_name), None)
        if named is None:
            return None
        if len(alike := self._called_again(named, free)) > 1:
            self.ask(f"which column holds the labels, {' or '.join(map(repr, alike))}?", ASK_LABEL)
        if self._varies(named):
            return named
        inside = [n for n in free if folded(n).rpartition(".")[2] in LABEL_NAMES and n != named]
        inside = list(filter(self._varies, inside))
        return inside[0] if len(inside) == 1 else named

    def _doubt_usual(self, name: str, free: Sequence[str]) -> None:
        """Doubt a label whose name may mean something else, if other columns are called alike."""
        others = [repr(n) for n in free if hints_at_labels(n) and self._varies(n)]
        if others and folded(name) in KINDS:
            self.roles.doubts.append(
                f"the labels are taken from column {name!r}; if they are in {listed(others)}, pass "
                "--label NAME (label='NAME')"
            )

    def _called_again(self, name: str, free: Sequence[str]) -> list[str]:
        """Return the columns of this name, in any case or numbered, that do not copy it."""
        alike = [n for n in free if NUMBERED.sub("", folded(n)) == folded(name)]
        cells = self.cells.texts(name)
        return [n for n in alike if folded(n) == folded(name) or self.cells.texts(n) != cells]

    def _guessed_label(self, free: Sequence[str], alike: list[str]) -> str:
        """Return the column that could be labels by its cells, and doubt it; ask if several do."""
        likely = [n for n in free if self._may_be_guessed(n)]
        likely = [n for n in likely if not PREDICTED.fullmatch(folded(n))] or likely
        texts = [n for n in likely if self.kinds[n] == "text" and not self.has_words(n)]
        integers = [n for n in likely if self.kinds[n] == "number" and _are_whole(self._known(n))]
        others = {self.roles.split, *self.roles.left_out, *filter(self._names_rows, free)}
        last = next((n for n in reversed(self.names) if n not in others), None)
        partly = [n for n in (*texts, *integers) if self.cells.numbers(n).missing.any()]
        hinted = [] if alike else [n for n in partly or (*texts, *integers) if hints_at_labels(n)]
        if texts and self._has_texts_or_images():  # so that codes are no features
            alike += [n for n in integers if self._are_codes(n)]
            alike = [*dict.fromkeys([*texts, *alike])] if alike else []
        label = last if last in texts and len(texts) > 1 else None
        for only in (texts, [] if texts else integers, partly):
            label = only[0] if label is None and len(only) == 1 else label
        is_rival = last is not None and last in (*texts, *integers) and not self._counts(last)
        rival = last if is_rival else label
        if partly and rival is not None and rival not in partly and not alike:
            alike = [rival, *partly]
        if len(hinted) == 1:
            label, alike = hinted[0], []
        if label is None or alike:
            self._ask_for_label(alike)
        self.roles.doubts.append(
            f"the labels are taken from column {label!r}, as no column is called label; if they "
            "are elsewhere, pass --label NAME (label='NAME')"
        )
        return label

    def _may_be_guessed(self, name: str) -> bool:
        """Whether a column, whose name tells nothing, could be labels: of two or more classes.

        Columns without a name, ids, who labeled a row, and columns that are different in more than
        half of many rows are not guessed.
        """
        if NO_CLASSES.fullmatch(folded(name)) or self._names_ids(name) or not self._repeats(name):
            return False
        known = [cell for cell in self.cells.texts(name) if cell and folded(cell) not in MISSING]
        n_classes = len(set(known))
        return n_classes > 1 and (len(known) < MANY_LABELS or 2 * n_classes <= len(known))

    def _has_texts_or_images(self) -> bool:
        """Whether a column holds texts of several words, or names images."""
        if any(kind == "text" and self.has_words(n) for n, kind in self.kinds.items()):
            return True
        names = [n for n, kind in self.kinds.items() if kind in ("text", "number")]
        folder = self.cells.table.folder
        return any(holds_images(n, self.cells.first(n), folder) for n in names)

    def _are_codes(self, name: str) -> bool:
        """Whether a column of integers counts a few classes, from 0 or 1.

        One without a name may have gaps, as polarities of 0, 2 and 4.
        """
        codes = np.unique(self._known(name))
        if not 0 < len(codes) <= MOST_CODES or self._counts(name):
            return False
        counts = codes[0] in (0, 1) and codes[-1] == codes[0] + len(codes) - 1
        return bool(counts) or NO_HEADER in self.cells.table.notes

    def _counts(self, name: str) -> bool:
        """Whether a column of numbers has the name of a quantity."""
        return self.kinds[name] == "number" and QUANTITY.fullmatch(folded(name)) is not None

    def _names_rows(self, name: str) -> bool:
        """Whether a column holds short texts that are all distinct."""
        return self.kinds[name] == "text" and self.is_distinct(name) and not self.has_words(name)

    def _varies(self, name: str) -> bool:
        """Whether cells of a column differ, or some are missing."""
        return len(set(self.cells.texts(name))) > 1

    def _ask_for_label(self, alike: Sequence[str]) -> NoReturn:
        way_out = ASK_LABEL
        taken = [n for n in self.names if folded(n) in LABEL_NAMES and n not in self.free()]
        if taken:
            role = "ignored" if taken[0] in self.roles.left_out else "used otherwise"
            self.ask(f"which column holds the labels? {taken[0]!r} is {role}", way_out)
        named = [n for n in self.free() if folded(n) in LABEL_NAMES]
        if named:
            holds = NO_CLASS[self.kinds[named[0]]]
            holds = "places, as it is beside 'x'" if self._may_be_classes(named[0]) else holds
            self.ask(f"column {named[0]!r} holds {holds}, which are no classes", way_out)
        if indicators := self._indicators():
            self.ask(
                f"which column holds the labels? Each of {listed(indicators)} tells one class",
                "Write one column: frame['label'] = frame[names].idxmax(axis=1), where one is 1.",
            )
        if alike:
            self.ask(f"which column holds the labels, {' or '.join(map(repr, alike))}?", way_out)
        names = f"{', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}"
        way_out = way_out.replace(".", ", or add a column called label.")
        way_out += " For samples without labels, load_dataset takes needs_label=False."
        self.ask(f"which column holds the labels? None is called {names}", way_out)

    def _indicators(self) -> list[str]:
        """Return columns of 0 and 1 beside each other if at most one is 1 in each row."""
        names, total = [], np.zeros(self.n)
        for name in self.free("number"):
            values = self.cells.numbers(name).values
            if set(np.unique(values)) == {0, 1}:
                names.append(name)
                total += values
        places = [self.names.index(name) for name in names]
        are_beside = len(names) > 1 and places[-1] - places[0] == len(names) - 1
        return names if are_beside and (total <= 1).all() else []

    def _may_be_classes(self, name: str) -> bool:
        """Whether a column may hold classes: no rare fractions, dates, or names of images."""
        if self.kinds[name] != "number":
            return self.kinds[name] != "date" and not is_image_name(self.cells.first(name))
        known = self._known(name)
        return _are_whole(known) or 2 * len(np.unique(known)) <= len(known)

    def _is_place(self, name: str) -> bool:
        """Whether a column called x, y or z has numbers of which y are places, not classes."""
        plain = {folded(n): n for n in self.free("number")}
        if folded(name) not in ("x", "y", "z") or not {folded(name), "x", "y"} <= plain.keys():
            return False
        n_x, n_y = self._n_codes(plain["x"]), self._n_codes(plain["y"])
        return 2 * n_y > min(2 * MOST_CODES, n_x)

    def _known(self, name: str) -> Floats:
        """Return the finite numbers of a column."""
        values = self.cells.numbers(name).values
        return values[np.isfinite(values)]

    def _split(self) -> None:
        """Take a column that names training and test rows, the one called split if there is."""
        named = self._first_text(SPLIT_NAMES)
        for name in [named] if named else self.free("text"):
            if folded(name) in LABEL_NAMES:
                continue
            cells = {cell or "" for cell in self.cells.texts(name)}
            others = sorted(cell for cell in cells if folded(cell) not in SPLITS)
            if not others:
                self.roles.split = name
                return
            if may_tell_split(name, cells):
                self.roles.left_out[name] = "no split"
                self.roles.doubts.append(
                    f"column {name!r} does not tell the test rows, as it holds {others[0]!r}; "
                    "write train, validation or test into each row"
                )

    def _id(self, index: str | None) -> None:
        roles = self.roles
        free = self.free("number", "text")
        named = [n for n in free if folded(n) in ID_NAMES or self._names_ids(n)]
        keys = [n for n in named if self.is_distinct(n)]
        if roles.id is None and keys:
            roles.id = keys[0]
        elif roles.id is None and index is not None:
            roles.id = index
            del roles.left_out[index]
        elif roles.id is None:
            texts = [
                n
                for n in self.free("text")
                if self._names_rows(n) and not self.cells.has_signs(n) and folded(n) not in VECTORS
                if not self.cells.may_be_vectors(n)
            ]
            roles.id = next(iter(texts), None)
        of_pandas = [n for n, why in roles.left_out.items() if why == "index of pandas"]
        repeated = [n for n in of_pandas if not self.cells.counts_in_tables(n)]
        repeated += filter(None, [self.named.get("id")])
        for name in named:
            is_known = name in keys or self._names_ids(name) or self._numbers_joined(name)
            if name != roles.id and is_known:
                roles.left_out[name] = "ids"
                repeated.append(name)
                if name not in keys and self.kinds[name] == "number":
                    self.note_unused(name, IS_ID)
        repeated = list(filter(self._rarely_repeats, repeated))
        if repeated and not any(map(self._names_ids, keys)):
            self._doubt_repeated(repeated[0])

    def _numbers_joined(self, name: str) -> bool:
        """Whether a column may have numbered the rows of a few tables, before they were joined."""
        is_number = self.kinds[name] == "number" and _are_whole(self._known(name))
        return is_number and self._rarely_repeats(name)

    def _rarely_repeats(self, name: str) -> bool:
        """Whether some cells are in several rows, at most one per table, and none is empty."""
        counts = Counter(self.cells.texts(name))
        return all(counts) and 1 < max(counts.values(), default=0) <= MOST_TABLES

    def _doubt_repeated(self, name: str) -> None:
        """Doubt ids that several rows have, above all with different labels."""
        rows_of: dict[str | None, list[int]] = {}
        for row, cell in enumerate(self.cells.texts(name)):
            rows_of.setdefault(cell, []).append(row)
        repeated = [rows for rows in rows_of.values() if len(rows) > 1]
        named = self.roles.label
        labels = [None] * self.n if named is None else self.cells.texts(named)
        several = [r for r in repeated if len({labels[row] for row in r if labels[row]}) > 1]
        first = (several or repeated)[0]
        places = " and ".join(self.cells.table.place(row) for row in first[:2])
        self.roles.doubts.append(
            f"{counted(len(repeated), 'id')} in column {name!r} "
            f"{'is' if len(repeated) == 1 else 'are'} in several rows, "
            + f"{len(several):,} of them with different labels, " * bool(several)
            + f"as in {places}; if these are the same sample, keep one row of each"
        )

    def _uses_of_rows(self) -> list[str]:
        """Return the columns of numbers that say how rows are used; doubt those of test rows."""
        uses = {n: use_of_rows(n, self._n_codes(n)) for n in self.free("number")}
        self.roles.doubts += [
            f"column {name!r} tells no test rows; if it marks them, write train or test into each "
            "row of a column called split"
            for name, use in uses.items()
            if use == "parts" and self._n_codes(name) == 2
        ]
        return [name for name, use in uses.items() if use is not None]

    def _n_codes(self, name: str) -> float:
        """Count the different numbers of a column; infinity if they are not whole."""
        known = self._known(name)
        return len(np.unique(known)) if _are_whole(known) else np.inf

    def _names_ids(self, name: str) -> bool:
        """Whether a column has such a name that no other content is likely."""
        if KEY.fullmatch(name) or KEY.fullmatch(folded(name)):
            return True
        is_number = self.kinds[name] == "number"
        return is_number and most_kinds(folded(name)) < self._n_codes(name) < np.inf

    def note_unused(self, name: str, reason: str) -> None:
        """Note that a column, which may be a feature, is none."""
        if not self.choice.features:
            self.unused.setdefault(reason, []).append(name)

    def _doubt_unused(self) -> None:
        """Doubt the columns that are no features, in one line for each reason."""
        for reason, names in self.unused.items():
            if len(names) > 1:
                what = f"columns {listed(list(map(repr, names)))} are not features"
                why = PLURALS.get(reason, reason.replace("it holds", "they hold"))
            else:
                what, why = f"column {names[0]!r} is not a feature", reason
                if why == f"it holds {CONTENT['text']}" and (
                    example := self.cells.example(names[0])
                ):
                    why += f" such as {example}"
            way_out = "to decide otherwise, name the features: --features A,B (features=['A', 'B'])"
            if reason in NO_NUMBERS:
                way_out = f"to use {'them' if len(names) > 1 else 'it'}, write numbers"
                wordy = [repr(n) for n in names if self.kinds[n] == "text" and self.has_words(n)]
                if wordy:
                    way_out += f", or for texts, pass --text {wordy[0]} (text={wordy[0]})"
            self.roles.doubts.append(f"{what}, as {why}; {way_out}")

    def _rest(self) -> None:
        """Leave out the columns that are nothing."""
        for name in self.free():
            self.roles.left_out[name] = CONTENT[self.kinds[name]]
            if self.kinds[name] != "empty" and self.choice.text is None:
                self.note_unused(name, f"it holds {CONTENT[self.kinds[name]]}")


def _are_whole(values: Floats) -> bool:
    return bool((values == np.rint(values)).all())
