"""The commands of one model: ``ssdml fit | transform | predict | evaluate``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ssdml.cli import samples
from ssdml.cli.options import (
    Encoding,
    FeatureColumns,
    Force,
    IdColumn,
    IgnoredColumns,
    LabelColumn,
    NoLabel,
    Seed,
    TextColumn,
    TextModel,
    Threads,
    in_shell,
    names,
    next_steps,
    numbers,
    put,
    refuse_to_replace,
    say,
)

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A table (CSV, Parquet, JSON Lines, Excel, ...), .npz, .npy, .mat, or a folder or "
        ".zip of images; or the name of a data set.",
    ),
]
Labels = Annotated[
    Path | None,
    typer.Argument(
        metavar="[y.npy]", help="Labels, if DATA is a .npy file; default: y.npy next to it."
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL/", help="Folder from `ssdml fit`.")]


def fit(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="MODEL/", help="Folder for the model.")],
    labels: Labels = None,
    label: LabelColumn = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    features: FeatureColumns = None,
    ignore: IgnoredColumns = None,
    no_label: NoLabel = None,
    text_model: TextModel = None,
    encoding: Encoding = None,
    n_components: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Columns of the embedding; default: at most max(64, number of features). With "
            "--network: columns of the metric; default: 64.",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="mnist|cifar|wide-resnet", help="Train this network on images with the metric."
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            min=8,
            help="Side to crop and resize images to, in pixels; default: 28 for mnist, else 32, "
            "but images that share one size, at most 256 x 256, keep it.",
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of --network; default: 50.")
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER/", help="Checkpoints of --network, to resume from."),
    ] = None,
    n_neighbors: Annotated[int, typer.Option(min=1, help="Neighbors in the graph.")] = 10,
    random_state: Seed = 0,
    n_jobs: Threads = -1,
    force: Force = False,
) -> None:
    """Learn a metric from samples with a few labels."""
    refuse_to_replace(out, force)
    if network is None and (epochs is not None or checkpoints is not None or image_size):
        raise typer.BadParameter(
            "need --network.", param_hint="--epochs, --checkpoints and --image-size"
        )
    if checkpoints is not None and checkpoints.absolute() == out.absolute():
        raise typer.BadParameter("must be two folders.", param_hint="--checkpoints and --out")
    from ssdml.cli.terminal import LastLine, log_lines
    from ssdml.utils.labels import is_unlabeled

    choice = samples.chosen(label, text, id_column, features, ignore, texts=text_model is not None)
    raw, y, words = samples.read_labeled(
        data, labels, choice, text_model=text_model, no_label=no_label, encoding=encoding, least=2
    )
    side, seen = None, None
    if network is None:
        X, seen = samples.features_of(raw.items, raw.summary, y)
    else:
        X, side = samples.for_network(raw.items, network, image_size)
    computed = words or seen
    params = {
        "n_components": n_components,
        "backbone": network,
        "epochs": epochs,
        "checkpoint_dir": checkpoints,
        "n_neighbors": n_neighbors,
        "random_state": random_state,
        "n_jobs": n_jobs,
        "verbose": 1,  # a progress bar if there is a terminal
    }
    model = _estimator("SSDML" if network is None else "DeepSSDML")(
        **{name: value for name, value in params.items() if value is not None}
    )
    start = time.perf_counter()
    try:
        with (
            samples.told_once(raw.summary),
            LastLine() as last,
            log_lines(lambda: f"learning from {len(X)} samples{last.text}"),
        ):
            model.fit(X, y)
    except KeyboardInterrupt:
        hint = "" if checkpoints is None else f"The same command resumes from {checkpoints}."
        raise KeyboardInterrupt(hint) from None
    kept = samples.Input.of_fit(raw, text_model, computed, side)
    kept.name_features(model)

    def save(folder: Path) -> None:
        model.set_params(verbose=0).save(folder)
        kept.save(folder, computed)

    _save(save, out)
    n_labeled = int((~is_unlabeled(y)).sum())
    say(
        f"Learned {len(model.classes_)} classes from {n_labeled} labeled and "
        f"{len(X) - n_labeled} unlabeled samples in {time.perf_counter() - start:.1f} s: {out}"
    )
    new = "new.csv" if len(raw.items.shape) < 3 else "new/"
    next_steps(
        f"ssdml predict {in_shell(out)} {new} --out labels.csv labels new samples",
        f"ssdml transform {in_shell(out)} {new} --out Z.npy embeds them",
    )


def transform(
    model: Model,
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            metavar="Z.npy",
            help="File for the embedding: .npy; or .csv, .parquet, ..., which include the ids.",
        ),
    ],
    text: TextColumn = None,
    id_column: IdColumn = None,
    encoding: Encoding = None,
    force: Force = False,
) -> None:
    """Embed samples with a learned metric."""
    refuse_to_replace(out, force)
    from ssdml.cli.terminal import spinner
    from ssdml.datasets.writing import EMBEDDINGS, check_suffix, write_embedding

    check_suffix(out, EMBEDDINGS)
    learned = _loaded(model)
    choice = samples.chosen(text=text, id_column=id_column, needs_label=False)
    raw, X, _ = samples.read_new(model, data, choice, encoding)
    _check_shape(data, X, learned)
    with spinner(f"embedding {len(X)} samples"):
        Z = learned.transform(X)
    write_embedding(out, Z, raw.ids)
    say(f"{len(Z)} rows of {Z.shape[1]} numbers: {out}")
    if out.suffix == ".npy":
        next_steps(
            f"ssdml evaluate {in_shell(out)} y.npy scores them, if you know the true labels in "
            "y.npy"
        )


def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="labels.csv",
            help="File for the labels: .csv, .tsv, .parquet, .feather, .jsonl or .xlsx; default: "
            "CSV to standard output.",
        ),
    ] = None,
    label: LabelColumn = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    no_label: NoLabel = None,
    encoding: Encoding = None,
    force: Force = False,
) -> None:
    """Predict the labels of samples, with confidences."""
    samples.check_out(out, force)
    import numpy as np

    from ssdml.cli.terminal import spinner
    from ssdml.datasets.reading.summary import counted

    learned = _loaded(model)
    choice = samples.chosen(label, text, id_column, needs_label=False)
    raw, X, given = samples.read_new(model, data, choice, encoding, no_label)
    _check_shape(data, X, learned)
    with spinner(f"predicting {len(X)} samples"):
        probabilities = learned.predict_proba(X)
    labels = np.asarray(learned.classes_)[probabilities.argmax(axis=1)]
    confidence = probabilities.max(axis=1).round(4)
    columns = {**samples.numbered(raw, len(X)), "label": labels, "confidence": confidence}
    samples.put_out(columns, out)
    said = samples.agreement(*given, labels, learned.classes_)
    where = "standard output" if out is None else str(out)
    n_labels = counted(len(labels), "label")
    say(f"{n_labels}, mean confidence {confidence.mean():.2f}{said}: {where}")
    if hasattr(learned, "backbone"):
        say(
            "Confidences of networks are not calibrated: compare them with each other, but do not "
            "read them as probabilities of being right."
        )


def evaluate(
    data: Data,
    labels: Labels = None,
    gallery: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="Z.npy y.npy", help="Samples to search instead of the others."),
    ] = None,
    label: LabelColumn = None,
    id_column: IdColumn = None,
    features: FeatureColumns = None,
    ignore: IgnoredColumns = None,
    no_label: NoLabel = None,
    encoding: Encoding = None,
    ks: Annotated[str, typer.Option(help="The K of R@K, separated by commas.")] = "1,2,4,8",
    only: Annotated[
        str | None,
        typer.Option(
            "--scores",
            metavar="NAMES",
            help="Scores to compute, separated by commas, like R@1,MAP@R; default: all. NMI and F1 "
            "need k-means, which is slow for many classes.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score an embedding against the true labels, in percent."""
    neighbors = numbers(ks, "--ks")
    from ssdml.cli.terminal import print_columns, spinner
    from ssdml.evaluation.scores import evaluate as score
    from ssdml.utils.labels import is_unlabeled

    choice = samples.chosen(label, None, id_column, features, ignore)
    raw, y, _ = samples.read_labeled(data, labels, choice, no_label=no_label, encoding=encoding)
    embedding, _ = samples.features_of(raw.items, raw.summary)
    searched = None
    if gallery is not None:
        others, y_others, _ = samples.read_labeled(str(gallery[0]), gallery[1], choice)
        searched = samples.features_of(others.items, None)[0], y_others
    with spinner(f"scoring {len(embedding)} samples"):
        wanted = None if only is None else names(only)
        scores = score(embedding, y, ks=neighbors, scores=wanted, gallery=searched)
    if as_json:
        put(f"{json.dumps(scores)}\n")
        return
    if gallery is None and len(set(y[~is_unlabeled(y)].tolist())) == 1:
        say("All labels are of one class, so these scores mean nothing. Label samples of others.")
    print_columns(("score", "%"), [(name, f"{value:.1f}") for name, value in scores.items()])
    next_steps("score the features as they were, too: the difference is what the embedding gains")


def _loaded(model: Path) -> Any:
    from ssdml.utils.persistence import saved_config

    learned = _estimator(saved_config(model).get("class")).load(model)
    vars(learned).pop("feature_names_in_", None)  # new samples are read in the order of the fit
    return learned


def _check_shape(data: str, X: Any, learned: Any) -> None:
    n_features = getattr(learned, "n_features_in_", None)
    if n_features is not None and tuple(X.shape[1:]) != (n_features,):
        raise ValueError(
            f"{data} must hold rows of {n_features} numbers, as in the fit; got shape "
            f"{tuple(X.shape)}."
        )


def _estimator(name: str | None) -> Any:
    """Class of the estimator of this name; SSDML by default."""
    if name == "DeepSSDML":
        from ssdml.deep.estimator import DeepSSDML

        return DeepSSDML
    if name == "PublishedDeepSSDML":
        from ssdml.deep.published import PublishedDeepSSDML

        return PublishedDeepSSDML
    from ssdml.metric.estimator import SSDML

    return SSDML


def _save(save: Callable[[Path], None], out: Path) -> None:
    """Save a model, in the folder for temporary files if `out` fails: the fit may take hours."""
    from tempfile import mkdtemp

    try:
        save(out)
    except OSError as refusal:
        spare = Path(mkdtemp(prefix="ssdml-"))
        try:
            save(spare / out.name)
        except OSError:
            spare.rmdir()
            raise refusal from None
        message = f"{refusal.strerror} The model was saved in {spare / out.name} instead."
        raise OSError(refusal.errno, message, str(out)) from refusal
