"""What each term adds to its base loss, and losses of proxies beside each other, on unseen classes.

``python examples/compare_losses.py digits banking77 --out losses`` learns half of the classes and
scores the others, over five seeds, and goes on where it was stopped. Settings are chosen on classes
held out of the learned half. It prints paired differences, what the papers print of theirs beside,
and draws ``losses.png``: the differences, and how they change with λ. ``--no-any-rate`` leaves
out the search of the learning rate, ``--no-few`` the semi-supervised use: five labels a class
alone, and propagated. On a set of less than 20 classes all seeds learn the same half: the intervals
are then those of first weights and batches, not of the choice of classes. Without
pytorch-metric-learning the losses that need it are left out.
"""

import argparse
from pathlib import Path

from reproduction.loss_claims import tried_and_scored
from reproduction.loss_tables import draw_losses, loss_table, verdicts
from reproduction.losses import INSTALL, LIBRARY, LOSSES, left_out

from ssdml.datasets import load_dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("datasets", nargs="+")
parser.add_argument("--losses", nargs="+", default=list(LOSSES), metavar="LOSS")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--n-steps", type=int, help="of each training: 100, of images 200")
parser.add_argument("--out", type=Path, default=Path("losses"))
parser.add_argument("--score", default="R@1", help="that tables and figure show")
parser.add_argument("--n-jobs", type=int, default=1, help="runs at a time")
parser.add_argument("--any-rate", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--few", action=argparse.BooleanOptionalAction, default=True)

if __name__ == "__main__":
    given, found = parser.parse_args(), {}
    missing = left_out(given.losses)
    losses = [name for name in given.losses if name not in missing]
    if missing:
        print(f"left out, for they need {LIBRARY} ({INSTALL}): {', '.join(missing)}")
    if not losses:
        parser.exit(1, "no loss is left to compare\n")
    for name in given.datasets:
        found[name] = tried_and_scored(
            load_dataset(name),
            given.out / Path(name).stem,
            losses=losses,
            seeds=range(given.seeds),
            n_steps=given.n_steps,
            n_jobs=given.n_jobs,
            any_rate=given.any_rate,
            few=given.few,
        )
        print(*loss_table(name, found[name], given.score), sep="\n", flush=True)
    print(*verdicts(found, given.score), sep="\n")
    draw_losses(found, given.out / "losses.png", given.score)
    print(f"drawn: {given.out / 'losses.png'}")
