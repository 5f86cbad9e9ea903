"""Samples for the commands of one model: read, told in a summary, and read alike once more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ssdml.cli.options import names, say

if TYPE_CHECKING:
    from ssdml.datasets.base import Dataset, RawItems
    from ssdml.datasets.reading.columns import Choice

INPUT, WORDS = "input.json", "words.npz"  # beside a model
DEFAULT_SIDES = {"mnist": 28}  # of images for a network, in pixels; 32 for others


@dataclass(frozen=True)
class Input:
    """How the samples of a fit were read, so that new ones are read alike.

    ``columns`` are the features of a table, ``text`` is a column of texts, ``image_size`` the side
    of images that stay in their files, ``label`` the column of labels.
    """

    columns: tuple[str, ...] = ()
    text: str | None = None
    text_model: str | None = None
    image_size: int | None = None
    label: str | None = None

    @classmethod
    def of_fit(cls, raw: RawItems, X: Any, text_model: str | None, words: Any) -> Input:
        """Describe the samples of a fit."""
        from ssdml.datasets.image_files import ImageFiles
        from ssdml.datasets.texts import WORDS as BY_WORDS

        side = X.shape[-1] if isinstance(X, ImageFiles) else None
        model = BY_WORDS if words is not None else text_model
        columns = tuple(raw.columns or ())
        if model is not None:
            return cls((), columns[0] if columns else None, model, side, raw.label_column)
        is_table = isinstance(raw.items, ImageFiles) or len(raw.items.shape) > 2
        return cls(() if is_table else columns, image_size=side, label=raw.label_column)

    def save(self, model: Path, words: Any) -> None:
        """Write it beside a model, with the words of its texts and a checksum of both."""
        from ssdml.utils.persistence import UNSIGNED, atomic_write, signed

        text = json.dumps({"sha256": UNSIGNED, **vars(self)}) + "\n"
        if words is not None:
            words.save(model / WORDS)
            text = signed(text, model / WORDS)
        else:
            (model / WORDS).unlink(missing_ok=True)
            text = signed(text)
        with atomic_write(model / INPUT) as unfinished:
            unfinished.write_text(text, encoding="utf-8")

    @classmethod
    def of(cls, model: Path) -> Input:
        """Read what is beside a model; a model that Python saved has nothing there."""
        from ssdml.datasets.texts import WORDS as BY_WORDS
        from ssdml.utils.files import parse_json, read_regular
        from ssdml.utils.persistence import check_signed

        path = model / INPUT
        if not path.exists():
            return cls()
        try:
            text = read_regular(path).decode()
            kept = dict(parse_json(text))
            checksum = str(kept.pop("sha256", ""))
            content = cls(**kept)
            texts = (content.text, content.text_model, content.label)
            wrong = not all(isinstance(value, str | None) for value in (*texts, *content.columns))
            if wrong or not isinstance(content.image_size, int | None):
                raise ValueError("its values are of wrong types")
            check_signed(text, checksum, model / WORDS if content.text_model == BY_WORDS else None)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: damaged ({error}). Fit the model again.") from error
        return content


def chosen(
    label: str | None = None,
    text: str | None = None,
    id_column: str | None = None,
    features: str | Sequence[str] | None = None,
    ignore: str | None = None,
    *,
    texts: bool = False,
    needs_label: bool = True,
) -> Choice:
    """Return the user's choice of columns; names in one text are separated by commas."""
    from ssdml.datasets.reading.columns import Choice

    listed = names(features) if isinstance(features, str | None) else features
    return Choice(label, text, id_column, tuple(listed), tuple(names(ignore)), texts, needs_label)


def load(
    name: str,
    choice: Choice,
    data_dir: Path | None = None,
    text_model: str | None = None,
    no_label: str | None = None,
    encoding: str | None = None,
) -> Dataset:
    """Load a data set, and print what a file became."""
    from ssdml.datasets.loading import read_dataset
    from ssdml.experiments.preprocessing import FORMS

    if choice.features and choice.features[0] in FORMS and not Path(name).exists():
        raise typer.BadParameter(
            f"names columns of a table; the form of the features is --form {choice.features[0]}.",
            param_hint="--features",
        )
    dataset = read_dataset(
        name,
        choice,
        data_dir=data_dir,
        text_model=text_model,
        no_label=names(no_label),
        encoding=encoding,
    )
    if dataset.summary is not None:
        say(str(dataset.summary))
    return dataset


def numbered(raw: RawItems, n: int) -> dict[str, Any]:
    """Make the first column of an output: the ids of the n samples, or their numbers from 0."""
    import numpy as np

    return {"row": np.arange(n)} if raw.ids is None else {"id": np.asarray(raw.ids)}


def put_out(columns: dict[str, Any], out: Path | None) -> None:
    """Write columns to a file, or without one as CSV to standard output."""
    from ssdml.datasets.writing import as_csv, write_rows

    if out is None:
        typer.echo(as_csv(columns), nl=False)
    else:
        write_rows(out, columns)


def read_labeled(
    data: str,
    labels: Path | None,
    choice: Choice,
    *,
    text_model: str | None = None,
    no_label: str | None = None,
    encoding: str | None = None,
    least: int = 1,
) -> tuple[RawItems, Any, Any]:
    """Read samples and labels from one path, or from a .npy file and one of labels; tell of them.

    Fewer than ``least`` samples raise ValueError.

    Returns
    -------
    raw : RawItems
        With features, if the samples are texts.
    labels : ndarray of shape (n,)
        As estimators take them: whole numbers with -1, or names with None.
    words : WordFeatures or None
        That embed texts.
    """
    from ssdml.datasets.labels import encoded_labels
    from ssdml.datasets.loading import read_items, text_features, with_features
    from ssdml.datasets.reading.arrays import read_arrays
    from ssdml.datasets.texts import WORDS as BY_WORDS, WordFeatures

    if labels is None:
        raw = read_items(data, choice, encoding=encoding)
    else:
        raw = read_arrays(Path(data), labels, choice, encoding=encoding)
    words = None
    if raw.items is None:
        assert raw.texts is not None
        if text_model is None or text_model == BY_WORDS:
            words = WordFeatures.of(raw.texts)
            features = words(raw.texts)
        else:
            features = text_features(raw.texts, text_model)
        raw = with_features(raw, features, text_model)
    elif text_model is not None:
        raise ValueError(f"{data} must hold texts for --text-model; got numbers or images.")
    codes, classes = encoded_labels(raw, names(no_label))
    if raw.summary is not None:
        say(str(raw.summary))
    if len(codes) < least:
        raise ValueError(f"{data}: must have at least {least} samples; got {len(codes)}. Add some.")
    return raw, _as_given(codes, classes), words


def _as_given(codes: Any, classes: Any) -> Any:
    """Decode labels: to whole numbers if all classes are, else to names, or None."""
    import numpy as np

    from ssdml.utils.validation import UNLABELED

    whole = classes.astype(np.float64) if classes.dtype.kind in "iuf" else np.empty(0)
    if classes.dtype.kind == "U":
        numbers = [c.isdecimal() and str(int(c)) == c for c in classes.tolist()]
        whole = np.array(classes.tolist(), dtype=np.float64) if all(numbers) else whole
    if len(whole) == len(classes) and (np.abs(whole) < 2**53).all() and (whole % 1 == 0).all():
        return np.append(whole.astype(np.int64), UNLABELED)[codes]
    return np.array([*classes.tolist(), None], dtype=object)[codes]


def read_new(
    model: Path,
    data: str,
    choice: Choice,
    encoding: str | None = None,
    no_label: str | None = None,
) -> tuple[RawItems, Any, tuple[Any, Any]]:
    """Read samples as those of a model's fit were read.

    Returns
    -------
    raw : RawItems
    X : array
        Their features.
    labels : tuple of ndarrays
        Their codes and classes, as ``encoded_labels`` returns them.
    """
    from dataclasses import replace

    from ssdml.datasets.image_files import ImageFiles
    from ssdml.datasets.labels import encoded_labels
    from ssdml.datasets.loading import read_items, text_features
    from ssdml.datasets.reading.tables import table_suffix
    from ssdml.datasets.texts import WORDS as BY_WORDS, WordFeatures

    kept, path = Input.of(model), Path(data)
    if path.is_dir() or path.suffix.lower() == ".zip" or table_suffix(path) is not None:
        choice = replace(
            choice,
            features=kept.columns,
            text=choice.text or kept.text,
            model=str(model),
            label_of_fit=kept.label,
        )
    raw = read_items(data, choice, encoding=encoding)
    X, labels = raw.items, encoded_labels(raw, names(no_label))
    if X is None:
        if kept.text_model is None:
            kind = "rows of numbers" if kept.columns else "numbers or images"
            raise ValueError(
                f"{data} must hold {kind}, as in the fit; got texts. Embed them first."
            )
        assert raw.texts is not None
        if kept.text_model == BY_WORDS:
            X = WordFeatures.load(model / WORDS)(raw.texts)
        else:
            X = text_features(raw.texts, kept.text_model)
    elif kept.text_model is not None:
        raise ValueError(f"{data} must hold texts, as in the fit; got numbers or images.")
    if not isinstance(X, ImageFiles):
        X = _channels_first(X)
    elif kept.image_size is not None:
        X = X.resized(kept.image_size)
    if raw.summary is not None:
        say(str(raw.summary))
    return raw, X, labels


def agreement(codes: Any, classes: Any, labels: Any, known_classes: Any) -> str:
    """Tell how many of the labels that a file has were predicted, or that none could be."""
    import numpy as np

    from ssdml.datasets.labels import class_name
    from ssdml.datasets.reading.summary import listed

    known = codes >= 0
    if not known.any():
        return ""
    in_file = [class_name(c) for c in classes.tolist()]
    of_model = [class_name(c) for c in known_classes.tolist()]
    if not set(in_file) & set(of_model):
        say(
            f"warning: no label in the file ({listed(in_file)}) is a class of the model "
            f"({listed(of_model)}). If these are codes of the former, fit the model to the names: "
            "`ssdml fit`, or fit(X, names) in Python."
        )
        return ""
    truth = np.array(in_file)[codes[known]]
    share = (np.array([class_name(c) for c in labels[known].tolist()]) == truth).mean()
    return f", {share:.1%} of the {known.sum()} labels in the file"


def features_of(raw: RawItems, network: str | None, image_size: int | None) -> Any:
    """Return the samples as an estimator takes them; images need a network."""
    from ssdml.datasets.image_files import ImageFiles

    X = raw.items
    if network is None and len(X.shape) > 2:
        raise ValueError(
            f"the samples must be rows of numbers; got images of shape {tuple(X.shape[1:])}. Train "
            "a network on them, ssdml fit DATA --network NAME, or pass a table of their features."
        )
    if isinstance(X, ImageFiles):
        return X.resized(image_size or DEFAULT_SIDES.get(network or "", 32))
    return _channels_first(X)


def _channels_first(X: Any) -> Any:
    """Move the channels of floating-point images, as torch wants them; bytes may stay."""
    import numpy as np

    return np.moveaxis(X, -1, 1) if X.ndim == 4 and X.dtype.kind == "f" else X
