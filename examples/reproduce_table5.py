"""Table 5 of Dutta et al. (2021): their method, networks trained on the labeled images, and ours.

``python examples/reproduce_table5.py mnist --seeds 5 --out table5`` runs all methods on the same
labels and resumes interrupted runs; ``--only`` picks methods. Takes hours without a GPU. The paper
has this table for ``cub`` (see reproduce_table2.py).
"""

from reproduction.published import TABLE_5
from reproduction.tables import reproduce

METHODS = [*TABLE_5["cub"], "deep-ssdml"]

if __name__ == "__main__":
    reproduce(TABLE_5, METHODS, "table5", __doc__)
