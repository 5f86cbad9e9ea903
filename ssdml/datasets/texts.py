"""Rows of numbers from texts: by their words, or by a model of sentence-transformers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ssdml.utils.persistence import atomic_write

INSTALL = "pip install 'ssdml[text]'"
WORDS = "words"
N_COMPONENTS = 256  # of the words' weights
DECIMALS = 5  # of their components: the last bits are not the same on all machines


def embedded(texts: npt.NDArray[np.object_], model: str, *, cache: Path) -> npt.NDArray[np.float32]:
    """Embedding of each text, of length 1.

    Parameters
    ----------
    texts : ndarray of str, shape (n,)
    model : str
        "words": see `by_words`. Else the folder of a model, or its name as sentence-transformers
        knows it.
    cache : Path
        Folder that keeps what was embedded, by model and texts: a resumed study has the same
        numbers to the last bit, as those of "words" have anyway. A model that changes under one
        name is not noticed.

    Returns
    -------
    rows : ndarray of shape (n, n_features), float32

    Raises
    ------
    ImportError
        Where sentence-transformers is not installed.
    """
    if model == WORDS:
        return by_words(texts)
    told = json.dumps([model, list(texts)]).encode()
    kept = cache / f"{hashlib.sha256(told).hexdigest()[:32]}.npy"
    if kept.is_file():
        rows: npt.NDArray[np.float32] = np.load(kept, allow_pickle=False)
        return rows
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ImportError(
            f"The model {model!r} of texts needs sentence-transformers: {INSTALL}. The model "
            f"{WORDS!r} needs nothing."
        ) from error
    encoder = SentenceTransformer(model)
    found = encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
    rows = np.asarray(found, dtype=np.float32)
    cache.mkdir(parents=True, exist_ok=True)
    with atomic_write(kept) as unfinished, unfinished.open("wb") as file:
        np.save(file, rows)
    return rows


def by_words(texts: npt.NDArray[np.object_]) -> npt.NDArray[np.float32]:
    """Leading components of the words' weights in each text, of length 1.

    Weights are those of TF-IDF, with the logarithm of a word's count. They tell topics apart and
    little else, and need no model and no download. They are counted over all texts, those that a
    comparison scores among them; their labels play no part.

    Parameters
    ----------
    texts : ndarray of str, shape (n,)

    Returns
    -------
    rows : ndarray of shape (n, at most 256), float32
        Of zeros where a text holds no word.

    Raises
    ------
    ValueError
        Where no text holds a word of two letters or more.

    Examples
    --------
    >>> rows = by_words(np.array(["a red car", "the red cars", "soup"], dtype=object))
    >>> bool(rows[0] @ rows[1] > rows[0] @ rows[2])
    True
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize
    from threadpoolctl import threadpool_limits

    try:
        weights = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    except ValueError as error:
        raise ValueError(
            f"by_words: texts must hold words of two letters or more; got {texts[0]!r} and others "
            f"like it. Name a model of sentence-transformers: {INSTALL}."
        ) from error
    n_components = min(N_COMPONENTS, *(length - 1 for length in weights.shape))
    if n_components > 0:
        with threadpool_limits(1):  # sums of several threads end in other bits
            weights = TruncatedSVD(n_components, random_state=0).fit_transform(weights)
    else:
        weights = weights.toarray()
    rows: npt.NDArray[np.float32] = normalize(weights).round(DECIMALS).astype(np.float32)
    return rows
