"""The commands of one model: ``ssdml fit | transform | evaluate``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ssdml.cli.options import Force, numbers, say

NAMES = "classes.json"  # names of the classes that a model calls 0, 1, ...


def fit(
    x: Annotated[Path, typer.Argument(metavar="X.npy", help="Samples, one per row; or images.")],
    y: Annotated[
        Path, typer.Argument(metavar="y.npy", help="Labels; -1, NaN or empty: unlabeled.")
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL/", help="Folder for the model.")],
    n_components: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Columns of the metric; default: as many as X, or 64 for images. With --network "
            "the embedding may add those of the input.",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="mnist|cifar|wide-resnet", help="Train this network on images with the metric."
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
    random_state: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
    n_jobs: Annotated[int, typer.Option(help="Threads; -1: all cores.")] = -1,
    force: Force = False,
) -> None:
    """Learn a metric from samples of which a few are labeled."""
    _refuse_to_replace(out, force)
    if network is None and (epochs is not None or checkpoints is not None):
        raise typer.BadParameter("need --network.", param_hint="--epochs and --checkpoints")
    if checkpoints is not None and checkpoints.absolute() == out.absolute():
        raise typer.BadParameter("must be two folders.", param_hint="--checkpoints and --out")
    from ssdml.utils.validation import UNLABELED

    X, labels = _read_pair(x, y)
    if X.ndim > 2 and network is None:
        raise ValueError(
            f"{x} must hold one row of numbers per sample; got shape {X.shape}. Pass --network for "
            "images."
        )
    codes, names = _encoded(labels)
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
        model.fit(X, codes)
    except KeyboardInterrupt:
        hint = "" if checkpoints is None else f"The same command resumes from {checkpoints}."
        raise KeyboardInterrupt(hint) from None
    _save(model.set_params(verbose=0), out)
    if names:
        (out / NAMES).write_text(json.dumps(names) + "\n", encoding="utf-8")
    else:
        (out / NAMES).unlink(missing_ok=True)
    n_labeled = int((codes != UNLABELED).sum())
    say(
        f"Learned {len(model.classes_)} classes from {n_labeled} labeled and "
        f"{len(X) - n_labeled} unlabeled samples in {time.perf_counter() - start:.1f} s: {out}"
    )
    if names:
        say(f"The model's classes are numbers; their names are in {out / NAMES}.")


def transform(
    model: Annotated[Path, typer.Argument(metavar="MODEL/", help="Folder from `ssdml fit`.")],
    x: Annotated[Path, typer.Argument(metavar="X.npy", help="Samples, as in the fit.")],
    out: Annotated[Path, typer.Option(metavar="Z.npy", help="File for the embedding.")],
    force: Force = False,
) -> None:
    """Embed samples with a learned metric."""
    _refuse_to_replace(out, force)
    import numpy as np

    from ssdml.cli.terminal import spinner
    from ssdml.datasets.reading.arrays import read_npy
    from ssdml.utils.persistence import atomic_write, saved_class

    learned, X = _estimator(saved_class(model)).load(model), read_npy(x)
    _check_samples(x, X)
    n_features = getattr(learned, "n_features_in_", None)
    if n_features is not None and X.ndim != 2:
        raise ValueError(
            f"{x} must hold rows of {n_features} numbers, as in the fit; got shape {X.shape}."
        )
    with spinner(f"embedding {len(X)} samples"):
        Z = learned.transform(X)
    with atomic_write(out) as unfinished, unfinished.open("wb") as file:
        np.save(file, Z)
    say(f"{len(Z)} rows of {Z.shape[1]} numbers: {out}")


def evaluate(
    z: Annotated[Path, typer.Argument(metavar="Z.npy", help="Embedding, one row per sample.")],
    y: Annotated[Path, typer.Argument(metavar="y.npy", help="True labels; unlabeled: left out.")],
    gallery: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="Z.npy y.npy", help="Samples to search instead of the others."),
    ] = None,
    ks: Annotated[str, typer.Option(help="The K of R@K, separated by commas.")] = "1,2,4,8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score an embedding against the true labels, in percent."""
    neighbors = numbers(ks, "--ks")
    from ssdml.cli.terminal import print_columns, spinner
    from ssdml.evaluation.scores import evaluate as score

    embedding, labels = _read_pair(z, y)
    searched = None if gallery is None else _read_pair(*gallery)
    with spinner(f"scoring {len(embedding)} samples"):
        scores = score(embedding, labels, ks=neighbors, gallery=searched)
    if as_json:
        typer.echo(json.dumps(scores))
    else:
        print_columns(("score", "%"), [(name, f"{value:.1f}") for name, value in scores.items()])


def _encoded(labels: Any) -> tuple[Any, list[str]]:
    """Labels as whole numbers, -1 for unlabeled, and the class names unless they are numbers."""
    import numpy as np

    from ssdml.utils.labels import encode_partial_labels
    from ssdml.utils.validation import UNLABELED

    codes, classes = encode_partial_labels(labels)
    if classes.dtype.kind not in "iuf" or (classes != np.rint(classes)).any():
        return codes, [str(name) for name in classes]
    given = np.full(len(codes), UNLABELED)
    given[codes >= 0] = classes[codes[codes >= 0]]
    return given, []


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


def _refuse_to_replace(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; --force replaces it.")


def _save(model: Any, out: Path) -> None:
    """Save a model, in the folder for temporary files if `out` fails: the fit may take hours."""
    from tempfile import mkdtemp

    try:
        model.save(out)
    except OSError as refusal:
        spare = Path(mkdtemp(prefix="ssdml-"))
        try:
            model.save(spare / out.name)
        except OSError:
            spare.rmdir()
            raise refusal from None
        message = f"{refusal.strerror} The model was saved in {spare / out.name} instead."
        raise OSError(refusal.errno, message, str(out)) from refusal


def _read_pair(rows: Path, labels: Path) -> tuple[Any, Any]:
    """Read samples and their labels."""
    from ssdml.datasets.reading.arrays import read_npy

    X, y = read_npy(rows), read_npy(labels)
    _check_samples(rows, X)
    if y.ndim != 1 or X.shape[:1] != y.shape:
        raise ValueError(
            f"{labels} must have one label per row of {rows}; got shapes {y.shape}, {X.shape}."
        )
    return X, y


def _check_samples(path: Path, X: Any) -> None:
    if X.dtype.kind not in "biuf":
        raise ValueError(
            f"{path} must hold numbers; got dtype {X.dtype}. Save X.astype(float) of features."
        )
    if X.ndim < 2:
        raise ValueError(
            f"{path} must hold one row or one image per sample; got shape {X.shape}. Save "
            "X.reshape(-1, 1) if a sample is one number."
        )
