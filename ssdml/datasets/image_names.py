"""Find the images of a folder by their names in a table."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from ssdml.datasets.pixels import image_suffixes, is_hidden

MOST_FOLDERS = 100  # searched for an image
USUAL = (".jpg", ".jpeg", ".png")
ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")  # or an address


def is_image_name(name: str) -> bool:
    """Whether a name that is not hidden ends as those of images do."""
    path = PurePosixPath(name)
    return path.suffix.lower() in image_suffixes() and not is_hidden(name)


def find_images(folder: Path, names: Sequence[str], *, once: bool = True) -> list[str] | None:
    """Find images by names that may lack the folders they are in, or the suffix.

    Parameters
    ----------
    folder : Path
    names : sequence of str
        Relative, as :func:`as_relative` returns them; files are searched in ``folder``, in its
        folders and in theirs.
    once : bool
        Whether one of the same name in several of these folders raises ValueError.

    Returns
    -------
    found : list of str or None
        Paths in ``folder``; a name stays as it is if there is no such image. None if there is none
        of the first name that is not empty.
    """
    usual = sorted(image_suffixes(), key=lambda suffix: (suffix not in USUAL, suffix))
    places = [f"{place}/" for place in _folders_in(folder)]

    @cache
    def spelled() -> dict[str, str]:
        return _by_spelling(folder, ["", *places])

    def search(name: str, forms: Sequence[tuple[str, str]]) -> tuple[str, str, str] | None:
        hits = (f for f in forms if os.path.isfile(folder / f"{f[0]}{name}{f[1]}"))
        if first := next(hits, None):
            if once and forms is every and first[0]:
                _refuse_twice(folder, name, [first[0], *(p for p, end in hits if end == first[1])])
            return first[0], name, first[1]
        for place, end in forms:  # as Windows and macOS find them
            if other := spelled().get(_spelling(f"{place}{name}{end}")):
                return "", other, ""
        return None

    ends = [""] if PurePosixPath(next(filter(None, names), "")).suffix.lower() in usual else usual
    every = [(place, end) for end in ends for place in ("", *places)]
    found: list[str] = []
    last: tuple[str, str] | None = None
    for name in names:
        this = ((last and search(name, [last])) or search(name, every)) if name else None
        if this is None and name and last is None:
            return None
        last = (this[0], this[2]) if this else last
        found.append("".join(this or name))
    return found if last is not None else None


def _refuse_twice(folder: Path, name: str, places: Sequence[str]) -> None:
    if len(places) > 1:
        raise ValueError(
            f"{folder}: which image is {name!r}? There is one in {' and in '.join(places[:2])}. "
            f"Write the folder before each name in the table, such as {places[-1]}{name}."
        )


def _spelling(name: str) -> str:
    """Return a name for comparisons: lower case, letters with their accents as one character."""
    return unicodedata.normalize("NFC", name).lower()


def _by_spelling(folder: Path, places: Sequence[str]) -> dict[str, str]:
    """Return the files in some folders by their names for comparisons, which must differ there."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for place in places:
        for name in os.listdir(folder / place):
            path = f"{place}{name}"
            twice |= {_spelling(path)} & found.keys()
            found[_spelling(path)] = path
    return {spelling: path for spelling, path in found.items() if spelling not in twice}


def names_image(folder: Path, name: str) -> bool:
    """Whether a cell of a table names an image of the folder, as :func:`find_images` finds it."""
    return find_images(folder, [as_relative(folder, name)], once=False) is not None


def as_relative(folder: Path, name: str) -> str:
    r"""Return the name of a file below a folder, with slashes.

    The name may be absolute, also of another machine, an address, begin with that of the folder,
    have the backslashes of Windows, or blanks around it.

    Examples
    --------
    >>> [as_relative(Path("/data/cats"), n) for n in ("/data/cats/1.png", "cats/1.png", r"old\1")]
    ['1.png', '1.png', 'old/1']
    """
    name = name if os.path.lexists(folder / name) else name.strip()
    name = name.partition("/local-files/?d=")[2] or name  # as Label Studio serves them
    if "\\" in name and not os.path.lexists(folder / name):
        name = name.replace("\\", "/")
    root = os.path.abspath(folder).replace(os.sep, "/").rstrip("/")
    name = name.removeprefix(f"{root}/")
    if ABSOLUTE.match(name):
        forms = dict.fromkeys((name, unquote(name.partition("?")[0])))  # the latter of an address
        ends = (form.split("/", i)[-1] for form in forms for i in range(1, form.count("/") + 1))
        return next((end for end in ends if end and os.path.isfile(folder / end)), name)
    own = f"{PurePosixPath(root).name}/"
    return name.removeprefix(own) if not os.path.lexists(folder / own) else name


def _folders_in(folder: Path) -> list[str]:
    """Return the folders in a folder and those in them, at most 100."""
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        if len(found) < MOST_FOLDERS and not is_hidden(path.name) and path.is_dir():
            inner = sorted(p.name for p in path.iterdir() if p.is_dir() and not is_hidden(p.name))
            found += [path.name, *(f"{path.name}/{name}" for name in inner)]
    return found[:MOST_FOLDERS]
