"""A folder of images of one size, with a network of your own.

``python examples/images.py FOLDER [EPOCHS]`` reads ``FOLDER/class/image.png``; the images of
``FOLDER/unlabelled/`` are the many without a label. The model is left in ``FOLDER.model``.
"""

import sys

import numpy as np
import torch
from torch import nn

from ssdml import DeepSSDML
from ssdml.datasets import load_dataset

data = load_dataset(sys.argv[1])

# Colours come last in a file, and first in torch; grey images have no such axis.
images = data.X.reshape(-1, *data.item_shape)
images = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images[:, None]

torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(images.shape[1], 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    nn.Linear(256, 64),
)  # fmt: skip
epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
model = DeepSSDML(network, 32, epochs=epochs, epochs_per_partition=max(1, epochs // 4), verbose=1)
model.set_params(random_state=0).fit(images, data.y)

others = data.y == -1
print(f"{len(others)} images, {np.sum(~others)} of them labelled")
for c in model.classes_:
    print(f"  {data.class_names[c]}: {np.sum(model.transduction_[others] == c)} of the others")
model.save(sys.argv[1].rstrip("/") + ".model")
