"""Small whole files of every format that ssdml reads, and the readers that damage must not harm."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from pyarrow import parquet
from safetensors.torch import save_file
from scipy.io import savemat
from torch import nn

from ssdml import SSDML, DeepSSDML
from ssdml.baselines import LRML
from ssdml.cli.samples import FITTED, INPUT, Input
from ssdml.datasets import LabelScarceSplit, load_dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.texts import WordFeatures
from ssdml.datasets.writing import write_rows as write_table
from ssdml.deep.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from ssdml.evaluation.predictions import Confusion, Predictions
from ssdml.experiments.labeling.features import ImageFeatures
from ssdml.experiments.runs.details import (
    Answers,
    MapSample,
    RunDetails,
    load_details,
    save_details,
)
from ssdml.experiments.runs.folder import read_folder, read_status
from ssdml.experiments.runs.results import RESULTS, write_rows
from ssdml.experiments.runs.thumbnails import Thumbnails, load_thumbnails, save_thumbnails
from ssdml.networks.fine_grained import load_weights
from ssdml.utils.persistence import ARRAYS, CONFIG, UNSIGNED, save_state, signed
from tests.rows import make_row

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (4, 8, 8), dtype=np.uint8)


class Target(NamedTuple):
    """A reader, and how to write a folder that it reads."""

    write: Callable[[Path], Path]  # the folder's files; returns the file to damage
    read: Callable[[Path], Any]  # the folder
    repair: Callable[[Path], None] = lambda folder: None  # makes damage pass the first check


def arrays(suffix: str) -> Target:
    """A file of samples, beside its labels."""

    def write(folder: Path) -> Path:
        X, y = RNG.normal(size=(5, 3)), np.array([0, 1, -1, 1, 0])
        if suffix == ".npz":
            np.savez_compressed(folder / "x.npz", X=X, y=y, test=y == 1)
        else:
            np.save(folder / "x_y.npy", y)
            np.save(folder / "x.npy", X)
        return folder / f"x{suffix}"

    return Target(write, lambda folder: load_dataset(folder / f"x{suffix}"))


def labels_file(folder: Path) -> Path:
    arrays(".npy").write(folder)
    return folder / "x_y.npy"


def csv(folder: Path) -> Path:
    rows = "".join(
        f"{a:.2f},{b:.2f},{c}\n" for a, b, c in zip(*RNG.normal(size=(2, 6)), "abcabc", strict=True)
    )
    (folder / "x.csv").write_text(f"one,two,label\n{rows}")
    return folder / "x.csv"


def arff(folder: Path) -> Path:
    head = "@relation x\n@attribute one real\n@attribute label {'a b',c}\n@data\n"
    (folder / "x.arff").write_text(head + "0.5,'a b'\n% remark\n1.5,c\n2,?\n")
    return folder / "x.arff"


def table(suffix: str) -> Target:
    """A table of numbers, texts, vectors and labels."""

    def write(folder: Path) -> Path:
        path = folder / f"x{suffix}"
        columns: dict[str, Any] = {"one": RNG.normal(size=6), "two": np.arange(6)}
        columns |= {"text": ["a b", "c", None] * 2, "label": list("abcabc")}
        if suffix in (".parquet", ".feather"):
            columns |= {"vector": RNG.normal(size=(6, 2)).tolist()}
        if suffix == ".arrow":
            stream_of(pa.table(columns), path)
        elif suffix.endswith(".gz"):
            plain = path.with_suffix("")
            write_table(plain, columns)
            path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
            plain.unlink()
        else:
            write_table(path, {name: np.array(part, object) for name, part in columns.items()})
        return path

    return Target(write, in_folder(load_dataset, f"x{suffix}"))


def stream_of(content: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, content.schema) as stream:
        stream.write_table(content)


def json_of_columns(folder: Path) -> Path:
    (folder / "x.json").write_text(json.dumps({"one": [1, 2.5], "label": ["a", "b"]}))
    return folder / "x.json"


def pages(folder: Path) -> Path:
    """Parquet in compressed pages of several row groups, with dates, lists and a struct."""
    columns = {
        "one": pa.array(RNG.normal(size=9), pa.float32()),
        "day": pa.array(np.arange(9).astype("datetime64[D]")),
        "vector": pa.array(RNG.normal(size=(9, 2)).tolist()),
        "place": pa.array([{"x": 1.0, "y": None}] * 9),
        "label": pa.array(list("abc") * 3),
    }
    options = {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 4}
    parquet.write_table(pa.table(columns), folder / "x.parquet", **options)
    return folder / "x.parquet"


def image_table(folder: Path) -> Path:
    """Images in the cells of a table."""
    for i in range(2):
        draw(folder / "images" / f"{i}.png", i)
    cells = [{"bytes": path.read_bytes()} for path in sorted((folder / "images").iterdir())]
    parquet.write_table(pa.table({"image": cells, "label": ["a", "b"]}), folder / "x.parquet")
    return folder / "x.parquet"


def named_images(folder: Path) -> Path:
    for i in range(2):
        draw(folder / "x" / f"{i}.png", i)
    (folder / "x" / "metadata.csv").write_text("file_name,label\n0.png,a\n1.png,b\n")
    return folder / "x" / "metadata.csv"


def hugging_face(damaged: str) -> Target:
    """What save_to_disk of the package datasets writes."""

    def write(folder: Path) -> Path:
        features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
        (folder / "x").mkdir()
        (folder / "x" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
        for part in ("train", "test"):
            place = folder / "x" / part
            place.mkdir()
            content = pa.table({"one": RNG.normal(size=4), "label": [0, 1, 0, 1]})
            stream_of(content, place / "data.arrow")
            files = {"_data_files": [{"filename": "data.arrow"}]}
            (place / "state.json").write_text(json.dumps(files))
            (place / "dataset_info.json").write_text(json.dumps({"features": features}))
        return folder / "x" / damaged

    return Target(write, in_folder(load_dataset, "x"))


WORDS_OF_TEXTS = WordFeatures.of(np.array(["a red car", "the red cars", "soup"], object))


def words(folder: Path) -> Path:
    WORDS_OF_TEXTS.save(folder / "x.npz")
    return folder / "x.npz"


def pixels(folder: Path) -> Path:
    ImageFeatures(True, np.zeros(9), np.eye(9)[:2]).save(folder / "x.npz")
    return folder / "x.npz"


def model_input(folder: Path) -> Path:
    save_state(folder, "SSDML", {}, {"rows": np.zeros(1)})
    Input(("one", "two"), "text", "words", 32).save(folder, WORDS_OF_TEXTS)
    (folder / CONFIG).unlink()  # which has another checksum of the input
    return folder / INPUT


def idx(array: np.ndarray[Any, Any]) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def mnist(zipped: bool, damaged: str) -> Target:
    def write(folder: Path) -> Path:
        place = folder / "MNIST" / "raw"
        place.mkdir(parents=True)
        for part in ("train", "t10k"):
            for name, array in (
                ("images-idx3", PIXELS),
                ("labels-idx1", np.arange(4, dtype=np.uint8)),
            ):
                path = place / f"{part}-{name}-ubyte"
                if zipped:
                    path.with_name(f"{path.name}.gz").write_bytes(
                        gzip.compress(idx(array), mtime=0)
                    )
                else:
                    path.write_bytes(idx(array))
        sums = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}"
            for path in sorted(place.iterdir())
        ]
        if damaged == "SHA256SUMS":
            (folder / damaged).write_text("\n".join(sums) + "\n")
            return folder / damaged
        return place / damaged

    return Target(write, lambda folder: load_dataset("mnist", data_dir=folder))


def cifar(damaged: str, protocol: int = 2) -> Target:
    def write(folder: Path) -> Path:
        place = folder / "cifar-10-batches-py"
        place.mkdir()
        meta = {b"label_names": [b"a", b"b", b"c"]}
        (place / "batches.meta").write_bytes(pickle.dumps(meta, protocol))
        batch = {b"data": RNG.integers(0, 256, (1, 3072), dtype=np.uint8), b"labels": [2]}
        for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
            (place / name).write_bytes(pickle.dumps(batch, protocol))
        return place / damaged

    return Target(write, lambda folder: load_dataset("cifar10", data_dir=folder))


def draw(path: Path, number: int, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.stack([PIXELS[number % 4]] * 3, -1)).save(path, **options)


def cars(compressed: bool) -> Target:
    def write(folder: Path) -> Path:
        place = folder / "cars196"
        table = np.empty((1, 4), dtype=[("relative_im_path", object), ("class", object)])
        for i in range(4):
            draw(place / f"car_ims/{i}.png", i)
            table[0, i] = (f"car_ims/{i}.png", i // 2 + 1)
        names = np.array(["one", "two"], dtype=object)
        content = {"annotations": table, "class_names": names}
        savemat(place / "cars_annos.mat", content, do_compression=compressed)
        return place / "cars_annos.mat"

    return Target(write, lambda folder: load_dataset("cars", data_dir=folder))


def listed(name: str, place: str, damaged: str) -> Target:
    """CUB, SOP or In-Shop, whose lists are text."""

    def write(folder: Path) -> Path:
        home, numbers = folder / place, range(4)
        if name == "cub":
            texts = {
                "images.txt": [f"{i + 1} {i // 2}/{i}.png" for i in numbers],
                "image_class_labels.txt": [f"{i + 1} {i // 2 + 1}" for i in numbers],
                "classes.txt": ["1 001.one", "2 002.two"],
            }
            images = [f"images/{i // 2}/{i}.png" for i in numbers]
        elif name == "sop":
            images = [f"a/{i}.png" for i in numbers]
            texts = {
                f"Ebay_{part}.txt": [
                    "id class super path",
                    *(f"{i} {i // 2 + 1} 1 a/{i}.png" for i in of),
                ]
                for part, of in (("train", (0, 1)), ("test", (2, 3)))
            }
        else:
            images = [f"img/{i}.png" for i in numbers]
            parts = ("train", "train", "query", "gallery")
            rows = [f"img/{i}.png id_{i // 2} {parts[i]}" for i in numbers]
            texts = {"list_eval_partition.txt": ["4", "name id status", *rows]}
        for i, image in enumerate(images):
            draw(home / image, i)
        for file, lines in texts.items():
            (home / file).write_text("\n".join(lines) + "\n")
        return home / damaged

    return Target(write, lambda folder: load_dataset(name, data_dir=folder))


def image_folder(suffix: str, **options: Any) -> Target:
    def write(folder: Path) -> Path:
        for i in range(2):
            draw(folder / "x" / "cat" / f"{i}{suffix}", i, **options)
        return folder / "x" / "cat" / f"0{suffix}"

    return Target(write, lambda folder: load_dataset(folder / "x"))


def image_zip(folder: Path) -> Path:
    image_folder(".png").write(folder)
    with zipfile.ZipFile(folder / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((folder / "x").rglob("*.png")):
            archive.write(path, path.relative_to(folder / "x"))
    return folder / "x.zip"


def caltech101(folder: Path) -> Path:
    path = folder / "caltech101" / "caltech101-images.zip"
    path.parent.mkdir()
    return image_zip(folder).rename(path)


def image_file(folder: Path) -> Path:
    draw(folder / "a.jpg", 0)
    return folder / "a.jpg"


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def weights(suffix: str) -> Target:
    def write(folder: Path) -> Path:
        path = folder / f"x{suffix}"
        save = save_file if suffix == ".safetensors" else torch.save
        save(network().state_dict(), path)
        return path

    return Target(write, lambda folder: load_weights(network(), folder / f"x{suffix}", "small"))


def write_model(folder: Path, estimator: Any) -> None:
    Z, y = RNG.normal(size=(6, 2)), np.array([0, 1, 1, 0, 1, 0])
    model = {
        "components_": np.eye(2),
        "classes_": np.array([0, 1]),
        "label_distributions_": np.eye(2)[y],
        "transduction_": y,
        "embedding_": Z,
    }
    more = {"n_features_in": 2, "feature_names_in": ["a", "b"], "class_names": None}
    more |= {"represents_classes": False, "input_weight": 0.5}
    save_state(folder, type(estimator).__name__, estimator.get_params(), model, **more)


def write_network(folder: Path) -> None:
    X = RNG.normal(size=(12, 4)).astype(np.float32)
    recipe = {"n_components": 2, "n_neighbors": 3, "epochs": 1, "random_state": 0, "device": "cpu"}
    DeepSSDML(nn.Linear(4, 3), **recipe).fit(X, [0, 1, *[-1] * 10]).save(folder)


def load_network(folder: Path) -> Any:
    return DeepSSDML.load(folder, backbone=nn.Linear(4, 3))


def signing(config: str, arrays: str) -> Callable[[Path], None]:
    """Make checksums right again."""

    def sign(folder: Path) -> None:
        text = (folder / config).read_text(errors="replace")
        try:
            old = json.loads(text)["sha256"]
            text = signed(text.replace(old, UNSIGNED), folder / arrays)
        except (ValueError, LookupError, TypeError, RecursionError):
            return
        (folder / config).write_text(text)

    return sign


def model(damaged: str, *, forged: bool = False, estimator: Any = SSDML) -> Target:
    deep = estimator is DeepSSDML
    load = load_network if deep else estimator.load

    def write(folder: Path) -> Path:
        write_network(folder) if deep else write_model(folder, estimator())
        return folder / damaged

    return Target(write, load, signing(CONFIG, ARRAYS) if forged else lambda folder: None)


KEPT = [Checkpoint(i, {"weight": torch.arange(20.0) + i}, {"losses": [0.5] * i}) for i in (1, 2)]


def checkpoints(folder: Path) -> Path:
    """Two of them: if the last is damaged, the first is read."""
    return [save_checkpoint(folder, content, {"seed": 0}) for content in KEPT][-1]


def load_whole_checkpoint(folder: Path) -> None:
    found = load_checkpoint(folder, {"seed": 0}, "fit")
    assert found is not None
    expected = KEPT[found.number - 1]
    assert torch.equal(found.tensors["weight"], expected.tensors["weight"])
    assert found.state == expected.state


def split(folder: Path) -> Path:
    rows = np.arange(9)
    LabelScarceSplit(rows[:6], rows[6:], rows[:2], 0, 1).save(folder / "x.json")
    return folder / "x.json"


def results(folder: Path) -> Path:
    write_rows(folder / RESULTS, [make_row(seed=seed) for seed in range(2)])
    return folder / RESULTS


def run_file(folder: Path) -> Path:
    row = make_row()
    path = folder / "runs" / f"{row['config_hash']}.json"
    path.parent.mkdir()
    path.write_text(json.dumps(row) + "\n")
    return path


def titles(folder: Path) -> Path:
    results(folder)
    (folder / "requested").mkdir()
    (folder / "requested" / "x.json").write_text('{"a": "input, 5 labels per class, seed 0"}\n')
    return folder / "requested" / "x.json"


def details(folder: Path) -> Path:
    sample = MapSample(
        RNG.normal(size=(5, 3)).astype(np.float32), np.arange(5) % 2, np.arange(5) > 2
    )
    answers = Answers(
        np.arange(5),
        np.array([[1], [2], [0]]),
        Predictions(np.array([0, 1, 0]), np.array([0.5, 0.9, 1.0], np.float32)),
        Confusion(np.array([0]), np.array([1]), np.array([3])),
        None,
    )
    kept = RunDetails(
        {"parameters": {"class": "X"}}, class_names=["a", "b"], sample=sample, answers=answers
    )
    save_details(folder / "x.npz", kept)
    return folder / "x.npz"


def thumbnails(folder: Path) -> Path:
    save_thumbnails(folder / "x.npz", Thumbnails(np.arange(3), ["a", "b", "c"], b"RIFF", (8, 8), 2))
    return folder / "x.npz"


def in_folder(read: Callable[[Path], Any], name: str) -> Callable[[Path], Any]:
    return lambda folder: read(folder / name)


TARGETS = {
    "npy": arrays(".npy"),
    "npy of labels": Target(labels_file, arrays(".npy").read),
    "npz": arrays(".npz"),
    "csv": Target(csv, in_folder(load_dataset, "x.csv")),
    "csv.gz": table(".csv.gz"),
    "arff": Target(arff, in_folder(load_dataset, "x.arff")),
    "tsv": table(".tsv"),
    "parquet": table(".parquet"),
    "pages of parquet": Target(pages, in_folder(load_dataset, "x.parquet")),
    "arrow": table(".arrow"),
    "feather": table(".feather"),
    "jsonl": table(".jsonl"),
    "json": Target(json_of_columns, in_folder(load_dataset, "x.json")),
    "xlsx": table(".xlsx"),
    "images in a table": Target(image_table, in_folder(load_dataset, "x.parquet")),
    "images named in a table": Target(named_images, in_folder(load_dataset, "x")),
    "splits of Hugging Face": hugging_face("dataset_dict.json"),
    "files of Hugging Face": hugging_face("train/state.json"),
    "classes of Hugging Face": hugging_face("train/dataset_info.json"),
    "words of texts": Target(words, in_folder(WordFeatures.load, "x.npz")),
    "pixels of images": Target(pixels, in_folder(ImageFeatures.load, "x.npz")),
    "input of a model": Target(model_input, Input.of),
    "forged input of a model": Target(model_input, Input.of, signing(INPUT, FITTED["words"])),
    "idx": mnist(False, "train-images-idx3-ubyte"),
    "idx.gz": mnist(True, "train-images-idx3-ubyte.gz"),
    "SHA256SUMS": mnist(False, "SHA256SUMS"),
    "pickle of CIFAR": cifar("data_batch_3"),
    "pickle of protocol 4": cifar("data_batch_3", 4),
    "names of CIFAR": cifar("batches.meta"),
    "MATLAB": cars(False),
    "compressed MATLAB": cars(True),
    "list of CUB": listed("cub", "CUB_200_2011", "images.txt"),
    "classes of CUB": listed("cub", "CUB_200_2011", "image_class_labels.txt"),
    "list of SOP": listed("sop", "Stanford_Online_Products", "Ebay_train.txt"),
    "list of In-Shop": listed("inshop", "inshop", "list_eval_partition.txt"),
    "png": image_folder(".png"),
    "jpg": image_folder(".jpg"),
    "gif": image_folder(".gif"),
    "bmp": image_folder(".bmp"),
    "webp": image_folder(".webp"),
    "tif": image_folder(".tif", compression="tiff_lzw"),
    "ppm": image_folder(".ppm"),
    "zip": Target(image_zip, in_folder(load_dataset, "x.zip")),
    "zip of Caltech-101": Target(
        caltech101, lambda folder: load_dataset("caltech101_images", data_dir=folder)
    ),
    "photograph": Target(image_file, lambda folder: ImageFiles(folder, ["a.jpg"], size=8)[0]),
    "weights of torch": weights(".pth"),
    "weights of safetensors": weights(".safetensors"),
    "config of a model": model(CONFIG),
    "arrays of a model": model(ARRAYS),
    "forged config": model(CONFIG, forged=True),
    "forged arrays": model(ARRAYS, forged=True),
    "arrays of a baseline": model(ARRAYS, estimator=LRML),
    "forged config of a network": model(CONFIG, forged=True, estimator=DeepSSDML),
    "forged arrays of a network": model(ARRAYS, forged=True, estimator=DeepSSDML),
    "checkpoint": Target(checkpoints, load_whole_checkpoint),
    "split": Target(split, in_folder(LabelScarceSplit.load, "x.json")),
    "results": Target(results, read_folder),
    "run": Target(run_file, read_folder),
    "requested runs": Target(titles, read_status),
    "details": Target(details, in_folder(load_details, "x.npz")),
    "thumbnails": Target(thumbnails, in_folder(load_thumbnails, "x.npz")),
}
