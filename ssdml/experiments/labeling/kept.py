"""Models of labeled samples in the cache folder, for other labels of the same samples."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ssdml import __version__
from ssdml.datasets.loading import data_folders
from ssdml.metric.estimator import SSDML
from ssdml.utils.labels import is_unlabeled
from ssdml.utils.typing import Array

MOST_KEPT = 5  # models
MOST_LABELS = 2.0  # relative to those of the fit; beyond, a fit pays


def kept_model(model: SSDML, X: Array, y: Any) -> SSDML | None:
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
    kept : SSDML or None
        With its graphs, for :meth:`ssdml.SSDML.relabel`. None if there is none that can be read,
        or the labels have doubled since.
    """
    folder = _place(model, X)
    try:
        kept = SSDML.load(folder, X)
    except (OSError, ValueError):
        return None
    rows = kept.labeled_rows_
    n_labels = int((~is_unlabeled(y)).sum())
    if rows is None or n_labels > MOST_LABELS * len(rows):
        return None
    folder.touch()
    return kept.set_params(n_jobs=model.n_jobs)


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
    about = json.dumps([__version__, params, X.shape, str(X.dtype)], sort_keys=True, default=str)
    digest = hashlib.sha256(about.encode())
    digest.update(np.ascontiguousarray(X).data)
    return data_folders(None)[-1] / "models" / digest.hexdigest()[:32]
