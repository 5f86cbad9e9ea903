"""Reader of the Street View House Numbers, in MATLAB files."""

from __future__ import annotations

from pathlib import Path

from ssdml.datasets.base import RawItems, stack_splits
from ssdml.datasets.reading.arrays import read_matlab


def read_svhn(folder: Path) -> RawItems:
    """Read the training and test images of 32 x 32 pixels; label 10 is the digit 0."""
    parts = [read_matlab(folder / f"{part}_32x32.mat") for part in ("train", "test")]
    raw = stack_splits(*parts)
    return raw._replace(labels=raw.labels.astype(int) % 10, summary=None)
