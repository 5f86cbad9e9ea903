"""Data sets on disk, read offline from the layouts their publishers ship or from a user's files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Items as rows of numbers, with their labels.

    Attributes
    ----------
    name : str
    X : ndarray of shape (n, d), float32, or ImageFiles of n images
        Images are flattened (rows, columns, channels) and their bytes divided by 255. Those that
        fit into no memory stay in their files, as bytes (3, size, size).
    y : ndarray of shape (n,), int64
        Codes into `class_names`; -1 where a file has no label.
    class_names : tuple of str
    test : ndarray of shape (n,), bool, or None
        The standard test rows; None where there is no standard split.
    item_shape : tuple of int or None
        Shape of an image before flattening.
    gallery : ndarray of shape (n,), bool, or None
        The test rows that are searched, where the others of them are queries; None where each test
        row is searched by all others.
    texts : ndarray of shape (n,), str, or None
        What the items say, where they are texts: for people to read.
    """

    name: str
    X: Any  # an array, or ImageFiles: both give rows by number, by mask and by slice
    y: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    test: npt.NDArray[np.bool_] | None = None
    item_shape: tuple[int, ...] | None = None
    gallery: npt.NDArray[np.bool_] | None = None
    texts: npt.NDArray[np.object_] | None = None

    def of_rows(self, rows: Any) -> Dataset:
        """The data set of some of its rows: a slice, numbers or a mask.

        Examples
        --------
        >>> load_dataset("digits").of_rows(slice(3)).y
        array([0, 1, 2])
        """
        names = ("test", "gallery", "texts")
        parts = {n: v[rows] for n in names if (v := getattr(self, n)) is not None}
        return replace(self, X=self.X[rows], y=self.y[rows], **parts)


class RawItems(NamedTuple):
    """Items and labels as a file holds them."""

    items: Any  # array (n, ...), or images that stay in their files
    labels: npt.NDArray[Any]  # (n,), of any kind
    test: npt.NDArray[np.bool_] | None  # (n,), the standard test rows
    gallery: npt.NDArray[np.bool_] | None = None  # (n,), those of them that are searched
    class_names: tuple[str, ...] | None = None  # where labels are numbers of them, from 0
    texts: npt.NDArray[np.object_] | None = None  # (n,), what the items say, where they are texts


def stack_splits(train: RawItems, test: RawItems) -> RawItems:
    """Training rows, then test rows, with the mask that tells them apart."""
    mask = np.arange(len(train.items) + len(test.items)) >= len(train.items)
    items = np.concatenate([train.items, test.items])
    texts = [part.texts for part in (train, test) if part.texts is not None]
    return RawItems(
        items,
        np.concatenate([train.labels, test.labels]),
        mask,
        texts=np.concatenate(texts) if len(texts) == 2 else None,
    )
