"""Your own training loop with a loss of ``ssdml.losses`` and propagated labels."""

import numpy as np
import torch
from torch import nn

from ssdml.datasets import label_scarce_split, load_dataset
from ssdml.evaluation import evaluate
from ssdml.graphs import knn_graph, propagate_labels
from ssdml.losses import BinomialDevianceLoss, GlobalOrthogonalRegularizer
from ssdml.networks.sampling import balanced_batches
from ssdml.utils.labels import confidences

digits = load_dataset("digits")
split = label_scarce_split(digits, labels_per_class=5, seed=0)
X, y = digits.X[split.train], split.partial_labels(digits.y)

distributions = propagate_labels(knn_graph(X, 10), y)
classes, weights = distributions.argmax(axis=1), confidences(distributions)

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
loss = BinomialDevianceLoss() + 0.1 * GlobalOrthogonalRegularizer()
groups = [{"params": network.parameters()}, *loss.parameter_groups()]
optimizer = torch.optim.Adam(groups, lr=1e-3)
for rows in balanced_batches(classes, weights, size=100, count=200, rng=np.random.default_rng(0)):
    optimizer.zero_grad()
    embeddings = network(torch.from_numpy(X[rows]))
    loss(embeddings, torch.from_numpy(classes[rows])).backward()
    optimizer.step()

X_test, y_test = digits.X[split.test], digits.y[split.test]
with torch.no_grad():
    Z = nn.functional.normalize(network(torch.from_numpy(X_test))).numpy()
for name, rows in {"input": X_test, "network": Z}.items():
    scores = evaluate(rows, y_test)
    print(f"{name}: NMI {scores['NMI']:.1f}, R@1 {scores['R@1']:.1f}, MAP@R {scores['MAP@R']:.1f}")
