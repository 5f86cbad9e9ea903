"""Experiments of Calder et al. (2020) at few labels: Poisson learning as published, and ours.

``python examples/reproduce_poisson.py mnist --trials 10 --out poisson`` draws 1, 2, 5 and 10 labels
per class among all 70,000 images, fits each method on all of them, and prints the accuracy on the
others: mean and, as in the paper, standard deviation over the draws; the paper has 100. Features
are codes of a variational autoencoder of the paper's size, trained here on the images without
labels; 100 epochs take half an hour on one core. Interrupted runs are resumed. ``--rows`` and
``--epochs`` make the problem smaller; the published accuracies are those of the whole one.
"""

import argparse
from pathlib import Path

import numpy as np
from command_line import add_row, positive, read_rows, usage_errors
from reproduction.poisson import BUDGETS, COMPARED, N_CODES, table_lines, transductive_accuracy
from reproduction.vae import vae_codes

from ssdml.datasets import load_dataset
from ssdml.utils.persistence import atomic_write

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", choices=N_CODES)
parser.add_argument("--trials", type=positive, default=10)
parser.add_argument("--labels-per-class", type=positive, nargs="+", default=BUDGETS)
parser.add_argument("--methods", nargs="+", default=COMPARED)
parser.add_argument("--rows", type=positive, default=70_000)
parser.add_argument("--epochs", type=positive, default=100)
parser.add_argument("--out", type=Path, default=Path("poisson"))


def features(given, images):
    """Codes of the images, trained once per folder."""
    path = given.out / f"{given.dataset}-{given.rows}-rows-{given.epochs}-epochs.npy"
    if not path.exists():
        given.out.mkdir(parents=True, exist_ok=True)
        codes = vae_codes(images, N_CODES[given.dataset], epochs=given.epochs)
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, codes)
    return np.load(path), path.with_suffix(".jsonl")


if __name__ == "__main__":
    given = parser.parse_args()
    with usage_errors(parser):
        data = load_dataset(given.dataset)
        rows = np.random.default_rng(0).permutation(len(data.y))[: given.rows]
        X, path = features(given, data.X[rows] / data.X.max())
        done = read_rows(path)
        known = {(row["method"], row["labels"], row["trial"]) for row in done}
        for trial in range(given.trials):
            for n_labels in given.labels_per_class:
                for method in given.methods:
                    if (method, n_labels, trial) in known:
                        continue
                    accuracy = transductive_accuracy(method, X, data.y[rows], n_labels, trial)
                    row = {"method": method, "labels": n_labels, "trial": trial}
                    done.append(row | {"accuracy": accuracy})
                    add_row(path, done[-1])
    print(f"{given.dataset}, {len(X)} rows: accuracy on the unlabeled rows in percent")
    print(*table_lines(given.dataset, done), sep="\n")
