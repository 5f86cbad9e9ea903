"""Tables of results in README.md and the documentation, from the rows in ``results/``.

``python docs/tables.py`` rewrites the tables between ``<!-- table: NAME -->`` and ``<!-- end -->``.
A row is one run, as in ``results.jsonl``. A method appears once all its seeds have finished.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.extend(
    str(Path(__file__).resolve().parents[1] / name) for name in ("docs", "examples", "")
)

import loss_results
from metric_parts import METHODS as METRIC_METHODS, SCORES as METRIC_SCORES
from reproduction.loss_tables import by_method
from reproduction.poisson import BUDGETS, PUBLISHED as POISSON, scores_by_method
from reproduction.published import LABELS_PER_CLASS, published_name, published_scores, starred
from reproduction.tables import best_of, is_ahead
from result_rows import RESULTS, SEEDS, Lines, gap, interval, succeeded

from ssdml.experiments.analysis.statistics import friedman_nemenyi, mean_interval, paired_difference
from ssdml.experiments.analysis.tables import mean_scores, paired_tests, score_matrix, score_table
from ssdml.experiments.methods.base import format_method, parse_method
from ssdml.experiments.methods.tuning import SUFFIX
from ssdml.experiments.runs.results import Row
from ssdml.utils.typing import Floats
from tools.labeling import tables as labeling
from tools.labeling.__main__ import read_rows as read_labeling_rows
from tools.robust import tables as robust
from tools.robust.cells import SCHEMES
from tools.robust.rows import read_rows as read_robust_rows

DOCS = Path(__file__).resolve().parent
PAGES = (
    DOCS.parent / "README.md",
    DOCS / "why-and-when.md",
    DOCS / "reproduction.md",
    *(RESULTS / f"{name}.md" for name in ("features", "networks", "losses", "robust", "labeling")),
)
MARKED = re.compile(r"(<!-- table: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)

SETS = {  # "features": unit-length samples; "components": their 64 principal components
    ("features", "digits"): "digits",
    ("features", "banking77"): "Banking77",
    ("components", "mnist"): "MNIST",
    ("components", "fashion_mnist"): "Fashion-MNIST",
}
FIRST_SETS = (("features", "banking77"), ("components", "mnist"), ("components", "fashion_mnist"))
FIRST_TITLES = {
    "input": "your features, unchanged",
    "logistic": "logistic regression",
    "knn": "nearest neighbors",
    "poisson": "[Poisson learning](docs/how-to/comparison.md#methods)",
    "label-spreading": "`LabelSpreading`",
    "umap": "supervised UMAP",
    "ssdml": "**`SSDML()`**",
}
FIRST = tuple(FIRST_TITLES)
TIMED = ("components", "mnist")
IMAGES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}

OURS = ("ssdml",)
CLASSIFIERS = ("logistic", "knn", "poisson", "poisson[class_prior=labeled]")  # without a metric
STARTS = ("input", *CLASSIFIERS, "pca")
METRICS = ("lrml", "seraph", "isdml", "apllr", "apit", "ssdml-paper")
THEIRS = ("lda", "nca", "self-training", "label-spreading", "umap", *METRICS)

EVERY = (*STARTS, *THEIRS, *OURS)

WHOLE = "deep-ssdml"
NETWORKS = (
    *("input", "initial", "initial[pretrain_epochs=30]"),
    *(f"deep-{name}" for name in ("lrml", "seraph", "isdml", "apllr", "apit")),
    *(f"deep-{name}" for name in ("triplet", "angular")),
    *(f"deep-{name}[epochs=10]" for name in ("exemplar", "rotnet", "nce", "deepcluster", "suml")),
    WHOLE,
)

PUBLISHED = "deep-ssdml-paper"
PRINTED = {PUBLISHED: "published", f"{PUBLISHED}[orthogonal=false]": "published, L not orthonormal"}
BEST = "validation_fraction=0.15"
KEPT = {  # networks of the published method
    "input": "input",
    f"{PUBLISHED}[{BEST}]": "best of 50 epochs",
    f"{PUBLISHED}[epochs=10;{BEST}]": "best of 10 epochs",
    f"{PUBLISHED}[epochs=10;orthogonal=false;{BEST}]": "best of 10 epochs, L not orthonormal",
    f"{PUBLISHED}[keep=last;{BEST}]": "last of 50 epochs",
    PUBLISHED: "last of 50 epochs on all training images",
}

MINING_ORDERS = {  # of examples/explain_published.py
    "affinities": "affinities",
    "labels": "propagated classes",
    "oracle": "true classes",
}

TRUNKS = ("frozen", "fine-tuned")
PRETRAINED = (  # of examples/reproduce_photographs.py
    *("input", "untrained"),
    *(published_name(name) for name in NETWORKS[3:-1]),
    *("triplet", "contrastive", "contrastive+da", PUBLISHED, WHOLE),
)

ABLATIONS = {  # of our alternation
    "consistency=0": "no consistency loss",
    "threshold=0": "consistency loss on unconfident samples too",
    "augment=null": "no augmentation",
    "triplets=0": "no batch triplets",
    "metric_steps=0": "initial L",
    "orthogonal=false": "L an unconstrained layer",
    "propagation=one-sided": "triplets of L from one-sided affinities",
    "input_edges=0": "no input edges and no input features",
    "input_weight=0": "no input features",
    "angle=35": "angle 35 degrees instead of 40",
    "angle=45": "45 degrees",
    "angle=55": "55 degrees",
}
METRIC_SETS = {  # of examples/metric_parts.py
    "digits": "digits",
    "digits-4-columns": "digits, 4 columns",
    "caltech101": "Caltech-101",
    "fashion_mnist": "Fashion-MNIST",
    "fashion_mnist-network": "Fashion-MNIST, network",
    "cifar10-network": "CIFAR-10, network",
}
COMPARED = ("input", "logistic", "knn", "label-spreading", "poisson", "ssdml")  # on photographs


def complete(kind: str, dataset: str, n_labels: int | None = None) -> dict[str, list[Row]]:
    """Runs of each method with all seeds, with some labels per class (default: the most)."""
    rows = succeeded(kind, dataset)
    if n_labels is None:
        n_labels = max((row["labels_per_class"] for row in rows), default=0)
    runs: dict[str, list[Row]] = {}
    for row in rows:
        if row["labels_per_class"] == n_labels:
            runs.setdefault(row["method"], []).append(row)
    return {method: found for method, found in runs.items() if len(found) >= SEEDS}


def finished(
    kind: str, dataset: str, methods: Collection[str], n_labels: int | None = None
) -> list[Row]:
    """Runs of some methods in float32, or else in bfloat16."""
    runs = complete(kind, dataset, n_labels)
    found = {name: runs.get(name, runs.get(in_bfloat16(name), [])) for name in methods}
    return [row | {"method": name} for name, rows in found.items() for row in rows]


def rows_of(kind: str, dataset: str) -> list[dict[str, Any]]:
    """Rows of an example script with its own format."""
    path = RESULTS / kind / f"{dataset}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def in_bfloat16(method: str) -> str:
    """Name of a method with mixed precision."""
    plain, changes = parse_method(method)
    return format_method(plain, changes | {"mixed_precision": "true"})


def first_screen() -> Lines:
    """Accuracy and NMI of the usual methods and ours, and the time of a fit."""
    columns = {}
    for kind, dataset in FIRST_SETS:
        rows = finished(kind, dataset, FIRST)
        accuracies, nmis = (
            {
                line.method: f"{line.scores[score].estimate.mean:.1f}"
                for line in score_table(rows).lines
                if line.scores[score].estimate.n
            }
            for score in ("accuracy", "NMI")
        )
        columns[f"{SETS[kind, dataset]}, {rows[0]['labels_per_class']}"] = {
            name: f"{accuracy} / {nmis.get(name, '–')}" for name, accuracy in accuracies.items()
        }
    seconds = {
        name: np.median([row["seconds"]["fit"] for row in finished(*TIMED, [name])])
        for name in FIRST
    }
    columns["fit, s"] = {name: f"{value:.0f}" for name, value in seconds.items()}
    yield "", *columns
    for name in FIRST:
        yield FIRST_TITLES[name], *(column[name] for column in columns.values())


def by_budget() -> Lines:
    """The input, the classifiers and our methods on features, by labels per class."""
    scores, methods = ("NMI", "R@1", "accuracy"), ("input", *CLASSIFIERS, *OURS)
    yield "data, labels per class", "method", *scores
    for (kind, dataset), title in SETS.items():
        budgets = {row["labels_per_class"] for row in succeeded(kind, dataset)}
        for n_labels in sorted(budgets):
            rows = finished(kind, dataset, methods, n_labels)
            columns = [cells(rows, score) for score in scores]
            for name in methods:
                if any(name in found for found in columns):
                    head = f"{title}, {n_labels}" * (name == methods[0])
                    yield head, named(name), *(found.get(name, "") for found in columns)


def baselines(score: str, suffix: str = "") -> Lines:
    """All methods on features with ranks; † if not significantly worse than the best of ours.

    ``suffix`` selects tuned methods.
    """
    starts = () if suffix else STARTS
    theirs, ours = ([name + suffix for name in names] for names in (THEIRS, OURS))
    columns, sets = {}, []
    for (kind, dataset), title in SETS.items():
        rows = finished(kind, dataset, [*starts, *theirs, *ours])
        if rows:
            found = cells(rows, score)
            if set(ours) <= {row["method"] for row in rows}:
                tests = paired_tests(rows, best_of(rows, ours, score), score)
                for name in found.keys() & {*CLASSIFIERS, *theirs}:
                    found[name] += "" if is_ahead(tests[name]) else " †"
            columns[f"{title}, {rows[0]['labels_per_class']}"] = found
            sets.append(mean_scores(rows, score))
    columns |= mean_ranks(sets, [*theirs, *ours])
    yield from lines_of(score, [*starts, *theirs, *ours], columns)


def lines_of(head: str, names: Sequence[str], columns: Mapping[str, Mapping[str, str]]) -> Lines:
    """A line per method that has a cell, below the heads of the columns."""
    yield head, *columns
    for name in names:
        if any(name in found for found in columns.values()):
            yield named(name), *(found.get(name, "") for found in columns.values())


def mean_ranks(
    sets: Sequence[Mapping[str, float]], methods: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Column of mean ranks over the data sets, with the critical difference."""
    compared = [name for name in methods if all(name in means for means in sets)]
    if len(sets) < len(SETS):
        return {}
    test = friedman_nemenyi([[means[name] for means in sets] for name in compared])
    ranks = {name: f"{rank:.1f}" for name, rank in zip(compared, test.ranks, strict=True)}
    return {f"mean rank (CD {test.critical_difference:.1f})": ranks}


def networks() -> Lines:
    """All networks, with published scores in parentheses."""
    columns = {}
    beside = {published_name(name): name for name in reversed(NETWORKS)}
    for dataset, title in IMAGES.items():
        rows = finished("networks", dataset, NETWORKS)
        for score in ("NMI", "R@1"):
            found = cells(rows, score)
            published = published_scores(dataset, LABELS_PER_CLASS[dataset], score)
            for theirs, name in beside.items():
                if (value := published.get(theirs)) is not None:
                    found[name] = f"{found.get(name, '')} ({value:.1f})".strip()
            columns[f"{title} {score}"] = found
    yield from lines_of("", NETWORKS, columns)


def pretrained() -> Lines:
    """Methods on photographs with a pretrained network, and their published scores on CUB."""
    columns: dict[str, dict[str, str]] = {}
    for trunk in TRUNKS:
        runs = [(parse_method(row["method"])[0], row) for row in succeeded("photographs", trunk)]
        for score in ("NMI", "R@1", "MAP@R"):
            columns[f"{trunk} {score}"] = {
                name: interval(values)
                for name in PRETRAINED
                if (values := [row["scores"][score] for of, row in runs if of == name])
            }
        counts = Counter(of for of, _ in runs)
        columns[f"{trunk} seeds"] = {name: f"{count}" for name, count in counts.items()}
    for score in ("NMI", "R@1"):
        found = published_scores("cub", 5, score)
        printed = {name: f"{value:.1f}" for name, value in found.items()}
        columns[f"published: CUB {score}"] = printed | {"input": printed["initial"]}
    yield from lines_of("", PRETRAINED, columns)


def published_method() -> Lines:
    """The published method by the network that is kept, below its published scores."""
    yield "", "network", "seeds", "NMI", "R@1"
    for dataset, title in IMAGES.items():
        rows = succeeded("published", dataset)
        scores = [published_scores(dataset, LABELS_PER_CLASS[dataset], s) for s in ("NMI", "R@1")]
        for name, kept in PRINTED.items():
            head = title * (name == PUBLISHED)
            yield head, kept, "", *(f"{found[name]:.1f}" for found in scores)
        for name, kept in KEPT.items():
            runs = [row["scores"] for row in rows if row["method"] == name]
            if runs:
                values = (interval([run[score] for run in runs]) for score in ("NMI", "R@1"))
                yield "", kept, str(len(runs)), *values


def mining() -> Lines:
    """The published method on MNIST with variants of mining, after its first and third epoch."""
    runs: dict[tuple[str, str], dict[int, list[dict[str, float]]]] = {}
    for row in rows_of("mining", "mnist"):
        runs.setdefault((row["order"], row["negatives"]), {})[row["seed"]] = row["partitions"]
    published = runs["affinities", "near"]
    heads = (
        f"{score}{after}" for score in ("NMI", "R@1") for after in (", 1 epoch", ", 3", " gain")
    )
    yield "order", "negatives", "seeds", "right", *heads
    for order, negatives in product(MINING_ORDERS, ("near", "far")):
        of, cells = runs[order, negatives], []
        right = np.mean([found["right"] for run in of.values() for found in run])
        for score in ("NMI", "R@1"):
            first, last = ([run[n][score] for run in of.values()] for n in (0, -1))
            both = {"it": last, "published": [published[seed][-1][score] for seed in of]}
            gain = "" if of is published else gap(both, "it", "published")
            cells += [interval(first), interval(last), gain]
        yield MINING_ORDERS[order], negatives, f"{len(of)}", f"{right:.0f}%", *cells


def poisson() -> Lines:
    """The protocol of Calder et al. (2020): ours, and published accuracies of Poisson learning."""
    yield "", "labels per class", *(str(n) for n in BUDGETS)
    for dataset, published in POISSON.items():
        ours = scores_by_method(rows_of("poisson", dataset))
        rows = {"`poisson`, published": published} | {f"`{name}`": ours[name] for name in ours}
        for name, scores in rows.items():
            head = IMAGES[dataset] * (scores is published)
            yield head, name, *("{:.1f} ({:.1f})".format(*scores[n]) for n in BUDGETS)


def recipes() -> Lines:
    """Our networks in this version, by settings, and CIFAR-10 with an earlier augmentation."""
    scores = ("NMI", "R@1", "accuracy")
    yield "", "method", "seeds", *scores, "minutes"
    sets = [("recipes", dataset, title) for dataset, title in IMAGES.items()]
    for kind, dataset, title in [
        *sets,
        ("without-tones", "cifar10", "CIFAR-10, without tone operations"),
    ]:
        rows = succeeded(kind, dataset)
        columns = [by_method(rows, score) for score in scores]
        for place, name in enumerate(columns[0]):
            runs = [row for row in rows if row["method"] == name]
            minutes = np.median([row["seconds"]["fit"] for row in runs]) / 60
            values = (interval(column[name]) for column in columns)
            yield title * (place == 0), named(name), f"{len(runs)}", *values, f"{minutes:.0f}"


def ablations() -> Lines:
    """Our alternation, and the change on each data set without one of its parts."""
    every = [WHOLE, *(f"{WHOLE}[{part}]" for part in ABLATIONS)]
    columns: dict[str, dict[str, str]] = {}
    for dataset, title in IMAGES.items():
        runs = complete("networks", dataset)
        for score in ("NMI", "R@1") if WHOLE in runs else ():
            scores = {
                name: score_matrix(rows, [name], list(range(SEEDS)), score)[0]
                for name, rows in runs.items()
            }
            columns[f"{title} {score}"] = {
                name: cell for name in every if (cell := change(scores, name))
            }
    yield "", *columns
    for name in every:
        if any(name in column for column in columns.values()):
            part = name.removeprefix(WHOLE).strip("[]")
            head = f"{ABLATIONS[part]}, `{part}`" if part else "full method"
            yield head, *(column.get(name, "") for column in columns.values())


def metric_parts() -> Lines:
    """Input, our methods, and changes by parts of the deep one, on classes without labels."""
    yield "data", "method", *METRIC_SCORES
    for dataset, title in METRIC_SETS.items():
        rows = rows_of("metric", dataset)
        scores = {score: by_method(rows, score) for score in METRIC_SCORES}
        seeds = len(scores["NMI"].get(WHOLE, ()))
        for name in METRIC_METHODS:
            if not len(scores["NMI"].get(name, ())) == seeds > 1:
                continue
            whole = WHOLE if name.startswith(f"{WHOLE}[") else None
            cells = (compared(scores[score], name, whole) for score in METRIC_SCORES)
            yield title, f"`{name.removeprefix(whole or '')}`", *cells
            title = ""


def compared(scores: Mapping[str, Sequence[float]], name: str, whole: str | None) -> str:
    """Mean of a method, or its change from another, bold if significant."""
    if whole is None:
        found = mean_interval(scores[name])
        return f"{found.mean:.1f} ± {found.half_width:.1f}"
    gap = paired_difference(scores[name], scores[whole])
    bold = "**" * gap.excludes_zero
    return f"{bold}{gap.mean:+.1f} ± {gap.half_width:.1f}{bold}"


def change(scores: Mapping[str, Floats], name: str) -> str:
    """Mean of our alternation, or the change from it at equal precision, bold if significant."""
    if name == WHOLE:
        return compared(scores, WHOLE, None)
    for part, whole in ((name, WHOLE), (in_bfloat16(name), in_bfloat16(WHOLE))):
        if part in scores and whole in scores:
            return compared(scores, part, whole)
    return ""


def on_photographs(dataset: str, methods: Sequence[str]) -> dict[int, list[Row]]:
    """Runs on features of photographs, by labels per class."""
    budgets = sorted({row["labels_per_class"] for row in succeeded("photographs", dataset)})
    return {n: finished("photographs", dataset, methods, n) for n in budgets}


def caltech101(score: str, dataset: str = "caltech101", methods: Sequence[str] = COMPARED) -> Lines:
    """A score on features of photographs, by labels per class."""
    columns = {n: cells(rows, score) for n, rows in on_photographs(dataset, methods).items()}
    yield score, *map(str, columns)
    for name in methods:
        if any(name in found for found in columns.values()):
            yield named(name), *(found.get(name, "") for found in columns.values())


def caltech101_gain() -> Lines:
    """The paired gain in accuracy over logistic regression, by labels per class."""
    runs = on_photographs("caltech101", COMPARED)
    yield "gain in accuracy", *map(str, runs)
    gains = (gap(by_method(rows, "accuracy"), "ssdml", "logistic") for rows in runs.values())
    yield "`ssdml` over `logistic`, paired", *gains


def cells(rows: Sequence[Row], score: str) -> dict[str, str]:
    """Mean and half interval of each method; the best is bold if ours are included.

    ‡ marks accuracies of the nearest class mean, measured before they were those of ``predict``.
    """
    known = {line.method: line.scores[score] for line in score_table(rows).lines}
    early = {row["method"] for row in rows if "predicted" not in row} if score == "accuracy" else {}
    with_ours = any(name.removesuffix(SUFFIX) in (*OURS, WHOLE) for name in known)
    found = {}
    for name, cell in known.items():
        if cell.estimate.n:
            mean = f"{cell.estimate.mean:.1f}"
            bold = "**" * (cell.is_best and with_ours)
            by_means = name in early and name.removesuffix(SUFFIX) in (*OURS, *METRICS)
            mark = " ‡" * by_means
            found[name] = f"{bold}{mean}{bold} ± {cell.estimate.half_width:.1f}{mark}"
    return found


def named(method: str) -> str:
    """Name of a method, with a star if it is our reconstruction."""
    return f"`{method}`" + "\\*" * starred(method).endswith("*")


def of_robust_rows(table: Callable[..., Lines], *schemes: str) -> Lines:
    """A table of the robust suite."""
    rows = [row for row in read_robust_rows(RESULTS / "robust") if not row["full"]]
    return table(rows, *schemes)


def of_labeling_rows(table: Callable[..., Lines], part: str) -> Lines:
    """A table of what labeling is worth."""
    return table(read_labeling_rows(RESULTS / "labeling", part))


TABLES: Mapping[str, Callable[[], Lines]] = {
    "first": first_screen,
    "features": by_budget,
    "caltech101 accuracy": partial(caltech101, "accuracy"),
    "caltech101 NMI": partial(caltech101, "NMI"),
    "caltech101 recall": partial(caltech101, "R@1"),
    "caltech101 gain": caltech101_gain,
    **{
        f"components {title}": partial(caltech101, score, "caltech101-components", EVERY)
        for title, score in (("accuracy", "accuracy"), ("NMI", "NMI"), ("recall", "R@1"))
    },
    "baselines NMI": partial(baselines, "NMI"),
    "baselines accuracy": partial(baselines, "accuracy"),
    "tuned NMI": partial(baselines, "NMI", SUFFIX),
    "tuned accuracy": partial(baselines, "accuracy", SUFFIX),
    "networks": networks,
    "photographs": pretrained,
    "published": published_method,
    "mining": mining,
    "poisson": poisson,
    "recipes": recipes,
    "parts": ablations,
    "metric": metric_parts,
    "robust": partial(of_robust_rows, robust.summary),
    "robust balanced": partial(of_robust_rows, robust.grid, "balanced"),
    "robust others": partial(of_robust_rows, robust.grid, *list(SCHEMES)[1:]),
    "robust harm": partial(of_robust_rows, robust.harmed),
    "robust variants": partial(of_robust_rows, robust.variants),
    "labeling suggest": partial(of_labeling_rows, labeling.suggest, "suggest"),
    "labeling labeled": partial(of_labeling_rows, labeling.labeled, "labeled"),
    "labeling novelty": partial(of_labeling_rows, labeling.novelty, "novelty"),
    **loss_results.TABLES,
}


def markdown(name: str) -> str:
    """Render a table of `TABLES`, with numbers aligned right."""
    head, *lines = TABLES[name]()
    rule = ["---", *("---" if title in ("", "method") else "--:" for title in head[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def renewed(text: str) -> str:
    """Rewrite the tables of a page."""
    return MARKED.sub(lambda found: found[1] + markdown(found[2]) + found[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text()))
