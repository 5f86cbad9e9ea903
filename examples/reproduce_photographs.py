"""Tables 2, 3 and 5 of Dutta et al. (2021) on Caltech-101, with EfficientNet-Lite0.

``python examples/reproduce_photographs.py --seeds 5 --out photographs`` computes the features of
all images by the pretrained network, trains a residual head on them by each method with 5 labels
per class of the first 51 classes, and scores the other 50. ``--trunk fine-tuned`` trains the whole
network instead, at 128 pixels. Learning rates are chosen on held-out training classes. Interrupted
runs are resumed. Needs the images, and ``pip install 'ssdml[images,losses]'``.
"""

import argparse
import sys
from pathlib import Path

from command_line import positive, usage_errors
from reproduction.photographs import LINES, compare_photographs
from reproduction.tables import table_lines

from ssdml.cli.terminal import progress_bar
from ssdml.datasets import load_dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", nargs="?", default="caltech101_images")
parser.add_argument("--trunk", choices=LINES, default="frozen")
parser.add_argument("--only", nargs="+", metavar="METHOD", help="run only these methods")
parser.add_argument("--seeds", type=positive, default=5)
parser.add_argument("--out", type=Path, default=Path("photographs"))

if __name__ == "__main__":
    given = parser.parse_args()
    out = given.out / given.trunk
    with progress_bar(out) as progress, usage_errors(parser):
        rows = compare_photographs(
            load_dataset(given.dataset),
            out,
            trunk=given.trunk,
            methods=given.only or LINES[given.trunk],
            seeds=range(given.seeds),
            progress=progress,
        )
    sys.stdout.writelines(f"{line}\n" for line in table_lines(rows, {}))
