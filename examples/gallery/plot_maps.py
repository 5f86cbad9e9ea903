"""
Before and after
================

Handwritten digits by their pixels, and by the metric that ``SSDML`` learns from 50 labels.
"""

# %%
# Fit 1,300 digits, of which 50 have a label, and map others that the model never saw.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ssdml import SSDML
from ssdml.evaluation import evaluate
from ssdml.metric.fitted.maps import draw_map, map_rows

X, y = load_digits(return_X_y=True)
labels = np.where(np.arange(1300) < 50, y[:1300], -1)
model = SSDML(random_state=0).fit(X[:1300], labels)

new, truth = X[1300:], y[1300:]
names = [str(digit) for digit in range(10)]
figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
for axes, (title, rows) in zip(
    panels, {"pixels": new, "learned": model.transform(new)}.items(), strict=True
):
    draw_map(map_rows(rows), truth, names, axes=axes)
    axes.set_title(f"{title}: NMI {evaluate(rows, truth)['NMI']:.0f}%")
plt.show()
