"""The command that labels a table."""

from __future__ import annotations

import html
import os
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits

NEW = ["confidence", "is_new_label", "runner_up", "map_x", "map_y"]


@pytest.fixture
def frame():
    """300 digits, five labels per class, by name."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    names = np.array("zero one two three four five six seven eight nine".split())[y]
    rank = pd.Series(y).groupby(y).cumcount()
    table = pd.DataFrame(X[:, X.std(axis=0) > 0.01]).add_prefix("f")
    return table.assign(digit=names, label=np.where(rank < 5, names, None))


def test_a_table_comes_back_labeled_and_goes_in_again(run, frame, tmp_path):
    data, out = tmp_path / "t.csv", tmp_path / "labeled.csv"
    frame.drop(columns="digit").to_csv(data)
    told = run("label", data, "--out", out)
    assert told.exit_code == 0, told.output
    assert "250 new labels, expected accuracy" in told.stderr
    assert re.search(
        "at least 95% are right, with 90%|The 50 held-out labels are not enough", told.stderr
    )
    assert "Label next, most useful first: " in told.stderr
    found = pd.read_csv(out, index_col=0)
    assert found.columns.tolist() == [*frame.columns.drop("digit"), *NEW]
    given = frame["label"].notna()
    assert (found["label"][given] == frame["label"][given]).all()
    assert (found["is_new_label"] == ~given).all()
    right = found["label"] == frame["digit"]
    assert right[~given].mean() > 0.85
    assert abs(found["confidence"][~given].mean() - right[~given].mean()) < 0.08
    page = (tmp_path / "labeled.html").read_text()
    assert "Label these next" in page
    assert "<h1>t.csv: 300 samples</h1>" in page.replace(str(tmp_path) + "/", "")
    assert "http" not in page.replace("http://www.w3.org", "")

    found.loc[found.index[:40], "is_new_label"] = False  # checked
    found.to_csv(data)
    assert "exists already" in run("label", data, "--out", out).stderr
    advice = f"Add the labels to {data}, then run: ssdml label {data} --out {out} --force"
    assert f". {advice}\n" in told.stderr
    assert html.escape(advice) in page
    again = run(*shlex.split(advice.partition("ssdml ")[2]))
    assert again.exit_code == 0, again.output
    n_new = int((~given)[40:].sum())
    assert f"{n_new} new labels" in again.stderr
    assert f"without {n_new} predictions of an earlier `ssdml label`" in again.stderr
    assert pd.read_csv(out, index_col=0).columns.tolist() == found.columns.tolist()


def test_rows_without_ids_are_named_by_their_lines(run, frame, tmp_path):
    data, out = tmp_path / "t.csv", tmp_path / "labeled.csv"
    frame.drop(columns="digit").assign(note="two\nlines").to_csv(data, index=False)
    told = run("label", data, "--out", out)
    assert told.exit_code == 0, told.output
    [useful] = [line for line in told.stderr.splitlines() if line.startswith("Label next")]
    lines = np.array(re.findall(r"line (\d+)", useful), dtype=int)
    assert len(lines) == 5
    assert (lines % 2 == 0).all()  # each row takes two, below the header
    assert frame["label"].isna().to_numpy()[lines // 2 - 1].all()
    assert f"line {lines[0]}" in (tmp_path / "labeled.html").read_text()


def test_a_table_of_excel_in_europe_keeps_its_form(run, frame, tmp_path):
    data, out = tmp_path / "t.csv", tmp_path / "labeled.csv"
    form = {"sep": ";", "decimal": ","}
    frame.drop(columns="digit").to_csv(data, index=False, encoding="utf-8-sig", **form)
    told = run("label", data, "--out", out)
    assert told.exit_code == 0, told.output
    assert out.read_bytes().startswith(b"\xef\xbb\xbf")
    found = pd.read_csv(out, **form)
    features = frame.filter(like="f")
    np.testing.assert_allclose(found[features.columns], features)
    assert found["confidence"].between(0.05, 1).all()
    again = run("label", out, "--out", tmp_path / "again.csv")
    assert again.exit_code == 0, again.output
    pd.testing.assert_series_equal(
        pd.read_csv(tmp_path / "again.csv", **form)["label"], found["label"]
    )


def test_a_second_run_relabels_the_first_model(run, frame, tmp_path, monkeypatch):
    data, out = tmp_path / "t.csv", tmp_path / "labeled.csv"
    frame.drop(columns="digit").to_csv(data, index=False)
    assert "graphs of the run" not in run("label", data, "--out", out).stderr
    more = frame.copy()
    new = np.flatnonzero(more["label"].isna())[:10]
    more.loc[new, "label"] = more.loc[new, "digit"]
    more.drop(columns="digit").to_csv(data, index=False)
    monkeypatch.setattr("ssdml.SSDML.fit", None)  # the second run does not fit
    again = run("label", data, "--out", out, "--force")
    assert again.exit_code == 0, again.output
    told = r"graphs of the run of [-\d]{10} with 50 labels were reused; --fresh fits from scratch"
    assert re.search(told, again.stderr)
    found = pd.read_csv(out)
    assert (found["label"][new] == frame["digit"][new]).all()
    assert not found["is_new_label"][new].any()
    assert (found["label"] == frame["digit"]).mean() > 0.85
    assert run("label", data, "--out", out, "--force", "--fresh").exit_code == 1  # it fits
    doubled = frame["digit"].where(frame.index % 3 > 0)
    more.assign(label=doubled).drop(columns="digit").to_csv(data, index=False)
    assert run("label", data, "--out", out, "--force").exit_code == 1
    assert len(list((tmp_path / "cache" / "ssdml" / "models").iterdir())) == 1


def test_the_same_labels_give_the_same_table_with_and_without_a_kept_model(run, frame, tmp_path):
    data, outs = tmp_path / "t.csv", [tmp_path / f"{name}.csv" for name in "abc"]
    frame.drop(columns="digit").to_csv(data, index=False)
    told = []
    for out, options in zip(outs, ((), (), ("--fresh",)), strict=True):
        result = run("label", data, "--out", out, *options)
        assert result.exit_code == 0, result.output
        told.append(result.stderr)
    assert len({out.read_bytes() for out in outs}) == 1
    said = [[line for line in text.splitlines() if str(tmp_path) not in line] for text in told]
    assert said[0] == said[1] == said[2]


@pytest.mark.filterwarnings("always::RuntimeWarning")  # the command shows it
def test_a_damaged_model_is_fitted_anew(run, frame, tmp_path):
    data, outs = tmp_path / "t.csv", [tmp_path / f"{name}.csv" for name in "ab"]
    frame.drop(columns="digit").to_csv(data, index=False)
    run("label", data, "--out", outs[0])
    [arrays] = (tmp_path / "cache").rglob("*.safetensors")
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    told = run("label", data, "--out", outs[1])
    assert told.exit_code == 0, told.output
    assert f"warning: {arrays.parent} is damaged; the model is fitted again" in told.stderr
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert run("label", data, "--out", outs[1], "--force").exit_code == 0  # it was replaced


def test_a_label_alone_in_its_class_is_told_of(run, frame, tmp_path):
    seven = frame.index[frame["label"] == "seven"]
    frame.loc[seven[1:], "label"] = None
    frame.drop(columns="digit").to_csv(tmp_path / "t.csv", index=False)
    told = run("label", tmp_path / "t.csv", "--out", tmp_path / "o.csv")
    said = "holding out 45 of the 46 given labels (1 is the only one of its class) in turn."
    assert said in told.stderr


@pytest.mark.filterwarnings("ignore:SSDML. returns the input")
def test_labels_of_one_class_are_told_of(run, frame, tmp_path):
    one = frame["label"].where(frame["digit"] == "two")
    frame.assign(label=one).drop(columns="digit").to_csv(tmp_path / "t.csv")
    told = run("label", tmp_path / "t.csv", "--out", tmp_path / "o.csv").stderr
    assert "cannot be estimated from labels of one class; label samples of another." in told
    assert "No label could be checked for errors: that takes two classes." in told


def test_few_labels_show_no_threshold(run, frame, tmp_path):
    few = frame["label"].where(frame.groupby("label").cumcount() < 3)
    frame.assign(label=few).drop(columns="digit").to_csv(tmp_path / "t.csv", index=False)
    told = run("label", tmp_path / "t.csv", "--out", tmp_path / "o.csv")
    said = "A confidence threshold for 95% accuracy needs at least 45 held-out labels; got 30."
    assert said in told.stderr


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_vectors_stay_vectors(run, frame, tmp_path, suffix):
    X = frame.filter(regex=r"f\d")
    table = pd.DataFrame(
        {"name": [f"n{i}" for i in range(300)], "embedding": X.to_numpy().tolist()}
    )
    table = table.assign(label=frame["label"])
    data, out = tmp_path / f"t{suffix}", tmp_path / f"labeled{suffix}"
    if suffix == ".parquet":
        table.to_parquet(data)
    else:
        table.to_json(data, orient="records", lines=True)
    told = run("label", data, "--out", out)
    assert told.exit_code == 0, told.output
    found = pd.read_parquet(out) if suffix == ".parquet" else pd.read_json(out, lines=True)
    assert found.columns.tolist() == [*table.columns, *NEW]
    np.testing.assert_allclose(np.stack(found["embedding"]), X)
    flat = run("label", data, "--out", tmp_path / "flat.csv")
    assert flat.exit_code == 0, flat.output
    assert pd.read_csv(tmp_path / "flat.csv")["embedding"].str.startswith("[").all()


def test_texts_are_labeled_and_shown(run, tmp_path):
    food = [f"soup bread {a} {b}" for a in "salt oil egg".split() for b in "pan pot oven".split()]
    boats = [f"sail wind {a} {b}" for a in "mast rope deck".split() for b in "sea bay lake".split()]
    labels = [name if i % 9 < 3 else None for i, name in enumerate(["food"] * 9 + ["boats"] * 9)]
    data, out = tmp_path / "t.csv", tmp_path / "labeled.xlsx"
    pd.DataFrame({"text": food + boats, "label": labels}).to_csv(data, index=False)
    told = run("label", data, "--out", out, "--report", tmp_path / "page.html", "--n-neighbors", 4)
    assert told.exit_code == 0, told.output
    assert pd.read_excel(out)["label"].tolist() == ["food"] * 9 + ["boats"] * 9
    assert "soup bread egg" in (tmp_path / "page.html").read_text()


def test_images_without_a_network_are_labeled_by_their_pixels(run, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.labeling.features.find_spec", lambda name: None)
    told = run("label", photos, "--out", tmp_path / "labeled.csv", "--n-neighbors", 5)
    assert told.exit_code == 0, told.output
    assert "principal components of 3,072 pixel values" in told.stderr
    assert "pip install 'ssdml[images]'" in told.stderr
    found = pd.read_csv(tmp_path / "labeled.csv", index_col="id")
    assert found.loc["IMG_38.JPG", "label"] == "dark"
    assert found.loc["IMG_39.JPG", "label"] == "light"
    assert found.loc["dark/IMG_0.JPG", "label"] == "dark"
    assert "data:image/png;base64" in (tmp_path / "labeled.html").read_text()


@pytest.mark.filterwarnings("always::RuntimeWarning")
def test_features_of_a_network_are_kept(run, photos, tmp_path, monkeypatch):
    seen = []

    def network(batch):
        seen.append(tuple(batch.shape))
        return batch.mean(dim=(2, 3))

    module = "ssdml.experiments.labeling.features"
    monkeypatch.setattr(f"{module}.find_spec", lambda name: name)
    monkeypatch.setattr(f"{module}.efficientnet_lite0", lambda: network)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for out in ("a.csv", "b.csv"):
        told = run("label", photos, "--out", tmp_path / out, "--n-neighbors", 5)
        assert told.exit_code == 0, told.output
        assert "1,280 features of each image by EfficientNet-Lite0" in told.stderr
    assert seen == [(40, 3, 224, 224)]
    damaged = min(path for path in (tmp_path / "cache" / "ssdml").rglob("embeddings/*/*/*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    told = run("label", photos, "--out", tmp_path / "a.csv", "--n-neighbors", 5, "--force")
    assert f"warning: {damaged} is damaged" in told.stderr
    assert seen.pop() == (1, 3, 224, 224)  # it alone
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    (photos / "IMG_39.JPG").rename(photos / "light" / "IMG_39.JPG")  # the content stays
    Image.new("RGB", (50, 40), "white").save(photos / "IMG_40.JPG")
    again = run("label", photos, "--out", tmp_path / "c.csv", "--n-neighbors", 5)
    assert again.exit_code == 0, again.output
    assert seen[1:] == [(1, 3, 224, 224)]
    assert f"Move these images into the folders of their classes in {photos}" in again.stderr
    table = run("label", photos.parent / "c.csv", "--out", tmp_path / "d.csv", "--n-neighbors", 5)
    assert table.exit_code == 0, table.output  # its rows name the images
    assert len(seen) == 2
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_folders_whose_names_are_not_unicode_hold_results(run, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    rows = [f"{i * i % 7 / 2},{'xy'[i % 2] if i < 4 else ''}" for i in range(12)]
    (folder / "t.csv").write_text("\n".join(["a,label", *rows]))
    told = run("label", folder / "t.csv", "--out", folder / "o.csv", "--n-neighbors", 3)
    assert told.exit_code == 0, told.output
    assert len(pd.read_csv(folder / "o.csv")) == 12
    assert "caf\\udce9" in (folder / "o.html").read_text()


def test_the_advice_holds_for_names_after_two_dashes(run, frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.drop(columns="digit").to_csv("-t.csv", index=False)
    told = run("label", "--out", "out.csv", "--", "-t.csv")
    assert told.exit_code == 0, told.output
    assert "ssdml label --out out.csv --force -- -t.csv\n" in told.stderr


def test_one_sample_and_two_tables_are_refused(run, frame, tmp_path):
    data = tmp_path / "t.csv"
    frame[:1].to_csv(data, index=False)
    told = run("label", data, "--out", tmp_path / "out.csv")
    assert f"{data}: must have at least 2 samples; got 1. Add some." in told.stderr
    told = run("label", data, data, "--out", tmp_path / "out.csv")
    assert "must be a .npy file with one array; got a table. Pass one table alone" in told.stderr


def test_out_must_be_a_file(run, tmp_path):
    told = run("label", "t.csv", "--out", tmp_path)
    assert f"{tmp_path}: must end in .csv, .tsv, .parquet" in told.stderr
    assert "must end in .csv, .tsv, .parquet" in run("label", "t.csv", "--out", ".").stderr


def test_labels_are_needed(run, frame, tmp_path):
    frame.drop(columns="digit").assign(label="").to_csv(tmp_path / "t.csv", index=False)
    told = run("label", tmp_path / "t.csv", "--out", tmp_path / "o.csv")
    assert told.exit_code == 1
    assert "error: " in told.stderr
    assert not (tmp_path / "o.csv").exists()
