"""Train your own network on a folder of images.

``python examples/images.py FOLDER [EPOCHS]`` reads ``FOLDER/class/image.png``; unlabeled images are
in ``FOLDER/unlabeled/``. Images of several sizes are cropped to 32 x 32 pixels. The label of each
image is written to ``FOLDER.csv``, the model to ``FOLDER.model``.
"""

import argparse
import csv

import torch
from command_line import positive, usage_errors
from torch import nn

from ssdml import DeepSSDML
from ssdml.datasets import load_dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder")
parser.add_argument("epochs", type=positive, nargs="?", default=50)
given = parser.parse_args()
with usage_errors(parser):
    data = load_dataset(given.folder)
if data.item_shape is None:  # large images, or of several sizes, are read from their files
    images = data.X.resized(32)
else:  # torch wants the channels first; gray images have no channel axis
    images = data.X.reshape(-1, *data.item_shape)
    images = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images[:, None]

torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(images.shape[1], 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    nn.Linear(256, 64),
)  # fmt: skip
rounds = {"epochs": given.epochs, "epochs_per_partition": max(1, given.epochs // 4)}
model = DeepSSDML(network, 32, **rounds, random_state=0, verbose=1).fit(images, data.y)

found = model.transduction_[data.y == -1]
print(f"{len(data.y)} images, {len(data.y) - len(found)} labeled; predicted for the others:")
for c, name in enumerate(data.class_names):
    print(f"  {name}: {(found == c).sum()}")
place = given.folder.rstrip("/")
with open(f"{place}.csv", "w", newline="", encoding="utf-8") as file:
    lines = csv.writer(file)
    lines.writerow(["image", "label", "is_new_label"])
    for name, code, given_code in zip(data.ids, model.transduction_, data.y, strict=True):
        lines.writerow([name, data.class_names[code], given_code == -1])
model.save(f"{place}.model")
print(f"The label of each image: {place}.csv, the model: {place}.model")
