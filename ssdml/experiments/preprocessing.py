"""What every method of a comparison gets for features, the "input" too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.loading import LAYOUTS
from ssdml.utils.linalg import covariance, product, top_eigenvectors, unit_rows
from ssdml.utils.validation import choose

N_COMPONENTS = 64


def prepared(dataset: Dataset, features: str = "auto") -> Dataset:
    """Data set whose rows are as the comparison wants them.

    Parameters
    ----------
    dataset : Dataset
    features : {"auto", "unit", "raw", "components"}
        "raw": as they are. "unit": less the mean of all entries, one number, then divided by
        their length, as seed 003 has its rows before the metric. "components": the 64 principal
        components of these, or all if there are fewer. "auto": "unit" for the data sets that we
        know by name, "raw" for files of one's own. Images that stay in their files are left as
        they are.

    Returns
    -------
    dataset : Dataset

    Notes
    -----
    Mean and components leave out the test rows of a set that comes with some. Of a set that does
    not, they are those of all rows, those among them that a split holds out later: every split of
    every method starts from the same rows.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> digits = prepared(load_dataset("digits"))
    >>> bool(np.allclose(np.linalg.norm(digits.X, axis=1), 1))
    True
    """
    return FORMS[form_of(dataset, features)](dataset)


def form_of(dataset: Dataset, features: str = "auto") -> str:
    """What "auto" stands for with this data set; every other form is its own.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> form_of(load_dataset("digits"))
    'unit'
    """
    in_files = isinstance(dataset.X, ImageFiles)
    if in_files and features not in ("auto", "raw"):
        raise ValueError(
            f"features must be 'auto' or 'raw' for {dataset.name}, whose images stay in their "
            f"files; got {features!r}."
        )
    known = "unit" if dataset.name in LAYOUTS and not in_files else "raw"
    return choose({"auto": known} | {form: form for form in FORMS}, features, "features")


def _known(dataset: Dataset) -> npt.NDArray[np.float32]:
    return dataset.X if dataset.test is None else dataset.X[~dataset.test]


def _unit(dataset: Dataset) -> Dataset:
    centered = dataset.X - _known(dataset).mean(dtype=np.float64).astype(np.float32)
    return replace(dataset, X=unit_rows(centered))


def _components(dataset: Dataset) -> Dataset:
    unit = _unit(dataset)
    rows = _known(unit)
    axes = top_eigenvectors(covariance(rows), min(N_COMPONENTS, rows.shape[1]))
    return replace(unit, X=product(unit.X - rows.mean(axis=0), axes).astype(np.float32))


def _raw(dataset: Dataset) -> Dataset:
    return dataset


FORMS: dict[str, Callable[[Dataset], Dataset]] = {
    "unit": _unit,
    "raw": _raw,
    "components": _components,
}
