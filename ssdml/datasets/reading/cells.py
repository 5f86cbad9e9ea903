"""Kinds and values of the columns of a table: numbers, texts, vectors, images."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from scipy.special import gammaln

from ssdml.datasets.reading.names import CODES
from ssdml.datasets.reading.table import LABEL_NAMES, MISSING, TRUTH, Table, folded
from ssdml.utils.files import parse_json
from ssdml.utils.linalg import absent_marks
from ssdml.utils.typing import Array, Floats, Mask

if TYPE_CHECKING:
    import pyarrow as pa

POINT = r"^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|^[+-]?inf(inity)?$"
COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d+)?(,\d*)?(e[+-]?\d+)?$"  # dots between thousands
THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+$"
# Numbers with signs of percent, money, thousands, or of other programs.
SIGNS = r"\d{1,3}([ \x{a0}\x{2009}\x{202f}'’_]\d{3})+|\d{1,3}(,\d{2,3})*,\d{3}|\d+"
MONEY = r"([$€£¥₹]|R\$|US\$|Rs\.?|USD|EUR|GBP|CHF|JPY|CNY|INR)?"
SIGNS = rf"^[-+\x{{2212}}]?{MONEY}\s*[-+\x{{2212}}]?({SIGNS})?([.,]\d+)?\s*([%‰]|{MONEY})-?$"
# Two numbers, as in 1.5±0.1, 2x10^3, 640 x 480, 5'11" and 1.5(2).
SIGNS += r"|^[-+]?([1-9]\d*|\d+[.,]\d+)\s*(±|\+/-|[x×*'°])\s*\d[-.,\d^x×'\"]*[NSEW]?$"
SIGNS += r"|^[-+]?\d+[.,]\d+\(\d+\)$"
# Quantities with a unit, times and durations.
SIGNS += r"|^[-+<>~]?\s*(\d+[.,]\d+\s*|\d+\s+)[^\s\d]{1,6}$|^\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?$"
SIGNS += r"|^[<>~]\s*\d+([.,]\d+)?$|^0[xX][0-9a-fA-F]{1,8}$|^[-+]?(\d+\.?\d*|\.\d+)[dD][-+]?\d+$"
SIGNS += r"|^[-+]?\d+/\d+$|^\([-+.\de]+j\)$|^\([.,\d]+\)$"  # fractions, complex, below zero
SIGNS += r"|^[-+]?\p{Nd}+([.,\x{ff0e}\x{66b}]\p{Nd}+)?$"  # digits of other scripts
OBJECT = r"""(?s)^\{\s*["'].*\}$"""  # of JSON or Python
IGNORE = "Correct the file, or leave the column out: --ignore {0} (ignore=[{0}])."
CODE_OF_LETTERS = r"^[A-Z]{2,3}0\d"  # such as EUR001, which is no amount
LEAST_CODE = 100  # postal codes and others have more digits than counts
CODE = r"^(0\d{3,}|0\d+[eE]\d+|\+\d{8,})$"  # of phones, too; but hours and months may be 07
DOTS = r"^[+-]?[1-9]\d{0,2}\.\d{3}$"
LARGEST = 2**53  # beyond it, floats are no longer exact integers
LARGEST_KEY = 2**64
TIMES = ((1e9, 2e9), (1e12, 2e12), (1.2e15, 1.9e15))  # 2001 to 2033 in s, ms, 2008 to 2030 in µs
DIGITS = r"^[-+]?\d+$"
LIMIT = float(np.finfo(np.float32).max)
UNLIKELY = 1e-4  # probability for independent rows
BRACKETS = re.compile(  # around numbers, also missing or shortened ones, but not around words
    r"(?=\D*\d)\s*\[(?:[-+\d.e\s,;|'\"\[\]()]|nan|inf|null|none)*\]\s*", re.IGNORECASE
)
PRINTED = re.compile(r"(?:\w+\.)?(?:array|tensor)\((.*?)(?:,\s*\w+=.*)?\)", re.DOTALL)
SCALAR = re.compile(r"(?:np|numpy)\.\w+\(([^()]*)\)")  # of NumPy 2 in a list
FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
FRACTION = re.compile(r"[.e]", re.IGNORECASE)
# How images begin: PNG, JPEG, GIF, TIFF, WebP, BMP.
IMAGES = re.compile(
    rb"\x89PNG\r\n|\xff\xd8\xff|GIF8|II\*\0|MM\0\*|RIFF.{4}WEBP|BM.{4}\0{4}", re.DOTALL
)
AUDIO = re.compile(rb"RIFF.{4}WAVE|fLaC|OggS|ID3|\xff[\xf2\xf3\xfb]", re.DOTALL)
LONG = 8  # numbers side by side that are a vector, whatever the other columns hold
PIXELS = 2 * LONG  # numbers side by side that need not be fractions


class Numbers(NamedTuple):
    """A column as numbers, and its cells that are none."""

    values: Floats  # (n,), NaN where there is no number
    missing: Mask
    wrong: Mask  # neither a number nor missing


class Cells:
    """The columns of a table by their content.

    The kinds are "number", "text", "vector", "image", "date", "empty" and "other". Text is "number"
    if at least half of its cells that are not missing are numbers, with decimal points or, in the
    whole table, decimal commas.

    Parameters
    ----------
    table : Table
    apart : collection of str
        Columns that do not decide about decimal commas.
    model : str, optional
        Name of a fitted model; the columns are its features, and none can be left out.
    """

    def __init__(self, table: Table, apart: Collection[str] = (), model: str | None = None) -> None:
        self.table, self.decimal_commas = table, False
        self.doubted_commas: tuple[str, ...] = ()  # columns of commas that may be before thousands
        self.way_out = (
            IGNORE if model is None else f"{{}} is a feature of {model}; correct the file."
        )
        self._columns = {name: _plain(table.columns[name]) for name in table.columns.column_names}
        self._numbers: dict[str, Numbers] = {}
        names = [n for n, column in self._columns.items() if n not in apart and is_text(column)]
        self._read_decimal_commas(names)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self._columns[name]

    def _read_decimal_commas(self, names: list[str]) -> None:
        """Take commas for decimal points in all columns if one of numbers has them."""
        deciding = [n for n in names if folded(n) not in LABEL_NAMES and self._has_commas(n)]
        sure = [name for name in deciding if not self._may_be_thousands(name).any()]
        if not deciding:
            return
        found = (sure or deciding)[0]
        if not sure and self.table.separator != ";":  # of tables with decimal commas
            row = int(self._may_be_thousands(found).argmax())
            self.refuse(found, row, "has a comma before thousands or decimals")
        self.doubted_commas = () if sure else tuple(deciding)
        commas = {name: _numbers_of_text(self._columns[name], comma=True) for name in names}
        for name in names:
            lost = commas[name].wrong & ~self.numbers(name).wrong
            if lost.any() and folded(name) not in LABEL_NAMES and self.kind(name) == "number":
                if not sure:
                    row = int(self._may_be_thousands(found).argmax())
                    self.refuse(found, row, "has a comma before thousands or decimals")
                self.refuse(
                    name,
                    int(lost.argmax()),
                    f"has a decimal point, while column {found!r} has decimal commas",
                )
        self._numbers |= commas
        self.decimal_commas = True

    def _has_commas(self, name: str) -> bool:
        """Whether commas make numbers of cells that are none otherwise."""
        import pyarrow.compute as pc

        column = self._columns[name]
        if not pc.any(pc.match_substring(column, ",")).as_py():
            return False
        new, old = _numbers_of_text(column, comma=True), self.numbers(name)
        better = old.wrong & ~new.wrong
        return bool(better.any() and 2 * new.wrong.sum() <= (~new.missing).sum())

    def _may_be_thousands(self, name: str) -> Mask:
        """Return the cells with commas before three digits, unless others have decimal commas."""
        with_commas = _match(self._columns[name], COMMA) & _match(self._columns[name], ",")
        thousands = with_commas & _match(self._columns[name], THOUSANDS)
        return thousands & (thousands == with_commas).all()

    def refuse(self, name: str, row: int, problem: str, way_out: str | None = None) -> NoReturn:
        """Raise ValueError for a cell."""
        cell = self._columns[name][row].as_py()
        shown = "an empty cell" if cell is None or cell == "" else repr(str(cell)[:40])
        raise ValueError(
            f"{self.table.path}, {self.table.place(row)}, column {name!r}: {shown} {problem}. "
            + (way_out or self.way_out.format(repr(name)))
            + "".join(f" Note: {doubt}." for doubt in self.table.doubts)
        )

    def kind(self, name: str) -> str:
        """Return the kind of a column."""
        import pyarrow as pa

        column, types = self._columns[name], pa.types
        kind = column.type
        if types.is_null(kind) or column.null_count == len(column):
            return "empty"
        if is_text(column):
            return self._kind_of_text(name)
        if any(test(kind) for test in (types.is_boolean, types.is_integer, types.is_floating)):
            return "empty" if self.numbers(name).missing.all() else "number"
        if types.is_decimal(kind):
            return "number"
        if types.is_temporal(kind):
            return "date"
        if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            first = next(cell.as_py()["bytes"] for cell in column if cell.is_valid)
            return "other" if isinstance(first, bytes) and AUDIO.match(first) else "image"
        if types.is_binary(kind) or types.is_large_binary(kind):
            first = next(cell for cell in column if cell.is_valid)
            return "image" if IMAGES.match(first.as_py()) else "other"
        while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            kind = kind.value_type
        if types.is_null(kind):
            return "empty"
        in_lists = kind != column.type
        is_vector = in_lists and (types.is_integer(kind) or types.is_floating(kind))
        return "vector" if is_vector else "other"

    def _kind_of_text(self, name: str) -> str:
        numbers = self.numbers(name)
        known = np.flatnonzero(~numbers.missing)
        if not len(known):
            return "empty"
        if 2 * numbers.wrong.sum() <= len(known):
            return "number"
        if self.may_be_vectors(name, LONG):
            return "vector"
        return "other" if _match(self._columns[name], OBJECT)[known].all() else "text"

    def holds_places(self, name: str) -> bool:
        """Whether a column holds lists that are rather places or tokens than vectors.

        These are shorter than `LONG`, or differ in length.
        """
        import pyarrow.compute as pc

        column = self._columns[name]
        if is_text(column):
            lengths = {len(re.findall(r"[-+.\w]+", cell)) for cell in self._first_cells(name)}
        else:
            while hasattr(column.type.value_type, "value_type"):
                column = pc.list_flatten(column)
            lengths = {*pc.min_max(pc.list_value_length(column)).as_py().values()} - {None}
        return len(lengths) > 1 or max(lengths, default=0) < LONG

    def may_be_vectors(self, name: str, least: int = 2) -> bool:
        """Whether a column of text holds vectors, of at least so many numbers without brackets."""
        return are_vectors(self._first_cells(name), least)

    def _first_cells(self, name: str) -> list[str]:
        """Return the first cells of a column of text that are not missing."""
        known = np.flatnonzero(~self.numbers(name).missing)
        cells: list[str] = self._columns[name].take(known[:5]).to_pylist()
        return cells

    def numbers(self, name: str) -> Numbers:
        """Return the numbers of a column of numbers or text."""
        if name not in self._numbers:
            column = self._columns[name]
            if is_text(column):
                found = _numbers_of_text(column, comma=self.decimal_commas)
            else:
                values = _floats(column)
                found = Numbers(values, np.isnan(values), np.zeros(len(values), bool))
            self._numbers[name] = found
        return self._numbers[name]

    def example(self, name: str) -> str | None:
        """Return the first text that is no number, shortened; None for columns without any."""
        if not is_text(self._columns[name]) or not (wrong := self.numbers(name).wrong).any():
            return None
        first = self._columns[name][int(wrong.argmax())].as_py().strip()
        return repr(first if len(first) < 25 else f"{first[:20]}...")

    def has_signs(self, name: str) -> bool:
        """Whether most cells of a column of text are numbers with signs, such as 5%, $5, 5 000."""
        if not is_text(self._columns[name]):
            return False
        known = ~self.numbers(name).missing
        if _match(self._columns[name], CODE_OF_LETTERS).any():
            return False
        with_signs = _match(self._columns[name], SIGNS) & _match(self._columns[name], r"\p{Nd}")
        return bool(2 * (with_signs & known).sum() > known.sum())

    def texts(self, name: str) -> list[str | None]:
        """Return the cells of a column as texts, without the spaces around them."""
        cells = self._columns[name].to_pylist()
        return [None if cell is None else str(cell).strip() for cell in cells]

    def first(self, name: str) -> str:
        """Return the first cell of a column that is not empty, as text; "" if there is none."""
        cells = (cell.as_py() for cell in self._columns[name])
        texts = (str(cell).strip() for cell in cells if cell is not None)
        return next(filter(None, texts), "")

    def feature(self, name: str) -> Floats:
        """Return a column of numbers; a cell without one raises ValueError."""
        values, missing, wrong = self.numbers(name)
        if wrong.any():
            self.refuse(name, int(wrong.argmax()), "must be a number")
        if missing.any():
            n_missing = int(missing.sum())
            more = f" ({n_missing} cells of the column are missing)" if n_missing > 1 else ""
            self.refuse(name, int(missing.argmax()), f"must be a number, not missing{more}")
        if not np.isfinite(values).all():
            self.refuse(name, int(np.isinf(values).argmax()), "must be finite")
        self._check_limit(name, values)
        return values

    def _check_limit(self, name: str, values: Floats) -> None:
        """Refuse numbers that float32 cannot hold; ``values`` are (n, ...)."""
        if np.abs(values).max(initial=0) > LIMIT:
            beyond = np.abs(values.reshape(len(values), -1)).max(axis=1) > LIMIT
            self.refuse(
                name,
                int(beyond.argmax()),
                "must be within ±3.4e38, the range of float32",
            )

    def vectors(self, name: str) -> Array:
        """Return a column of vectors, or of arrays of one shape, (n, ...)."""
        whole = _equally_long(self._columns[name])
        if whole is not None:
            self._check_limit(name, whole)
            return whole
        cells = self._columns[name].to_pylist()
        if is_text(self._columns[name]):
            cells = [self._parsed(name, row, cell) for row, cell in enumerate(cells)]
        shape: tuple[int, ...] | None = None
        rows = []
        for row, cell in enumerate(cells):
            try:
                vector = np.array(cell, dtype=np.float64)
            except (TypeError, ValueError, OverflowError):
                vector = np.empty(0)
            if not vector.size or not vector.ndim or not np.isfinite(vector).all():
                self.refuse(name, row, "must be a vector of numbers")
            shape = vector.shape if shape is None else shape
            if vector.shape != shape:
                self.refuse(
                    name, row, f"must have the shape {shape} of the first row; got {vector.shape}"
                )
            rows.append(vector)
        found: Array = np.stack(rows)
        self._check_limit(name, found)
        n_long = sum(length > 1 for length in found.shape[1:])
        return found.reshape(len(found), -1) if n_long < 2 else found

    def _parsed(self, name: str, row: int, cell: str | None) -> Any:
        """Return the vector that a cell of text holds."""
        if cell is not None and "..." in cell:
            self.refuse(name, row, "was shortened by NumPy; write array.tolist()")
        try:
            return parsed_vector(cell or "")
        except ValueError:
            self.refuse(name, row, "must be a vector such as [0.1, 0.2]")

    def key_reason(self, name: str) -> str | None:
        """Tell why a column of numbers seems to number or identify the rows; None if it does not.

        Integers that are all distinct do, if independent rows would hardly give such values: if
        they are sorted, or in a range so narrow that some would occur twice. So do long integers,
        such as ids of 64 bits, but not quantities such as 6.02e23. Digits with leading zeros, such
        as postal codes, are no numbers either, nor are times since 1970.
        """
        if is_text(self._columns[name]) and _match(self._columns[name], CODE).any():
            return "digits with leading zeros or a plus, like codes"
        values = self.numbers(name).values
        n = len(values)
        if n > 1 and any(((low < values) & (values < high)).all() for low, high in TIMES):
            return "numbers of ten or more digits that count from 1970, like times"
        if not (np.isfinite(values).all() and (values == np.rint(values)).all()):
            return None
        if CODES.fullmatch(folded(name)) and np.median(np.abs(values)) >= LEAST_CODE:
            return "codes by its name, such as postal codes"
        if n > 1 and _are_dates(values):
            return "numbers that are dates, such as 20240131"
        if 2 * (np.abs(values) >= LARGEST).sum() > n and self._are_keys(name):
            return "integers of 16 or more digits, like ids"
        if _are_sorted(np.split(values, self.table.starts)):
            each = " in each table" * bool(self.table.starts)
            return f"integers that are distinct and sorted{each}, like row numbers"
        if len(np.unique(values)) < n:
            return None
        span = values.max() - values.min() + 1
        distinct = np.log1p(-np.arange(n) / span).sum()  # log of the probability that none repeats
        return (
            "distinct integers in a narrow range, like ids" if distinct < np.log(UNLIKELY) else None
        )

    def counts_in_tables(self, name: str) -> bool:
        """Whether a column numbers the rows of each of several tables."""
        is_number = bool(self.table.starts) and self.kind(name) == "number"
        return is_number and self.key_reason(name) is not None

    def _are_keys(self, name: str) -> bool:
        """Whether integers are of 64 bits, or most are written in digits."""
        if np.abs(self.numbers(name).values).max() <= LARGEST_KEY:
            return True
        return is_text(self._columns[name]) and bool(
            _match(self._columns[name], DIGITS).mean() > 0.5
        )

    def doubt(self, name: str) -> str | None:
        """Tell what numbers of a feature may mean otherwise; None for plain ones."""
        values, column = self.numbers(name).values, self._columns[name]
        if (row := self._first_of_thousands(column)) is not None:
            cell = column[row].as_py()
            return f"{cell!r} is read as {values[row]:g}; if dots separate thousands, remove them"
        if name in self.doubted_commas:
            row = int(self._may_be_thousands(name).argmax())
            cell = column[row].as_py()
            return f"{cell!r} is read as {values[row]:g}; if commas separate thousands, remove them"
        mark = absent_marks(values[:, None]).get(0)
        is_code = values.min() == -1 and values.max() > 1 and (values == np.rint(values)).all()
        if is_code and values[values != -1].min() >= 0:
            mark = -1
        if mark is not None:
            return f"{mark:g} is a number; if it means a missing value, replace it"
        return None

    def _first_of_thousands(self, column: pa.ChunkedArray) -> int | None:
        """Return the first cell with a dot that may be before thousands; None if others are not.

        Without semicolons, which tell a European file, some cells must be below a thousand.
        """
        if self.decimal_commas or not is_text(column):
            return None
        dotted, below = _match(column, DOTS), _match(column, r"^[+-]?\d{1,3}$")
        if not (dotted | below).all() or not dotted.any():
            return None
        is_likely = self.table.separator == ";" or (below.any() and dotted.sum() >= LONG)
        return int(dotted.argmax()) if is_likely else None

    def is_ordered(self, name: str) -> bool:
        """Whether a column of numbers is sorted, which independent rows would hardly be.

        Times are, and numbers of groups, such as the outer level of an index. So are numbers that
        count up in each group, such as the inner level.
        """
        values = self.numbers(name).values
        steps = np.diff(values)
        if _counts_again(steps):
            return True
        if not steps.any() or not ((steps >= 0).all() or (steps <= 0).all()):
            return False
        _, counts = np.unique(values, return_counts=True)
        # Orders that are sorted, in one of two directions, among all orders of these values.
        log_share = np.log(2) + gammaln(counts + 1).sum() - gammaln(len(values) + 1)
        return bool(log_share < np.log(UNLIKELY))

    def is_constant(self, name: str) -> bool:
        """Whether a column of numbers has a single value."""
        values = self.numbers(name).values
        return len(values) > 1 and bool((values == values[0]).all())


def _are_sorted(parts: Sequence[Floats]) -> bool:
    """Whether numbers rise in each part, or fall in each, as independent ones hardly do."""
    steps = np.concatenate([np.diff(part) for part in parts])
    log_share = np.log(2) - sum(gammaln(len(part) + 1) for part in parts)
    return bool(log_share < np.log(UNLIKELY) and ((steps > 0).all() or (steps < 0).all()))


def _counts_again(steps: Floats) -> bool:
    """Whether numbers with these steps rise by one, but for equal falls after `LONG` or more."""
    falls = np.flatnonzero(steps != 1)
    return bool(
        len(falls)
        and len(np.unique(steps[falls])) == 1
        and np.diff([-1, *falls, len(steps)]).min() >= LONG
    )


def _are_dates(values: Floats) -> bool:
    """Whether all numbers are of the form 20240131, of 1900 to 2099."""
    years, months, days = values // 10_000, values // 100 % 100, values % 100
    ranges = ((years, 1900, 2099), (months, 1, 12), (days, 1, 31))
    return all(bool(((low <= part) & (part <= high)).all()) for part, low, high in ranges)


def is_text(column: pa.ChunkedArray) -> bool:
    """Whether a column holds strings."""
    import pyarrow as pa

    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of categories, of extension types and of views of strings."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks])
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        if pa.types.is_string_view(kind):  # whose codes Arrow does not cast
            texts = (
                chunk.dictionary.cast(pa.large_string()).take(chunk.indices)
                for chunk in column.chunks
            )
            return pa.chunked_array(texts, pa.large_string())
    kind = pa.large_string() if pa.types.is_string_view(kind) else kind
    # Arrow damages structs with null children if it casts them, even to their own type.
    return column if kind == column.type else column.cast(kind)


def _floats(column: pa.ChunkedArray) -> Floats:
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False).to_numpy()


def _equally_long(column: pa.ChunkedArray) -> Array | None:
    """Return finite vectors of one length without a loop over rows; None for others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if is_text(column) or not (
        pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)
    ):
        return None
    lengths, flat = pc.list_value_length(column), pc.list_flatten(column)
    if lengths.null_count or flat.null_count or pc.count_distinct(lengths).as_py() != 1:
        return None
    values = _floats(flat)
    return values.reshape(len(column), -1) if len(values) and np.isfinite(values).all() else None


def _numbers_of_text(column: pa.ChunkedArray, *, comma: bool) -> Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:  # most columns of numbers hold nothing else
        values = column.cast(pa.float64()).to_numpy() if not comma else None
    except pa.ArrowInvalid:
        values = None
    if values is not None:
        return Numbers(values, np.isnan(values), np.zeros(len(values), bool))
    cells = pc.utf8_lower(pc.utf8_trim_whitespace(pc.fill_null(column, "")))
    missing = _mask(pc.is_in(cells, pa.array(MISSING, cells.type)))
    true, false = (
        _mask(pc.is_in(cells, pa.array(words, cells.type)))
        for words in (list(TRUTH), list(TRUTH.values()))
    )
    if (true | false).any() and (true | false | missing).all():
        return Numbers(np.where(missing, np.nan, true), missing, np.zeros(len(true), bool))
    right = _mask(pc.match_substring_regex(cells, COMMA if comma else POINT)) & ~missing
    if comma:
        right &= _mask(pc.match_substring_regex(cells, r"\d"))
        cells = pc.replace_substring(pc.replace_substring(cells, ".", ""), ",", ".")
    plain = pc.if_else(pa.array(right), cells, pa.scalar("nan", cells.type))
    values = plain.cast(pa.float64()).to_numpy()
    return Numbers(values, missing, ~right & ~missing)


def _match(column: pa.ChunkedArray, pattern: str) -> Mask:
    import pyarrow.compute as pc

    return _mask(
        pc.match_substring_regex(pc.utf8_trim_whitespace(pc.fill_null(column, "")), pattern)
    )


def _mask(found: pa.ChunkedArray) -> Mask:
    return found.to_numpy()


def are_vectors(cells: Sequence[str], least: int = LONG) -> bool:
    """Whether all texts are vectors: bracketed, or of the same length, which is at least ``least``.

    Examples
    --------
    >>> are_vectors(["[1, 2]", "array([3., 4.], dtype=float32)"]), are_vectors(["1,234.5"], 2)
    (True, False)
    >>> are_vectors(["0.1 0.2"], 2), are_vectors([" ".join("0" * 784)])
    (True, True)
    """
    if all(BRACKETS.fullmatch(_unwrapped(cell)) for cell in cells):
        return True
    rows = [_side_by_side(_unwrapped(cell)) for cell in cells]
    length = len(rows[0])
    return length >= least and all(
        len(row) == length
        and (length >= PIXELS or 2 * sum(bool(FRACTION.search(n)) for n in row) > length)
        for row in rows
    )


def parsed_vector(cell: str) -> Any:
    """Return the numbers of a text, in lists if it nests them.

    Raises
    ------
    ValueError
        If it is no vector.

    Examples
    --------
    >>> parsed_vector("[1. 2.5]"), parsed_vector("(0.1; 2)"), parsed_vector("tensor([[1, 2]])")
    ([1.0, 2.5], [0.1, 2.0], [[1, 2]])
    """
    text = _unwrapped(cell)
    if numbers := _side_by_side(text):
        return list(map(float, numbers))
    try:
        return parse_json(text)
    except ValueError:
        spaced = re.sub(r"(?<=[\d.\]])\s+(?=[-+\d.\[])", ",", text)
    return parse_json(re.sub(r"(?<=\d)\.(?!\d)", ".0", re.sub(r"\[\s+", "[", spaced)))


def _unwrapped(cell: str) -> str:
    """Return what is in ``array(...)``, and numbers without their type."""
    text = SCALAR.sub(r"\1", cell.strip())
    printed = PRINTED.fullmatch(text)
    return printed[1] if printed else text


def _side_by_side(text: str) -> list[str]:
    """Return numbers between blanks, commas, semicolons or bars; none if there is other text."""
    if text[:1] + text[-1:] in ("()", "{}"):
        text = text[1:-1]
    separator = next((s for s in ",;|" if s in text), None)
    found = [number.strip() for number in text.strip(f" {separator or ''}").split(separator)]
    return found if len(found) > 1 and all(map(FLOAT.fullmatch, found)) else []
