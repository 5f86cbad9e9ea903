"""What a metric learned from a few labels, and its parts, are worth where they may matter.

``python examples/metric_parts.py digits caltech101 --out parts`` labels five samples of each of
half of the classes. It scores the input, ``SSDML``, and ``DeepSSDML`` with a residual head on the
features, with and without triplets in the batch, steps of L and orthonormality, by

- NMI and R@1 of the other classes,
- hard R@1: that of test samples of the quarter of the classes on which the input's is lowest,
- AUROC: how well the distance to the nearest training sample tells samples of the other classes.

``--columns 4`` makes embeddings of four columns; those of networks are without the input. Finished
fits are kept in the folder. Data sets with fewer than 20 classes always train on the same half.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command_line import positive, usage_errors
from reproduction.loss_search import class_disjoint
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from ssdml import SSDML, DeepSSDML
from ssdml.datasets import Dataset, load_dataset
from ssdml.evaluation import evaluate
from ssdml.experiments.analysis.statistics import mean_interval
from ssdml.metric.selection import nearest_neighbor_correct
from ssdml.networks.backbones import ResidualHead
from ssdml.utils.linalg import unit_rows

LABELS = 5
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

    def __init__(self, dataset: Dataset, seed: int) -> None:
        split = class_disjoint(dataset, seed)
        X, y = unit_rows(split.X.reshape(len(split.y), -1).astype(np.float64)), split.y
        rng = np.random.default_rng(seed)
        known = rng.permutation(np.flatnonzero(~split.test))
        test, train = np.split(known, [len(known) // 3])
        self.X, self.others, self.test = X[train], X[split.test], X[test]
        self.y_others, self.y_test = y[split.test], y[test]
        self.labels = np.full(len(train), -1)
        for c in np.unique(y[train]):
            labeled = np.flatnonzero(y[train] == c)[:LABELS]
            self.labels[labeled] = c
        found = nearest_neighbor_correct(self.test, self.y_test, np.arange(len(test)))
        classes, codes = np.unique(self.y_test, return_inverse=True)
        found_of_class = np.bincount(codes, found) / np.bincount(codes)
        hard = classes[np.argsort(found_of_class, kind="stable")[: max(1, len(classes) // 4)]]
        self.hard = np.flatnonzero(np.isin(self.y_test, hard))

    def scores(self, model: SSDML | DeepSSDML | None) -> dict[str, float]:
        """Fit a model and score its embedding, in percent; None: the input."""
        embed = (lambda X: X) if model is None else model.fit(self.X, self.labels).transform
        Z, test, others = (np.asarray(embed(X)) for X in (self.X, self.test, self.others))
        scores = evaluate(others, self.y_others, scores=["NMI", "R@1"])
        scores["hard R@1"] = 100 * nearest_neighbor_correct(test, self.y_test, self.hard).mean()
        search = NearestNeighbors(n_neighbors=1).fit(Z)
        gaps = search.kneighbors(np.vstack([test, others]))[0][:, 0]
        scores["AUROC"] = 100 * roc_auc_score(np.repeat([0, 1], [len(test), len(others)]), gaps)
        return {name: round(float(score), 3) for name, score in scores.items()}


def estimator(
    method: str, n_columns: int | None, epochs: int, seed: int, n_features: int
) -> SSDML | DeepSSDML | None:
    """Unfitted model of a method, with ``n_columns`` or the default; None for the input."""
    if method == "input":
        return None
    given: dict[str, Any] = {"random_state": seed}
    if n_columns is not None:
        given["n_components"] = n_columns
    if method == "ssdml":
        return SSDML(**given)
    if n_columns is not None:
        given["input_weight"] = 0.0
    torch.manual_seed(seed)
    schedule = {"epochs": epochs, "epochs_per_partition": max(1, epochs // 4)}
    return DeepSSDML(ResidualHead(n_features), **schedule, **(given | PARTS[method]))


def main() -> None:
    """Run the methods, and print mean scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--epochs", type=positive, default=20)
    parser.add_argument("--columns", type=positive)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--out", type=Path, default=Path("parts"))
    given = parser.parse_args()
    with usage_errors(parser):
        loaded = {name: load_dataset(name) for name in given.datasets}
    given.out.mkdir(parents=True, exist_ok=True)
    for name, dataset in loaded.items():
        columns = "" if given.columns is None else f"-{given.columns}-columns"
        path = given.out / f"{Path(name).stem}{columns}.jsonl"
        path.touch()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [row for row in rows if row["epochs"] == given.epochs and row["seed"] < given.seeds]
        done = {(row["method"], row["seed"]) for row in rows}
        for seed in range(given.seeds):
            problem = Problem(dataset, seed)
            for method in given.methods:
                if (method, seed) in done:
                    continue
                n_features = problem.X.shape[1]
                model = estimator(method, given.columns, given.epochs, seed, n_features)
                scores = problem.scores(model)
                row = {"method": method, "seed": seed, "epochs": given.epochs}
                rows.append(row | {"scores": scores})
                with path.open("a") as file:
                    file.write(f"{json.dumps(rows[-1])}\n")
        print(f"{path.stem}: {given.seeds} seeds")
        for method in given.methods:
            of_method = [row["scores"] for row in rows if row["method"] == method]
            means = (f"{s} {mean_interval([row[s] for row in of_method]).mean:.1f}" for s in SCORES)
            print(f"  {method:<37}", *means)


if __name__ == "__main__":
    main()
