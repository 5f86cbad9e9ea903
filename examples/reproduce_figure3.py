"""Figure 3 of Dutta et al. (2021): queries with their neighbors, in the input and as learned.

``python examples/reproduce_figure3.py mnist --method deep-ssdml --out figure3`` fits a method on a
few labels and draws ``figure3/figure3.png``: one line per test image, its nearest other test images
by the input at the left and by the learned metric at the right, green if they share its class and
red if not. The paper draws Cars-196; any data set of images in memory will do. Minutes without a
GPU; ``--method "deep-ssdml[epochs=10]"`` is faster, and ``ssdml`` fits the pixels.
"""

import argparse
from pathlib import Path

import numpy as np
from command_line import images_in_memory, positive, usage_errors
from reproduction.published import LABELS_PER_CLASS

from ssdml.datasets import label_scarce_split
from ssdml.evaluation import evaluate
from ssdml.experiments.compare import available_methods
from ssdml.experiments.methods.base import embed, with_parameters
from ssdml.experiments.report.figures import MUTED, PAPER, new_figure
from ssdml.graphs import knn_graph

RIGHT, WRONG = "#1a8a4a", "#c8321e"
MAX_SEARCHED = 5000  # test images

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", help="of images; mnist, fashion_mnist, cifar10, digits, ...")
parser.add_argument("--method", default="deep-ssdml", help="as in ssdml compare --deep")
parser.add_argument("--queries", type=positive, default=8, help="one of each class in turn")
parser.add_argument("--neighbors", type=positive, default=5)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=Path, default=Path("figure3"))


def first_queries(y, count):
    """Rows of the first images of each class, class by class in turn."""
    order = np.argsort(y, kind="stable")
    rank = np.empty(len(y), int)
    rank[order] = np.arange(len(y)) - np.searchsorted(y[order], y[order])
    return np.lexsort((y, rank))[:count]


def draw_image(axes, image, color):
    """Draw an image with a frame."""
    axes.imshow(image, cmap="gray", aspect="equal")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=color, linewidth=2.5)


def draw_queries(figure, images, y, queries, found, titles):
    """Draw each query and its neighbors by each embedding, one line per query."""
    k = next(iter(found.values())).shape[1]
    widths = [1, *([0.25, *[1] * k] * len(found))]
    grid = figure.add_gridspec(len(queries), len(widths), width_ratios=widths)
    for line, query in enumerate(queries):
        axes = figure.add_subplot(grid[line, 0])
        draw_image(axes, images[query], MUTED)
        if not line:
            axes.set_title("query")
        for part, (name, neighbors) in enumerate(found.items()):
            for rank, neighbor in enumerate(neighbors[query]):
                axes = figure.add_subplot(grid[line, 2 + part * (k + 1) + rank])
                draw_image(axes, images[neighbor], RIGHT if y[neighbor] == y[query] else WRONG)
                if not line and not rank:
                    axes.set_title(titles[name])


if __name__ == "__main__":
    given = parser.parse_args()
    data = images_in_memory(parser, given.dataset)
    with usage_errors(parser):
        split = label_scarce_split(data, LABELS_PER_CLASS.get(data.name, 5), seed=given.seed)
        model = with_parameters(given.method, available_methods(data, deep=True))(given.seed, -1)
    test = split.test[:MAX_SEARCHED]
    if given.neighbors >= len(test):
        parser.error(f"--neighbors must be below {len(test)}, the test images searched.")
    model.fit(data.X[split.train], split.partial_labels(data.y))
    X, y = data.X[test], data.y[test]
    embeddings = {"input": X.reshape(len(X), -1), given.method: embed(model, X)}
    found, titles = {}, {}
    for name, Z in embeddings.items():
        found[name] = knn_graph(Z, given.neighbors, method="exact").indices
        titles[name] = f"{name}: R@1 {evaluate(Z, y, scores=['R@1'])['R@1']:.1f}%"
        print(titles[name])
    images = X.reshape(len(X), *data.item_shape)
    queries = first_queries(y, given.queries)
    given.out.mkdir(parents=True, exist_ok=True)
    with new_figure(1.5 + 1.1 * 2 * given.neighbors, 1.15 * len(queries) + 0.4) as figure:
        draw_queries(figure, images, y, queries, found, titles)
        figure.savefig(given.out / "figure3.png", dpi=120, facecolor=PAPER)
    print(f"drawn: {given.out / 'figure3.png'}")
