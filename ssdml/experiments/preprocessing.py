"""Preprocessing that every method of a comparison gets, the "input" too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from sklearn.preprocessing import StandardScaler

from ssdml.classification.forms import TABLE_COLUMNS, linear_forms
from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.known.layouts import LAYOUTS
from ssdml.utils.linalg import covariance, product, top_eigenvectors, unit_rows
from ssdml.utils.typing import Array
from ssdml.utils.validation import choose, warn

N_COMPONENTS = 64
DIFFERENT = 10  # largest standard deviation of a column, relative to their median


def preprocess(dataset: Dataset, features: str = "auto") -> Dataset:
    """Preprocess a data set for a comparison.

    Parameters
    ----------
    dataset : Dataset
    features : {"auto", "unit", "raw", "components", "standardized"}
        "unit": subtract the mean of all entries, one number, and scale each sample to unit
        length, as Dutta et al. (2021) do before the metric. "components": the first 64 principal
        components of these. "standardized": columns of mean 0 and variance 1. "raw": no change.
        "auto": "unit" for named data sets, "raw" for other files and for images in files.

    Returns
    -------
    dataset : Dataset

    Notes
    -----
    Mean and components are computed without the test samples if the data set comes with some.
    Otherwise they include samples that a split holds out later: all splits start from the same
    features.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> digits = preprocess(load_dataset("digits"))
    >>> bool(np.allclose(np.linalg.norm(digits.X, axis=1), 1))
    True
    """
    return FORMS[resolve_features(dataset, features)](dataset)


def resolve_features(dataset: Dataset, features: str = "auto") -> str:
    """Resolve "auto" for a data set.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> resolve_features(load_dataset("digits"))
    'unit'
    """
    in_files = isinstance(dataset.X, ImageFiles)
    if in_files and features not in ("auto", "raw"):
        raise ValueError(
            f"compare: features must be 'auto' or 'raw' for {dataset.name}, whose images stay in "
            f"files; got {features!r}. Omit it."
        )
    default = "unit" if dataset.name in LAYOUTS and not in_files else "raw"
    return choose({"auto": default} | {form: form for form in FORMS}, features, "compare: features")


def _training(dataset: Dataset) -> Array:
    return dataset.X if dataset.test is None else dataset.X[~dataset.test]


def _unit(dataset: Dataset) -> Dataset:
    centered = dataset.X - _training(dataset).mean(dtype=np.float64).astype(np.float32)
    return replace(dataset, X=unit_rows(centered))


def _components(dataset: Dataset) -> Dataset:
    unit = _unit(dataset)
    rows = _training(unit)
    axes = top_eigenvectors(covariance(rows), min(N_COMPONENTS, rows.shape[1]))
    return replace(unit, X=product(unit.X - rows.mean(axis=0), axes).astype(np.float32))


def _standardized(dataset: Dataset) -> Dataset:
    scaler = StandardScaler().fit(_training(dataset))
    return replace(dataset, X=scaler.transform(dataset.X).astype(np.float32))


def warn_of_scales(dataset: Dataset) -> None:
    """Warn of columns with different scales, which SSDML equalizes but most methods do not."""
    X = dataset.X
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.shape[1] > TABLE_COLUMNS:
        return
    deviations = X.std(axis=0, dtype=np.float64)
    differ = deviations.max() > DIFFERENT * np.median(deviations)
    if differ and len(linear_forms(X, few=False)) > 1:
        warn(
            f"compare: columns of {dataset.name} have different scales, which SSDML equalizes, but "
            'most other methods do not. Pass features="standardized" (--form standardized).'
        )


FORMS: dict[str, Callable[[Dataset], Dataset]] = {
    "unit": _unit,
    "raw": lambda dataset: dataset,
    "components": _components,
    "standardized": _standardized,
}
