"""Rows beyond one machine's memory, on a cluster of dask; here it has two processes of this one.

``python examples/cluster.py [SCHEDULER]``: of a cluster that runs already, its address.
"""

import argparse

import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

from ssdml import SSDML
from ssdml.datasets import load_dataset


def main(scheduler):
    """Fit an array in chunks, and embed it where the chunks are."""
    digits = load_dataset("digits")
    labels = np.where(np.arange(len(digits.y)) < 100, digits.y, -1)
    rows = da.from_array(digits.X, chunks=(600, -1))  # or from_zarr, from_npy_stack, ...
    with Client(scheduler) as client:
        model = SSDML(random_state=0).fit(rows, labels)
        Z = model.transform(rows)  # nothing is embedded before it is computed
        print(f"{len(client.scheduler_info()['workers'])} workers, {Z.numblocks[0]} chunks")
        print(f"classes right: {100 * (model.transduction_ == digits.y).mean():.1f} %")
        print(f"first row: {np.round(Z[0, :3].compute(), 2)}")


if __name__ == "__main__":  # each worker imports this file
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scheduler", nargs="?", help="like tcp://HOST:8786")
    given = parser.parse_args()
    if given.scheduler:
        main(given.scheduler)
    else:
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            main(cluster)
