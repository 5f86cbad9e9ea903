"""Our methods against every baseline, over seeds and data sets, with tests of the differences.

``python examples/compare_baselines.py digits banking77 mnist --labels-per-class 5 5 10
--features unit unit components --out baselines`` goes on where it was stopped; one value stands for
all sets. Each baseline is tested against the best of ours on each set, over seeds, and those that
it is not shown to beat are named; over data sets there are ranks, Friedman's test and Nemenyi's
critical difference. A star marks what is our reconstruction. ``--tuned``: the labeled rows choose
the parameters of each, from as many settings. ``--deep``: networks of images, with what the paper
prints of them.
"""

import argparse
from pathlib import Path

from reproduction.printed import reconstructions
from reproduction.tables import positive, ranked, set_lines, usage_errors

from ssdml.cli.terminal import shown_runs
from ssdml.datasets import load_dataset
from ssdml.experiments import compare
from ssdml.experiments.analysis.tables import HEADLINE, mean_scores
from ssdml.experiments.compare import available
from ssdml.experiments.methods.tuning import GRIDS, SUFFIX
from ssdml.experiments.runs.results import summarize_failures

OURS = ["ssdml", "ssdml-residual"]
OURS_DEEP = ["deep-ssdml"]
REFERENCES = ("input", "pca", "initial")  # compared, but not tested against
SCORES = ("NMI", "accuracy")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("datasets", nargs="+")
parser.add_argument(
    "--labels-per-class", type=int, nargs="+", default=[5], help="one for all sets, or one for each"
)
parser.add_argument("--seeds", type=positive, default=5)
parser.add_argument("--out", type=Path, default=Path("baselines"))
parser.add_argument(
    "--features",
    nargs="+",
    default=["auto"],
    help="auto, unit, components or raw: one for all sets, or one for each",
)
parser.add_argument("--tuned", action="store_true", help="parameters by the labeled rows")
parser.add_argument("--deep", action="store_true", help="networks of images")
parser.add_argument("--n-jobs", type=positive, default=1, help="runs at a time")


def parsed():
    """What the command line asks, with labels and features of each set."""
    given = parser.parse_args()
    stems = [Path(name).stem for name in given.datasets]
    if len(set(stems)) < len(stems):
        parser.error(f"datasets must have a name each, for a folder each; got {' '.join(stems)}.")
    given.labels_per_class = for_each_set("--labels-per-class", given.labels_per_class, given)
    given.features = for_each_set("--features", given.features, given)
    return given


def for_each_set(name, values, given):
    """As many values as sets, where one stands for all."""
    n_sets = len(given.datasets)
    if len(values) not in (1, n_sets):
        parser.error(
            f"{name} must have one value, or one for each of the {n_sets} sets; got {len(values)}."
        )
    return values * (n_sets // len(values))


def chosen(dataset, deep, tuned):
    """Names of our methods, of theirs, and of references."""
    known = available(dataset, deep)
    references = [name for name in REFERENCES if name in known]
    ours = OURS_DEEP if deep else OURS
    theirs = [
        name
        for name in known
        if name not in (*ours, *references) and name.startswith("deep-") == deep
    ]
    named = {name: name + SUFFIX if tuned and name in GRIDS else name for name in known}
    return [named[name] for name in ours], [named[name] for name in theirs], references


if __name__ == "__main__":
    given = parsed()
    scores = HEADLINE if given.deep else SCORES
    sets, failures = {score: [] for score in scores}, []
    asked = zip(given.datasets, given.labels_per_class, given.features, strict=True)
    for name, n_labels, features in asked:
        out = given.out / Path(name).stem
        with shown_runs(out) as progress, usage_errors(parser):
            dataset = load_dataset(name)
            ours, theirs, references = chosen(dataset, given.deep, given.tuned)
            rows = compare(
                dataset,
                [*references, *ours, *theirs],
                labels_per_class=[n_labels],
                seeds=range(given.seeds),
                out=out,
                features=features,
                deep=given.deep,
                resume=True,
                n_jobs=given.n_jobs,
                progress=progress,
            )
        if summary := summarize_failures(rows):
            failures.append(f"{name}: {summary}\nThe tracebacks are in {out / 'errors'}.\n")
            if not any(row["status"] == "ok" for row in rows if row["method"] in ours):
                parser.exit(1, "".join(failures))
        for score in scores:
            print(*set_lines(rows, score, ours, theirs), sep="\n")
            found = mean_scores(rows, score)
            sets[score].append({method: found[method] for method in (*ours, *theirs)})
    for score in scores if len(given.datasets) > 1 else ():
        print(*ranked(sets[score], score), sep="\n")
    for note in reconstructions([*ours, *theirs]):
        print(note)
    if failures:
        parser.exit(1, "".join(failures))
