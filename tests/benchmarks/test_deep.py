"""What graph, mining and metric add to the time of the epochs between them."""

from __future__ import annotations

import numpy as np

from ssdml import DeepSSDML
from ssdml.splits import label_scarce_split


def test_graph_and_metric_add_three_tenths_to_the_epochs_at_most(benchmark, mnist):
    """Over two partitions of MNIST; the epochs alone are the loop with labels and L at rest."""
    split = label_scarce_split(mnist, 10, seed=0)
    images = mnist.X[split.train].reshape(-1, 28, 28)
    model = DeepSSDML("mnist", epochs=20, random_state=0, n_jobs=-1)
    benchmark.pedantic(model.fit, (images, split.partial_labels(mnist.y)), rounds=1)
    parts = [entry["seconds"] for entry in model.history_]
    added, epochs = (sum(part[name] for part in parts) for name in ("graph and metric", "epochs"))
    benchmark.extra_info |= {"added": added, "epochs": epochs, "ratio": added / epochs}
    assert np.isfinite(model.history_[-1]["loss"])
    assert added / epochs <= 0.30
