"""The commands of one model: fit, transform, predict, evaluate."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.numpy import save_file

import ssdml
from ssdml.cli.samples import Input
from ssdml.evaluation import evaluate
from tests.tables import CLASS_NAMES, write


def test_evaluate_prints_the_scores(run, arrays):
    X, y = (np.load(path) for path in arrays)
    result = run("evaluate", *arrays, "--json")
    assert json.loads(result.stdout) == pytest.approx(evaluate(X, y))
    few = json.loads(run("evaluate", *arrays, "--scores", "R@1,MAP@R", "--json").stdout)
    assert few == {name: json.loads(result.stdout)[name] for name in ("R@1", "MAP@R")}
    table = run("evaluate", *arrays, "--ks", "1,3").stdout
    assert "R@3" in table
    assert "R@2" not in table


def test_evaluate_accepts_names_and_skips_unlabeled(run, arrays, tmp_path):
    names = np.array(["", "ant", "bee", "cat"])[np.load(arrays[1]) + 1]
    np.save(tmp_path / "names.npy", names)
    by_name = run("evaluate", arrays[0], tmp_path / "names.npy", "--json").stdout
    assert by_name == run("evaluate", *arrays, "--json").stdout
    (tmp_path / "names.csv").write_text("\n".join(["label", *(name or "-1" for name in names)]))
    assert by_name == run("evaluate", arrays[0], tmp_path / "names.csv", "--json").stdout
    np.save(tmp_path / "names.npy", np.where(names == "ant", "ant", ""))
    one_class = run("evaluate", arrays[0], tmp_path / "names.npy")
    assert "All labels are of one class, so these scores mean nothing" in one_class.stderr


def test_fitted_model_transforms(run, arrays, tmp_path):
    model, Z = tmp_path / "model", tmp_path / "Z.npy"
    fitted = run("fit", *arrays, "--out", model, "--n-components", 2, "--random-state", 3)
    assert fitted.exit_code == 0, fitted.output
    assert "Learned 3 classes from 18 labeled and 102 unlabeled samples" in fitted.stderr
    assert run("transform", model, arrays[0], "--out", Z).exit_code == 0
    X, y = (np.load(path) for path in arrays)
    expected = ssdml.SSDML(2, random_state=3).fit(X, y).transform(X)
    np.testing.assert_array_equal(np.load(Z), expected)
    assert np.load(Z).dtype == X.dtype


def test_fit_options_reach_ssdml(run, arrays, tmp_path, monkeypatch):
    def reveal(model, X, y):
        raise ValueError(json.dumps(model.get_params()))

    monkeypatch.setattr("ssdml.metric.estimator.SSDML.fit", reveal)
    options = {"n_components": 2, "n_neighbors": 7, "random_state": 5}
    options |= {"n_jobs": 3}
    words = [w for k, v in options.items() for w in (f"--{k.replace('_', '-')}", v)]
    result = run("fit", *arrays, "--out", tmp_path / "model", *words)
    parameters = json.loads(result.stderr.partition("error: ")[2])
    assert {name: parameters[name] for name in options} == options


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Files of forty images of classes 3 and 7, as bytes, and of eight labels."""
    y = np.arange(40) % 2
    pixels = np.random.default_rng(0).integers(0, 99, (40, 28, 28)) + 150 * y[:, None, None]
    folder = tmp_path_factory.mktemp("images")
    files = folder / "images.npy", folder / "some.npy"
    np.save(files[0], pixels.astype(np.uint8))
    np.save(files[1], np.where(np.arange(40) < 8, 3 + 4 * y, np.nan))
    return files


def test_fitted_network_transforms_images(run, images, tmp_path):
    model, Z = tmp_path / "model", tmp_path / "Z.npy"
    words = ["--network", "mnist", "--epochs", 1, "--n-neighbors", 5, "--random-state", 3]
    fitted = run("fit", *images, "--out", model, *words, "--checkpoints", tmp_path / "kept")
    assert fitted.exit_code == 0, fitted.output
    assert "Learned 2 classes from 8 labeled and 32 unlabeled samples" in fitted.stderr
    assert "names" not in fitted.stderr
    assert (tmp_path / "kept" / "partition-0001.safetensors").exists()
    assert run("transform", model, images[0], "--out", Z).exit_code == 0
    X, y = np.load(images[0]), np.nan_to_num(np.load(images[1]), nan=-1).astype(int)
    expected = ssdml.DeepSSDML("mnist", epochs=1, n_neighbors=5, random_state=3).fit(X, y)
    np.testing.assert_array_equal(np.load(Z), expected.transform(X))
    learned = ssdml.DeepSSDML.load(model)
    assert learned.classes_.tolist() == [3, 7]
    assert learned.score(X, 3 + 4 * (np.arange(40) % 2)) > 0.9


def test_fit_options_reach_deep_ssdml(run, images, tmp_path, monkeypatch):
    def reveal(model, X, y):
        raise ValueError(json.dumps({k: str(v) for k, v in model.get_params().items()}))

    monkeypatch.setattr("ssdml.deep.estimator.DeepSSDML.fit", reveal)
    options = {"n_components": 2, "n_neighbors": 7, "random_state": 5, "n_jobs": 3, "epochs": 4}
    words = [w for k, v in options.items() for w in (f"--{k.replace('_', '-')}", v)]
    words += ["--network", "cifar", "--checkpoints", "kept"]
    result = run("fit", *images, "--out", tmp_path / "model", *words)
    parameters = json.loads(result.stderr.partition("error: ")[2])
    expected = options | {"backbone": "cifar", "checkpoint_dir": "kept"}
    assert {name: parameters[name] for name in expected} == {k: str(v) for k, v in expected.items()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", 4], "need --network"),
        (["--checkpoints", "kept"], "need --network"),
        (["--network", "cifar", "--checkpoints", "model"], "must be two folders"),
    ],
)
def test_options_of_features_and_images_exclude_each_other(run, images, words, message):
    result = run("fit", *images, "--out", "model", *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            np.arange(120.0),
            "got shape (120,), dtype float64. Save X.reshape(-1, 1)",
        ),
        (np.full((120, 2), "a"), "got shape (120, 2), dtype <U1. Save X.astype(float)"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "evaluate", "transform"])
def test_file_without_numeric_rows_is_named(run, arrays, tmp_path, command, rows, message):
    model, wrong = tmp_path / "model", tmp_path / "wrong.npy"
    np.save(wrong, rows)
    assert run("fit", *arrays, "--out", model).exit_code == 0
    words = {
        "fit": [wrong, arrays[1], "--out", tmp_path / "other"],
        "evaluate": [wrong, arrays[1]],
        "transform": [model, wrong, "--out", tmp_path / "Z.npy"],
    }
    result = run(command, *words[command])
    assert result.exit_code == 1
    assert f"error: {wrong}: X must be an array of numbers" in result.stderr
    assert message in result.stderr


def test_fit_uses_all_cores_by_default(run, arrays, tmp_path, monkeypatch):
    def reveal(model, X, y):
        raise ValueError(f"n_jobs={model.n_jobs}")

    monkeypatch.setattr("ssdml.metric.estimator.SSDML.fit", reveal)
    assert "n_jobs=-1" in run("fit", *arrays, "--out", tmp_path / "model").stderr


def test_fit_accepts_names_and_empty_names(run, arrays, tmp_path):
    names = np.array(["", "ant", "bee", "cat"])[np.load(arrays[1]) + 1]
    np.save(tmp_path / "names.npy", names)
    result = run("fit", arrays[0], tmp_path / "names.npy", "--out", tmp_path / "model")
    assert "Learned 3 classes from 18 labeled" in result.stderr


def test_classes_keep_their_numbers(run, images, tmp_path):
    rows, model = tmp_path / "rows.npy", tmp_path / "model"
    np.save(rows, np.load(images[0]).reshape(40, -1) / 255)
    result = run("fit", rows, images[1], "--out", model, "--n-neighbors", 5, "--n-components", 4)
    assert result.exit_code == 0, result.output
    learned = ssdml.SSDML.load(model)
    assert learned.classes_.tolist() == [3, 7]
    assert learned.score(np.load(rows), 3 + 4 * (np.arange(40) % 2)) > 0.9
    assert "names" not in result.stderr


def test_class_names_are_those_of_the_model(run, arrays, tmp_path):
    model, names = tmp_path / "model", tmp_path / "names.npy"
    np.save(names, np.array(["", "cat", "ant", "bee"])[np.load(arrays[1]) + 1])
    assert run("fit", arrays[0], names, "--out", model).exit_code == 0
    assert ssdml.SSDML.load(model).classes_.tolist() == ["ant", "bee", "cat"]
    assert run("fit", *arrays, "--out", model, "--force").exit_code == 0
    assert ssdml.SSDML.load(model).classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".xlsx"])
def test_fit_and_predict_take_tables(run, table, arrays, tmp_path, suffix):
    data, model = write(table, tmp_path / f"t{suffix}"), tmp_path / "model"
    fitted = run("fit", data, "--out", model, "--random-state", 3)
    assert fitted.exit_code == 0, fitted.output
    assert "features: 5 columns: f0, f1, f2, f3, f4\n" in fitted.stderr
    assert "note: column 'town' is not a feature" in fitted.stderr
    assert "Learned 3 classes from 18 labeled" in fitted.stderr
    X, y = (np.load(path) for path in arrays)
    expected = ssdml.SSDML(random_state=3).fit(X.astype(float), CLASS_NAMES[y])
    new = table.drop(columns=["label", "f2"]).assign(more=1.0, f2=table["f2"])[::-1]
    told = run("predict", model, write(new, tmp_path / f"new{suffix}"))
    assert told.exit_code == 0, told.output
    found = pd.read_csv(io.StringIO(told.stdout))
    assert found["id"].tolist() == table["animal_id"].tolist()[::-1]
    np.testing.assert_array_equal(found["label"][::-1], expected.predict(X.astype(float)))
    proba = expected.predict_proba(X.astype(float)).max(axis=1)
    np.testing.assert_allclose(found["confidence"][::-1], proba, atol=1e-4)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".feather", ".jsonl", ".xlsx"])
def test_predictions_are_written_by_suffix(run, table, tmp_path, suffix):
    data, model, out = write(table, tmp_path / "t.csv"), tmp_path / "model", tmp_path / f"p{suffix}"
    assert run("fit", data, "--out", model).exit_code == 0
    told = run("predict", model, data, "--out", out)
    assert told.exit_code == 0, told.output
    assert "100.0% of the 18 labels in the file" in told.stderr
    read = {
        ".csv": pd.read_csv,
        ".tsv": lambda path: pd.read_csv(path, sep="\t"),
        ".parquet": pd.read_parquet,
        ".feather": pd.read_feather,
        ".jsonl": lambda path: pd.read_json(path, lines=True),
        ".xlsx": pd.read_excel,
    }[suffix]
    found = read(out)
    assert found.columns.tolist() == ["id", "label", "confidence"]
    assert found["id"].tolist() == table["animal_id"].tolist()
    assert set(found["label"]) == {"ant", "bee", "cat"}
    assert "exists already" in run("predict", model, data, "--out", out).stderr


def test_embedding_is_written_by_suffix(run, table, tmp_path):
    data, model = write(table, tmp_path / "t.csv"), tmp_path / "model"
    assert run("fit", data, "--out", model, "--n-components", 2).exit_code == 0
    assert run("transform", model, data, "--out", tmp_path / "Z.npy").exit_code == 0
    assert run("transform", model, data, "--out", tmp_path / "Z.csv").exit_code == 0
    found = pd.read_csv(tmp_path / "Z.csv", index_col="id")
    np.testing.assert_allclose(found[["z0", "z1"]], np.load(tmp_path / "Z.npy"), rtol=1e-12)
    for command in ("transform", "predict"):
        refused = run(command, model, data, "--out", tmp_path / "Z.txt")
        assert refused.exit_code == 1
        assert "Z.txt: must end in " in refused.stderr


def test_new_table_needs_the_features_of_the_fit(run, table, tmp_path):
    data, model = write(table, tmp_path / "t.csv"), tmp_path / "model"
    assert run("fit", data, "--out", model).exit_code == 0
    short = write(table.drop(columns="f3"), tmp_path / "short.csv")
    told = run("predict", model, short)
    assert told.exit_code == 1
    assert f"short.csv: must have the columns of the fit of {model}; 'f3' is missing; the " in (
        told.stderr
    )
    assert "Add it, or rename a column." in told.stderr
    (tmp_path / "short.csv").write_text("1,2.5\n3,4.5\n")
    told = run("predict", model, tmp_path / "short.csv")
    assert "Write the names of the columns into a first line." in told.stderr


def test_columns_are_chosen_by_options(run, table, tmp_path):
    frame = table.rename(columns={"label": "kind", "animal_id": "who"})
    frame = frame.assign(kind=frame["kind"].replace("", "to do"))
    data, model = write(frame, tmp_path / "t.csv"), tmp_path / "model"
    words = ["--label", "kind", "--id", "who", "--features", "f*", "--ignore", "f4"]
    fitted = run("fit", data, "--out", model, *words, "--no-label", "To Do")
    assert fitted.exit_code == 0, fitted.output
    assert "features: 4 columns: f0, f1, f2, f3\n" in fitted.stderr
    assert "note: " not in fitted.stderr
    assert "Learned 3 classes from 18 labeled" in fitted.stderr
    table_of = run("predict", model, data, "--id", "who", "--label", "kind", "--no-label", "to do")
    assert table_of.stdout.splitlines()[1].startswith('"no 0",')
    assert "of the 18 labels in the file" in table_of.stderr
    scored = run("evaluate", data, *words, "--no-label", "to do", "--json")
    assert json.loads(scored.stdout)["R@1"] > 90


def test_texts_are_embedded_as_in_the_fit(run, tmp_path):
    food = [f"soup bread {a} {b}" for a in "salt oil egg".split() for b in "pan pot oven".split()]
    boats = [f"sail wind {a} {b}" for a in "mast rope deck".split() for b in "sea bay lake".split()]
    labels = [name if i % 9 < 3 else "" for i, name in enumerate(["food"] * 9 + ["boats"] * 9)]
    data = write(pd.DataFrame({"text": food + boats, "label": labels}), tmp_path / "t.csv")
    model = tmp_path / "model"
    fitted = run("fit", data, "--out", model, "--n-neighbors", 4)
    assert fitted.exit_code == 0, fitted.output
    assert "words of the texts (TF-IDF)" in fitted.stderr
    new = tmp_path / "new.txt"
    for first in ("text\n", ""):
        new.write_text(f"{first}the rope, on deck: wind\negg in a pan with oil\n", encoding="utf-8")
        predicted = pd.read_csv(io.StringIO(run("predict", model, new).stdout))
        assert predicted["label"].tolist() == ["boats", "food"]
    np.save(tmp_path / "X.npy", np.eye(3))
    refused = run("predict", model, tmp_path / "X.npy")
    assert "X.npy must hold texts, as in the fit; got numbers or images" in refused.stderr


def test_encoder_is_kept_with_the_model(run, tmp_path, monkeypatch):
    asked = []

    def embed(texts, model, *, cache):
        asked.append(model)
        return np.array([[len(text), text.count("a")] for text in texts], np.float32)

    monkeypatch.setattr("ssdml.datasets.loading.embed_texts", embed)
    texts = [["aa aa aa", "b b b b b b"][i % 2] + " x" * (i % 5) for i in range(40)]
    labels = ["a", "b"] * 4 + [""] * 32
    data = write(pd.DataFrame({"text": texts, "label": labels}), tmp_path / "t.csv")
    model = tmp_path / "model"
    fitted = run("fit", data, "--out", model, "--text-model", "letters", "--n-neighbors", 4)
    assert fitted.exit_code == 0, fitted.output
    assert not (model / "words.npz").exists()
    assert run("predict", model, data).exit_code == 0
    assert asked == ["letters", "letters"]


def test_text_model_is_for_texts(run, table, tmp_path):
    data = write(table.drop(columns="town"), tmp_path / "t.csv")
    refused = run("fit", data, "--out", tmp_path / "model", "--text-model", "words")
    assert "must have columns of texts besides the label" in refused.stderr


@pytest.mark.parametrize("sizes", [[(28, 28)], [(60, 40), (40, 60)]], ids=["one size", "several"])
def test_folder_of_images_is_fitted_and_predicted(run, tmp_path, sizes, rng):
    for i in range(40):
        name = ["dark/{}.png", "light/{}.png", "{}.png"][2 if i >= 8 else i % 2].format(i)
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = sizes[i % len(sizes)]
        pixels = rng.integers(0, 80, (height, width, 3)) + 150 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    model = tmp_path / "model"
    words = ["--network", "mnist", "--epochs", 2, "--n-neighbors", 5]
    fitted = run("fit", tmp_path / "photos", "--out", model, *words)
    assert fitted.exit_code == 0, fitted.output
    assert "without a folder: 32 images, which have no label" in fitted.stderr
    assert "Learned 2 classes from 8 labeled and 32 unlabeled" in fitted.stderr
    told = run("predict", model, tmp_path / "photos")
    assert told.exit_code == 0, told.output
    found = pd.read_csv(io.StringIO(told.stdout), index_col="id")["label"]
    assert found["10.png"] == "dark"
    assert found["11.png"] == "light"


@pytest.mark.parametrize("seen", ["by the network", "by both", "by pixels"])
def test_photos_are_fitted_by_their_features(run, photos, tmp_path, monkeypatch, seen):
    by_network, with_pixels = seen != "by pixels", seen != "by the network"
    module, cache = "ssdml.experiments.labeling.features", tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(f"{module}.find_spec", lambda name: name if by_network else None)
    monkeypatch.setattr(f"{module}.efficientnet_lite0", lambda: lambda b: b.mean(dim=(2, 3)))
    monkeypatch.setattr(f"{module}.pixels_tell_classes", lambda *of_labeled: with_pixels)
    model = tmp_path / "model"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "words.npz").touch()  # of an earlier model
    fitted = run("fit", photos, "--out", model, "--n-neighbors", 5, "--force")
    assert fitted.exit_code == 0, fitted.output
    assert ("by EfficientNet-Lite0" in fitted.stderr) == by_network
    assert f"ssdml predict {model} new/ --out" in fitted.stderr
    assert ("pixel values" in fitted.stderr) == with_pixels
    assert (model / "pixels.npz").exists() == with_pixels
    assert not (model / "words.npz").exists()
    new = tmp_path / "new"
    new.mkdir()
    for name, shade in {"a.png": 20, "b.png": 230}.items():
        Image.new("RGB", (50, 40 + shade % 3), (shade,) * 3).save(new / name)
    told = run("predict", model, new)
    assert told.exit_code == 0, told.output
    assert pd.read_csv(io.StringIO(told.stdout))["label"].tolist() == ["dark", "light"]
    assert "novelty" in run("next", model, photos, "-n", 2).stdout
    scored = run("evaluate", photos, "--scores", "R@1", "--ks", 1)
    assert scored.exit_code == 0, scored.output
    assert "100.0" in scored.stdout
    np.save(tmp_path / "X.npy", np.eye(3))
    refused = run("predict", model, tmp_path / "X.npy")
    assert "X.npy must hold images, as in the fit; got rows of numbers." in refused.stderr


def test_new_photos_of_one_size_are_read_as_those_of_the_fit(run, photos, tmp_path):
    """A folder of one size is an array, whose images are cropped like those in files."""
    model, new = tmp_path / "model", tmp_path / "new"
    words = ["--network", "wide-resnet", "--image-size", 16, "--epochs", 1, "--n-neighbors", 5]
    fitted = run("fit", photos, "--out", model, *words)
    assert fitted.exit_code == 0, fitted.output
    (new / "of two sizes").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i, size in enumerate([(36, 48, 3), (36, 48, 3), (48, 36, 3)]):
        image = Image.fromarray(rng.integers(0, 80, size, dtype=np.uint8))
        image.save(new / "of two sizes" / f"{i}.png")
        if size[0] == 36:
            image.save(new / f"{i}.png")
    both = run("predict", model, new / "of two sizes")
    (new / "of two sizes").rename(tmp_path / "other")
    alone = run("predict", model, new)
    assert alone.exit_code == 0, alone.output
    confidences = [pd.read_csv(io.StringIO(r.stdout))["confidence"][:2] for r in (both, alone)]
    np.testing.assert_allclose(*confidences)


def test_one_flipped_bit_beside_a_model_is_refused(run, tmp_path, rng):
    data, model = tmp_path / "t.csv", tmp_path / "model"
    pd.DataFrame({"text": ["one red car", "old soup"] * 9, "label": ["a", "b"] * 9}).to_csv(data)
    assert run("fit", data, "--out", model, "--n-neighbors", 3).exit_code == 0
    assert run("predict", model, data).exit_code == 0
    for path in (model / "input.json", model / "words.npz"):
        whole = path.read_bytes()
        for bit in rng.integers(8 * len(whole), size=100):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            path.write_bytes(content)
            with pytest.raises(ValueError, match=r"input\.json: damaged"):
                Input.of(model)
        path.write_bytes(whole)


def test_images_and_features_are_told_apart(run, arrays, images, tmp_path):
    words = ["--network", "mnist", "--image-size", 28]
    result = run("fit", *arrays, "--out", tmp_path / "model", *words)
    assert "images to crop and resize must be of 8 bits; got rows of numbers." in result.stderr
    assert run("fit", *arrays, "--out", tmp_path / "model").exit_code == 0
    result = run("transform", tmp_path / "model", images[0], "--out", tmp_path / "Z.npy")
    assert "must hold rows of 5 numbers, as in the fit; got shape" in result.stderr


def test_interrupted_fit_names_its_checkpoints(run, images, tmp_path, monkeypatch):
    def stop(model, X, y):
        raise KeyboardInterrupt

    monkeypatch.setattr("ssdml.deep.estimator.DeepSSDML.fit", stop)
    command = ["fit", *images, "--out", tmp_path / "model", "--network", "mnist"]
    assert run(*command).stderr.endswith("\nInterrupted.\n")
    stopped = run(*command, "--checkpoints", "kept")
    assert stopped.exit_code == 130
    assert stopped.stderr.endswith("\nInterrupted. The same command resumes from kept.\n")


def test_replacing_files_needs_force(run, arrays, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "Z.npy").write_text("mine")
    for command in (
        ["fit", *arrays, "--out", tmp_path / "model"],
        ["transform", tmp_path / "model", arrays[0], "--out", tmp_path / "Z.npy"],
    ):
        result = run(*command)
        assert result.exit_code == 1
        assert result.stderr.endswith("exists already; --force replaces it.\n")
    assert (tmp_path / "Z.npy").read_text() == "mine"
    assert run("fit", *arrays, "--out", tmp_path / "model", "--force").exit_code == 0
    again = ["transform", tmp_path / "model", arrays[0], "--out", tmp_path / "Z.npy", "--force"]
    assert run(*again).exit_code == 0
    assert np.load(tmp_path / "Z.npy").shape[0] == 120


@pytest.mark.parametrize("command", ["predict", "transform", "label", "next"])
def test_missing_folder_of_an_output_is_named_first(run, table, tmp_path, command):
    out = tmp_path / "none" / "t.csv"
    inputs = [table] if command == "label" else [tmp_path / "no_model", table]
    told = run(command, *inputs, "--out", out)
    assert told.exit_code == 1
    assert f"{out}: must be in a folder; {out.parent} is none. Make it first" in told.stderr


def test_model_and_data_in_each_others_place_are_named(run, table, tmp_path):
    data, model = write(table, tmp_path / "t.csv"), tmp_path / "model"
    assert run("fit", data, "--out", model).exit_code == 0
    of_fit = ["fit", model, "--out", tmp_path / "other"]
    for words in (of_fit, ["evaluate", model, data], ["predict", model, model]):
        told = run(*words)
        assert told.exit_code == 1
        assert f"{model} must hold data; got a saved model. Pass the samples: `ssdml predict" in (
            told.stderr
        )
    told = run("predict", data, model)
    assert told.exit_code == 1
    assert "the folder of a saved model; got a file. Commands take the model first" in told.stderr


def test_missing_model_is_named_in_one_line(run, arrays, tmp_path):
    result = run("transform", tmp_path / "nowhere", arrays[0], "--out", tmp_path / "Z.npy")
    assert result.exit_code == 1
    assert "nowhere" in result.stderr
    assert not (tmp_path / "Z.npy").exists()


def test_full_disk_leaves_no_partial_embedding(run, arrays, tmp_path, monkeypatch):
    def full(file, array):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    model, Z = tmp_path / "model", tmp_path / "Z.npy"
    assert run("fit", *arrays, "--out", model).exit_code == 0
    monkeypatch.setattr(np, "save", full)
    result = run("transform", model, arrays[0], "--out", Z)
    assert result.exit_code == 1
    assert "Z.npy" in result.stderr
    assert "No space left on device" in result.stderr
    assert not list(tmp_path.glob("Z.npy*"))


def test_full_disk_leaves_no_partial_model(run, arrays, tmp_path, monkeypatch):
    def full(arrays, file):
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    command = ["fit", *arrays, "--out", tmp_path / "model"]
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.numpy.save_file", full)
        result = run(*command)
    assert result.exit_code == 1
    assert f"{tmp_path / 'model'}: SSDML.save: cannot write the model (No space" in result.stderr
    assert not (tmp_path / "model").exists()
    assert run(*command).exit_code == 0  # without --force


def test_unsaved_model_goes_to_temporary_files(run, arrays, tmp_path, monkeypatch):
    def full(arrays, file):
        if tmp_path / "here" in file.parents:
            raise OSError(28, "No space left on device")
        save_file(arrays, file)

    (tmp_path / "spare").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spare"))
    monkeypatch.setattr("safetensors.numpy.save_file", full)
    result = run("fit", *arrays, "--out", tmp_path / "here" / "model")
    assert result.exit_code == 1
    [saved] = (tmp_path / "spare").glob("ssdml-*/model")
    assert f"The model was saved in {saved} instead." in " ".join(result.stderr.split())
    assert run("transform", saved, arrays[0], "--out", tmp_path / "Z.npy").exit_code == 0


def test_wrong_number_of_labels_is_named(run, arrays, tmp_path):
    np.save(tmp_path / "short.npy", np.zeros(7))
    for command in (["evaluate"], ["fit", "--out", tmp_path / "model"]):
        result = run(*command, arrays[0], tmp_path / "short.npy")
        assert result.exit_code == 1
        assert "short.npy: y must have 120 labels, one per row; got shape (7,)" in result.stderr


def test_missing_or_damaged_file_is_named(run, arrays, tmp_path):
    damaged = tmp_path / "damaged.npy"
    damaged.write_bytes(b"no array")
    for path in (damaged, tmp_path / "missing.npy"):
        result = run("evaluate", path, arrays[1])
        assert result.exit_code == 1
        assert path.name in result.stderr
        assert result.stderr.count("\n") == 1


def test_features_of_images_of_another_version_are_refused(run, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.labeling.features.has_encoder", lambda: False)
    assert run("fit", photos, "--out", tmp_path / "model").exit_code == 0
    assert run("predict", tmp_path / "model", photos).exit_code == 0
    monkeypatch.setattr("ssdml.experiments.labeling.features.PIXELS", "pixels-v3")
    told = run("predict", tmp_path / "model", photos)
    assert told.exit_code == 1
    assert "or pixels-v3; got pixels-v2. Fit the model again." in told.stderr
