"""
Labels along a graph
====================

Two moons with two labels each. Along a nearest-neighbor graph the labels follow the moons, which no
straight line separates.
"""

# %%
# The graph connects each sample to its nearest neighbors.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression

from ssdml.graphs import adjacency, knn_graph, propagate_labels

X, y = make_moons(400, noise=0.07, random_state=0)
known = np.array([0, 1, 4, 5])
labels = np.full(len(X), -1)
labels[known] = y[known]
graph = knn_graph(X, 8)
distributions = propagate_labels(graph, labels)  # (n, classes), rows sum to 1

# %%
# Logistic regression sees the four labels only; propagation sees where the data are dense.

linear = LogisticRegression().fit(X[known], y[known]).predict_proba(X)
edges = np.argwhere(np.triu(adjacency(graph).toarray()) > 0)

figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for axes, (name, shares) in zip(
    panels, {"logistic regression": linear, "propagation": distributions}.items(), strict=True
):
    if name == "propagation":
        axes.plot(*X[edges].transpose(2, 1, 0), color="0.85", linewidth=0.5, zorder=0)
    axes.scatter(*X.T, c=shares[:, 1], s=12, cmap="coolwarm", vmin=0, vmax=1)
    axes.scatter(*X[known].T, c=y[known], s=150, cmap="coolwarm", marker="*", edgecolors="black")
    accuracy = (shares.argmax(axis=1) == y).mean()
    axes.set_title(f"{name}: {accuracy:.0%} right")
    axes.set_axis_off()
plt.show()
