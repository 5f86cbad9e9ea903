"""Table 1 of Dutta et al. (2021): their method, the compared baselines, and ours.

``python examples/reproduce_table1.py mnist --seeds 5 --out table1`` runs all methods on the same
labels and resumes interrupted runs; ``--only`` picks methods. Takes hours without a GPU.
"""

from reproduction.published import TABLE_1
from reproduction.tables import reproduce

METHODS = [*TABLE_1["mnist"], "deep-ssdml"]

if __name__ == "__main__":
    reproduce(TABLE_1, METHODS, "table1", __doc__)
