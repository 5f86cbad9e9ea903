"""Label-scarce splits: which rows are learned from, which are labelled, which are scored."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ssdml.graphs._checks import UNLABELED

if TYPE_CHECKING:
    from ssdml.datasets import Dataset

Ints = npt.NDArray[np.int64]

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class LabelScarceSplit:
    """Rows to learn from, the labelled ones among them, and rows to score on.

    Attributes
    ----------
    train, test, labeled : ndarray of int64
        Sorted indices of rows of the data set; ``labeled`` is a part of ``train``.
    seed, labels_per_class : int
    """

    train: Ints
    test: Ints
    labeled: Ints
    seed: int
    labels_per_class: int

    @property
    def digest(self) -> str:
        """SHA-256 of the seed, the number of labels and the three index sets."""
        content = {"schema": SCHEMA, **self._content()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def partial_labels(self, y: npt.ArrayLike) -> Ints:
        """Labels of the training rows, -1 for every row that is not labelled.

        Parameters
        ----------
        y : array-like of shape (n,)
            Integer codes of the whole data set.

        Returns
        -------
        y_train : ndarray of shape (len(train),)
        """
        codes = np.asarray(y)
        largest = max(int(rows.max(initial=-1)) for rows in (self.train, self.test))
        if codes.ndim != 1 or len(codes) <= largest:
            raise ValueError(
                "partial_labels: y must hold a label for every row of the data set, more than "
                f"{largest}; got shape {codes.shape}. Is this the split of another data set?"
            )
        return np.where(np.isin(self.train, self.labeled), codes[self.train], UNLABELED)

    def save(self, path: str | Path) -> None:
        """Write the split to a JSON file, with its digest."""
        content = {"schema": SCHEMA, "sha256": self.digest, **self._content()}
        path = Path(path)
        unfinished = path.with_name(path.name + ".part")
        try:
            unfinished.write_text(json.dumps(content) + "\n", encoding="utf-8")
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | Path) -> LabelScarceSplit:
        """Read a split that `save` wrote; a file that was changed since is refused."""
        path = Path(path)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            schema, digest = content.pop("schema"), content.pop("sha256")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a label-scarce split ({error!r}).") from error
        if schema != SCHEMA:
            raise ValueError(f"{path}: schema must be {SCHEMA}; got {schema!r}.")
        split = cls._from_content(content, path)
        if split.digest != digest:
            raise ValueError(
                f"{path}: the content does not match its sha256 {digest}; the file was changed "
                "after it was saved. Make the split anew from its seed."
            )
        return split

    @classmethod
    def _from_content(cls, content: dict[str, Any], path: Path) -> LabelScarceSplit:
        try:
            rows = {name: np.asarray(content[name], np.int64) for name in _INDEX_SETS}
            return cls(**{**content, **rows})
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path}: not a label-scarce split ({error!r}).") from error

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        return {**content, **{name: content[name].tolist() for name in _INDEX_SETS}}


_INDEX_SETS = ("train", "test", "labeled")


def label_scarce_split(dataset: Dataset, labels_per_class: int, *, seed: int) -> LabelScarceSplit:
    """A few labelled rows a class, the other training rows unlabelled, and rows to score on.

    Parameters
    ----------
    dataset : Dataset
        Its standard test rows are kept; where it has none, a third of every class is held out.
    labels_per_class : int
    seed : int
        Draws the labelled rows and, where needed, the held-out third.

    Returns
    -------
    split : LabelScarceSplit

    Warns
    -----
    UserWarning
        Where a class has fewer training rows than `labels_per_class`: all of them are labelled.

    Notes
    -----
    Nested: with the same seed the rows labelled at 1 a class are among those at 5, and the
    held-out rows do not depend on `labels_per_class`. Rows without a label in the data set itself
    are never scored, and are training rows unless they stand among the standard test rows. Where
    the classes of the standard test rows are others than those of the training rows, only the
    latter have labels.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> split = label_scarce_split(load_dataset("digits"), 5, seed=0)
    >>> len(split.train), len(split.test), len(split.labeled)
    (1198, 599, 50)
    """
    if labels_per_class < 1:
        raise ValueError(
            f"label_scarce_split: labels_per_class must be >= 1; got {labels_per_class}."
        )
    order = np.random.default_rng(seed).permutation(len(dataset.y))
    by_class = _by_class(order, dataset.y, len(dataset.class_names))
    held_out = _held_out(by_class, len(order)) if dataset.test is None else dataset.test
    if held_out.all():
        raise ValueError(f"label_scarce_split: {dataset.name!r} must have training rows; got none.")
    candidates = [rows[~held_out[rows]] for rows in by_class]
    _warn_of_small_classes(_expected(dataset, by_class, candidates), labels_per_class)
    labeled = np.concatenate([rows[:labels_per_class] for rows in candidates])
    return LabelScarceSplit(
        train=np.flatnonzero(~held_out),
        test=np.flatnonzero(held_out & (dataset.y != UNLABELED)),
        labeled=np.sort(labeled),
        seed=int(seed),
        labels_per_class=int(labels_per_class),
    )


def _by_class(order: Ints, y: Ints, n_classes: int) -> list[Ints]:
    """Rows of each class, in the order given."""
    grouped = order[np.argsort(y[order], kind="stable")]
    return np.split(grouped, np.searchsorted(y[grouped], np.arange(n_classes + 1)))[1:-1]


def _held_out(by_class: list[Ints], n_rows: int) -> npt.NDArray[np.bool_]:
    """The last third of every class, at least one row of each staying."""
    test = np.zeros(n_rows, dtype=bool)
    for rows in by_class:
        test[rows[len(rows) - round(len(rows) / 3) :]] = True
    return test


def _expected(
    dataset: Dataset, by_class: list[Ints], candidates: list[Ints]
) -> list[tuple[str, int]]:
    """Classes that should have labels, and how many training rows each has.

    All of them, unless no class is both learned and scored: then those that are learned.
    """
    sizes = list(zip(dataset.class_names, map(len, candidates), strict=True))
    both = (0 < len(few) < len(rows) for few, rows in zip(candidates, by_class, strict=True))
    return sizes if any(both) else [(name, size) for name, size in sizes if size]


def _warn_of_small_classes(sizes: list[tuple[str, int]], wanted: int) -> None:
    small = [f"{name!r} ({size})" for name, size in sizes if size < wanted]
    if small:
        shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        warnings.warn(
            f"label_scarce_split: every class should have labels_per_class={wanted} training rows; "
            f"got fewer in {shown}. All of theirs are labelled.",
            stacklevel=3,
        )
