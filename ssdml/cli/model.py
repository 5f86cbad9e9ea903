"""The commands of one model: ``ssdml fit | transform | evaluate``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ssdml.cli.options import Force, numbers, say

NAMES = "classes.json"  # of the classes that a model knows as 0, 1, ...


def fit(
    x: Annotated[Path, typer.Argument(metavar="X.npy", help="Items, a row each; or images.")],
    y: Annotated[
        Path, typer.Argument(metavar="y.npy", help="Labels; -1, NaN or empty: unlabeled.")
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL/", help="Folder for the model.")],
    n_components: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Columns of the metric; else as many as X, or 64 of images. With --network the "
            "embedding may have the input's beside them.",
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(metavar="residual", help="Learned before the linear metric.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="mnist|cifar|wide-resnet", help="Learned in turn with the metric, from images."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes of --network over the images; else 50.")
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER/", help="Where --network can go on from, if it is stopped."),
    ] = None,
    n_neighbors: Annotated[int, typer.Option(min=1, help="Neighbors in the graph.")] = 10,
    random_state: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
    n_jobs: Annotated[int, typer.Option(help="Threads; -1: all cores.")] = -1,
    force: Force = False,
) -> None:
    """Learn a metric from items of which a few are labeled."""
    _refuse_to_replace(out, force)
    _refuse_mixed_options(network, backbone, epochs, checkpoints, out)
    from ssdml.utils.validation import UNLABELED

    items, labels = _read_pair(x, y)
    if items.ndim > 2 and network is None:
        raise ValueError(
            f"{x} must hold a row of numbers an item; got shape {items.shape}. Images need "
            "--network."
        )
    numbers_of_classes, names = _as_numbers(labels)
    model = _estimator(
        network,
        n_components=n_components,
        backbone=network or backbone,
        epochs=epochs,
        checkpoint_dir=checkpoints,
        n_neighbors=n_neighbors,
        random_state=random_state,
        n_jobs=n_jobs,
        verbose=1,  # a bar where there is a terminal
    )
    start = time.perf_counter()
    try:
        model.fit(items, numbers_of_classes)
    except KeyboardInterrupt:
        kept = "" if checkpoints is None else f"The same command goes on from {checkpoints}."
        raise KeyboardInterrupt(kept) from None
    _save(model.set_params(verbose=0), out)
    _keep_names(names, out)
    n_labeled = int((numbers_of_classes != UNLABELED).sum())
    say(
        f"Learned {len(model.classes_)} classes from {n_labeled} labeled and "
        f"{len(items) - n_labeled} unlabeled rows in {time.perf_counter() - start:.1f} s: {out}"
    )
    if names:
        say(f"The model's classes are numbers, whose names are in {out / NAMES}.")


def transform(
    model: Annotated[Path, typer.Argument(metavar="MODEL/", help="What `ssdml fit` wrote.")],
    x: Annotated[Path, typer.Argument(metavar="X.npy", help="Items, as those that were fitted.")],
    out: Annotated[Path, typer.Option(metavar="Z.npy", help="File for the embedding.")],
    force: Force = False,
) -> None:
    """Embed items with a learned metric."""
    _refuse_to_replace(out, force)
    import numpy as np

    from ssdml.cli.terminal import shown_wait
    from ssdml.datasets.tables import read_npy
    from ssdml.utils.persistence import atomic_write

    learned, items = _loaded(model), read_npy(x)
    _check_items(x, items)
    n_columns = getattr(learned, "n_features_in_", None)
    if n_columns is not None and items.ndim != 2:
        raise ValueError(
            f"{x} must hold rows of {n_columns} numbers, as those that were fitted; got shape "
            f"{items.shape}."
        )
    with shown_wait(f"embedding {len(items)} rows"):
        Z = learned.transform(items)
    with atomic_write(out) as unfinished, unfinished.open("wb") as file:
        np.save(file, Z)
    say(f"{len(Z)} rows of {Z.shape[1]} numbers: {out}")


def evaluate(
    z: Annotated[Path, typer.Argument(metavar="Z.npy", help="Embedding, a row an item.")],
    y: Annotated[Path, typer.Argument(metavar="y.npy", help="True labels; unlabeled rows out.")],
    gallery: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="Z.npy y.npy", help="Rows to search, in the place of the others."),
    ] = None,
    ks: Annotated[str, typer.Option(help="The K of R@K, with commas between.")] = "1,2,4,8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score an embedding against the true labels, in percent."""
    neighbors = numbers(ks, "--ks")
    from ssdml.cli.terminal import print_columns, shown_wait
    from ssdml.evaluation.scores import evaluate as score

    embedding, labels = _read_pair(z, y)
    searched = None if gallery is None else _read_pair(*gallery)
    with shown_wait(f"scoring {len(embedding)} rows"):
        scores = score(embedding, labels, ks=neighbors, gallery=searched)
    if as_json:
        typer.echo(json.dumps(scores))
    else:
        print_columns(("score", "%"), [(name, f"{value:.1f}") for name, value in scores.items()])


def _refuse_mixed_options(
    network: str | None,
    backbone: str | None,
    epochs: int | None,
    checkpoints: Path | None,
    out: Path,
) -> None:
    if network is None and (epochs is not None or checkpoints is not None):
        raise typer.BadParameter("are for --network.", param_hint="--epochs and --checkpoints")
    if network is not None and backbone is not None:
        raise typer.BadParameter("cannot both be given.", param_hint="--backbone and --network")
    if checkpoints is not None and checkpoints.absolute() == out.absolute():
        raise typer.BadParameter("must be two folders.", param_hint="--checkpoints and --out")


def _as_numbers(labels: Any) -> tuple[Any, list[str]]:
    """Labels as whole numbers, -1 where there is none, and the names if they had to be numbered."""
    import numpy as np

    from ssdml.utils.labels import encode_partial_labels
    from ssdml.utils.validation import UNLABELED

    codes, classes = encode_partial_labels(labels)
    if classes.dtype.kind not in "iuf" or (classes != np.rint(classes)).any():
        return codes, [str(name) for name in classes]
    given = np.full(len(codes), UNLABELED)
    given[codes >= 0] = classes[codes[codes >= 0]]
    return given, []


def _keep_names(names: list[str], folder: Path) -> None:
    """Write the names of the classes 0, 1, ... beside the model; of numbers there are none."""
    if names:
        (folder / NAMES).write_text(json.dumps(names) + "\n", encoding="utf-8")
    else:
        (folder / NAMES).unlink(missing_ok=True)


def _estimator(network: str | None, **params: Any) -> Any:
    """What learns, of images or of features, with the parameters that are not None."""
    given = {name: value for name, value in params.items() if value is not None}
    if network is not None:
        from ssdml.deep.estimator import DeepSSDML

        return DeepSSDML(**given)
    from ssdml.metric.estimator import SSDML

    return SSDML(**given)


def _refuse_to_replace(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; --force replaces it.")


def _save(model: Any, out: Path) -> None:
    """Save a model where it is wanted, or else where temporary files go: it may have cost hours."""
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
        told = f"{refusal.strerror} What was learned is in {spare / out.name}."
        raise OSError(refusal.errno, told, str(out)) from refusal


def _loaded(folder: Path) -> Any:
    """The model in a folder, of features or of images."""
    from ssdml.utils.persistence import saved_class

    name = saved_class(folder)
    if name == "DeepSSDML":
        from ssdml.deep.estimator import DeepSSDML

        return DeepSSDML.load(folder)
    if name == "PublishedDeepSSDML":
        from ssdml.deep.published import PublishedDeepSSDML

        return PublishedDeepSSDML.load(folder)
    from ssdml.metric.estimator import SSDML

    return SSDML.load(folder)


def _check_items(path: Path, items: Any) -> None:
    if items.dtype.kind not in "biuf":
        raise ValueError(
            f"{path} must hold numbers; got dtype {items.dtype}. Save X.astype(float) of features."
        )
    if items.ndim < 2:
        raise ValueError(
            f"{path} must hold one row or one image per item; got shape {items.shape}. Save "
            "X.reshape(-1, 1) if an item is one number."
        )


def _read_pair(rows: Path, labels: Path) -> tuple[Any, Any]:
    """Two arrays with an entry a row each."""
    from ssdml.datasets.tables import read_npy

    X, y = read_npy(rows), read_npy(labels)
    _check_items(rows, X)
    if y.ndim != 1 or X.shape[:1] != y.shape:
        raise ValueError(
            f"{labels} must have a label for each row of {rows}; got shapes {y.shape}, {X.shape}."
        )
    return X, y
