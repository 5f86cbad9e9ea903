"""Photographs in files: protocols, the publishers' splits, comparisons."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional
from typer.testing import CliRunner

from ssdml.cli.app import app
from ssdml.datasets import label_scarce_split, load_dataset
from ssdml.evaluation import evaluate
from ssdml.experiments.compare import available_methods, compare
from ssdml.experiments.methods.deep import InitialFeatures
from ssdml.experiments.methods.photographs import photograph_methods
from ssdml.experiments.methods.protocols import (
    CHEN2021,
    DUTTA2021,
    DUTTA2021_LITE,
    LI2020,
    PROTOCOLS,
    RECALL_AT,
    ZHU2020,
)
from ssdml.experiments.preprocessing import preprocess
from ssdml.experiments.report import write_report
from ssdml.experiments.report.report import read_sections
from ssdml.experiments.runs.grid import make_runs
from ssdml.networks import fine_grained as pretrained
from ssdml.networks.pooling import POOLINGS
from tests.photographs import SMALL, small_protocol, small_trunk, write_cub, write_inshop, write_sop

# Images and classes, training | test, as the papers count them. Of In-Shop's 26,830 test images
# 14,218 are queries and 12,612 the gallery; Chen et al. print 28,760 for their sum, and Zheng et
# al. 8,045 for the 8,054 of Cars.
SIZES: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "cub": ((5864, 100), (5924, 100)),
    "cars": ((8054, 98), (8131, 98)),
    "sop": ((59551, 11318), (60502, 11316)),
    "inshop": ((25882, 3997), (26830, 3985)),
}
RECIPES = ("exemplar", "rotnet", "nce", "deepcluster", "suml")


@pytest.fixture
def toy(monkeypatch):
    """Replace every network and protocol by a small one."""
    for name, protocol in PROTOCOLS.items():
        monkeypatch.setitem(pretrained.TRUNKS, protocol.architecture, SMALL)
        monkeypatch.setitem(PROTOCOLS, name, small_protocol(protocol))


@pytest.fixture
def birds(tmp_path):
    write_cub(tmp_path)
    return load_dataset("cub", data_dir=tmp_path)


def test_every_method_receives_the_protocol(birds):
    methods = photograph_methods(birds, weights="googlenet.pth")
    assert next(iter(methods)) == "initial"
    for name, factory in methods.items():
        model = factory(3, None)
        params = model.get_params()
        assert model.weights == "googlenet.pth", name
        assert (model.architecture, model.pooling, model.image_size) == ("googlenet", "rmac", 512)
        np.testing.assert_allclose(model.input_scales, [1, 1 / np.sqrt(2), 1 / 2])
        assert params["estimator__random_state"] == 3, name
        if name == "initial":
            continue
        assert params["estimator__n_components"] == 128, name
        assert params["estimator__epochs"] == 200, name
        assert params.get("estimator__partition_size") is None, name
        assert model.estimator.n_neighbors == 50, name
        assert params["estimator__decay"] == 0.99, name
        if "estimator__angle" in params:
            assert params["estimator__angle"] == 45, name


def test_settings_reach_the_inner_method(birds):
    methods = photograph_methods(birds)
    given = {name: methods[f"deep-{name}"](0, None).estimator for name in ("lrml", *RECIPES)}
    assert {name: model.method_params for name, model in given.items()} == {
        "lrml": {"n_neighbors": 50},
        "exemplar": {},
        "rotnet": {},
        "nce": {},
        "deepcluster": {"n_clusters": 4},  # a fifth of 24 images, fewer than ten times 3 classes
        "suml": {"angle": 45.0},
    }
    for name in RECIPES:
        assert given[name]._new_recipe().get_params() == (
            given[name].method_defaults | given[name].method_params
        )


def test_printed_dataset_sizes_agree():
    # Dutta et al. mine 146,600 triplets on CUB and 201,350 on Cars: k / 2 per training image.
    half = DUTTA2021.learning["n_neighbors"] // 2
    assert [SIZES[name][0][0] * half for name in ("cub", "cars")] == [146_600, 201_350]
    totals = {name: (learned[0] + scored[0]) for name, (learned, scored) in SIZES.items()}
    assert totals == {"cub": 11_788, "cars": 16_185, "sop": 120_053, "inshop": 52_712}
    classes = {name: (learned[1] + scored[1]) for name, (learned, scored) in SIZES.items()}
    assert classes == {"cub": 200, "cars": 196, "sop": 22_634, "inshop": 7_982}


@pytest.mark.parametrize("paper", PROTOCOLS)
def test_a_protocol_names_existing_parts(paper):
    protocol = PROTOCOLS[paper]
    assert protocol.pooling in POOLINGS
    assert protocol.architecture in {*pretrained.TRUNKS, "resnet50"}
    assert set(protocol.datasets) <= RECALL_AT.keys()


@pytest.mark.parametrize("paper", PROTOCOLS)
def test_every_method_accepts_every_protocol(monkeypatch, birds, paper):
    protocol = PROTOCOLS[paper]
    monkeypatch.setitem(pretrained.TRUNKS, protocol.architecture, SMALL)
    for name in protocol.datasets:
        methods = photograph_methods(replace(birds, name=name), protocol=protocol)
        for method, factory in methods.items():
            estimator = factory(0, None).new_estimator()
            if method != "initial":
                estimator._validate_params()
                columns = {"rmac": 16, "average": 16, "scda": 32}[protocol.pooling]
                made = estimator.backbone(torch.zeros(2, 3, 64, 64)).shape[1]
                assert made == columns
                assert (estimator.n_components or made) == (protocol.n_components or columns)


def test_a_protocol_resolves_steps_and_values_per_dataset():
    cars = LI2020.on("cars", 8054)
    assert cars.learning["learning_rate"] == 5e-4
    # 30,000 batches of 100 show each of 8,054 images 372.5 times.
    assert (cars.learning["epochs"], "n_steps" in cars.learning) == (373, False)
    assert CHEN2021.on("cub", 5864).learning["epochs"] == 111  # 5,000 batches of 130
    assert [ZHU2020.on(name, 100).frozen_norms for name in ("cars", "sop")] == [True, False]
    with pytest.raises(
        ValueError,
        match="one of cars, cub, sop, for which the paper gives learning_rate; got inshop",
    ):
        LI2020.on("inshop", 100)


@pytest.mark.usefixtures("toy")
def test_training_starts_from_the_weights_of_a_file(tmp_path, birds):
    state = {name: torch.rand(part.shape) for name, part in small_trunk().state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    split = label_scarce_split(birds, 5, seed=0)
    factory = available_methods(birds, deep=True, weights=tmp_path / "w.safetensors")["initial"]
    model = factory(0, None).fit(birds.X[split.train], split.partial_labels(birds.y))
    trunk = model.estimator_.network_.backbone.backbone.trunk
    for name, value in trunk.state_dict().items():
        torch.testing.assert_close(value.cpu(), state[name])


def test_weights_of_a_package_are_used_and_identified(tmp_path, monkeypatch, birds):
    path = tmp_path / "w.pth"
    torch.save(small_trunk().state_dict(), path)
    trunk = SMALL._replace(weights=lambda: path)
    monkeypatch.setitem(pretrained.TRUNKS, "efficientnet_lite0", trunk)
    model = photograph_methods(birds, protocol=DUTTA2021_LITE)["initial"](0, None)
    assert model.weights == str(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() in model.fingerprint()


def test_initial_features_match_the_untrained_network(rng):
    images = rng.integers(0, 256, (9, 3, 20, 20), np.uint8)
    trunk = torch.nn.Sequential(small_trunk(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    found = InitialFeatures(trunk).fit(images).transform(images[:4])
    pixels = torch.from_numpy(images).double() / 255
    mean, scale = (f((0, 2, 3), keepdim=True) for f in (pixels.mean, pixels.std))
    with torch.no_grad():
        features = functional.normalize(trunk(((pixels - mean) / scale).float()[:4]), dim=1)
    np.testing.assert_allclose(found, features.numpy(), atol=1e-4)  # std of n - 1, theirs of n


@pytest.mark.usefixtures("toy")
def test_photographs_compare_resume_and_report(tmp_path, birds):
    methods = ["initial", "deep-lrml", "deep-ssdml[image_size=44]"]
    rows = compare(birds, methods, seeds=[0], deep=True, out=tmp_path / "out")
    assert [row["error"] for row in rows] == [None] * 3
    for row in rows:
        assert (row["n_train"], row["n_labeled"], row["n_test"]) == (24, 15, 24)
        assert "accuracy" not in row["scores"]  # no test image is of a class that has labels
        assert row["scores"]["R@1"] > 80  # colors tell the classes apart
    again = compare(birds, methods, seeds=[0], deep=True, out=tmp_path / "out", resume=True)
    assert again == rows
    report = write_report(tmp_path / "out", read_sections(tmp_path / "out"))
    assert "deep-lrml" in report.read_text()


@pytest.mark.usefixtures("toy")
def test_the_command_line_compares_photographs(tmp_path, birds):
    torch.save(small_trunk().state_dict(), tmp_path / "w.pth")
    command = ["compare", "--dataset", "cub", "--data-dir", tmp_path, "--methods", "initial"]
    more = ["--seeds", 1, "--weights", tmp_path / "w.pth", "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, [str(part) for part in (*command, *more, "--deep")])
    assert done.exit_code == 0, done.stderr
    assert "initial" in done.stdout
    assert "nan" not in done.stdout.lower()
    without = CliRunner().invoke(app, [str(part) for part in (*command, *more[:-1], "other")])
    assert without.exit_code == 1
    assert "Pass --deep" in without.stderr


@pytest.mark.usefixtures("toy")
def test_inshop_queries_are_scored_against_the_gallery(tmp_path, monkeypatch):
    given = []

    def noted(*arguments, **options):
        given.append((arguments, options))
        return evaluate(*arguments, **options)

    monkeypatch.setattr("ssdml.experiments.runs.job.evaluate", noted)
    write_inshop(tmp_path)
    data = load_dataset("inshop", data_dir=tmp_path)
    (row,) = compare(data, ["initial"], seeds=[0], deep=True, out=tmp_path / "out")
    assert {"R@10", "R@20", "R@30", "R@40", "R@50"} <= row["scores"].keys()
    split = label_scarce_split(data, 5, seed=0)
    model = available_methods(data, deep=True)["initial"](0, None)
    model.fit(data.X[split.train], split.partial_labels(data.y))
    (((Z, y, *_), options),) = given
    for rows, labels, part in ((Z, y, ~data.gallery), (*options["gallery"], data.gallery)):
        images = np.flatnonzero(data.test & part)
        np.testing.assert_array_equal(labels, data.y[images])
        np.testing.assert_allclose(rows, model.transform(data.X[images]), atol=1e-5)


@pytest.mark.usefixtures("toy")
def test_recalls_follow_the_papers_of_the_dataset(tmp_path):
    write_sop(tmp_path)
    data = load_dataset("sop", data_dir=tmp_path)
    (row,) = compare(data, ["initial"], seeds=[0], deep=True, out=tmp_path / "out")
    assert {"R@1", "R@8", "R@10", "R@100", "R@1000"} <= row["scores"].keys()


@pytest.mark.usefixtures("toy")
def test_images_weights_and_scales_change_the_hash(tmp_path, birds):
    def hashed(data, weights=None, **params):
        factory = available_methods(data, True, weights)["initial"]
        (job,) = make_runs(data, {"a": lambda *s: factory(*s).set_params(**params)}, seeds=[0])
        config = json.dumps(job.config)
        assert (weights is None) or "w.pth" in config
        assert str(tmp_path) not in config  # which the report shows
        return job.config_hash

    path = tmp_path / "w.pth"
    path.write_bytes(b"one")
    hashes = [hashed(birds), hashed(birds, path), hashed(birds, input_scales=(1.0,))]
    path.write_bytes(b"two")
    hashes.append(hashed(birds, path))
    hashes.append(hashed(replace(birds, gallery=birds.test)))
    (birds.X.folder / birds.X.names[0]).write_bytes(b"")
    hashes.append(hashed(birds))
    assert len(set(hashes)) == 6


def test_invalid_options_for_photographs_are_rejected(tmp_path, birds):
    with pytest.raises(ValueError, match="deep must be True for cub, whose images stay in files"):
        compare(birds, ["pca"], out=tmp_path)
    with pytest.raises(ValueError, match="features must be 'auto' or 'raw' for cub"):
        preprocess(birds, "unit")
    with pytest.raises(ValueError, match=r"weights must be None .* got 'w\.pth' and digits"):
        compare(load_dataset("digits"), ["pca"], weights="w.pth", out=tmp_path)
    with pytest.raises(
        ValueError, match=r"protocol must be 'dutta2021' .* got 'li2020' and digits"
    ):
        compare(load_dataset("digits"), ["pca"], protocol="li2020", out=tmp_path)
    with pytest.raises(
        ValueError, match=r"compare: protocol must be one of 'chen2021'.* got '005'"
    ):
        compare(birds, ["initial"], deep=True, protocol="005", out=tmp_path)
