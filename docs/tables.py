"""The tables of results in README.md and on these pages, from the rows in ``results/``.

``python docs/tables.py`` writes each anew, where a page has ``<!-- table: NAME -->`` and ``<!-- end
-->``. A row is a run, as ``results.jsonl`` of a comparison has it. A method stands in a table once
all its seeds have been run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from reproduction.printed import LABELS_PER_CLASS, as_printed, marked
from reproduction.tables import best_of, is_ahead, printed_scores

from ssdml.experiments.analysis.statistics import friedman_nemenyi, mean_interval, paired_difference
from ssdml.experiments.analysis.tables import mean_scores, paired_tests, score_matrix, score_table
from ssdml.experiments.methods.base import format_method, parse_method
from ssdml.experiments.methods.tuning import SUFFIX
from ssdml.experiments.runs.results import Row, latest, read_rows
from ssdml.utils.typing import Floats

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "results"
PAGES = (
    DOCS.parent / "README.md",
    *(DOCS / f"{name}.md" for name in ("why-and-when", "reproduction", "mathematics/networks")),
)
MARKED = re.compile(r"(<!-- table: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SEEDS = 5

SETS = {  # "features": rows of unit length; "components": the 64 principal ones of these
    ("features", "digits"): "digits",
    ("features", "banking77"): "Banking77",
    ("components", "mnist"): "MNIST",
    ("components", "fashion_mnist"): "Fashion-MNIST",
}
IMAGES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
PHOTOGRAPHS = {"cub": "CUB-200-2011", "cars": "Cars-196"}

OURS = ("ssdml", "ssdml-residual")
STARTS = ("input", "pca")
THEIRS = (
    *("lda", "nca", "self-training", "label-spreading", "umap"),
    *("lrml", "seraph", "isdml", "apllr", "apit", "ssdml-paper"),
)

WHOLE = "deep-ssdml"
NETWORKS = (
    *("input", "initial", "initial[pretrain_epochs=30]"),
    *(f"deep-{name}" for name in ("lrml", "seraph", "isdml", "apllr", "apit")),
    *(f"deep-{name}" for name in ("triplet", "angular")),
    *(f"deep-{name}[epochs=10]" for name in ("exemplar", "rotnet", "nce", "deepcluster", "suml")),
    *("deep-ssdml-paper", "deep-ssdml-paper[epochs=10]", WHOLE),
)

ORTHOGONALITY = ("deep-ssdml-paper[epochs=10]", "deep-ssdml-paper[epochs=10;orthogonal=false]")

PRINTED_NETWORKS = tuple(dict.fromkeys(map(as_printed, NETWORKS)))

PARTS = {  # of our alternation: what stands in the place of each
    "consistency=0": "no consistency",
    "threshold=0": "consistency of unsure items too",
    "augment=null": "no views",
    "triplets=0": "no triplets of the batch",
    "metric_steps=0": "L as it began",
    "orthogonal=false": "L a layer like any other",
    "propagation=one-sided": "L's triplets by one-sided affinities",
    "input_edges=0": "no edges of the input, nor it beside",
    "input_weight=0": "no input beside",
    "angle=35": "an angle of 35 degrees, not 40",
    "angle=45": "45 degrees",
    "angle=55": "55 degrees",
}
Lines = Iterator[Sequence[str]]


def succeeded(kind: str, dataset: str) -> list[Row]:
    """Runs of a data set, the last one of each."""
    path = RESULTS / kind / f"{dataset}.jsonl"
    rows = latest(read_rows(path)) if path.is_file() else []
    return [row for row in rows if row["status"] == "ok"]


def complete(kind: str, dataset: str, n_labels: int | None = None) -> dict[str, list[Row]]:
    """Runs of each method over all seeds with so many labels a class, or most."""
    rows = succeeded(kind, dataset)
    if n_labels is None:
        n_labels = max((row["labels_per_class"] for row in rows), default=0)
    runs: dict[str, list[Row]] = {}
    for row in rows:
        if row["labels_per_class"] == n_labels:
            runs.setdefault(row["method"], []).append(row)
    return {method: found for method, found in runs.items() if len(found) == SEEDS}


def finished(
    kind: str, dataset: str, methods: Collection[str], n_labels: int | None = None
) -> list[Row]:
    """Those of the methods, in float32, or else in bfloat16."""
    runs = complete(kind, dataset, n_labels)
    found = {name: runs.get(name, runs.get(in_bfloat16(name), [])) for name in methods}
    return [row | {"method": name} for name, rows in found.items() for row in rows]


def in_bfloat16(method: str) -> str:
    """The name of a method whose network computes in bfloat16."""
    plain, changes = parse_method(method)
    return format_method(plain, changes | {"mixed_precision": "true"})


def features(*left_out: str) -> Lines:
    """Our methods on features, by labels a class, beside what they start from."""
    scores, methods = ("NMI", "R@1", "accuracy"), ("input", *OURS)
    yield "data, labels a class", "", *scores
    for (kind, dataset), title in SETS.items():
        budgets = {row["labels_per_class"] for row in succeeded(kind, dataset)}
        for n_labels in () if dataset in left_out else sorted(budgets):
            rows = finished(kind, dataset, methods, n_labels)
            columns = [cells(rows, score) for score in scores]
            for name in filter(columns[0].get, methods):
                head = f"{title}, {n_labels}" * (name == methods[0])
                yield head, named(name), *(found[name] for found in columns)


def baselines(score: str, suffix: str = "") -> Lines:
    """All methods on features, † where the best of ours is not shown to be better, and ranks.

    ``suffix`` is that of the tuned: the best of ours is then one of the tuned as well.
    """
    starts = () if suffix else STARTS
    theirs, ours = ([name + suffix for name in names] for names in (THEIRS, OURS))
    columns, sets = {}, []
    for (kind, dataset), title in SETS.items():
        rows = finished(kind, dataset, [*starts, *theirs, *ours])
        if set(ours) <= {row["method"] for row in rows}:
            found, tests = cells(rows, score), paired_tests(rows, best_of(rows, ours, score), score)
            for name in found.keys() & set(theirs):
                found[name] += "" if is_ahead(tests[name]) else " †"
            columns[f"{title}, {rows[0]['labels_per_class']}"] = found
            sets.append(mean_scores(rows, score))
    columns |= mean_ranks(sets, [*theirs, *ours])
    yield score, *columns
    for name in (*starts, *theirs, *ours):
        if any(name in found for found in columns.values()):
            yield named(name), *(found.get(name, "") for found in columns.values())


def mean_ranks(
    sets: Sequence[Mapping[str, float]], methods: Sequence[str]
) -> dict[str, dict[str, str]]:
    """A column: mean rank of each method over the sets, and how far apart two must be by chance."""
    compared = [name for name in methods if all(name in means for means in sets)]
    if len(sets) < len(SETS):
        return {}
    test = friedman_nemenyi([[means[name] for means in sets] for name in compared])
    ranks = {name: f"{rank:.1f}" for name, rank in zip(compared, test.ranks, strict=True)}
    return {f"mean rank (CD {test.critical_difference:.1f})": ranks}


def networks(titles: Mapping[str, str], names: Sequence[str]) -> Lines:
    """All methods end to end, and in brackets what the paper prints, once."""
    columns = {}
    beside = {as_printed(name): name for name in reversed(names)}
    for dataset, title in titles.items():
        rows, n_labels = finished("networks", dataset, names), LABELS_PER_CLASS.get(dataset, 5)
        for score in ("NMI", "R@1"):
            found = cells(rows, score) if rows else {}
            printed = printed_scores(dataset, n_labels, score)
            for theirs, name in beside.items():
                if (value := printed.get(theirs)) is not None:
                    found[name] = f"{found.get(name, '')} ({value:.1f})".strip()
            columns[f"{title} {score}"] = found
    yield "", *columns
    for name in names:
        if any(name in found for found in columns.values()):
            yield named(name), *(found.get(name, "") for found in columns.values())


def parts() -> Lines:
    """Our alternation, and by how much it changes on each set where a part is left out."""
    every = [WHOLE, *(f"{WHOLE}[{part}]" for part in PARTS)]
    columns: dict[str, dict[str, str]] = {}
    for dataset, title in IMAGES.items():
        runs = complete("networks", dataset)
        for score in ("NMI", "R@1") if WHOLE in runs else ():
            scores = {
                name: score_matrix(rows, [name], list(range(SEEDS)), score)[0]
                for name, rows in runs.items()
            }
            columns[f"{title} {score}"] = {
                name: told for name in every if (told := worth(scores, name))
            }
    yield "", *columns
    for name in every:
        if any(name in told for told in columns.values()):
            part = name.removeprefix(WHOLE).strip("[]")
            head = f"{PARTS[part]}, `{part}`" if part else "the whole"
            yield head, *(told.get(name, "") for told in columns.values())


def worth(scores: Mapping[str, Floats], name: str) -> str:
    """The whole's mean; or how far a line is from it, in its precision, in bold if surely."""
    if name == WHOLE:
        whole = mean_interval(scores[WHOLE])
        return f"{whole.mean:.1f} ± {whole.half_width:.1f}"
    for part, whole in ((name, WHOLE), (in_bfloat16(name), in_bfloat16(WHOLE))):
        if part in scores and whole in scores:
            change = paired_difference(scores[part], scores[whole])
            bold = "**" * change.excludes_zero
            return f"{bold}{change.mean:+.1f} ± {change.half_width:.1f}{bold}"
    return ""


def cells(rows: Sequence[Row], score: str) -> dict[str, str]:
    """Mean and half of the interval of each method, the best in bold once ours is among them."""
    known = {line.method: line.scores[score] for line in score_table(rows).lines}
    with_ours = any(name.removesuffix(SUFFIX) in (*OURS, WHOLE) for name in known)
    found = {}
    for name, cell in known.items():
        mean = f"{cell.estimate.mean:.1f}"
        bold = "**" * (cell.is_best and with_ours)
        found[name] = f"{bold}{mean}{bold} ± {cell.estimate.half_width:.1f}"
    return found


def named(method: str) -> str:
    """A method as it is asked for, with a star where it is our reconstruction."""
    return f"`{method}`" + "\\*" * marked(method).endswith("*")


TABLES: Mapping[str, Callable[[], Lines]] = {
    "features": features,
    "gains": partial(features, "digits"),
    "baselines NMI": partial(baselines, "NMI"),
    "baselines accuracy": partial(baselines, "accuracy"),
    "tuned NMI": partial(baselines, "NMI", SUFFIX),
    "tuned accuracy": partial(baselines, "accuracy", SUFFIX),
    "networks": partial(networks, IMAGES, NETWORKS),
    "photographs": partial(networks, PHOTOGRAPHS, PRINTED_NETWORKS),
    "orthogonality": partial(networks, IMAGES, ORTHOGONALITY),
    "parts": parts,
}


def markdown(name: str) -> str:
    """A table of `TABLES`; numbers stand at the right."""
    head, *lines = TABLES[name]()
    rule = ["---", *("--:" if title else "---" for title in head[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def renewed(text: str) -> str:
    """A page with its tables as the rows have them."""
    return MARKED.sub(lambda found: found[1] + markdown(found[2]) + found[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text()))
