"""The tables of results in README.md and on these pages, from the rows in ``results/``.

``python docs/tables.py`` writes each anew, where a page has ``<!-- table: NAME -->`` and ``<!-- end
-->``. A row is a run, as ``results.jsonl`` of a comparison has it. A method stands in a table once
all its seeds have been run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ssdml.experiments.baseline_tables import best_of, is_ahead, printed_scores
from ssdml.experiments.paired import against
from ssdml.experiments.printed import marked
from ssdml.experiments.results import Row, latest, read_rows
from ssdml.experiments.tables import score_table
from ssdml.experiments.tuning import SUFFIX

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "results"
PAGES = (DOCS.parent / "README.md",)
MARKED = re.compile(r"(<!-- table: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SEEDS = 5

SETS = {
    "digits": "digits",
    "banking77": "Banking77",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
}
IMAGES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}

OURS = ("ssdml", "ssdml-residual")
STARTS = ("input", "pca")
THEIRS = (
    *("lda", "nca", "self-training", "label-spreading"),
    *("lrml", "seraph", "isdml", "apllr", "apit", "ssdml-paper"),
)

WHOLE = "deep-ssdml"
NETWORKS = (
    *("input", "initial"),
    *(f"deep-{name}" for name in ("lrml", "seraph", "isdml", "apllr", "apit")),
    *(f"deep-{name}" for name in ("triplet", "angular")),
    *(f"deep-{name}" for name in ("exemplar", "rotnet", "nce", "deepcluster", "suml")),
    *("deep-ssdml-paper[epochs=10]", WHOLE),
)
Lines = Iterator[Sequence[str]]


def finished(kind: str, dataset: str, methods: Collection[str]) -> list[Row]:
    """Runs of those of the methods that were run over all seeds, with most labels a class."""
    path = RESULTS / kind / f"{dataset}.jsonl"
    rows = latest(read_rows(path)) if path.is_file() else []
    most = max((row["labels_per_class"] for row in rows), default=0)
    given = [row for row in rows if row["labels_per_class"] == most and row["status"] == "ok"]
    runs = Counter(row["method"] for row in given)
    return [row for row in given if row["method"] in methods and runs[row["method"]] == SEEDS]


def baselines(score: str) -> Lines:
    """All methods on features; † where the best of ours is not shown to be better."""
    methods, columns = (*STARTS, *THEIRS, *OURS), {}
    for dataset, title in SETS.items():
        for suffix in ("", SUFFIX):
            ours = [name + suffix for name in OURS]
            rows = finished("features", dataset, [name + suffix for name in methods])
            if set(ours) <= {row["method"] for row in rows}:
                found, tests = cells(rows, score), against(rows, best_of(rows, ours, score), score)
                for name in found.keys() & {name + suffix for name in THEIRS}:
                    found[name] += "" if is_ahead(tests[name]) else " †"
                head = f"{title}, {rows[0]['labels_per_class']}{suffix.replace('-', ', ')}"
                columns[head] = {name.removesuffix(suffix): told for name, told in found.items()}
    yield score, *columns
    for name in methods:
        yield named(name), *(found.get(name, "") for found in columns.values())


def networks() -> Lines:
    """All methods end to end, and in brackets what the paper prints."""
    columns = {}
    for dataset, title in IMAGES.items():
        rows = finished("networks", dataset, NETWORKS)
        for score in ("NMI", "R@1") if rows else ():
            found = cells(rows, score)
            printed = printed_scores(dataset, rows[0]["labels_per_class"], score)
            for name in NETWORKS:
                if name.partition("[")[0] in printed:
                    value = printed[name.partition("[")[0]]
                    found[name] = f"{found.get(name, '')} ({value:.1f})".strip()
            columns[f"{title} {score}"] = found
    yield "", *columns
    for name in NETWORKS:
        if any(name in found for found in columns.values()):
            yield named(name), *(found.get(name, "") for found in columns.values())


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
    "baselines NMI": partial(baselines, "NMI"),
    "baselines accuracy": partial(baselines, "accuracy"),
    "networks": networks,
}


def markdown(name: str) -> str:
    """A table of `TABLES`; numbers stand at the right."""
    head, *lines = TABLES[name]()
    rule = ["---"] + ["--:"] * (len(head) - 1)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def renewed(text: str) -> str:
    """A page with its tables as the rows have them."""
    return MARKED.sub(lambda found: found[1] + markdown(found[2]) + found[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text()))
