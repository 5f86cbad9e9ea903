"""Figure 2 of Dutta et al. (2021): convergence, the angle, and maps before and after training.

``python examples/reproduce_figure2.py mnist --out figure2`` draws ``figure2/figure2.png`` with the
published method and ours, and resumes interrupted runs. The data set may be any of images. One to
two hours without a GPU, mostly for the 50 epochs of the published method; ``--published-epochs 10``
is faster.
"""

import argparse
from pathlib import Path

import numpy as np
from command_line import images_in_memory, positive
from reproduction.published import LABELS_PER_CLASS

from ssdml.cli.terminal import progress_bar
from ssdml.datasets import label_scarce_split
from ssdml.deep.checkpoints import run_seed
from ssdml.evaluation import evaluate
from ssdml.experiments import compare
from ssdml.experiments.analysis.tables import score_tables
from ssdml.experiments.methods.base import with_parameters
from ssdml.experiments.methods.deep import OfImages, deep_methods
from ssdml.experiments.report.figures import MUTED, PAPER, class_maps, draw_class_map, new_figure
from ssdml.experiments.runs.details import MapSample
from ssdml.networks.data import as_samples
from ssdml.networks.metric_network import new_network
from ssdml.networks.training import embed_samples

ANGLES = {
    35: "deep-ssdml[angle=35]",
    40: "deep-ssdml",
    45: "deep-ssdml[angle=45]",
    55: "deep-ssdml[angle=55]",
}
PUBLISHED = "deep-ssdml-paper"
TITLES = {
    PUBLISHED: "published method",
    "deep-ssdml[orthogonal=false]": "ours, L free",
    "deep-ssdml": "ours, L orthonormal",
}
BEFORE = "random weights"
MAX_MAPPED = 1500  # test images on a map

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", help="of images; mnist, fashion_mnist, cifar10, digits, ...")
parser.add_argument(
    "--seeds", type=positive, default=5, help="of the angles; the other panels show seed 0"
)
parser.add_argument("--published-epochs", type=positive, default=50, help="of the published method")
parser.add_argument("--out", type=Path, default=Path("figure2"))


def learned(method, data, images, split, folder):
    """Fit a method, with validation on the test images after each partition."""
    model = with_parameters(method, deep_methods(data))(0, -1).estimator
    if method == PUBLISHED:
        model.set_params(epochs=given.published_epochs)
    model.set_params(checkpoint_dir=folder, verbose=1)
    labels, tested = split.partial_labels(data.y), (images[split.test], data.y[split.test])
    return model.fit(images[split.train], labels, validation=tested)


def untrained(model, images, split):
    """Embed the test images by the initial network of a model."""
    items, n_classes = as_samples(images[split.train], "figure"), len(model.classes_)
    seed = run_seed(model.random_state, None)
    network = new_network(model.backbone, items, model.n_components, n_classes, seed, "cpu")
    return embed_samples(network, as_samples(images[split.test], "figure"))


def draw_convergence(axes, models, score, before):
    """Draw the validation score after each partition, one curve per method."""
    axes.axhline(before, linestyle="--", color=MUTED, label=BEFORE)
    for method, model in models.items():
        each, last = model.epochs_per_partition, model.epochs
        epochs = [min(each * entry["partition"], last) for entry in model.history_]
        scores = [entry["validation"][score] for entry in model.history_]
        axes.plot(epochs, scores, marker="o", label=TITLES[method])
    axes.set(xlabel="epochs", title=f"{score}, %, test images")
    axes.legend(frameon=False)


def draw_angles(axes, table):
    """Draw NMI and R@1 of our method against the angle, with intervals."""
    lines = {line.method: line.scores for line in table.lines}
    for score in ("NMI", "R@1"):
        estimates = [lines[method][score].estimate for method in ANGLES.values()]
        means, widths = zip(
            *((e.mean, np.nan_to_num(e.half_width)) for e in estimates), strict=True
        )
        axes.errorbar(list(ANGLES), means, widths, marker="o", label=score)
    axes.set(xlabel="angle, degrees", title=f"ours, %, {len(table.seeds)} seeds")
    axes.legend(frameon=False)


def draw_embedding(axes, embedding, y, names, title):
    """Draw a t-SNE map of some test images."""
    sample = MapSample(embedding[:MAX_MAPPED], y[:MAX_MAPPED], np.zeros(len(y[:MAX_MAPPED]), bool))
    (drawn,) = class_maps({title: sample}, names)
    draw_class_map(axes, drawn)
    axes.set_title(title)


if __name__ == "__main__":
    given = parser.parse_args()
    data = images_in_memory(parser, given.dataset)
    few = LABELS_PER_CLASS.get(data.name, 5)
    split = label_scarce_split(data, few, seed=0)
    images = OfImages(None, data.item_shape).prepare(data.X)
    models = {name: learned(name, data, images, split, given.out / name) for name in TITLES}
    with progress_bar(given.out / "angles") as progress:
        rows = compare(
            data,
            list(ANGLES.values()),
            labels_per_class=[few],
            seeds=range(given.seeds),
            out=given.out / "angles",
            deep=True,
            resume=True,
            progress=progress,
        )
    embeddings, y = {BEFORE: untrained(models["deep-ssdml"], images, split)}, data.y[split.test]
    before = evaluate(embeddings[BEFORE], y)
    for method, model in models.items():
        embeddings[TITLES[method]] = model.transform(images[split.test])
    with new_figure(15, 8.5) as figure:
        above, below = figure.subfigures(2, 1)
        left, middle, right = above.subplots(1, 3)
        draw_convergence(left, models, "NMI", before["NMI"])
        draw_convergence(middle, models, "R@1", before["R@1"])
        draw_angles(right, score_tables(rows)[0])
        maps = below.subplots(1, len(embeddings))
        for axes, (title, embedding) in zip(maps, embeddings.items(), strict=True):
            draw_embedding(axes, embedding, y, data.class_names, title)
        figure.savefig(given.out / "figure2.png", dpi=120, facecolor=PAPER)
    print(f"drawn: {given.out / 'figure2.png'}")
