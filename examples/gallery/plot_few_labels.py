"""
How many labels are enough?
===========================

Accuracy on new digits by the number of labels per class, compared with common classifiers.
``ssdml study`` draws such curves for your own data, with intervals and tests.
"""

# %%
# Two draws of labels; every method gets the same ones.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from ssdml import SSDML
from ssdml.datasets import label_scarce_split, load_dataset

digits = load_dataset("digits")
counts, seeds = [1, 2, 5, 10], range(2)
accuracy = {"logistic regression": [], "label spreading": [], "SSDML": []}
for count in counts:
    found = {name: [] for name in accuracy}
    for seed in seeds:
        split = label_scarce_split(digits, labels_per_class=count, seed=seed)
        X, y = digits.X[split.train], split.partial_labels(digits.y)
        models = {
            "logistic regression": LogisticRegression(max_iter=500).fit(X[y >= 0], y[y >= 0]),
            "label spreading": LabelSpreading(kernel="knn", n_neighbors=10).fit(X, y),
            "SSDML": SSDML(random_state=0).fit(X, y),
        }
        for name, model in models.items():
            found[name].append(100 * model.score(digits.X[split.test], digits.y[split.test]))
    for name, values in found.items():
        accuracy[name].append(np.mean(values))

# %%
# With one label per class, none can be held out to check the result: label at least two.

figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name, values in accuracy.items():
    axes.plot(counts, values, marker="o", label=name)
axes.set(xscale="log", xlabel="labels per class", ylabel="accuracy on new digits, %")
axes.set_xticks(counts, counts)
axes.legend(frameon=False)
plt.show()
