"""Compare losses on unseen classes: the gain of each term over its base, and proxy losses.

``python examples/compare_losses.py digits banking77 --out losses`` trains on half of the classes
and scores the others over five seeds, with settings chosen on held-out training classes. It prints
paired differences with published ones, draws ``losses.png``, and resumes interrupted runs.
``--losses triplet+da dgcrl`` compares some, and the losses they add to; ``--ablation`` compares the
eight rows of ProxyGML's ablation instead, with published settings and without a search.
``--no-any-rate`` skips the search of the learning rate, ``--no-few`` the runs with five labels per
class. On data sets with fewer than 20 classes all seeds train on the same half, so intervals cover
initial weights and batches only. Losses that need pytorch-metric-learning are skipped without it.
"""

import argparse
from pathlib import Path

from command_line import positive, usage_errors
from reproduction.loss_search import compare_losses
from reproduction.loss_tables import draw_losses, loss_table, summary_lines
from reproduction.losses import (
    ABLATION,
    COMPARED,
    INSTALL,
    LIBRARY,
    LOSSES,
    unavailable,
    with_bases,
)

from ssdml.cli.terminal import progress_bar
from ssdml.datasets import load_dataset
from ssdml.experiments.runs.job import SCORES

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("datasets", nargs="+")
parser.add_argument(
    "--losses",
    nargs="+",
    default=COMPARED,
    choices=LOSSES,
    metavar="LOSS",
    help=", ".join(COMPARED),
)
parser.add_argument("--ablation", action="store_true", help="of ProxyGML, in place of --losses")
parser.add_argument("--seeds", type=positive, default=5)
parser.add_argument(
    "--n-steps", type=positive, help="training steps; default 100, or 200 for images"
)
parser.add_argument("--out", type=Path, default=Path("losses"))
parser.add_argument("--score", default="R@1", choices=SCORES, help="in tables and figure")
parser.add_argument("--n-jobs", type=positive, default=1, help="runs at a time")
parser.add_argument("--any-rate", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--few", action=argparse.BooleanOptionalAction, default=True)

if __name__ == "__main__":
    given, found = parser.parse_args(), {}
    wanted = list(ABLATION) if given.ablation else with_bases(given.losses)
    missing = unavailable(wanted)
    losses = [name for name in wanted if name not in missing]
    if missing:
        print(f"skipped, need {LIBRARY} ({INSTALL}): {', '.join(missing)}")
    if not losses:
        parser.exit(1, "no loss left to compare\n")
    with progress_bar(given.out) as progress, usage_errors(parser):
        for name, dataset in {name: load_dataset(name) for name in given.datasets}.items():
            found[name] = compare_losses(
                dataset,
                given.out / Path(name).stem,
                losses=losses,
                seeds=range(given.seeds),
                n_steps=given.n_steps,
                n_jobs=given.n_jobs,
                any_rate=given.any_rate and not given.ablation,
                few=given.few and not given.ablation,
                progress=progress,
            )
    for name, comparison in found.items():
        print(*loss_table(name, comparison, given.score), sep="\n")
    print(*summary_lines(found, given.score), sep="\n")
    draw_losses(found, given.out / "losses.png", given.score)
    print(f"drawn: {given.out / 'losses.png'}")
