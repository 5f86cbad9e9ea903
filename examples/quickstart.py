"""Learn a metric from 1,198 digits with 50 labels and compare it with the input."""

import numpy as np

from ssdml import SSDML
from ssdml.datasets import label_scarce_split, load_dataset
from ssdml.evaluation import evaluate

digits = load_dataset("digits")
split = label_scarce_split(digits, labels_per_class=5, seed=0)

X = digits.X[split.train]
y = split.partial_labels(digits.y)  # -1 means unlabeled
print(f"{len(y)} training samples, {np.sum(y != -1)} labeled")

model = SSDML(random_state=0).fit(X, y)

X_test, y_test = digits.X[split.test], digits.y[split.test]
for name, Z in {"input": X_test, "SSDML": model.transform(X_test)}.items():
    scores = evaluate(Z, y_test)
    print(f"{name}: NMI {scores['NMI']:.1f}, R@1 {scores['R@1']:.1f}, MAP@R {scores['MAP@R']:.1f}")

print(f"accuracy: {100 * np.mean(model.predict(X_test) == y_test):.1f}%")
