"""Fit data larger than the memory of one machine, on a dask cluster.

``python examples/cluster.py [SCHEDULER]`` uses the cluster at an address, or two local processes.
"""

import argparse

import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

from ssdml import SSDML
from ssdml.datasets import load_dataset


def main(scheduler):
    """Fit a chunked array and embed its chunks in place."""
    digits = load_dataset("digits")
    labels = np.where(np.arange(len(digits.y)) < 100, digits.y, -1)
    rows = da.from_array(digits.X, chunks=(600, -1))  # or from_zarr, from_npy_stack, ...
    with Client(scheduler) as client:
        model = SSDML(random_state=0).fit(rows, labels)
        Z = model.transform(rows)  # lazy
        print(f"{len(client.scheduler_info()['workers'])} workers, {Z.numblocks[0]} chunks")
        print(f"accuracy: {100 * (model.transduction_ == digits.y).mean():.1f}%")
        print(f"first row: {np.round(Z[0, :3].compute(), 2)}")


if __name__ == "__main__":  # each worker imports this file
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scheduler", nargs="?", help="for example tcp://HOST:8786")
    given = parser.parse_args()
    if given.scheduler:
        main(given.scheduler)
    else:
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            main(cluster)
