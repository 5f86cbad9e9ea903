"""Train your own network on a folder of images of one size.

``python examples/images.py FOLDER [EPOCHS]`` reads ``FOLDER/class/image.png``; unlabeled images are
in ``FOLDER/unlabeled/``. The model is saved in ``FOLDER.model``.
"""

import argparse

import torch
from command_line import positive, usage_errors
from torch import nn

from ssdml import DeepSSDML
from ssdml.datasets import load_dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder")
parser.add_argument("epochs", type=positive, nargs="?", default=20)
given = parser.parse_args()
with usage_errors(parser):
    data = load_dataset(given.folder)
# torch wants the channels first; gray images have no channel axis.
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
model.save(given.folder.rstrip("/") + ".model")
