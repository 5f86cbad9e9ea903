"""Photographs with a pretrained network: frozen or fine-tuned, rates by held-out classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from reproduction import photographs
from reproduction.loss_search import CHOSEN_BY
from reproduction.photographs import STARTS, compare_photographs, head_methods, settings

from ssdml.datasets import load_dataset
from ssdml.datasets.base import Dataset
from ssdml.experiments.methods.protocols import DUTTA2021_LITE
from ssdml.experiments.runs.results import read_rows
from ssdml.networks import fine_grained
from ssdml.networks.backbones import ResidualHead
from tests.deep import N_TRIPLETS
from tests.photographs import SMALL, small_protocol, write_caltech101


@pytest.fixture
def small(monkeypatch):
    """A random network and short fits; the protocol of these."""
    monkeypatch.setattr("ssdml.deep.alternation.N_TRIPLETS", N_TRIPLETS)
    monkeypatch.setitem(fine_grained.TRUNKS, "efficientnet_lite0", SMALL)
    monkeypatch.setattr(photographs, "N_AXES", 12)
    monkeypatch.setattr(photographs, "N_STEPS", 2)
    short = {"epochs": 1, "n_triplets": 20, "n_steps": 2, "batch_size": 10}
    monkeypatch.setattr(photographs, "HEAD", photographs.HEAD | short)
    return small_protocol(DUTTA2021_LITE)


@pytest.fixture
def images_of_six(tmp_path):
    """Four training classes and two test classes."""
    write_caltech101(tmp_path)
    images = load_dataset("caltech101_images", data_dir=tmp_path)
    return replace(images, test=images.y >= 4)


METHODS = ["contrastive", "contrastive+da"]


def test_rates_are_chosen_on_held_out_classes(small, images_of_six, tmp_path):
    given = {"methods": METHODS, "seeds": [0], "protocol": small}
    rows = compare_photographs(images_of_six, tmp_path / "out", **given)
    *starts, base, term = [row["method"] for row in rows]
    assert tuple(starts) == STARTS["frozen"]
    assert {(row["n_labeled"], row["n_test"]) for row in rows} == {(20, 16)}
    kept = read_rows(tmp_path / "out/held-out/results.jsonl")
    assert len(kept) == 6
    assert {(row["n_labeled"], row["n_test"]) for row in kept} == {(10, 16)}  # two of four classes
    scores = {row["method"]: [row["scores"][name] for name in CHOSEN_BY] for row in kept}
    for chosen, method in zip((base, term), METHODS, strict=True):
        tried = [value for of, value in scores.items() if of.startswith(f"{method}[")]
        assert scores[chosen] == max(tried)


def test_the_base_of_a_sum_is_run_too(small, images_of_six, tmp_path):
    given = {"trunk": "fine-tuned", "methods": METHODS[1:], "seeds": [0], "protocol": small}
    rows = compare_photographs(images_of_six, tmp_path, **given)
    names = [row["method"].partition("[")[0] for row in rows]
    assert names == [*STARTS["fine-tuned"], *METHODS]


def test_unknown_methods_and_data_are_refused_at_once(images_of_six, tmp_path):
    with pytest.raises(ValueError, match=r"method must be one of .*; got 'deep-ssml'\. Did you"):
        compare_photographs(images_of_six, tmp_path, methods=["deep-ssml"])
    for wrong in (load_dataset("digits"), replace(images_of_six, test=None)):
        with pytest.raises(ValueError, match=f"photographs in files, .*; got {wrong.name}"):
            compare_photographs(wrong, tmp_path)


def test_the_whole_network_is_trained_at_one_rate(small, images_of_six, tmp_path):
    given = {"trunk": "fine-tuned", "methods": METHODS, "seeds": [0], "protocol": small}
    rows = compare_photographs(images_of_six, tmp_path / "out", **given)
    rate = "learning_rate=0.0001"
    names = [*STARTS["fine-tuned"], f"contrastive[{rate}]", f"contrastive+da[{rate};weight=1]"]
    assert [row["method"] for row in rows] == names
    assert not (tmp_path / "out/held-out").exists()


# One of each family; the other baselines have the same way in.
FAMILIES = ("deep-lrml", "deep-angular", "deep-nce", "contrastive+da", "deep-ssdml")


@pytest.mark.parametrize("name", FAMILIES)
def test_methods_train_a_head_on_fixed_axes(small, rng, name):
    y = np.repeat(np.arange(8), 12)
    X = np.abs(rng.normal(size=(96, 16)) + 3 * np.eye(16)[y]).astype(np.float32)
    data = Dataset("eight", X, y, tuple("abcdefgh"))
    labels = np.where(np.arange(96) % 12 < 5, y, -1)
    model = head_methods(data, small)[name](0, None).fit(X, labels)
    projection, head = model.network_.backbone.backbone
    assert isinstance(head, ResidualHead)
    assert head.output.weight.abs().max() > 0  # trained: it starts at zero
    axes = projection.weight.double()
    torch.testing.assert_close(axes @ axes.T, torch.eye(12).double(), atol=1e-5, rtol=0)
    assert model.transform(X).shape[1] >= small.n_components


def test_density_is_added_at_the_rate_of_its_base():
    chosen = {"contrastive": "contrastive[learning_rate=1e-05]"}
    tried = settings("contrastive+da", chosen, "frozen")
    assert tried == [f"contrastive+da[learning_rate=1e-05;weight={w}]" for w in (1, 3, 10)]


def test_the_script_passes_its_options(example, tmp_path, monkeypatch):
    write_caltech101(tmp_path)
    monkeypatch.setenv("SSDML_DATA", str(tmp_path))
    given = []

    def compared(dataset, out, **options):
        assert callable(options.pop("progress"))
        given.append((dataset.name, out, options))
        return []

    monkeypatch.setattr(photographs, "compare_photographs", compared)
    some = ("--trunk", "fine-tuned", "--seeds", 2, "--only", "triplet", "--out", tmp_path)
    assert not example("reproduce_photographs.py", *some)
    options = {"trunk": "fine-tuned", "methods": ["triplet"], "seeds": range(2)}
    assert given == [("caltech101_images", tmp_path / "fine-tuned", options)]
