"""Table 3 of Dutta et al. (2021): their method, networks trained without labels, and ours.

``python examples/reproduce_table3.py mnist --seeds 5 --out table3`` runs all methods on the same
labels and resumes interrupted runs; ``--only`` picks methods. Takes hours without a GPU. The paper
has this table for ``cub`` and ``cars`` (see reproduce_table2.py) and copied all methods without
labels except Rotation from an earlier paper.
"""

from reproduction.published import TABLE_3
from reproduction.tables import reproduce

METHODS = [*TABLE_3["cub"], "deep-ssdml"]

if __name__ == "__main__":
    reproduce(TABLE_3, METHODS, "table3", __doc__)
