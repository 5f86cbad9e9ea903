"""Table 4 of Dutta et al. (2021), orthogonality of L, with an ablation of our method.

``python examples/reproduce_table4.py mnist --seeds 5 --out table4`` runs all methods on the same
labels and resumes interrupted runs; ``--only`` picks methods. Takes hours without a GPU.
"""

from reproduction.published import TABLE_4
from reproduction.tables import reproduce

METHODS = [
    "deep-ssdml-paper",
    "deep-ssdml-paper[orthogonal=false]",
    "deep-ssdml",
    "deep-ssdml[orthogonal=false]",
    "deep-ssdml[metric_steps=0]",
    "deep-ssdml[propagation=one-sided]",
    "deep-ssdml[consistency=0]",
    "deep-ssdml[threshold=0]",
    "deep-ssdml[triplets=0]",
    "deep-ssdml[augment=null]",
    "deep-ssdml[input_edges=0]",
    "deep-ssdml[input_weight=0]",
    "deep-ssdml[angle=35]",
    "deep-ssdml[angle=45]",
    "deep-ssdml[angle=55]",
]

if __name__ == "__main__":
    reproduce(TABLE_4, METHODS, "table4", __doc__)
