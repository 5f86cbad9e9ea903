"""
Search with the learned metric
==============================

The nearest neighbors of some digits, by their pixels and by the metric: Euclidean distance between
rows of ``model.transform(X)``. Any vector index works; ``model.to_faiss`` returns one.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from ssdml import SSDML

X, y = load_digits(return_X_y=True)
labels = np.where(np.arange(len(y)) < 50, y, -1)
model = SSDML(random_state=0).fit(X, labels)

found = {}
for name, rows in {"pixels": X, "learned": model.transform(X)}.items():
    near = NearestNeighbors(n_neighbors=9).fit(rows).kneighbors(rows, return_distance=False)
    found[name] = near[:, 1:]  # a row is its own nearest
    print(f"{name}: {(y[found[name]] == y[:, None]).mean():.1%} of 8 neighbors are of the class")

# %%
# Queries on which the two differ most; frames of neighbors of another class are red.

gain = [(y[found[name]] == y[:, None]).sum(axis=1) for name in ("learned", "pixels")]
queries = np.argsort(gain[1] - gain[0], kind="stable")[:3]
figure, panels = plt.subplots(6, 9, figsize=(8, 5.6), layout="constrained")
for line, (query, name) in enumerate((q, n) for q in queries for n in found):
    for axes, row in zip(panels[line], [query, *found[name][query]], strict=True):
        axes.imshow(X[row].reshape(8, 8), cmap="gray_r")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color="tab:green" if y[row] == y[query] else "tab:red", linewidth=2)
    panels[line, 0].set_ylabel(name, rotation=0, ha="right")
    panels[line, 0].spines[:].set_color("black")
plt.show()
