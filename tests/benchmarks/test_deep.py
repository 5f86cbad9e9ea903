"""What graphs, propagation, mining and L add to the time of the epochs between them."""

from __future__ import annotations

import time
from collections import defaultdict

import numpy as np
import pytest

from ssdml import DeepSSDML, deep
from ssdml.deep_run import DeepRun
from ssdml.splits import label_scarce_split


@pytest.fixture
def seconds(monkeypatch):
    """Of each part of a fit; a part within another counts in both."""
    spent = defaultdict(float)

    def timed(owner, name):
        part = getattr(owner, name)

        def run(*args, **options):
            begin = time.perf_counter()
            result = part(*args, **options)
            spent[name] += time.perf_counter() - begin
            return result

        monkeypatch.setattr(owner, name, run)

    timed(deep, "input_graph")
    for name in ("_prepare", "_train", "conclude", "embed"):
        timed(DeepRun, name)
    return spent


def test_graph_and_metric_add_three_tenths_to_the_epochs_at_most(benchmark, mnist, seconds):
    """Over a whole fit of MNIST; the epochs alone are the loop with triplets and L at rest.

    What is added is the graphs of the input and of each embedding, the labels along them to the
    last, mining and L. The network's passes over all images are told apart.
    """
    split = label_scarce_split(mnist, 10, seed=0)
    images = mnist.X[split.train].reshape(-1, 28, 28)
    model = DeepSSDML("mnist", random_state=0, n_jobs=-1)
    benchmark.pedantic(model.fit, (images, split.partial_labels(mnist.y)), rounds=1)
    whole = seconds["input_graph"] + seconds["_prepare"] + seconds["conclude"]
    added, epochs = whole - seconds["embed"], seconds["_train"]
    benchmark.extra_info |= dict(seconds) | {"added": added, "ratio": added / epochs}
    assert np.isfinite(model.history_[-1]["loss"])
    assert added / epochs <= 0.30
