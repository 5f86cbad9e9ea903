"""Train your own network on a folder of images.

``python examples/images.py FOLDER [EPOCHS]`` reads ``FOLDER/class/image.png``, unlabeled images
from ``FOLDER/unlabeled/``. It writes labels to ``FOLDER.csv``, and the model to ``FOLDER.model``.
"""

import argparse

import pandas as pd
import torch
from command_line import positive, usage_errors
from torch import nn

from ssdml import DeepSSDML
from ssdml.datasets import load_dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=lambda name: name.rstrip("/"))
parser.add_argument("epochs", type=positive, nargs="?", default=50)
given = parser.parse_args()
with usage_errors(parser):
    data = load_dataset(given.folder)
if data.item_shape is None:  # large images, or of several sizes, stay in their files
    images = data.X.resized(32)  # crops them
else:  # torch wants the channels first; gray images have no channel axis
    images = data.X.reshape(-1, *data.item_shape)
    images = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images[:, None]
torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(images.shape[1], 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3),
    nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 64),
)  # fmt: skip
rounds = {"epochs": given.epochs, "epochs_per_partition": max(1, given.epochs // 4)}
model = DeepSSDML(network, 32, **rounds, random_state=0, verbose=1).fit(images, data.y)
found = [data.class_names[code] for code in model.transduction_]
table = pd.DataFrame({"image": data.ids, "label": found, "is_new_label": data.y == -1})
table.to_csv(f"{given.folder}.csv", index=False)
model.save(f"{given.folder}.model")
print(table[table.is_new_label].label.value_counts().to_string())
