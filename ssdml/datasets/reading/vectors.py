"""Vectors written as text: lists, arrays as NumPy and torch print them, numbers side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ssdml.utils.files import parse_json

BRACKETS = re.compile(r"\s*\[.*\]\s*", re.DOTALL)
PRINTED = re.compile(r"(?:\w+\.)?(?:array|tensor)\((.*?)(?:,\s*\w+=.*)?\)", re.DOTALL)
SCALAR = re.compile(r"(?:np|numpy)\.\w+\(([^()]*)\)")  # of NumPy 2 in a list
FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
FRACTION = re.compile(r"[.e]", re.IGNORECASE)
LONG = 8  # numbers side by side that are a vector, whatever the other columns hold
PIXELS = 2 * LONG  # numbers side by side that need not be fractions


def are_vectors(cells: Sequence[str], least: int = LONG) -> bool:
    """Whether texts are vectors: in brackets, or equally many numbers, ``least`` or more.

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
