"""Table 5 of the paper: its method, networks learned from the labeled items alone, and ours.

``python examples/reproduce_table5.py mnist --seeds 5 --out table5`` runs every line over the seeds,
on the same labels, and goes on where it was stopped; ``--only`` picks lines. Hours without a GPU.
The paper has this table for CUB-200-2011 (``cub``; see reproduce_table2.py).
"""

from reproduction.printed import TABLE_5
from reproduction.tables import reproduce

LINES = [*TABLE_5["cub"], "deep-ssdml"]

if __name__ == "__main__":
    reproduce(TABLE_5, LINES, "table5", __doc__)
