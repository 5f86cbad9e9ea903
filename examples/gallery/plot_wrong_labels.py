"""
Find wrong labels
=================

A tenth of 300 labels is wrong. ``suspected_labels`` lists labels that are more likely wrong than
right, the likeliest errors first.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ssdml import SSDML

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
labels = np.where(np.arange(len(y)) < 300, y, -1)
wrong = rng.choice(300, 30, replace=False)
labels[wrong] = (y[wrong] + rng.integers(1, 10, 30)) % 10

model = SSDML(random_state=0).fit(X, labels)
suspects = model.suspected_labels()
is_wrong = np.isin(suspects.rows, wrong)
print(f"{len(suspects.rows)} labels suspected; {is_wrong.sum()} of the 30 wrong ones among them")

# %%
# The given label in red, the class predicted from the other labels in green.

figure, panels = plt.subplots(2, 6, figsize=(8, 3.4), layout="constrained")
for axes, row, given, other in zip(
    panels.flat, suspects.rows, suspects.labels, suspects.classes, strict=False
):
    axes.imshow(X[row].reshape(8, 8), cmap="gray_r")
    axes.set_title(f"{given}", color="tab:red", loc="left")
    axes.set_title(f"{other}", color="tab:green", loc="right")
for axes in panels.flat:
    axes.set_axis_off()
plt.show()
