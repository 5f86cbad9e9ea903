"""
Samples of no known class
=========================

No 8 or 9 is labeled. ``novelty_score`` is the probability that a sample belongs to no labeled
class, and ``predict(X, reject=0.5)`` rejects such samples.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ssdml import SSDML

X, y = load_digits(return_X_y=True)
labels = np.where((np.arange(len(y)) < 150) & (y < 8), y, -1)
model = SSDML(random_state=0).fit(X, labels)
score = model.novelty_score()
unlabeled, is_new = labels < 0, y >= 8

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
shown = [score[unlabeled & ~is_new], score[unlabeled & is_new]]
axes.hist(shown, bins=10, range=(0, 1), label=["0 to 7", "8 and 9, never labeled"])
axes.set(xlabel="probability of no known class", ylabel="unlabeled digits", yscale="log")
axes.legend(frameon=False)
plt.show()

# %%
# Rejected samples get -1.

predicted = model.predict(X[unlabeled], reject=0.5)
rejected = predicted == -1
print(f"{rejected.sum()} rejected, {is_new[unlabeled][rejected].mean():.0%} of them 8 or 9")
