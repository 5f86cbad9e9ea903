"""Small images in folders, for tests."""

from __future__ import annotations

import zipfile

from PIL import Image

SPLIT = ["train/cat/1.png", "train/dog/2.bmp", "test/cat/3.png"]


def write_images(folder, names, *, mode="RGB", size=(4, 3)):
    """One-colored images whose first channel is their number."""
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, i if mode == "L" else (i, 100, 200)).save(path)


def zipped(folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*.*"):
            archive.write(file, file.relative_to(folder))
    return path
