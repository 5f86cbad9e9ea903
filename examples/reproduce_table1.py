"""Table 1 of the paper: its method, the baselines it compares with, and ours, on three sets.

``python examples/reproduce_table1.py mnist --seeds 5 --out table1`` runs every line over the seeds,
on the same labels, and goes on where it was stopped; ``--only`` picks lines. Hours without a GPU.
"""

from reproduction.printed import TABLE_1
from reproduction.tables import reproduce

LINES = [*TABLE_1["mnist"], "deep-ssdml"]

if __name__ == "__main__":
    reproduce(TABLE_1, LINES, "table1", __doc__)
