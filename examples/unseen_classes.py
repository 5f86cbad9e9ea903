"""What a metric learned from a few labels is worth on classes that have none, and its parts.

``python examples/unseen_classes.py digits caltech101 --out unseen`` labels five samples of each of
half of the classes and scores the others: the input, ``SSDML`` and ``DeepSSDML`` with a residual
head on the features, with and without triplets in the batch, steps of L and orthonormality.
Interrupted runs are resumed. Data sets with fewer than 20 classes always train on the same half.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from command_line import positive, usage_errors
from reproduction.loss_search import class_disjoint

from ssdml import DeepSSDML
from ssdml.datasets import load_dataset
from ssdml.experiments.analysis.tables import score_table
from ssdml.experiments.compare import compare
from ssdml.experiments.methods.registry import METHODS
from ssdml.networks.backbones import ResidualHead

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


def with_head(
    random_state: int, n_jobs: int | None, *, n_features: int, n_epochs: int, **parameters: Any
) -> DeepSSDML:
    """A residual head, which is the input at first, trained in four partitions."""
    torch.manual_seed(random_state)
    head = ResidualHead(n_features)
    given = {"random_state": random_state, "n_jobs": n_jobs, **parameters}
    return DeepSSDML(head, epochs=n_epochs, epochs_per_partition=max(1, n_epochs // 4), **given)


def main() -> None:
    """Run the methods, and print mean scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--epochs", type=positive, default=20)
    parser.add_argument("--out", type=Path, default=Path("unseen"))
    given = parser.parse_args()
    with usage_errors(parser):
        loaded = {name: load_dataset(name) for name in given.datasets}
    for name, dataset in loaded.items():
        rows = []
        for seed in range(given.seeds):
            split = class_disjoint(dataset, seed)
            sizes = {"n_features": int(split.X[0].size), "n_epochs": given.epochs}
            deep = {part: partial(with_head, **sizes, **made) for part, made in PARTS.items()}
            rows += compare(
                split,
                {"input": METHODS["input"], "ssdml": METHODS["ssdml"], **deep},
                out=given.out / Path(name).stem,
                labels_per_class=[LABELS],
                seeds=[seed],
                features="unit",
                resume=True,
                map_rows=0,
            )
        print(f"{name}: scores of classes without labels, {given.seeds} seeds")
        for line in score_table(rows).lines:
            scores = (f"{score} {line.scores[score].estimate.mean:.1f}" for score in ("NMI", "R@1"))
            print(f"  {line.method:<37}", *scores)


if __name__ == "__main__":
    main()
