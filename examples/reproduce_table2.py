"""Table 2 of Dutta et al. (2021): their method, the compared baselines, and ours, on photographs.

``python examples/reproduce_table2.py cub --weights googlenet.pth --seeds 5 --out table2`` runs all
methods on the same labels and resumes interrupted runs; ``--only`` picks methods. You provide the
images and the weights of torchvision's GoogLeNet. ``sop`` and ``inshop`` have no published scores;
the NMI of ``sop`` takes most of an hour per run. Takes days on a GPU; less with
``--only initial "deep-ssdml[image_size=224;epochs=20;batch_size=64]"``. ``--protocol`` takes
network, images, labels, batches and rates from another paper.
"""

from reproduction.published import TABLE_2
from reproduction.tables import reproduce

METHODS = [*TABLE_2["cub"], "deep-ssdml"]

if __name__ == "__main__":
    reproduce(TABLE_2 | {"sop": {}, "inshop": {}}, METHODS, "table2", __doc__)
