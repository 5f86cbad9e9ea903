"""Why the published method drifts: its triplets with another order, and with farther negatives.

``python examples/explain_published.py mnist --order affinities oracle labels --negatives near far``
trains the method of Dutta et al. (2021) with each order of the neighbors and each source of
negatives, and prints, per partition, the share of right negatives, NMI and R@1 on the test images.
Orders: ``affinities`` is the published one, ``oracle`` sorts by the true labels, ``labels`` by the
classes that the labels propagate to. Negatives: ``near`` are the last of the k nearest, as
published, ``far`` the least similar of the k + 1st to the 5 k-th neighbor. About 10 minutes per
combination, seed and 10 epochs without a GPU. Rows go to ``--out``; interrupted runs are resumed.
"""

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from command_line import add_row, images_in_memory, positive, read_rows
from reproduction.published import LABELS_PER_CLASS

from ssdml.datasets import label_scarce_split
from ssdml.deep.published import PublishedDeepSSDML, PublishedTrainer
from ssdml.evaluation import triplet_purity
from ssdml.experiments.methods.deep import NETWORKS, OTHER_NETWORK, OfImages
from ssdml.graphs import class_masses, knn_graph, propagate_affinities
from ssdml.graphs.triplets import Triplets, affinity_lookup
from ssdml.networks.backbones import paper_network

ORDERS = ("affinities", "oracle", "labels")
NEGATIVES = ("near", "far")
REACH = 5  # "far" negatives are among this many times k neighbors


@dataclass(eq=False, repr=False)
class Explained(PublishedDeepSSDML):
    """The published method with another order of the neighbors, or farther negatives."""

    order: str = "affinities"
    negatives: str = "near"
    truth: Any = None  # class of each fitted sample, for "oracle" and for the shares

    def _new_trainer(self, samples, labels, network, seed, device):
        return ExplainedTrainer(samples, labels, network, self, seed, device)


class ExplainedTrainer(PublishedTrainer):
    """Trainer that mines by the order and the negatives of its estimator."""

    def _prepare(self, rng):
        prepared = super()._prepare(rng)
        return prepared._replace(entry=prepared.entry | {"true purity": self._purity})

    def _mine(self, graph, rows):
        estimator, labels = self.estimator, self.labels[rows]
        mined = neighborhood_triplets(
            graph,
            values_of(estimator.order, graph, labels, estimator.truth[rows], estimator.decay),
            far=estimator.negatives == "far",
        )
        self._purity = triplet_purity(mined, estimator.truth[rows])
        return mined


def values_of(order, graph, labels, truth, decay):
    """Return the affinities of pairs (i, j), as a function."""
    if order == "oracle":
        return lambda i, j: np.where(truth[i] == truth[j], 1.0, -1.0)
    if order == "labels":
        return class_masses(graph, labels, decay=decay).affinities
    found = propagate_affinities(graph, labels, decay=decay)
    return affinity_lookup(found, graph.n_samples, "explain_published").values


def neighborhood_triplets(graph, values, *, far=False):
    """Pair the first half of the k neighbors, sorted by affinity, with negatives.

    These are the last half, or, with ``far``, the least similar of the next 4 k neighbors.
    """
    anchors, half = np.arange(graph.n_samples), graph.n_neighbors // 2
    ranked = by_affinity(graph.indices, values)
    positives, negatives = ranked[:, :half], ranked[:, -half:]
    if far:
        reach = min(REACH * graph.n_neighbors, graph.n_samples - 1)
        wide = knn_graph(graph.rows, reach).indices[:, graph.n_neighbors :]
        negatives = by_affinity(wide, values)[:, -half:]
    ends = positives.ravel(), negatives.ravel()
    return Triplets(np.repeat(anchors, half), *ends, np.ones(len(anchors) * half))


def by_affinity(indices, values):
    """Sort each row's neighbors by affinity, the largest first, then by rank."""
    near = values(np.arange(len(indices))[:, None], indices)
    return np.take_along_axis(indices, np.argsort(-near, axis=1, kind="stable"), axis=1)


def explained(data, split, order, negatives, epochs, each):
    """Fit on one draw of the labels; return the share of right negatives and scores per partition.

    Scores are those of the test images.
    """
    images = OfImages(None, data.item_shape).prepare(data.X)
    name, columns = NETWORKS.get(data.item_shape[:2], OTHER_NETWORK)
    model = Explained(
        name,
        columns,
        order=order,
        negatives=negatives,
        truth=data.y[split.train],
        pretrain_epochs=paper_network(name).pretrain_epochs,
        epochs=epochs,
        epochs_per_partition=each,
        random_state=split.seed,
    )
    tested = images[split.test], data.y[split.test]
    labels = split.partial_labels(data.y)
    history = model.fit(images[split.train], labels, validation=tested).history_
    return [
        {"right": entry["true purity"]["negative"]}
        | {score: entry["validation"][score] for score in ("NMI", "R@1")}
        for entry in history
    ]


def report(row):
    """Lines of a run, one per partition."""
    for partition, found in enumerate(row["partitions"], 1):
        yield (
            f"{row['order']:<11} {row['negatives']:<10} {row['seed']:>4} {partition:>10} "
            f"{found['right']:>15.1f}% {found['NMI']:>6.1f} {found['R@1']:>5.1f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--order", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--negatives", nargs="+", choices=NEGATIVES, default=NEGATIVES)
    parser.add_argument("--epochs", type=positive, default=50)
    parser.add_argument("--epochs-per-partition", type=positive, default=10)
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("explained"))
    given = parser.parse_args()
    data = images_in_memory(parser, given.dataset, given.data_dir)
    path = given.out / f"{data.name}.jsonl"
    settings = {"epochs": given.epochs, "epochs_per_partition": given.epochs_per_partition}
    known = read_rows(path)
    print("order       negatives  seed  partition  right negatives   NMI   R@1")
    for seed, order, negatives in product(range(given.seeds), given.order, given.negatives):
        run = {"order": order, "negatives": negatives, "seed": seed} | settings
        row = next((row for row in known if run.items() <= row.items()), None)
        if row is None:
            split = label_scarce_split(data, LABELS_PER_CLASS.get(data.name, 5), seed=seed)
            row = run | {"partitions": explained(data, split, order, negatives, *settings.values())}
            add_row(path, row)
        print(*report(row), sep="\n", flush=True)
