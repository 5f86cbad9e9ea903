"""The commands of one model: ``ssdml fit | transform | evaluate``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ssdml.cli_values import Force, numbers, say


def fit(
    x: Annotated[Path, typer.Argument(metavar="X.npy", help="Items, a row each; or images.")],
    y: Annotated[
        Path, typer.Argument(metavar="y.npy", help="Labels; -1, NaN or empty: unlabelled.")
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL/", help="Folder for the model.")],
    n_components: Annotated[
        int | None,
        typer.Option(min=1, help="Columns of the embedding; else as many as X, or 64 of images."),
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
    n_neighbors: Annotated[int, typer.Option(min=1, help="Neighbours in the graph.")] = 10,
    random_state: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
    n_jobs: Annotated[int, typer.Option(help="Threads; -1: all cores.")] = -1,
    force: Force = False,
) -> None:
    """Learn a metric from items of which a few are labelled."""
    _refuse_to_replace(out, force)
    if network is None and (epochs is not None or checkpoints is not None):
        raise typer.BadParameter("are for --network.", param_hint="--epochs and --checkpoints")
    if network is not None and backbone is not None:
        raise typer.BadParameter("cannot both be given.", param_hint="--backbone and --network")
    from ssdml.datasets import encode_partial_labels

    items, labels = _read_pair(x, y)
    codes, classes = encode_partial_labels(labels)
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
    _save(model.fit(items, codes).set_params(verbose=0), out)
    n_labeled = int((codes >= 0).sum())
    say(
        f"Learned {len(classes)} classes from {n_labeled} labelled and {len(items) - n_labeled} "
        f"unlabelled rows in {time.perf_counter() - start:.1f} s: {out}"
    )


def transform(
    model: Annotated[Path, typer.Argument(metavar="MODEL/", help="What `ssdml fit` wrote.")],
    x: Annotated[Path, typer.Argument(metavar="X.npy", help="Items, as those that were fitted.")],
    out: Annotated[Path, typer.Option(metavar="Z.npy", help="File for the embedding.")],
    force: Force = False,
) -> None:
    """Embed items with a learned metric."""
    _refuse_to_replace(out, force)
    import numpy as np

    from ssdml.experiments.terminal import shown_wait
    from ssdml.files import whole_file
    from ssdml.table_readers import read_npy

    learned, items = _loaded(model), read_npy(x)
    with shown_wait(f"embedding {len(items)} rows"):
        Z = learned.transform(items)
    with whole_file(out) as unfinished, unfinished.open("wb") as file:
        np.save(file, Z)
    say(f"{len(Z)} rows of {Z.shape[1]} numbers: {out}")


def evaluate(
    z: Annotated[Path, typer.Argument(metavar="Z.npy", help="Embedding, a row an item.")],
    y: Annotated[Path, typer.Argument(metavar="y.npy", help="True labels; unlabelled rows out.")],
    gallery: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="Z.npy y.npy", help="Rows to search, in the place of the others."),
    ] = None,
    ks: Annotated[str, typer.Option(help="The K of R@K, with commas between.")] = "1,2,4,8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score an embedding against the true labels, in percent."""
    neighbors = numbers(ks, "--ks")
    from ssdml.evaluation import evaluate as score
    from ssdml.experiments.terminal import print_columns, shown_wait

    embedding, labels = _read_pair(z, y)
    searched = None if gallery is None else _read_pair(*gallery)
    with shown_wait(f"scoring {len(embedding)} rows"):
        scores = score(embedding, labels, ks=neighbors, gallery=searched)
    if as_json:
        typer.echo(json.dumps(scores))
    else:
        print_columns(("score", "%"), [(name, f"{value:.1f}") for name, value in scores.items()])


def _estimator(network: str | None, **params: Any) -> Any:
    """What learns, of images or of features, with the parameters that are not None."""
    given = {name: value for name, value in params.items() if value is not None}
    if network is not None:
        from ssdml.deep import DeepSSDML

        return DeepSSDML(**given)
    from ssdml.estimator import SSDML

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
    from ssdml.persistence import saved_class

    if saved_class(folder) == "DeepSSDML":
        from ssdml.deep import DeepSSDML

        return DeepSSDML.load(folder)
    from ssdml.estimator import SSDML

    return SSDML.load(folder)


def _read_pair(rows: Path, labels: Path) -> tuple[Any, Any]:
    """Two arrays with an entry a row each."""
    from ssdml.table_readers import read_npy

    X, y = read_npy(rows), read_npy(labels)
    if X.shape[:1] != y.shape[:1]:
        raise ValueError(
            f"{labels} must have a label for each row of {rows}; got shapes {y.shape}, {X.shape}."
        )
    return X, y
