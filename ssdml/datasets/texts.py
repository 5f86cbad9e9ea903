"""Text embeddings: TF-IDF components, or a sentence-transformers model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.utils.files import read_npz
from ssdml.utils.parallel import one_blas_thread
from ssdml.utils.persistence import atomic_write, keep_array, kept_array

INSTALL = "pip install 'ssdml[text]'"
WORDS = "words"
N_COMPONENTS = 256  # of the TF-IDF weights
DECIMALS = 5  # of the components, whose last bits differ between machines


def embed_texts(
    texts: npt.NDArray[np.object_], model: str, *, cache: Path
) -> npt.NDArray[np.float32]:
    """Embed texts as unit vectors.

    ``model`` is "words" (see `embed_by_words`), or the name or folder of a sentence-transformers
    model, whose embeddings are cached by model and texts, so that a resumed study has identical
    numbers. A damaged cache is computed again, with a warning. A model that changes under its name
    goes unnoticed.
    """
    if model == WORDS:
        return embed_by_words(texts)
    key = hashlib.sha256(json.dumps([model, list(texts)]).encode()).hexdigest()[:32]
    kept = kept_array(cache / key)
    if kept is not None:
        return kept
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ImportError(
            f"text_model={model!r} needs sentence-transformers: {INSTALL}. text_model={WORDS!r} "
            "needs nothing."
        ) from error
    encoder = SentenceTransformer(model)
    found = encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
    rows = np.asarray(found, dtype=np.float32)
    keep_array(cache / key, rows)
    return rows


def embed_by_words(texts: npt.NDArray[np.object_]) -> npt.NDArray[np.float32]:
    """Compute the leading components of TF-IDF weights, as unit vectors.

    They separate topics but little else, and need no model or download. Word counts enter by
    their logarithm. Weights use all texts, including the test rows of a comparison, but no labels.

    Returns float32 rows of at most 256 features; zeros for a text without words.

    Examples
    --------
    >>> rows = embed_by_words(np.array(["a red car", "the red cars", "soup"], dtype=object))
    >>> bool(rows[0] @ rows[1] > rows[0] @ rows[2])
    True
    """
    return WordFeatures.of(texts)(texts)


class WordFeatures(NamedTuple):
    """The words of some texts, their weights, and the components of the weights.

    A call embeds texts, new ones too, as `embed_by_words` describes.

    Examples
    --------
    >>> texts = np.array(["a red car", "the red cars", "soup"], dtype=object)
    >>> WordFeatures.of(texts)(np.array(["red soup"], dtype=object)).shape
    (1, 2)
    """

    words: tuple[str, ...]
    weights: npt.NDArray[np.float64]  # (n_words,), inverse document frequencies
    components: npt.NDArray[np.float64] | None  # (n_components, n_words)

    @classmethod
    def of(cls, texts: npt.NDArray[np.object_]) -> WordFeatures:
        """Count the words of texts and find their components."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from threadpoolctl import threadpool_limits

        vectorizer = TfidfVectorizer(sublinear_tf=True)
        try:
            counts = vectorizer.fit_transform(texts)
        except ValueError as error:
            raise ValueError(
                f"texts must contain words of two letters or more; got {texts[0]!r} and others "
                f"like it. Pass a sentence-transformers model as text_model: {INSTALL}."
            ) from error
        words = tuple(vectorizer.get_feature_names_out().tolist())
        n_components = min(N_COMPONENTS, *(length - 1 for length in counts.shape))
        components = None
        if n_components > 0:
            # Sums on several threads vary in the last bits; equal texts have no variance.
            quiet = np.errstate(divide="ignore", invalid="ignore")
            with one_blas_thread(), threadpool_limits(1, "openmp"), quiet:
                components = TruncatedSVD(n_components, random_state=0).fit(counts).components_
        return cls(words, vectorizer.idf_, components)

    def save(self, path: Path) -> None:
        """Write the words and their weights to a .npz file, without objects."""
        text = np.frombuffer("\n".join(self.words).encode(), dtype=np.uint8)
        arrays: dict[str, Any] = {"words": text, "weights": self.weights}
        if self.components is not None:
            arrays["components"] = self.components
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> WordFeatures:
        """Read what :meth:`save` wrote; raise ValueError if it is damaged."""
        try:
            arrays = read_npz(path, ("words", "weights", "components"))
            words = tuple(arrays["words"].astype(np.uint8).tobytes().decode().split("\n"))
            weights, components = arrays["weights"].astype(np.float64), arrays.get("components")
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path}: damaged ({error}). Fit the model again.") from error
        n_words = {
            len(words),
            *weights.shape,
            *(() if components is None else components.shape[1:]),
        }
        if len(n_words) != 1 or weights.ndim != 1:
            raise ValueError(f"{path}: damaged; its arrays do not fit. Fit the model again.")
        return cls(words, weights, components)

    def __call__(self, texts: npt.NDArray[np.object_]) -> npt.NDArray[np.float32]:
        """Embed texts, (n, n_components)."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize

        vectorizer = TfidfVectorizer(sublinear_tf=True, vocabulary=self.words)
        vectorizer.idf_ = self.weights
        weights = vectorizer.transform(texts)
        with one_blas_thread():
            dense = weights.toarray() if self.components is None else weights @ self.components.T
        return normalize(dense).round(DECIMALS).astype(np.float32)
