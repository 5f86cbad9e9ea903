"""Small data sets in the layouts of CUB, Cars, SOP, In-Shop and Caltech-101; a small network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import make_archive

import numpy as np
import torch
from PIL import Image
from scipy.io import savemat
from torch import nn

from ssdml.networks.fine_grained import Trunk

N_CLASSES, PER_CLASS = 6, 8  # of a small data set
QUERIES = 3  # per class, with a gallery


def draw(path, number, rng):
    """Draw a photograph with the color and stripes of its class, of random size, with noise."""
    height, width = rng.integers(24, 40, 2)
    wave = np.sin(np.arange(width) * (number + 1) / 3)[None, :, None]
    color = np.array([number % 2, number // 2 % 2, number // 4]) * 120 + 60
    noise = rng.normal(0, 10, (height, width, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.clip(color + 50 * wave + noise, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path, quality=90)


def rows():
    """Class and number of each image, with the classes interleaved."""
    return [(c, i) for i in range(PER_CLASS) for c in range(N_CLASSES)]


def write_cub(root):
    folder, rng = root / "CUB_200_2011", np.random.default_rng(0)
    names = [f"{c + 1:03}.Bird_{c}/Bird_{c}_{i}.jpg" for c, i in rows()]
    for (c, _), name in zip(rows(), names, strict=True):
        draw(folder / "images" / name, c, rng)
    lines = {
        "images.txt": [f"{n} {name}" for n, name in enumerate(names, 1)],
        "image_class_labels.txt": [f"{n} {c + 1}" for n, (c, _) in enumerate(rows(), 1)],
        "classes.txt": [f"{c + 1} {c + 1:03}.Bird_{c}" for c in range(N_CLASSES)],
    }
    for name, text in lines.items():
        (folder / name).write_text("\n".join(text) + "\n")
    return folder


def write_cars(root):
    folder, rng = root / "cars196", np.random.default_rng(0)
    names = [f"car_ims/{n:06}.jpg" for n in range(1, len(rows()) + 1)]
    for (c, _), name in zip(rows(), names, strict=True):
        draw(folder / name, c, rng)
    columns = {"relative_im_path": names, "class": [c + 1 for c, _ in rows()]}
    save_rows(folder / "cars_annos.mat", columns, class_names=titles())
    return folder


def write_cars_devkit(root):
    folder, rng = root / "stanford_cars", np.random.default_rng(0)
    (folder / "devkit").mkdir(parents=True)
    for part, chosen in (("train", rows()[::2]), ("test", rows()[1::2])):
        names = [f"{n:05}.jpg" for n in range(1, len(chosen) + 1)]
        for (c, _), name in zip(chosen, names, strict=True):
            draw(folder / f"cars_{part}" / name, c, rng)
        ending = "_withlabels" if part == "test" else ""
        columns = {"fname": names, "class": [c + 1 for c, _ in chosen]}
        save_rows(folder / f"devkit/cars_{part}_annos{ending}.mat", columns)
    savemat(folder / "devkit/cars_meta.mat", {"class_names": titles()})
    return folder


def titles():
    return np.array([f"Maker Model {c} 2012" for c in range(N_CLASSES)], dtype=object)


def save_rows(path, columns, **more):
    table = np.empty(
        (1, len(next(iter(columns.values())))), dtype=[(name, object) for name in columns]
    )
    for name, values in columns.items():
        for place, value in enumerate(values):
            table[name][0, place] = value
    savemat(path, {"annotations": table, **more})


def write_sop(root):
    folder, rng = root / "Stanford_Online_Products", np.random.default_rng(0)
    number = 0
    for part, classes in (("train", range(3)), ("test", range(3, N_CLASSES))):
        lines = ["image_id class_id super_class_id path"]
        for c in classes:
            for i in range(PER_CLASS):
                number += 1
                name = f"bicycle_final/{c}_{i}.JPG"
                draw(folder / name, c, rng)
                lines.append(f"{number} {c + 1} 1 {name}")
        (folder / f"Ebay_{part}.txt").write_text("\n".join(lines) + "\n")
    return folder


def write_inshop(root):
    folder, rng = root / "inshop", np.random.default_rng(0)
    lines = [str(len(rows())), "image_name item_id evaluation_status"]
    for c, i in rows():
        name = f"img/WOMEN/Dresses/id_{c:08}/{i:02}_1_front.jpg"
        draw(folder / "Img" / name, c, rng)
        part = "train" if c < N_CLASSES // 2 else "query" if i < QUERIES else "gallery"
        lines.append(f"{name}    id_{c:08}      {part}")
    (folder / "Eval").mkdir()
    (folder / "Eval/list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    return folder


def write_caltech101(root):
    folder, rng = root / "caltech101/101_ObjectCategories", np.random.default_rng(0)
    for c, i in rows():
        draw(folder / f"class_{c}/image_{i:04}.jpg", c, rng)
    draw(folder / "BACKGROUND_Google/image_0001.jpg", 0, rng)
    return folder


def write_caltech101_zip(root):
    folder = write_caltech101(root / "unzipped")
    (root / "caltech101").mkdir()
    base = root / "caltech101/caltech101-images"
    return Path(make_archive(base, "zip", folder.parent.parent, "caltech101/101_ObjectCategories"))


WRITERS = {
    "cub": write_cub,
    "cars": write_cars,
    "sop": write_sop,
    "inshop": write_inshop,
    "caltech101_images": write_caltech101,
}


def small_trunk():
    """A network up to its feature maps."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 16, 3))


SMALL = Trunk(small_trunk)


def small_protocol(protocol, n_neighbors=4):
    """A protocol with small images, few dimensions, and one step or epoch."""
    short = {"n_neighbors": n_neighbors, "epochs": 1, "n_steps": 1}
    learning = {name: short.get(name, value) for name, value in protocol.learning.items()}
    if isinstance(protocol.learning.get("n_steps"), dict):
        learning["n_steps"] = dict.fromkeys(protocol.learning["n_steps"], 1)
    n_components = None if protocol.n_components is None else 8
    return replace(protocol, image_size=40, n_components=n_components, learning=learning)
