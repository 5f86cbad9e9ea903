"""Rows of numbers from texts, by a model of sentence-transformers that the user names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ssdml.files import whole_file

INSTALL = "pip install 'ssdml[text]'"


def embedded(texts: npt.NDArray[np.object_], model: str, *, cache: Path) -> npt.NDArray[np.float32]:
    """Embedding of each text, of length 1.

    Parameters
    ----------
    texts : ndarray of str, shape (n,)
    model : str
        Folder of a model, or its name as sentence-transformers knows it.
    cache : Path
        Folder that keeps what was embedded, by model and texts: a resumed study has the same
        numbers to the last bit. A model that changes under one name is not noticed.

    Returns
    -------
    rows : ndarray of shape (n, n_features), float32

    Raises
    ------
    ImportError
        Where sentence-transformers is not installed.
    """
    told = json.dumps([model, list(texts)]).encode()
    kept = cache / f"{hashlib.sha256(told).hexdigest()[:32]}.npy"
    if kept.is_file():
        rows: npt.NDArray[np.float32] = np.load(kept, allow_pickle=False)
        return rows
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ImportError(f"Texts need sentence-transformers: {INSTALL}.") from error
    encoder = SentenceTransformer(model)
    found = encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
    rows = np.asarray(found, dtype=np.float32)
    cache.mkdir(parents=True, exist_ok=True)
    with whole_file(kept) as unfinished, unfinished.open("wb") as file:
        np.save(file, rows)
    return rows
