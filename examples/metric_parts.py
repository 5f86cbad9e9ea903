"""Evaluate a metric learned from a few labels, and its parts, on classes without labels.

``python examples/metric_parts.py digits caltech101 --out parts`` labels five samples of each of
half of the classes. It scores the input, ``SSDML``, and ``DeepSSDML`` with a residual head on the
features, with and without triplets in the batch, steps of L and orthonormality, by

- NMI and R@1 of the other classes,
- hard R@1: that of test samples of the quarter of the classes on which the input's is lowest,
- AUROC: how well the distance to the nearest training sample tells samples of the other classes.

``--columns 4`` makes embeddings of four columns; those of networks are without the input.
``--network`` trains the paper's network for images of their size instead of a residual head.
Finished fits are kept in the folder. Data sets with fewer than 20 classes always train on the same
half.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command_line import add_row, positive, read_rows, usage_errors
from reproduction.loss_search import MAX_PER_CLASS, class_disjoint
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from ssdml import SSDML, DeepSSDML
from ssdml.datasets import Dataset, load_dataset
from ssdml.evaluation import evaluate
from ssdml.experiments.analysis.statistics import mean_interval
from ssdml.experiments.methods.deep import NETWORKS, OfImages
from ssdml.metric.selection import nearest_neighbor_correct
from ssdml.networks.backbones import ResidualHead
from ssdml.utils.linalg import unit_rows
from ssdml.utils.typing import Array

DEEP = "deep-ssdml"
PARTS: dict[str, dict[str, Any]] = {
    DEEP: {},
    f"{DEEP}[triplets=0]": {"triplets": 0.0},
    f"{DEEP}[metric_steps=0]": {"metric_steps": 0},
    f"{DEEP}[orthogonal=false]": {"orthogonal": False},
    f"{DEEP}[input_weight=0]": {"input_weight": 0.0},
    f"{DEEP}[input_weight=0;triplets=0]": {"input_weight": 0.0, "triplets": 0.0},
}
METHODS = ("input", "ssdml", *PARTS)
SCORES = ("NMI", "R@1", "hard R@1", "AUROC")


class Problem:
    """Training samples with labels, test samples of their classes, and samples of others."""

    def __init__(self, dataset: Dataset, seed: int, n_labels: int, per_class: int) -> None:
        split = class_disjoint(dataset, seed, per_class=per_class)
        X, y = split.X.reshape(len(split.y), -1), split.y
        rng = np.random.default_rng(seed)
        known = rng.permutation(np.flatnonzero(~split.test))
        test, train = np.split(known, [len(known) // 3])
        self.X, self.others, self.test = X[train], X[split.test], X[test]
        self.y_others, self.y_test = y[split.test], y[test]
        self.labels = np.full(len(train), -1)
        for c in np.unique(y[train]):
            labeled = np.flatnonzero(y[train] == c)[:n_labels]
            self.labels[labeled] = c
        rows = np.arange(len(test))
        found = nearest_neighbor_correct(unit(self.test), self.y_test, rows)
        classes, codes = np.unique(self.y_test, return_inverse=True)
        found_of_class = np.bincount(codes, found) / np.bincount(codes)
        hard = classes[np.argsort(found_of_class, kind="stable")[: max(1, len(classes) // 4)]]
        self.hard = np.flatnonzero(np.isin(self.y_test, hard))

    def scores(self, model: SSDML | DeepSSDML | OfImages | None) -> dict[str, float]:
        """Fit a model and score its embedding, in percent; None: the input."""
        given = [self.X, self.test, self.others]
        if not isinstance(model, OfImages):
            given = [unit(X) for X in given]
        embed = (lambda X: X) if model is None else model.fit(given[0], self.labels).transform
        Z, test, others = (np.asarray(embed(X)) for X in given)
        scores = evaluate(others, self.y_others, scores=["NMI", "R@1"])
        scores["hard R@1"] = 100 * nearest_neighbor_correct(test, self.y_test, self.hard).mean()
        search = NearestNeighbors(n_neighbors=1).fit(Z)
        gaps = search.kneighbors(np.vstack([test, others]))[0][:, 0]
        scores["AUROC"] = 100 * roc_auc_score(np.repeat([0, 1], [len(test), len(others)]), gaps)
        return {name: round(float(score), 3) for name, score in scores.items()}


def unit(X: Array) -> Array:
    """Rows of Euclidean length 1."""
    return unit_rows(X.astype(np.float64))


def estimator(
    method: str,
    n_columns: int | None,
    epochs: int,
    seed: int,
    n_features: int,
    images: tuple[int, ...] | None,
) -> SSDML | DeepSSDML | OfImages | None:
    """Unfitted model of a method, with ``n_columns`` or the default; None for the input.

    ``images`` is their shape if a network is trained on them, else None.
    """
    if method == "input":
        return None
    given: dict[str, Any] = {"random_state": seed}
    if n_columns is not None:
        given["n_components"] = n_columns
    if method == "ssdml":
        return SSDML(**given)
    if n_columns is not None:
        given["input_weight"] = 0.0
    given |= {"epochs": epochs, "epochs_per_partition": max(1, epochs // 4)} | PARTS[method]
    if images is not None:
        backbone, dimension = NETWORKS[images[:2]]
        return OfImages(DeepSSDML(backbone, **({"n_components": dimension} | given)), images)
    torch.manual_seed(seed)
    return DeepSSDML(ResidualHead(n_features), **given)


def main() -> None:
    """Run the methods, and print mean scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--epochs", type=positive, default=20)
    parser.add_argument("--labels", type=positive, default=5, help="per class")
    parser.add_argument("--per-class", type=positive, default=MAX_PER_CLASS, help="most samples")
    parser.add_argument("--columns", type=positive)
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--out", type=Path, default=Path("parts"))
    given = parser.parse_args()
    with usage_errors(parser):
        loaded = {name: load_dataset(name) for name in given.datasets}
    for name, dataset in loaded.items():
        if given.network and (dataset.item_shape or ())[:2] not in NETWORKS:
            parser.error(f"--network needs images of {[*NETWORKS]} pixels; {name} has none")
    settings = {key: vars(given)[key] for key in ("epochs", "labels", "per_class")}
    for name, dataset in loaded.items():
        columns = "" if given.columns is None else f"-{given.columns}-columns"
        path = given.out / f"{Path(name).stem}{columns}{'-network' * given.network}.jsonl"
        rows = [
            row
            for row in read_rows(path)
            if settings.items() <= row.items() and row["seed"] < given.seeds
        ]
        done = {(row["method"], row["seed"]) for row in rows}
        images = dataset.item_shape if given.network else None
        for seed in range(given.seeds):
            problem = Problem(dataset, seed, given.labels, given.per_class)
            for method in given.methods:
                if (method, seed) in done:
                    continue
                n_features = problem.X.shape[1]
                model = estimator(method, given.columns, given.epochs, seed, n_features, images)
                scores = problem.scores(model)
                rows.append({"method": method, "seed": seed} | settings | {"scores": scores})
                add_row(path, rows[-1])
        print(f"{path.stem}: {given.seeds} seeds")
        for method in given.methods:
            of_method = [row["scores"] for row in rows if row["method"] == method]
            means = (f"{s} {mean_interval([row[s] for row in of_method]).mean:.1f}" for s in SCORES)
            print(f"  {method:<37}", *means)


if __name__ == "__main__":
    main()
