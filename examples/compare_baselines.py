"""Our methods against every baseline, over seeds and data sets, with tests of the differences.

``python examples/compare_baselines.py digits banking77 --labels-per-class 5 --out baselines`` goes
on where it was stopped. Each baseline is tested against the better of ours on each set, over seeds;
over data sets there are ranks, Friedman's test and Nemenyi's critical difference. ``--tuned``: the
labelled rows choose the parameters of each, from as many settings. ``--deep``: networks of images.
"""

import argparse
from pathlib import Path

import numpy as np

from ssdml.datasets import load_dataset
from ssdml.experiments.run import available, compare
from ssdml.experiments.significance import corrected_t_test, friedman_nemenyi
from ssdml.experiments.statistics import mean_interval
from ssdml.experiments.terminal import shown_runs
from ssdml.experiments.tuning import GRIDS, SUFFIX

OURS = ["ssdml", "ssdml-residual"]
OURS_DEEP = ["deep-ssdml"]
REFERENCES = ("input", "pca")  # compared, but not tested against
SCORES = ("NMI", "accuracy")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("datasets", nargs="+")
parser.add_argument("--labels-per-class", type=int, default=5)
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--out", type=Path, default=Path("baselines"))
parser.add_argument("--features", default="auto", help="auto, unit, components or raw")
parser.add_argument("--tuned", action="store_true", help="parameters by the labelled rows")
parser.add_argument("--deep", action="store_true", help="networks of images")
parser.add_argument("--n-jobs", type=int, default=1, help="runs at a time")


def chosen(dataset, deep, tuned):
    """Names of our methods and of theirs."""
    known = [name for name in available(dataset, deep) if name.startswith("deep-") == deep]
    ours = OURS_DEEP if deep else OURS
    theirs = [name for name in known if name not in (*ours, *REFERENCES)]
    named = {name: name + SUFFIX if tuned and name in GRIDS else name for name in known}
    return [named[name] for name in ours], [named[name] for name in theirs]


def by_method(rows, score, names):
    """Scores of each method in the order of the seeds; NaN where a run failed."""
    ordered = sorted(rows, key=lambda row: row["seed"])
    return {
        name: np.array(
            [row["scores"].get(score, np.nan) for row in ordered if row["method"] == name]
        )
        for name in names
    }


def print_tests(scores, ours, test_share):
    """A line a method: mean, interval, and the test against the better of ours."""
    best = max(ours, key=lambda name: np.nanmean(scores[name]))
    for name, values in scores.items():
        estimate = mean_interval(values)
        test = corrected_t_test(scores[best] - values, test_share=test_share)
        told = "" if name == best else f"{best} {test.mean:+5.1f}, p = {test.p:.3f}"
        print(f"  {name:21} {estimate.mean:5.1f} ± {estimate.half_width:4.1f}  {told}")


if __name__ == "__main__":
    given = parser.parse_args()
    means = {score: [] for score in SCORES}
    for name in given.datasets:
        out = given.out / Path(name).stem
        dataset = load_dataset(name)
        ours, theirs = chosen(dataset, given.deep, given.tuned)
        with shown_runs(out) as progress:
            rows = compare(
                dataset,
                [*REFERENCES, *ours, *theirs],
                labels_per_class=[given.labels_per_class],
                seeds=range(given.seeds),
                out=out,
                features=given.features,
                deep=given.deep,
                resume=True,
                n_jobs=given.n_jobs,
                progress=progress,
            )
        for score in SCORES:
            print(f"{name}, {given.labels_per_class} labels a class: {score}")
            scores = by_method(rows, score, [*ours, *theirs])
            print_tests(scores, ours, rows[0]["n_test"] / rows[0]["n_train"])
            means[score].append([np.nanmean(values) for values in scores.values()])
    for score in SCORES if len(given.datasets) > 1 else ():
        test = friedman_nemenyi(np.transpose(means[score]))
        ranks = dict(zip([*ours, *theirs], test.ranks, strict=True))
        told = ", ".join(
            f"{name} {rank:.1f}" for name, rank in sorted(ranks.items(), key=lambda r: r[1])
        )
        print(f"mean ranks by {score}: {told}")
        print(f"  Friedman p = {test.p:.3f}, critical difference {test.critical_difference:.1f}")
