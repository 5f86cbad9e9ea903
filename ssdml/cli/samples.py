"""Samples for the commands of one model: read, told in a summary, and read alike once more."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ssdml.cli.options import names, put, refuse_to_replace, say

if TYPE_CHECKING:
    from ssdml.datasets.base import Dataset, RawItems
    from ssdml.datasets.reading.names import Choice
    from ssdml.datasets.reading.summary import Summary
    from ssdml.experiments.labeling.features import ImageFeatures

INPUT = "input.json"  # beside a model
ANY = "any"  # input of models of early versions, whose config does not tell it
FITTED = {"words": "words.npz", "pixels-v2": "pixels.npz"}  # there, too: what features have learned
TOLD = {  # in doubts of a file, and again in warnings of a fit
    "counts as a class": ".*y must mark unlabeled rows",
    "if it means a missing value": ".*X must not mark missing values",
}
DEFAULT_SIDES = {"mnist": 28}  # of images for a network, in pixels; 32 for others


@dataclass(frozen=True)
class Input:
    """Columns and sizes by which the samples of a fit were read; new ones are read alike.

    ``columns`` are the features of a table, ``text`` is a column of texts, ``image_model`` is what
    computed features of images, ``image_size`` the side of images that stay in their files for a
    network, ``label`` the column of labels.
    """

    columns: tuple[str, ...] = ()
    text: str | None = None
    text_model: str | None = None
    image_size: int | None = None
    label: str | None = None
    image_model: str | None = None

    @classmethod
    def of_fit(
        cls, raw: RawItems, text_model: str | None, features: Any, image_size: int | None
    ) -> Input:
        """Describe the samples of a fit, and what computed their features, if anything did."""
        from ssdml.datasets.texts import WORDS, WordFeatures

        columns, image_model = tuple(raw.columns or ()), None
        if isinstance(features, WordFeatures):
            text_model = WORDS
        elif features is not None:
            image_model = features.model
        text = columns[0] if text_model is not None and columns else None
        if text_model is not None or len(raw.items.shape) > 2:
            columns = ()
        return cls(columns, text, text_model, image_size, raw.label_column, image_model)

    def fitted(self, model: Path) -> Path | None:
        """Return the file of what the features of texts or images have learned, if any."""
        name = FITTED.get(self.text_model or self.image_model or "")
        return None if name is None else model / name

    def name_features(self, learned: Any) -> None:
        """Name the features of a fit after their columns, for frames that Python passes."""
        import numpy as np

        if len(self.columns) == getattr(learned, "n_features_in_", None):
            learned.feature_names_in_ = np.array(self.columns, dtype=object)

    def save(self, model: Path, features: Any) -> None:
        """Write it beside a model, with what its features have learned and a checksum of both."""
        from ssdml.utils.persistence import UNSIGNED, add_to_config, atomic_write, signed

        fitted = self.fitted(model)
        if fitted is not None:
            features.save(fitted)
        text = signed(json.dumps({"sha256": UNSIGNED, **vars(self)}) + "\n", fitted)
        with atomic_write(model / INPUT) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
        for path in {model / name for name in FITTED.values()} - {fitted}:  # of an earlier model
            path.unlink(missing_ok=True)
        add_to_config(model, input=json.loads(text)["sha256"])

    @classmethod
    def of(cls, model: Path) -> Input:
        """Read what is beside a model; one that Python saved may have names of features alone.

        The config of the model has the checksum of its input, or None if there is none.
        """
        from ssdml.utils.files import parse_json, read_regular
        from ssdml.utils.persistence import check_signed, saved_config

        path, config = model / INPUT, saved_config(model)
        expected = config.get("input", ANY)
        if expected is None and path.exists():
            raise ValueError(
                f"{path}: not of this model, which Python saved. Delete it, or run `ssdml fit` "
                "again."
            )
        if not path.exists():
            if expected not in (None, ANY):
                raise FileNotFoundError(
                    f"{path} is missing, by which new samples are read as those of the fit. Copy "
                    "the whole folder of the model."
                )
            columns = config.get("feature_names_in")
            return cls(tuple(columns) if isinstance(columns, list) else ())
        try:
            text = read_regular(path).decode()
            kept = dict(parse_json(text))
            checksum = str(kept.pop("sha256", ""))
            content = cls(**kept)
            texts = (content.text, content.text_model, content.image_model, content.label)
            wrong = not all(isinstance(value, str | None) for value in (*texts, *content.columns))
            if wrong or not isinstance(content.image_size, int | None):
                raise ValueError("its values are of wrong types")
            if expected not in (checksum, ANY):
                raise ValueError("it belongs to another model")
            check_signed(text, checksum, content.fitted(model))
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
    from ssdml.datasets.reading.names import Choice

    listed = names(features) if isinstance(features, str | None) else features
    return Choice(label, text, id_column, tuple(listed), tuple(names(ignore)), texts, needs_label)


def load(
    name: str,
    choice: Choice,
    data_dir: Path | None = None,
    text_model: str | None = None,
    no_label: str | None = None,
    encoding: str | None = None,
    in_files: bool = False,
) -> Dataset:
    """Load a data set, and print what a file became; images may stay in their files."""
    from ssdml.datasets.image_files import ImageFiles
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
    if in_files or not isinstance(dataset.X, ImageFiles):
        return dataset
    return replace(dataset, X=features_of(dataset.X, dataset.summary)[0])


def numbered(raw: RawItems, n: int) -> dict[str, Any]:
    """Make the first column of an output: the ids of the n samples, or their numbers from 0."""
    import numpy as np

    return {"row": np.arange(n)} if raw.ids is None else {"id": np.asarray(raw.ids)}


def check_out(out: Path | None, force: bool) -> None:
    """Raise unless :func:`put_out` can write the file."""
    if out is not None:
        refuse_to_replace(out, force)
        from ssdml.datasets.writing import check_suffix

        check_suffix(out)


def put_out(columns: dict[str, Any], out: Path | None) -> None:
    """Write columns to a file, or without one as CSV to standard output."""
    from ssdml.datasets.writing import as_csv, write_rows

    if out is None:
        put(as_csv(columns))
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
    from ssdml.datasets.loading import check_is_data, read_items, text_features, with_features
    from ssdml.datasets.reading.arrays import read_arrays
    from ssdml.datasets.texts import WORDS as BY_WORDS, WordFeatures

    if labels is None:
        raw = read_items(data, choice, encoding=encoding)
    else:
        check_is_data(Path(data))
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


@contextmanager
def told_once(summary: Summary | None) -> Iterator[None]:
    """Suppress warnings of a fit that repeat a doubt of the summary."""
    doubts = " ".join(summary.doubts) if summary is not None else ""
    with warnings.catch_warnings():
        for doubt, warning in TOLD.items():
            if doubt in doubts:
                warnings.filterwarnings("ignore", warning)
        yield


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
    from ssdml.datasets.labels import encoded_labels
    from ssdml.datasets.loading import read_items
    from ssdml.datasets.reading.formats.tables import table_suffix

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
    labels = encoded_labels(raw, names(no_label))
    if raw.summary is not None:
        say(str(raw.summary))
    return raw, _read_alike(raw, data, kept, model), labels


def _read_alike(raw: RawItems, data: str, kept: Input, model: Path) -> Any:
    """Return the features of new samples, of the kind that a model was fitted to."""
    from ssdml.datasets.image_files import ImageFiles
    from ssdml.datasets.loading import text_features
    from ssdml.datasets.texts import WordFeatures
    from ssdml.experiments.labeling.features import NETWORK, PIXELS, ImageFeatures

    X, fitted = raw.items, kept.fitted(model)
    if kept.text_model is not None:
        if X is not None:
            raise ValueError(f"{data} must hold texts, as in the fit; got numbers or images.")
        assert raw.texts is not None
        if fitted is not None:
            return WordFeatures.load(fitted)(raw.texts)
        return text_features(raw.texts, kept.text_model)
    if X is None:
        kind = "images" if kept.image_model else "rows of numbers"
        raise ValueError(f"{data} must hold {kind}, as in the fit; got texts. Embed them first.")
    if kept.image_model is not None:
        if kept.image_model not in (NETWORK, PIXELS):
            raise ValueError(
                f"{model} must have features of images of this version, {NETWORK} or {PIXELS}; got "
                f"{kept.image_model}. Fit the model again."
            )
        if len(X.shape) < 3:
            raise ValueError(f"{data} must hold images, as in the fit; got rows of numbers.")
        features = ImageFeatures() if fitted is None else ImageFeatures.load(fitted)
        with _counted(X) as count:
            return features(X, progress=count)
    if kept.image_size is not None:
        return _cropped(X, kept.image_size)
    return X if isinstance(X, ImageFiles) else _channels_first(X)


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


def features_of(
    items: Any, summary: Summary | None, y: Any = None
) -> tuple[Any, ImageFeatures | None]:
    """Return rows of features, of images with what computed them, chosen by labels, and tell it."""
    if len(items.shape) < 3:
        return items, None
    from ssdml.experiments.labeling.features import INSTALL, ImageFeatures

    with _counted(items) as count:
        features, rows = ImageFeatures.of(items, y, progress=count)
    say(f"  features: {features}")
    doubt = (
        "pixels are good features for images of one layout, such as digits; for photos, "
        f"install a pretrained network, which is then used: {INSTALL}"
    )
    if not features.by_network:
        say(f"  note: {doubt}")
    if summary is not None:
        summary.facts["features"] = str(features)
        summary.doubts += [doubt] * (not features.by_network)
    return rows, features


def _counted(images: Any) -> AbstractContextManager[Callable[[int, int], None]]:
    """Show a spinner that counts the images whose features are computed."""
    from ssdml.cli.terminal import spinner

    return spinner(f"features of {len(images)} images")


def for_network(items: Any, network: str, image_size: int | None) -> tuple[Any, int | None]:
    """Return samples as a network takes them, and the side that images were cropped to."""
    from ssdml.datasets.image_files import ImageFiles

    if image_size is None and isinstance(items, ImageFiles):
        image_size = DEFAULT_SIDES.get(network, 32)
    if image_size is None:
        return _channels_first(items), None
    return _cropped(items, image_size), image_size


def _cropped(images: Any, side: int) -> Any:
    """Crop and resize images to (n, 3, side, side), those in files when they are read."""
    import numpy as np
    from PIL import Image

    from ssdml.datasets.image_files import ImageFiles, center_crop

    if isinstance(images, ImageFiles):
        return images.resized(side)
    if images.dtype != np.uint8 or images.ndim < 3:
        what = "rows of numbers" if images.ndim < 3 else f"pixels of type {images.dtype}"
        raise ValueError(f"images to crop and resize must be of 8 bits; got {what}.")
    crops = [center_crop(Image.fromarray(image), side) for image in images]
    return np.stack(crops).transpose(0, 3, 1, 2)


def _channels_first(X: Any) -> Any:
    """Move the channels of floating-point images, as torch wants them; bytes may stay."""
    import numpy as np

    return np.moveaxis(X, -1, 1) if X.ndim == 4 and X.dtype.kind == "f" else X
