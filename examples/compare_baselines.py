"""Our methods against every baseline, over seeds and data sets, with tests of the differences.

``python examples/compare_baselines.py digits banking77 --labels-per-class 5 --out baselines`` goes
on where it was stopped. Each baseline is tested against the better of ours on each set, over seeds;
over data sets there are ranks, Friedman's test and Nemenyi's critical difference.
"""

import argparse
from pathlib import Path

import numpy as np

from ssdml.datasets import load_dataset
from ssdml.experiments.run import METHODS, compare
from ssdml.experiments.significance import corrected_t_test, friedman_nemenyi
from ssdml.experiments.statistics import mean_interval
from ssdml.experiments.terminal import shown_runs

OURS = ["ssdml", "ssdml-residual"]
THEIRS = [name for name in METHODS if name not in (*OURS, "input", "pca")]
SCORES = ("NMI", "accuracy")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("datasets", nargs="+")
parser.add_argument("--labels-per-class", type=int, default=5)
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--out", type=Path, default=Path("baselines"))
parser.add_argument("--n-jobs", type=int, default=1, help="runs at a time")


def by_method(rows, score):
    """Scores of each method in the order of the seeds; NaN where a run failed."""
    ordered = sorted(rows, key=lambda row: row["seed"])
    return {
        name: np.array(
            [row["scores"].get(score, np.nan) for row in ordered if row["method"] == name]
        )
        for name in [*OURS, *THEIRS]
    }


def print_tests(scores, test_share):
    """A line a method: mean, interval, and the test against the better of ours."""
    best = max(OURS, key=lambda name: np.nanmean(scores[name]))
    for name, values in scores.items():
        estimate = mean_interval(values)
        test = corrected_t_test(scores[best] - values, test_share=test_share)
        told = "" if name == best else f"{best} {test.mean:+5.1f}, p = {test.p:.3f}"
        print(f"  {name:15} {estimate.mean:5.1f} ± {estimate.half_width:4.1f}  {told}")


if __name__ == "__main__":
    given = parser.parse_args()
    means = {score: [] for score in SCORES}
    for dataset in given.datasets:
        out = given.out / Path(dataset).stem
        with shown_runs(out) as progress:
            rows = compare(
                load_dataset(dataset),
                ["input", *OURS, *THEIRS],
                labels_per_class=[given.labels_per_class],
                seeds=range(given.seeds),
                out=out,
                resume=True,
                n_jobs=given.n_jobs,
                progress=progress,
            )
        for score in SCORES:
            print(f"{dataset}, {given.labels_per_class} labels a class: {score}")
            scores = by_method(rows, score)
            print_tests(scores, rows[0]["n_test"] / rows[0]["n_train"])
            means[score].append([np.nanmean(values) for values in scores.values()])
    for score in SCORES if len(given.datasets) > 1 else ():
        test = friedman_nemenyi(np.transpose(means[score]))
        ranks = dict(zip([*OURS, *THEIRS], test.ranks, strict=True))
        told = ", ".join(
            f"{name} {rank:.1f}" for name, rank in sorted(ranks.items(), key=lambda r: r[1])
        )
        print(f"mean ranks by {score}: {told}")
        print(f"  Friedman p = {test.p:.3f}, critical difference {test.critical_difference:.1f}")
