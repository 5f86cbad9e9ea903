"""Tables as they are in files, and whether their first row is a header."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.datasets.image_names import is_image_name

if TYPE_CHECKING:
    import pyarrow as pa

LABEL_NAMES = ("label", "labels", "target", "class", "y", "category", "intent", "species")
LABEL_WORD = re.compile(r"(.*[_\W])?(labels?|target|class)([_\W].*)?", re.DOTALL)
# Names of labels, also in other languages, that decide if those above leave several columns.
LABEL_HINT = re.compile(
    r"(.*[_\W])?(ground[_\W]?truth|gt|y_true|lbl|cls|outcome|diagnosis|sentiment|emotion|topic|genre|"
    r"survived|churn(ed)?|klasse|kategorie|zielvariable|clase|etiqueta|categor[ií]a|classe|étiquette|"
    r"cat[ée]gorie|r[óo]tulo|etichetta|klasa|etykieta|kategoria|класс|метка|категория|etiket|sınıf|"
    r"klass|标签|標籤|类别|類別|分类|ラベル|クラス|カテゴリー?|라벨|레이블|클래스|nhãn)([_\W].*)?",
    re.DOTALL,
)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # between words, as in ClassId
TEXT_NAMES = (
    *("text", "texts", "sentence", "utterance", "document", "content", "comment", "review"),
    *("message", "question", "query", "tweet", "abstract", "description", "body", "title"),
)
ID_NAMES = (
    *("id", "ids", "idx", "uid", "uuid", "guid", "index", "rowid", "row", "rownames", "#"),
    *("no", "nr", "key", "name", "file", "filename", "file_name", "path", "url"),
)
SPLIT_NAMES = ("split",)
USUAL_NAMES = {*LABEL_NAMES, *TEXT_NAMES, *ID_NAMES, *SPLIT_NAMES}
# Columns that Label Studio adds to the data and answers in its short exports.
LABEL_STUDIO = ("annotation_id", "annotator", "created_at", "lead_time", "updated_at")
SPLIT_WORD = r"train(ing)?|val(id|idation)?|dev|test(ing)?"  # in longer names
SPLITS = {
    word: part
    for part, words in {
        "train": "train training tra trn trainingsdaten entrenamiento treino treinamento "
        "entraînement entrainement apprentissage addestramento trening обучение eğitim 训练 训练集 "
        "訓練 学習 학습 훈련",
        "validation": "val valid validation validate dev publictest validierung validierungsdaten "
        "validación validação validazione walidacja валидация doğrulama 验证 验证集 驗證 検証 검증",
        "test": "test testing tes tst privatetest testdaten prueba teste тест 测试 测试集 測試 "
        "テスト 테스트",
    }.items()
    for word in words.split()
}
# The same in names of files, where a word begins: X_train, Xtrain, GunTrain, but not latest.
IN_SPLIT = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z])|(?<=[XxYy]))"
    rf"((?i:{SPLIT_WORD}|tra|trn|tes|tst))(?![A-Za-z])"
)
NO_HEADER = "no header: the columns are called 1, 2, ..."
MISSING = ("", "nan", "na", "n/a", "#n/a", "<na>", "null", "none", "nat", "?", r"\n")
TRUTH = {"true": "false", "wahr": "falsch", "vrai": "faux", "verdadero": "falso", "vero": "falso"}
TRUTH |= {"verdadeiro": "falso", "waar": "onwaar", "prawda": "fałsz", "sant": "falskt"}
TRUTH |= {"истина": "ложь", "tosi": "epätosi", "igaz": "hamis"}  # as Excel writes true and false
ORANGE_TYPES = {"continuous", "numeric", "discrete", "categorical", "string", "text", "time"}
ORANGE_LETTERS = {"c", "d", "n", "s", "t"}  # the same, above a row of flags
ORANGE_FLAGS = {"": "", "c": "class", "m": "meta", "i": "ignore", "w": "weight"}
ORANGE_ATTRIBUTE = re.compile(r"\w+=(\\.|\S)*")  # beside a flag, such as include=True
ORANGE_MARK = re.compile(r"(?P<flags>[cmiw]?[CDSTN]|[cmiw])#(?P<name>.+)")
QUALTRICS = re.compile(r"""\{\s*["']ImportId["'].*\}""", re.DOTALL)  # below names and questions
RESPONDENT = re.compile(r"respondent[ _]?id")  # as SurveyMonkey calls the first column
OF_RESPONSES = re.compile(r"(open-ended )?response", re.IGNORECASE)  # below a question
RULE = re.compile(r":?-{2,}:?|:-:?|-:")  # below a header
MOST_ABOVE = 20  # rows of titles and remarks above a header
LEAST_AXIS, LONG_AXIS, EVEN = 4, 8, 1.1  # numbers of an axis, of a clear one, ratio of its steps
YEARS = {float(year) for year in range(1700, 2101)}
LETTER = re.compile(r"[^\W\d_]")
MAX_CELLS = 10**6  # of the rows that decide whether there is a header
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?|[+-]?inf|nan", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a file, and how messages name its rows."""

    path: Path
    columns: pa.Table  # with distinct names
    place: Callable[[int], str]  # of a row, such as "line 3"
    notes: tuple[str, ...] = ()  # how the file was read
    doubts: tuple[str, ...] = ()
    index: tuple[str, ...] = ()  # columns that were the index of a pandas DataFrame
    class_names: Mapping[str, list[str]] = field(default_factory=dict)  # of columns of codes
    separator: str | None = None  # of cells that are text
    decimal: str = "."  # of numbers in cells that are text
    marks: Mapping[str, str] = field(default_factory=dict)  # of Orange: meta, ignore or weight
    root: Path | None = None  # of the files that cells name, if it is not the folder of the table
    starts: tuple[int, ...] = ()  # first rows of the second table and others, if joined

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    @property
    def folder(self) -> Path:
        """Folder of the files that cells name."""
        return self.root or (self.path if self.path.is_dir() else self.path.parent)


def folded(name: Any) -> str:
    """Return a column's name for comparisons: lower case, without the spaces around it.

    Examples
    --------
    >>> folded(" Label ")
    'label'
    """
    return str(name).strip().casefold()


def names_labels(name: str) -> bool:
    """Whether the name of a column is that of labels, or has such a word.

    Examples
    --------
    >>> names_labels("Label:"), names_labels("ClassId"), names_labels("width")
    (True, True, False)
    """
    words = folded(CAMEL.sub("_", unicodedata.normalize("NFKC", name)))
    return folded(name) in LABEL_NAMES or LABEL_WORD.fullmatch(words) is not None


def hints_at_labels(name: str) -> bool:
    """Whether the name of a column has another word for labels, which may mean something else.

    Examples
    --------
    >>> hints_at_labels("Klasse"), hints_at_labels("Outcome (1: yes)"), hints_at_labels("width")
    (True, True, False)
    """
    return LABEL_HINT.fullmatch(folded(name)) is not None


def mentioned_split(name: str) -> str | None:
    """Return the split that a name begins with or mentions.

    Examples
    --------
    >>> mentioned_split("oos_val"), mentioned_split("Xtest.csv"), mentioned_split("latest")
    ('validation', 'test', None)
    """
    match = IN_SPLIT.search(name)
    return SPLITS[match[1].lower()] if match else None


def is_number(cell: Any) -> bool:
    """Whether a cell is a number, with a decimal point or comma.

    Examples
    --------
    >>> is_number("-1,5e3"), is_number(2), is_number("2 m")
    (True, True, False)
    """
    if isinstance(cell, str):
        return NUMBER.fullmatch(cell.strip()) is not None
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def has_header(rows: Sequence[Sequence[Any]]) -> bool:
    """Whether the first row names the columns.

    It does if it holds a usual name (label, text, id, ...) that is in no cell below, if it holds
    text above numbers, vectors or names of images, but no mark such as "?", if it counts 0, 1, 2,
    ... or, beside texts, years, if its numbers are an axis, such as wavelengths, or if several
    columns have no number in it and none of its cells again.

    Examples
    --------
    >>> has_header([["a", "b"], ["1", "x"]]), has_header([["1", "x"], ["2", "y"]])
    (True, False)
    >>> has_header([["0", "1", "target"], ["1.5", "2.5", "a"]])
    True
    """
    first, rest = rows[0], [row for row in rows[1:] if row != rows[0]]
    below = [[row[j] for row in rest if row[j] not in (None, "")] for j in range(len(first))]
    if any(
        isinstance(cell, str) and folded(cell) in USUAL_NAMES and cell not in cells
        for cell, cells in zip(first, below, strict=True)
    ):
        return True
    is_text = [isinstance(c, str) and not is_number(c) and not _is_mark(c) for c in first]
    above = [  # cells above numbers, "" for those that are no names
        str(cell) if t or isinstance(cell, date) else ""
        for cell, cells, t in zip(first, below, is_text, strict=True)
        if cells and all(is_number(part) for cell in cells for part in _parts(cell))
    ]
    if any(map(LETTER.search, above)) or (above and all(above)):  # dates, ages and the like
        return True
    texts = [(cell, cells) for cell, cells, t in zip(first, below, is_text, strict=True) if t]
    if any(cell in cells for cell, cells in texts):
        return False
    if any(cells and _are_images(cells) and not is_image_name(cell) for cell, cells in texts):
        return True
    counted = _numbers(first)
    if not counted:
        return len(texts) > 1 and all(isinstance(cell, str | None) for cell in first)
    steps = {later - earlier for earlier, later in pairwise(counted)}
    are_years = steps in ({1}, {-1}) and len(counted) > 2 and set(counted) <= YEARS
    if _is_axis(first, rest) or (are_years and texts):
        return True
    is_index = first[0] in (None, "") and bool(below[0])
    if not steps and not is_index:  # a lone number may be a label of the first row
        again = any(is_number(c) and c in cells for c, cells in zip(first, below, strict=True))
        repeats = any(2 * len(set(cells)) <= len(cells) for _, cells in texts)
        return counted[0] in (0, 1) and repeats and not again
    repeats = any(len(set(cells)) < len(cells) for _, cells in texts)
    counts = counted[0] in (0, 1) and steps <= {1}
    return counts and (len(counted) > 2 or is_index or repeats)


def _numbers(row: Sequence[Any]) -> list[float]:
    return [float(str(cell).strip().replace(",", ".")) for cell in row if is_number(cell)]


def _is_axis(first: Sequence[Any], rest: Sequence[Sequence[Any]]) -> bool:
    """Whether the first row is an axis: its numbers are monotonic, those of the next rows are not.

    Where those are, too, as reflectances may be, only the first are evenly spaced. They lie beyond
    the numbers below them, unless there are many and the other cells are names or empty.
    """
    axis, *others = map(_numbers, (first, *rest[:MOST_ABOVE]))
    if not any(_rises(axis, r) and not any(_rises(o, r) for o in others) for r in (EVEN, np.inf)):
        return False
    below = [_numbers([row[j] for row in rest]) for j, c in enumerate(first) if is_number(c)]
    names = [str(cell or "") for cell in first if not is_number(cell)]
    if names and len(axis) >= LONG_AXIS and not any(map(str.isdecimal, "".join(names))):
        return all(below)  # a date or an id has a digit
    pairs = zip(axis, below, strict=True)
    are_apart = all(cells and not min(cells) <= number <= max(cells) for number, cells in pairs)
    return are_apart and max(len(axis), len(rest)) >= LONG_AXIS


def _rises(numbers: list[float], ratio: float) -> bool:
    """Whether numbers rise or fall throughout, by steps of at most this ratio."""
    order = 1 if numbers[:1] < numbers[-1:] else -1
    steps = [later - earlier for earlier, later in pairwise(numbers[::order])]
    return len(numbers) >= LEAST_AXIS and 0 < max(steps) <= ratio * min(steps)


def _is_mark(cell: str) -> bool:
    """Whether a text means that a cell is missing."""
    return folded(cell) in MISSING or not cell.strip(" -\u2013\u2014.*?")


def _are_images(cells: Sequence[Any]) -> bool:
    """Whether the first cells of a column are names of images."""
    return all(isinstance(cell, str) and is_image_name(cell) for cell in cells[:MOST_ABOVE])


def _parts(cell: Any) -> list[Any]:
    """Return the numbers of a vector, which blanks separate, or the cell."""
    return cell.split() if isinstance(cell, str) else [cell]


class Header(NamedTuple):
    """Names of columns, and where they are in the first rows; ``names`` is None without any."""

    n_above: int  # rows of titles and remarks
    n_rows: int
    names: list[str] | None
    n_below: int = 0  # rows of explanations
    marks: tuple[str, ...] = ()  # of each column, by Orange

    @property
    def start(self) -> int:
        """The first row of data."""
        return self.n_above + self.n_rows + self.n_below

    @property
    def can_repeat(self) -> bool:
        """Whether rows that equal it are no data, but headers of files below each other."""
        return self.names is not None and len(self.names) > 1 and self.n_rows > 0

    def marks_of(self, names: Sequence[str], columns: Sequence[int]) -> dict[str, str]:
        """Return the marks of Orange for columns of these names that hold no features."""
        found = {n: self.marks[j] for n, j in zip(names, columns, strict=True) if self.marks}
        return {name: mark for name, mark in found.items() if mark not in ("", "class")}

    def notes(self, n_repeated: int) -> list[str]:
        """Tell what was found, unless it is one row of names at the top."""
        if self.names is None:
            return [NO_HEADER]
        notes = [f"rows above the header left out: {self.n_above}"] if self.n_above else []
        notes += [f"rows below the header left out: {self.n_below}"] if self.n_below else []
        notes += [f"names of columns joined from {self.n_rows} rows"] * (self.n_rows > 1)
        return notes + [f"repeated headers left out: {n_repeated}"] * (n_repeated > 0)


def find_header(rows: Sequence[Sequence[Any]]) -> Header:
    """Find the header below titles, which have cells in the first columns only, and its rows.

    A second row, and a third, belong to it if they have no number, but text above the numbers of
    several columns: lower levels of names, or units. A name of an upper level that spans several
    columns is repeated. Exports of Orange, Qualtrics and SurveyMonkey have their own rows below the
    names, and so do tables of pandas with several levels of columns.

    Examples
    --------
    >>> find_header([["Trial 7", "", ""], ["a", "b", "label"], ["1", "2", "x"]]).start
    2
    >>> find_header([["a", "", "label"], ["mm", "kg", ""], ["1", "2", "x"], ["3", "4", "y"]]).names
    ['a mm', 'a kg', 'label']
    """
    forms = (_header_of_orange, _header_of_qualtrics, _header_of_surveymonkey, _header_of_pandas)
    for form in forms:
        if (found := form(rows)) is not None:
            return found
    n_above = _n_above(rows)
    if n_above and not has_header(rows[n_above:]):
        n_above = 0
    rows = rows[n_above:]
    has_third = _has_lower_level(rows[1:]) and not any(map(is_number, rows[0]))
    if has_third and not _spans(rows[0]):  # nor are they rows of marks
        has_third = {*rows[1]}.isdisjoint({*rows[2]} - {None, ""})
    n = 3 if has_third else 1 + _has_lower_level(rows)
    if not (has_header(rows) or (n > 1 and has_header([rows[0], *rows[n:]]))):
        return Header(n_above, 0, None)
    levels = _stripped(rows[:n])
    return Header(n_above, n, levels[0] if n == 1 else _joined(levels))


def _stripped(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Return cells as texts without spaces around them, "" for None."""
    return [["" if cell is None else str(cell).strip() for cell in row] for row in rows]


def _spans(level: Sequence[Any]) -> bool:
    """Whether a name in a level of names spans columns: it occurs again, or cells are empty."""
    return len({*level[1:]} - {None, ""}) < len(level) - 1


def _joined(levels: list[list[str]]) -> list[str]:
    """Join the names of each column in all levels; one that spans several columns is repeated."""
    levels = [list(level) for level in levels]
    for k, upper in enumerate(levels[:-1]):
        for j in range(1, len(upper)):
            in_group = k == 0 or levels[k - 1][j] == levels[k - 1][j - 1]
            if not upper[j] and in_group and any(level[j] for level in levels[k + 1 :]):
                upper[j] = upper[j - 1]
    return [" ".join(dict.fromkeys(filter(None, column))) for column in zip(*levels, strict=True)]


def _header_of_orange(rows: Sequence[Sequence[Any]]) -> Header | None:
    """Find the header of Orange: names, types and flags, or "cD#name"; None for others."""
    rows = _stripped(rows[:4])
    marked = [ORANGE_MARK.fullmatch(name) for name in rows[0]]
    if 2 * sum(map(bool, marked)) > sum(map(bool, rows[0])):
        names = [m["name"] if m else name for m, name in zip(marked, rows[0], strict=True)]
        flags = [m["flags"].rstrip("CDSTN") if m else "" for m in marked]
        return _flagged(1, names, flags)
    if len(rows) < 4:
        return None
    flags = [folded(ORANGE_ATTRIBUTE.sub("", cell).strip()) for cell in rows[2]]
    are_flags = {*flags} <= ORANGE_FLAGS.keys() | {*ORANGE_FLAGS.values()}
    known = ORANGE_TYPES | (ORANGE_LETTERS if are_flags and any(rows[2]) else set())
    types = {*map(folded, filter(None, rows[1]))}
    if types.isdisjoint(known) or any(kind not in known and " " not in kind for kind in types):
        return None
    return _flagged(3, rows[0], flags) if are_flags else Header(0, 2, list(rows[0]))


def _flagged(n_rows: int, names: Sequence[str], flags: Sequence[str]) -> Header:
    """Return the header of Orange in some rows, with flags behind the names of columns."""
    marks = tuple(ORANGE_FLAGS.get(flag, flag) for flag in flags)
    names = [" ".join(filter(None, pair)) for pair in zip(names, marks, strict=True)]
    return Header(0, n_rows, names, marks=marks)


def _header_of_qualtrics(rows: Sequence[Sequence[Any]]) -> Header | None:
    """Find the header that Qualtrics writes: names, questions and its own ids; None for others."""
    rows = _stripped(rows[:3])
    if len(rows) < 3 or not all(QUALTRICS.fullmatch(cell) for cell in rows[2]):
        return None
    return Header(0, 1, list(rows[0]), 2)


def _header_of_surveymonkey(rows: Sequence[Sequence[Any]]) -> Header | None:
    """Find the header that SurveyMonkey writes: questions and their choices; None for others.

    A respondent always has an id, which the second row lacks.
    """
    rows = _stripped(rows[:2])
    if len(rows) < 2 or not RESPONDENT.fullmatch(folded(rows[0][0])) or rows[1][0]:
        return None
    triples = zip(*rows, _joined(rows), strict=True)
    names = [up if up and OF_RESPONSES.fullmatch(low) else name for up, low, name in triples]
    return Header(0, 2, names)


def _header_of_pandas(rows: Sequence[Sequence[Any]]) -> Header | None:
    """Find the header of grouped rows: levels of names, and names of the index below; else None."""
    first = _stripped(rows[:5])
    for n_levels, row in list(enumerate(first))[2:-1]:
        index, names = list(takewhile(bool, row)), _joined(first[:n_levels])
        n = len(index)
        if index and not any(row[n:]) and names[n:] and all(names[n:]):
            if any(names[1:n]) or (names[0] and not _spans(first[0])):
                continue  # names of levels are in the first column
            return Header(0, n_levels + 1, [*index, *names[n:]])
    return None


def _n_above(rows: Sequence[Sequence[Any]]) -> int:
    """Count the first rows with cells in the left half only, where most have more."""
    n_filled = [
        max((j + 1 for j, c in enumerate(row) if c not in (None, "")), default=0)
        for row in rows[: 5 * MOST_ABOVE]
    ]
    usual = int(np.quantile(n_filled, 0.75, method="higher"))
    above = takewhile(lambda n: 2 * n <= usual, n_filled[:MOST_ABOVE])
    n_above = len(list(above)) if usual > 2 else 0
    return n_above if n_above < len(n_filled) - 1 else 0


def _has_lower_level(rows: Sequence[Sequence[Any]]) -> bool:
    """Whether the second row names columns as well; none of its names is in a cell below."""
    if len(rows) < 4 or any(map(is_number, rows[1])) or any(map(is_number, rows[0])):
        return False
    n_above_numbers = 0
    for j, cell in enumerate(rows[1]):
        if not isinstance(cell, str) or folded(cell) in MISSING:
            continue
        below = [row[j] for row in rows[2:] if row[j] is not None and folded(row[j]) not in MISSING]
        if cell in below:
            return False
        n_above_numbers += len(below) > 1 and all(map(is_number, below))
    return n_above_numbers > 1


def headed(
    path: Path,
    cells: pa.Table,
    place: Callable[[int], str],
    notes: Sequence[str] = (),
    separator: str | None = None,
    names: list[str] | None = None,
) -> Table:
    """Make a table of rows of which the first may be a header; empty rows and columns go.

    All cells are text; ``place`` names a row of ``cells``. With ``names`` there is no header.
    """
    numbers = _rows_with_cells(cells)
    if not len(numbers):
        raise ValueError(f"{path}: must contain rows; got none.")
    notes = list(notes)
    if len(numbers) < cells.num_rows:
        n_empty = int(numbers[-1]) + 1 - len(numbers)
        notes += [f"empty rows left out: {n_empty}"] if n_empty else []
        cells = cells.take(numbers)
    sample = cells.slice(0, max(2, MAX_CELLS // cells.num_columns))
    rows = list(zip(*(column.to_pylist() for column in sample.columns), strict=True))
    if len(rows) > 2 and all(RULE.fullmatch(cell.strip()) for cell in rows[1] if cell.strip()):
        del rows[1]  # of Markdown
        cells, numbers = cells.take(np.delete(np.arange(len(numbers)), 1)), np.delete(numbers, 1)
    header = find_header(rows) if names is None else Header(0, 0, names)
    names = header.names or [str(number) for number in range(1, cells.num_columns + 1)]
    names[0] = names[0].lstrip("# ") or names[0]  # a header as a remark, as of NumPy
    cells, numbers = cells.slice(header.start), numbers[header.start :]
    kept = np.arange(len(numbers))
    if header.can_repeat:
        kept = np.delete(kept, _rows_like(cells, rows[header.n_above]))
    notes += header.notes(len(numbers) - len(kept))
    if len(kept) < len(numbers):
        cells, numbers = cells.take(kept), numbers[kept]
    if not len(numbers):
        raise ValueError(f"{path}: must contain rows; got a header alone.")
    used = [j for j, name in enumerate(names) if name or not _is_empty(cells.column(j))]
    columns = cells.select(used).rename_columns(distinct([names[j] for j in used]))
    return Table(
        path,
        columns,
        lambda row: place(int(numbers[row])),
        tuple(notes),
        separator=separator,
        marks=header.marks_of(columns.column_names, used),
    )


def of_cells(where: str, cells: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Make a table of Python values; a column of several types becomes text.

    Raises ValueError if that would make one text of two values, such as 7 and "7".

    Examples
    --------
    >>> of_cells("t.json", {"a": [1, None], "b": [7, "x"]}).to_pylist()
    [{'a': 1, 'b': '7'}, {'a': None, 'b': 'x'}]
    """
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    for name, values in cells.items():
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError):
            known = {
                (type(value).__name__, str(value))
                for value in values
                if value is not None and value == value
            }
            again = [text for text, n in Counter(text for _, text in known).items() if n > 1]
            if again:
                kinds = sorted(kind for kind, text in known if text == again[0])
                raise ValueError(
                    f"{where}, column {name!r}: must hold values of one type; got {again[0]} as "
                    f"{' and as '.join(kinds)}. Convert the column."
                ) from None
            columns[name] = pa.array(
                [None if value is None or value != value else str(value) for value in values]
            )
    return pa.table(columns)


def unnested(columns: pa.Table) -> pa.Table:
    """Return the fields of objects as columns of their own, called parent.child.

    Images, which are objects with bytes, stay.

    Examples
    --------
    >>> import pyarrow as pa
    >>> unnested(pa.table({"a": [{"b": 1, "c": {"d": 2}}]})).to_pylist()
    [{'a.b': 1, 'a.c.d': 2}]
    """
    import pyarrow as pa

    names: list[str] = []
    parts: list[Any] = []
    for name, column in zip(columns.column_names, columns.columns, strict=True):
        kind = column.type
        if pa.types.is_struct(kind) and kind.num_fields and kind.get_field_index("bytes") < 0:
            names += [f"{name}.{kind.field(j).name}" for j in range(kind.num_fields)]
            parts += column.flatten()
        else:
            names.append(name)
            parts.append(column)
    if names == columns.column_names:
        return columns
    return unnested(pa.table(dict(zip(distinct(names), parts, strict=True))))


def distinct(names: Sequence[str]) -> list[str]:
    """Name unnamed columns by their position, and number names that occur again, as pandas does.

    Examples
    --------
    >>> distinct(["", "a", "a"])
    ['Unnamed: 0', 'a', 'a.1']
    """
    found: dict[str, None] = {}
    again: Counter[str] = Counter()
    for position, name in enumerate(names):
        new = stem = name or f"Unnamed: {position}"
        while new in found:
            again[stem] += 1
            new = f"{stem}.{again[stem]}"
        found[new] = None
    return list(found)


def _is_empty(column: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    return not pc.any(pc.not_equal(column, "")).as_py()


def _rows_like(cells: pa.Table, row: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the rows that are equal to one, but for blanks and byte order marks around cells."""
    alike = np.arange(cells.num_rows)
    for column, wanted in zip(cells.columns, row, strict=True):
        if len(alike):
            found = column.take(alike).to_pylist()
            alike = alike[[cell.strip("\ufeff ") == wanted.strip() for cell in found]]
    return alike


def _rows_with_cells(cells: pa.Table) -> npt.NDArray[np.int64]:
    empty = np.arange(cells.num_rows)
    for column in cells.columns:
        if len(empty):
            found = column.take(empty).to_pylist()
            empty = empty[[not str(cell).strip() for cell in found]]
    return np.delete(np.arange(cells.num_rows), empty)
