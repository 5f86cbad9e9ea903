"""Models of labeled samples in the cache folder, for the same samples once more."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssdml import __version__
from ssdml.datasets.known.layouts import data_folders
from ssdml.metric.estimator import SSDML
from ssdml.utils.labels import is_unlabeled
from ssdml.utils.persistence import CONFIG
from ssdml.utils.typing import Array
from ssdml.utils.validation import warn

MOST_KEPT = 5  # models
MOST_LABELS = 2.0  # relative to those of the fit; beyond, a fit pays
LAYOUT = 2  # of what is kept


class EarlierFit(NamedTuple):
    """A fit to the same samples.

    Attributes
    ----------
    model : SSDML
        With its graphs, for :meth:`ssdml.SSDML.relabel`.
    has_labels : bool
        Whether it was fitted to the labels to come: it is what a new fit would be.
    n_labels : int
        That it was fitted to.
    day : date
        When it was fitted.
    """

    model: SSDML
    has_labels: bool
    n_labels: int
    day: date


def kept_model(model: SSDML, X: Array, y: Any) -> EarlierFit | None:
    """Load the model of an earlier fit to the same samples, by the same version and parameters.

    Parameters
    ----------
    model : SSDML
        With the parameters of the fit.
    X : array of shape (n, n_features)
    y : array of shape (n,)
        Labels to come.

    Returns
    -------
    kept : EarlierFit or None
        None if there is none, or the labels have doubled since.

    Warns
    -----
    RuntimeWarning
        If it cannot be read; it is as good as not there.
    """
    folder = _place(model, X)
    try:
        kept = SSDML.load(folder, X)
        day = date.fromtimestamp((folder / CONFIG).stat().st_mtime)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        warn(f"{folder} is damaged; the model is fitted again.", RuntimeWarning)
        return None
    rows = kept.labeled_rows_
    labeled = np.flatnonzero(~is_unlabeled(y))
    if rows is None or len(labeled) > MOST_LABELS * len(rows):
        return None
    folder.touch()
    given = np.asarray(y)[labeled].tolist()
    same = np.array_equal(rows, labeled) and kept.transduction_[rows].tolist() == given
    return EarlierFit(kept.set_params(n_jobs=model.n_jobs), same, len(rows), day)


def keep_model(model: SSDML, X: Array) -> None:
    """Save a fitted model with its graphs; those used longest ago go.

    A folder that cannot be written keeps nothing: the next run fits again.
    """
    folder = _place(model, X)
    with suppress(OSError, ValueError):
        model.save(folder, graphs=True)
        folder.touch()
        models = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in models[:-MOST_KEPT]:
            shutil.rmtree(old)


def _place(model: SSDML, X: Array) -> Path:
    params = {k: v for k, v in model.get_params().items() if k not in ("n_jobs", "verbose")}
    about = [LAYOUT, __version__, params, X.shape, str(X.dtype)]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    digest.update(np.ascontiguousarray(X).data)
    return data_folders(None)[-1] / "models" / digest.hexdigest()[:32]
