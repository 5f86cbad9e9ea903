"""Table 3 of the paper: its method, networks learned without a label, and ours.

``python examples/reproduce_table3.py mnist --seeds 5 --out table3`` runs every line over the seeds,
on the same labels, and goes on where it was stopped; ``--only`` picks lines. Hours without a GPU.
The paper has this table for CUB-200-2011 and Cars-196 (``cub``, ``cars``; see reproduce_table2.py),
with all its lines of methods without labels but Rotation taken over from an earlier paper.
"""

from reproduction.printed import TABLE_3
from reproduction.tables import reproduce

LINES = [*TABLE_3["cub"], "deep-ssdml"]

if __name__ == "__main__":
    reproduce(TABLE_3, LINES, "table3", __doc__)
