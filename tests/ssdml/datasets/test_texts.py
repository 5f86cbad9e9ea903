"""Text embeddings, with a model that counts letters."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from ssdml.datasets import load_dataset
from ssdml.datasets.reading.summary import ReadingWarning
from ssdml.datasets.texts import WordFeatures, embed_by_words
from ssdml.experiments import compare

TEXTS = ["a bad day", 'she said "no, a"', "no\nmore", "abba", "a", "nn"]
LABELS = ["x", "y", "y", "x", "", "y"]


class Letters:
    """Shares of a and n."""

    made: list[str] = []  # noqa: RUF012

    def __init__(self, name):
        self.made.append(name)

    def encode(self, texts, *, normalize_embeddings, show_progress_bar):
        counts = np.array([[text.count("a"), text.count("n")] for text in texts], np.float64)
        assert normalize_embeddings
        assert not show_progress_bar
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def model(monkeypatch, tmp_path):
    Letters.made = []
    module = SimpleNamespace(SentenceTransformer=Letters)
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["csv", "parquet"])
def table(request, tmp_path):
    frame = pd.DataFrame({"place": list("abcdef"), "text": TEXTS, "label": LABELS})
    path = tmp_path / f"mails.{request.param}"
    frame.to_csv(path, index=False) if request.param == "csv" else frame.to_parquet(path)
    return path


def test_texts_are_embedded_by_the_model(table):
    mails = load_dataset(table, text_model="letters")
    np.testing.assert_allclose(mails.X[0], [1.0, 0.0])
    np.testing.assert_allclose(mails.X[1], np.array([2, 1]) / 5**0.5, rtol=1e-6)
    assert mails.X.dtype == np.float32
    np.testing.assert_array_equal(mails.y, [0, 1, 1, 0, -1, 1])
    assert (mails.name, mails.class_names) == ("mails", ("x", "y"))


def test_embeddings_are_cached_per_model(table):
    first = load_dataset(table, text_model="letters").X
    np.testing.assert_array_equal(load_dataset(table, text_model="letters").X, first)
    assert Letters.made == ["letters"]
    load_dataset(table, text_model="more letters")
    assert Letters.made == ["letters", "more letters"]


def test_damaged_embeddings_are_computed_again(table, tmp_path):
    first = load_dataset(table, text_model="letters").X
    [kept] = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    with pytest.warns(RuntimeWarning, match=f"{kept} is damaged"):
        again = load_dataset(table, text_model="letters").X
    np.testing.assert_array_equal(again, first)
    assert Letters.made == ["letters"] * 2
    assert kept.read_bytes() == whole


def test_texts_without_model_are_words_with_a_warning(table):
    with pytest.warns(ReadingWarning, match=r"words of the texts .* with --text-model MODEL"):
        mails = load_dataset(table)
    np.testing.assert_array_equal(mails.X, load_dataset(table, text_model="words").X)


def test_missing_package_says_what_to_install(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'ssdml\[text\]'"):
        load_dataset(table, text_model="letters")


def test_numbers_take_no_text_model(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("a,b,label\n1,2,x\n3,4,y\n")
    np.testing.assert_array_equal(load_dataset(path).X, [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match=r"numbers\.csv: must have columns of texts besides"):
        load_dataset(path, text_model="letters")
    np.savez(tmp_path / "n.npz", X=np.eye(2), y=[0, 1])
    with pytest.raises(ValueError, match=r"text_model must be None .*'letters' and .*n\.npz"):
        load_dataset(tmp_path / "n.npz", text_model="letters")


def test_missing_text_is_named(tmp_path):
    path = tmp_path / "mails.parquet"
    pd.DataFrame({"text": ["a", None], "label": ["x", "y"]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"row 1, column 'text': an empty cell must be a text"):
        load_dataset(path, text_model="letters")


def test_compare_runs_on_texts(tmp_path):
    path = tmp_path / "mails.csv"
    lines = [f"{'aan' if i % 2 else 'ann'},{'x' if i % 2 else 'y'}" for i in range(40)]
    path.write_text("\n".join(["text,label", *lines]))
    mails = load_dataset(path, text_model="letters")
    (row,) = compare(mails, ["input"], out=tmp_path / "out", seeds=[0])
    assert (row["status"], row["scores"]["accuracy"]) == ("ok", 100.0)


def test_words_separate_topics_without_a_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    path = tmp_path / "mails.csv"
    lines = [f"soup bread {x},food" for x in ("salt", "oil", "egg")]
    lines += [f"sail wind {x},boats" for x in ("mast", "rope", "deck")]
    path.write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    mails = load_dataset(path, text_model="words")
    alike = mails.X @ mails.X.T
    same = mails.y[:, None] == mails.y
    assert alike[same].min() > alike[~same].max()
    np.testing.assert_allclose(np.linalg.norm(mails.X, axis=1), 1, rtol=1e-4)
    assert mails.texts[0] == "soup bread salt"


def test_components_keep_angles_of_weights():
    """As many components as the weights have rank lose nothing."""
    texts = np.array(["one two", "two three", "three one one", "one two", "three"], dtype=object)
    weights = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)  # of length 1
    assert np.linalg.matrix_rank(weights.toarray()) == 3 > embed_by_words(texts).shape[1] == 2
    more = np.concatenate([texts, ["four five"]]).astype(object)  # two words that go together
    weights = TfidfVectorizer(sublinear_tf=True).fit_transform(more)
    rows = embed_by_words(more)
    assert rows.shape == (6, 4)
    np.testing.assert_allclose(rows @ rows.T, (weights @ weights.T).toarray(), atol=1e-4)


def test_texts_without_words():
    rows = embed_by_words(np.array(["red car", "red", "?"], dtype=object))
    assert not rows[2].any()
    with pytest.raises(ValueError, match=r"texts must contain words of two letters.*'\?'"):
        embed_by_words(np.array(["?", "!"], dtype=object))


def test_one_word_in_all_texts():
    np.testing.assert_array_equal(
        embed_by_words(np.array(["red", "red"], dtype=object)), [[1], [1]]
    )


def test_equal_texts_raise_no_warning():
    assert embed_by_words(np.array(["a bad day"] * 4, dtype=object)).shape[0] == 4


def test_texts_of_almost_the_same_words_raise_no_warning():
    WordFeatures.of(np.array([f"some text {i}" for i in range(6)], dtype=object))
