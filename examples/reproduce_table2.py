"""Table 2 of the paper: its method, the baselines it compares with, and ours, on photographs.

``python examples/reproduce_table2.py cub --weights googlenet.pth --seeds 5 --out table2`` runs
every line over the seeds, on the same labels, and goes on where it was stopped; ``--only`` picks
lines. The weights are a file of yours, for torchvision's GoogLeNet; images and weights are not
here. ``sop`` and ``inshop`` run in the same way; the paper prints nothing of them, and the clusters
of 11,316 classes behind the NMI of ``sop`` take the better part of an hour a run. Days on a GPU:
``--only initial "deep-ssdml[image_size=224;epochs=20;batch_size=64]"`` takes less. ``--protocol``
takes network, images, labels, batches and rates from another of the papers: 000, 001, 002 or 004.
"""

from reproduction.printed import TABLE_2
from reproduction.tables import reproduce

LINES = [*TABLE_2["cub"], "deep-ssdml"]

if __name__ == "__main__":
    reproduce(TABLE_2 | {"sop": {}, "inshop": {}}, LINES, "table2", __doc__)
