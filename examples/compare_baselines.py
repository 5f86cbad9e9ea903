"""Compare our methods with every baseline over seeds and data sets, with significance tests.

``python examples/compare_baselines.py digits banking77 mnist --labels-per-class 5 5 10
--features unit unit components --out baselines`` resumes interrupted runs; one value applies to all
data sets. The best of our methods is tested against each baseline over the seeds, and methods are
ranked over the data sets (Friedman's test, Nemenyi's critical difference). A star marks our
reconstructions. ``--tuned`` chooses the parameters of each method on the labeled samples.
``--deep`` compares networks on images, with the published scores.
"""

import argparse
from pathlib import Path

from command_line import positive, usage_errors
from reproduction.published import reconstruction_notes
from reproduction.tables import baseline_lines, rank_lines

from ssdml.cli.terminal import progress_bar
from ssdml.datasets import load_dataset
from ssdml.experiments import compare
from ssdml.experiments.analysis.tables import HEADLINE, mean_scores
from ssdml.experiments.compare import available_methods
from ssdml.experiments.methods.tuning import GRIDS, SUFFIX
from ssdml.experiments.runs.results import summarize_failures

OURS = ["ssdml"]
OURS_DEEP = ["deep-ssdml"]
REFERENCES = ("input", "pca", "initial")  # compared but not tested
SCORES = ("NMI", "accuracy")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("datasets", nargs="+")
parser.add_argument(
    "--labels-per-class", type=int, nargs="+", default=[5], help="one value, or one per data set"
)
parser.add_argument("--seeds", type=positive, default=5)
parser.add_argument("--out", type=Path, default=Path("baselines"))
parser.add_argument(
    "--features",
    nargs="+",
    default=["auto"],
    help="auto, unit, components, standardized or raw; one value, or one per data set",
)
parser.add_argument("--tuned", action="store_true", help="choose parameters on the labeled samples")
parser.add_argument("--deep", action="store_true", help="train networks on images")
parser.add_argument("--n-jobs", type=positive, default=1, help="runs at a time")


def parsed():
    """Parse the command line, with labels and features per data set."""
    given = parser.parse_args()
    stems = [Path(name).stem for name in given.datasets]
    if len(set(stems)) < len(stems):
        parser.error(f"datasets must have distinct names; got {' '.join(stems)}.")
    given.labels_per_class = per_dataset("--labels-per-class", given.labels_per_class, given)
    given.features = per_dataset("--features", given.features, given)
    return given


def per_dataset(name, values, given):
    """Repeat a single value for all data sets."""
    n_sets = len(given.datasets)
    if len(values) not in (1, n_sets):
        parser.error(
            f"{name} must have one value, or one for each of {n_sets} data sets; got {len(values)}."
        )
    return values * (n_sets // len(values))


def chosen(dataset, deep, tuned):
    """Names of our methods, the baselines, and the references."""
    known = available_methods(dataset, deep)
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
        with progress_bar(out) as progress, usage_errors(parser):
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
            print(*baseline_lines(rows, score, ours, theirs), sep="\n")
            found = mean_scores(rows, score)
            sets[score].append({method: found[method] for method in (*ours, *theirs)})
    for score in scores if len(given.datasets) > 1 else ():
        print(*rank_lines(sets[score], score), sep="\n")
    for note in reconstruction_notes([*ours, *theirs]):
        print(note)
    if failures:
        parser.exit(1, "".join(failures))
