"""The tables of results in README.md and on these pages, from the rows in ``results/``.

``python docs/tables.py`` writes each anew, where a page has ``<!-- table: NAME -->`` and ``<!-- end
-->``. A row is a run, as ``results.jsonl`` of a comparison has it. A method stands in a table once
all its seeds have been run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ssdml.experiments.baseline_tables import LEVEL, best_of, printed_scores
from ssdml.experiments.paired import against
from ssdml.experiments.printed import marked
from ssdml.experiments.results import Row, latest, read_rows
from ssdml.experiments.statistics import Estimate, mean_interval, paired_difference
from ssdml.experiments.tuning import SUFFIX

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "results"
PAGES = (DOCS.parent / "README.md",)
MARKED = re.compile(r"(<!-- table: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SEEDS = 5

SETS = {
    "digits": "digits (a third held out)",
    "banking77": "Banking77 sentence embeddings",
    "mnist": "MNIST pixels, 60,000 / 10,000",
    "fashion_mnist": "Fashion-MNIST pixels, 60,000 / 10,000",
}
IMAGES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
SCORES = ("NMI", "R@1", "accuracy")

OURS = ("ssdml", "ssdml-residual")
STARTS = ("input", "pca")
THEIRS = (
    *("lda", "nca", "self-training", "label-spreading"),
    *("lrml", "seraph", "isdml", "apllr", "apit", "ssdml-paper"),
)

WHOLE, LITERAL = "deep-ssdml", "deep-ssdml-paper[epochs=10]"
NETWORKS = (
    *("input", "initial"),
    *(f"deep-{name}" for name in ("lrml", "seraph", "isdml", "apllr", "apit")),
    *(f"deep-{name}" for name in ("triplet", "angular")),
    *(f"deep-{name}" for name in ("exemplar", "rotnet", "nce", "deepcluster", "suml")),
    *(LITERAL, WHOLE),
)
PARTS = {
    "propagation=one-sided": "triplets of one-sided affinities",
    "metric_steps=0": "L as it began",
    "orthogonal=false": "L a layer like any other",
    "triplets=0": "no triplets of the batch",
    "consistency=0": "no consistency",
    "threshold=0": "consistency of unsure items too",
    "augment=null": "no views",
    "input_edges=0": "no edges of the input",
    "input_weight=0": "no input beside",
    "angle=35": "35 degrees",
    "angle=45": "45 degrees",
    "angle=55": "55 degrees",
}

Lines = Iterator[Sequence[str]]


def rows_of(kind: str, dataset: str) -> list[Row]:
    """The runs on a data set of the methods that were run over all seeds."""
    path = RESULTS / kind / f"{dataset}.jsonl"
    rows = latest(read_rows(path)) if path.is_file() else []
    runs = [_line(row) for row in rows if row["status"] == "ok"]
    return [row for row in rows if runs.count(_line(row)) == SEEDS]


def _line(row: Row) -> tuple[str, int]:
    return row["method"], row["labels_per_class"]


def features() -> Lines:
    """Ours beside their input, on features."""
    methods = (STARTS[0], *OURS)
    yield "data, labels a class", "", *SCORES
    for dataset, title in SETS.items():
        rows = rows_of("features", dataset)
        for budget in sorted({row["labels_per_class"] for row in rows}):
            given = [row for row in rows if row["labels_per_class"] == budget]
            found = [cells(given, score, methods) for score in SCORES]
            for method in methods:
                head = f"{title}, {budget}" if method == methods[0] else ""
                yield head, named(method), *(column[method] for column in found)


def baselines(score: str) -> Lines:
    """All methods on features; † where the best of ours is not shown to be better."""
    columns = {}
    for dataset, title in SETS.items():
        rows = rows_of("features", dataset)
        budget = max((row["labels_per_class"] for row in rows), default=0)
        for tuned in ("", SUFFIX):
            given = [
                row | {"method": row["method"].removesuffix(tuned)}
                for row in rows
                if row["labels_per_class"] == budget
                and row["method"].endswith(SUFFIX) == bool(tuned)
            ]
            if set(OURS) <= {row["method"] for row in given}:
                head = f"{title.split()[0]}, {budget}{tuned.replace('-', ', ')}"
                columns[head] = _beside_ours(given, score)
    yield score, *columns
    for name in (*STARTS, *THEIRS, *OURS):
        yield named(name), *(found.get(name, "") for found in columns.values())


def _beside_ours(rows: Sequence[Row], score: str) -> dict[str, str]:
    found = cells(rows, score, (*STARTS, *THEIRS, *OURS))
    tests = against(rows, best_of(rows, OURS, score), score)
    for name in found.keys() & set(THEIRS):
        if not (tests[name].mean > 0 and tests[name].p < LEVEL):
            found[name] += " †"
    return found


def networks() -> Lines:
    """All methods end to end, and in brackets what the paper prints."""
    columns = {}
    for dataset, title in IMAGES.items():
        rows = rows_of("networks", dataset)
        for score in SCORES[:2] if rows else ():
            found = cells(rows, score, NETWORKS)
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


def parts(dataset: str) -> Lines:
    """Our alternation, and what is lost of it where a part is left out."""
    rows = rows_of("networks", dataset)
    by_score = [scores_of(rows, score) for score in SCORES]
    yield "", *SCORES
    yield "the whole", *(around(mean_interval(found[WHOLE])) for found in by_score)
    for options, title in PARTS.items():
        name = f"{WHOLE}[{options}]"
        if name in by_score[0]:
            changes = (paired_difference(found[name], found[WHOLE]) for found in by_score)
            yield f"{title}, `{options}`", *(_change(change) for change in changes)


def scores_of(rows: Sequence[Row], score: str) -> dict[str, list[float]]:
    """Scores of each method, in the order of the seeds."""
    found: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        found.setdefault(row["method"], []).append(row["scores"][score])
    return found


def cells(rows: Sequence[Row], score: str, methods: Sequence[str]) -> dict[str, str]:
    """Mean and half of the interval of those of the methods that were run.

    The best is in bold, once the last of the methods, which is ours, is among them.
    """
    known = scores_of(rows, score)
    found = {name: mean_interval(known[name]) for name in methods if name in known}
    best = max(estimate.mean for estimate in found.values()) if methods[-1] in found else None
    return {name: around(estimate, bold=estimate.mean == best) for name, estimate in found.items()}


def around(estimate: Estimate, *, bold: bool = False) -> str:
    """A mean and half of its interval."""
    mean = f"{estimate.mean:.1f}"
    return f"{f'**{mean}**' if bold else mean} ± {estimate.half_width:.1f}"


def _change(estimate: Estimate) -> str:
    """A difference, in bold where its interval excludes zero."""
    told = f"{estimate.mean:+.2f} ± {estimate.half_width:.2f}"
    return f"**{told}**" if estimate.excludes_zero else told


def named(method: str) -> str:
    """A method as it is asked for, with a star where it is our reconstruction."""
    return f"`{method}`" + "\\*" * marked(method).endswith("*")


TABLES: Mapping[str, Callable[[], Lines]] = {
    "features": features,
    "baselines NMI": partial(baselines, "NMI"),
    "baselines accuracy": partial(baselines, "accuracy"),
    "networks": networks,
    "parts": partial(parts, "fashion_mnist"),
}


def markdown(name: str) -> str:
    """A table of `TABLES`; numbers stand at the right."""
    head, *lines = TABLES[name]()
    n_words = 2 if name == "features" else 1
    rule = ["---"] * n_words + ["--:"] * (len(head) - n_words)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def renewed(text: str) -> str:
    """A page with its tables as the rows have them."""
    return MARKED.sub(lambda found: found[1] + markdown(found[2]) + found[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text()))
