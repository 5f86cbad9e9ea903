"""Saving and loading of models: bitwise equal, atomic, without running code."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError

from ssdml import SSDML, __version__
from ssdml.utils.persistence import (
    ARRAYS,
    CONFIG,
    OTHER_ARRAYS,
    SCHEMA,
    UNSIGNED,
    keep_array,
    kept_array,
    load_state,
    save_state,
    signed,
)


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(80, 4, centers=3, cluster_std=2.0, random_state=0)
    return X.astype(np.float32), np.where(np.arange(80) < 20, y, -1)


@pytest.fixture(scope="module")
def fitted(blobs):
    return SSDML(random_state=0).fit(*blobs)


@pytest.fixture
def saved(fitted, tmp_path):
    """Folder of a saved model."""
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "model",
    [
        SSDML(2, angle=30.0, random_state=3),
        SSDML(input_weight=0, guard=False, random_state=0),
        SSDML.paper(random_state=0),
    ],
    ids=["default", "metric alone", "paper"],
)
def test_loaded_model_is_bitwise_equal(model, blobs, tmp_path):
    X, labels = blobs
    model.fit(X, labels).save(tmp_path)
    loaded = SSDML.load(tmp_path)
    assert loaded.get_params() == model.get_params()
    assert loaded.input_weight_ == model.input_weight_
    assert loaded.n_features_in_ == 4
    for method in ("transform", "predict", "predict_proba"):
        before, after = getattr(model, method)(X), getattr(loaded, method)(X)
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(after, before)
    for name in ("classes_", "transduction_", "label_distributions_", "embedding_", "components_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    if model.representation_ is not None:
        assert loaded.representation_.classifier is loaded.classifier_
        before, after = model.classifier_._asdict(), loaded.classifier_._asdict()
        trees, loaded_trees = before.pop("trees"), after.pop("trees")
        for one, other in zip(before.values(), after.values(), strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                assert (other.shape, other.dtype) == (one.shape, one.dtype)
        np.testing.assert_array_equal(loaded_trees.scores(X), trees.scores(X))


def test_model_that_returns_the_input_round_trips(blobs, tmp_path):
    X, _ = blobs
    labels = np.full(len(X), -1)
    labels[:3] = 7
    with pytest.warns(UserWarning, match="propagation finds a single class"):
        model = SSDML(random_state=0).fit(X, labels)
    model.save(tmp_path)
    loaded = SSDML.load(tmp_path)
    assert loaded.input_weight_ == np.inf
    np.testing.assert_array_equal(loaded.transform(X), X)
    np.testing.assert_array_equal(loaded.predict(X), 7)


def test_feature_names_round_trip(blobs, tmp_path):
    pd = pytest.importorskip("pandas")
    X, labels = blobs
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    SSDML(random_state=0).fit(frame, labels).save(tmp_path)
    loaded = SSDML.load(tmp_path)
    assert list(loaded.feature_names_in_) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.transform(frame[["b", "a", "c", "d"]])


def test_random_generator_is_dropped_and_numpy_numbers_kept(blobs, tmp_path):
    model = SSDML(decay=np.float64(0.9), random_state=np.random.RandomState(0))
    model.fit(*blobs).save(tmp_path)
    loaded = SSDML.load(tmp_path)
    assert (loaded.decay, loaded.random_state) == (0.9, None)


def test_saving_before_fit_raises(tmp_path):
    with pytest.raises(NotFittedError, match="SSDML instance is not fitted"):
        SSDML().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_loaded_model_can_be_saved_and_refitted(saved, blobs, tmp_path):
    loaded = SSDML.load(saved)
    before = loaded.transform(blobs[0])
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(SSDML.load(tmp_path / "again").transform(blobs[0]), before)
    np.testing.assert_array_equal(loaded.fit(*blobs).transform(blobs[0]), before)


def rewrite(folder, **changes):
    """Change entries of the config, remove those that are ..., and sign it, as a forger would."""
    config = json.loads((folder / CONFIG).read_text()) | {"sha256": UNSIGNED} | changes
    config = {name: value for name, value in config.items() if value is not ...}
    (folder / CONFIG).write_text(signed(json.dumps(config), folder / ARRAYS))


def rewrite_arrays(folder, **changes):
    """Change arrays, remove those that are ..., and sign the model."""
    arrays = load_file(folder / ARRAYS) | changes
    save_file({k: v for k, v in arrays.items() if v is not ...}, folder / ARRAYS)
    rewrite(folder)


class Killed(BaseException):
    """What ends the process in the middle of a save."""


def saved_until(n_lines, model, folder):
    """Save, killed before the line of that number; whether the save got to its end."""
    left = n_lines

    def count(frame, event, arg):
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                raise Killed
        return count

    def watch(frame, event, arg):
        return count if frame.f_code is save_state.__code__ else None

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        model.save(folder)
    except Killed:
        return False
    finally:
        sys.settrace(before)
    return True


def test_killed_save_leaves_old_or_new_model(blobs, tmp_path):
    """Killed before each line of it in turn, into a folder that is used again and again."""
    X, labels = blobs
    models = [SSDML(k, angle=30.0 + k, random_state=0).fit(X, labels) for k in (1, 2)]
    embeddings = {model.angle: model.transform(X) for model in models}
    models[0].save(tmp_path)
    outcomes = []
    for n_lines in range(100):
        done = saved_until(n_lines, models[1], tmp_path)
        loaded = SSDML.load(tmp_path)
        np.testing.assert_array_equal(loaded.transform(X), embeddings[loaded.angle])
        outcomes.append(loaded.angle == models[1].angle)
        if done:
            break
        models[0].save(tmp_path)
    assert done
    assert sorted(outcomes) == outcomes  # old until the replacement, new from then on
    assert {True, False} == set(outcomes)
    assert len(outcomes) > 8


@contextmanager
def files_of_at_most(n_bytes):
    """A disk that is full, as far as files of this process are concerned."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("n_bytes", [100, 2000])
def test_save_on_full_disk_leaves_nothing_new(saved, blobs, tmp_path, n_bytes):
    """No room for the arrays, which are written first: into a new folder, and over a model."""
    model, before = SSDML(2, random_state=0).fit(*blobs), SSDML.load(saved).transform(blobs[0])
    files = {file: file.read_bytes() for file in saved.iterdir()}
    for folder in (tmp_path / "new", saved):
        message = r"SSDML\.save: cannot write the model \(.*File too large.*Make room"
        with files_of_at_most(n_bytes), pytest.raises(OSError, match=message) as caught:
            model.save(folder)
        assert caught.value.filename == str(folder)
    assert not (tmp_path / "new").exists()
    assert {file: file.read_bytes() for file in saved.iterdir()} == files
    np.testing.assert_array_equal(SSDML.load(saved).transform(blobs[0]), before)


@pytest.mark.parametrize("fails", ["safetensors.numpy.save_file", "pathlib.Path.write_text"])
def test_truncated_files_are_removed(saved, blobs, tmp_path, monkeypatch, fails):
    """Writers that leave a part of the file behind."""

    def half(first, second, **options):
        file = first if isinstance(first, Path) else second
        file.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    files = {file: file.read_bytes() for file in saved.iterdir()}
    model = SSDML(2, random_state=0).fit(*blobs)
    monkeypatch.setattr(fails, half)
    for folder in (tmp_path / "new", saved):
        with pytest.raises(OSError, match=r"\(No space left on device\)\. Make room") as caught:
            model.save(folder)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(folder))
    assert not (tmp_path / "new").exists()
    assert {file: file.read_bytes() for file in saved.iterdir()} == files


def test_second_save_replaces_the_model(blobs, tmp_path):
    model = SSDML(random_state=0).fit(*blobs)
    (tmp_path / "notes.txt").write_text("mine")
    for arrays in (ARRAYS, OTHER_ARRAYS, ARRAYS):
        model.save(tmp_path)
        assert {file.name for file in tmp_path.iterdir()} == {CONFIG, arrays, "notes.txt"}


def test_damaged_model_can_be_overwritten(saved, blobs):
    (saved / CONFIG).write_text("[")
    SSDML(2, random_state=0).fit(*blobs).save(saved)
    assert SSDML.load(saved).n_components == 2


def test_files_outside_the_folder_are_untouched(saved, blobs, tmp_path):
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes((saved / ARRAYS).read_bytes())
    config = json.loads((saved / CONFIG).read_text())
    (saved / CONFIG).write_text(json.dumps(config | {"arrays": "../outside.safetensors"}))
    with pytest.raises(ValueError, match=r"is damaged: arrays must be model\.safetensors or"):
        SSDML.load(saved)
    SSDML(random_state=0).fit(*blobs).save(saved)
    assert outside.exists()


@pytest.mark.parametrize("file", [CONFIG, ARRAYS])
def test_missing_file_raises(saved, file):
    (saved / file).unlink()
    with pytest.raises(FileNotFoundError, match=f"SSDML.load: .* {file} is missing"):
        SSDML.load(saved)


@pytest.mark.parametrize("file", [CONFIG, ARRAYS])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_truncated_file_is_reported_as_damaged(saved, file, share):
    content = (saved / file).read_bytes()
    (saved / file).write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"SSDML.load: .* is damaged: .*Save it again\."):
        SSDML.load(saved)


@pytest.mark.parametrize(
    "config",
    [b"[]", b"3", b"\xff\xfe", b'{"class": "SSDML"}', b'{"class": "SSDML", "schema": "new"}'],
)
def test_invalid_config_is_reported_as_damaged(saved, config):
    (saved / CONFIG).write_bytes(config)
    with pytest.raises(ValueError, match="is damaged"):
        SSDML.load(saved)


@pytest.mark.parametrize("key", ["params", "n_features_in", "feature_names_in", "input_weight"])
def test_missing_config_entry_is_reported_as_damaged(saved, key):
    rewrite(saved, **{key: ...})
    with pytest.raises(ValueError, match=rf"\(written by ssdml .*\) is damaged: '{key}'"):
        SSDML.load(saved)


def test_missing_array_is_reported_as_damaged(saved):
    rewrite_arrays(saved, components_=...)
    with pytest.raises(ValueError, match="is damaged: 'components_'"):
        SSDML.load(saved)


def flips(content, rng, count):
    """Copies of some bytes with one bit turned."""
    for place in rng.choice(8 * len(content), min(count, 8 * len(content)), replace=False):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        yield bytes(flipped)


@pytest.mark.parametrize("file", [CONFIG, ARRAYS])
def test_model_with_a_turned_bit_is_refused(saved, rng, file):
    whole = (saved / file).read_bytes()
    for flipped in flips(whole, rng, 500):
        (saved / file).write_bytes(flipped)
        with pytest.raises(ValueError, match=rf"SSDML\.load: {re.escape(str(saved))}"):
            SSDML.load(saved)
    (saved / file).write_bytes(whole)
    SSDML.load(saved)


def test_every_turned_bit_of_classes_is_noticed(saved):
    whole = (saved / ARRAYS).read_bytes()
    values = load_file(saved / ARRAYS)["classes_"].tobytes()
    start = whole.index(values)  # the first array
    for place in range(8 * len(values)):
        flipped = bytearray(whole)
        flipped[start + place // 8] ^= 1 << place % 8
        (saved / ARRAYS).write_bytes(flipped)
        with pytest.raises(ValueError, match=r"its checksum is wrong: a file has changed"):
            SSDML.load(saved)


Z = np.zeros
FORGED = {
    "NaN": ({"components_": np.full((4, 4), np.nan)}, "components_ must be finite"),
    "columns": ({"components_": Z((4, 5))}, r"\(l, 7\); got \(4, 5\)"),
    "axes": ({"components_": Z(4)}, r"must have the shape \(l, 7\); got \(4,\)"),
    "rows": ({"embedding_": Z((9, 4))}, r"embedding_ .* with n = 80, as transduction_"),
    "kind": ({"components_": Z((4, 4), int)}, "must hold floating-point numbers; got dtype int64"),
    "classes": ({"classes_": Z(2, int)}, r"label_distributions_ .* with c = 2, as classes_"),
    "references": (
        {"reference_rows_": np.full(80, 80)},
        "reference_rows_ must be from 0 to 79",
    ),
    "a part of a classifier": (
        {"classifier_scales": Z(7)},
        r"classifier_scales must have the shape",
    ),
    "a part of trees": ({"trees_roots": Z(7, int)}, r"trees_leaves must have the shape"),
    "columns of trees": (
        {"trees_columns": np.full(1, 4), "trees_thresholds": Z(1), "trees_children": Z((1, 2), int)}
        | {"trees_roots": Z(50, int)},
        "trees_columns must be from 0 to 3",
    ),
    "circles in trees": (
        {"trees_columns": Z(999, int), "trees_thresholds": Z(999)}
        | {"trees_children": Z((999, 2), int)},
        "trees_children must follow their parents",
    ),
    "no trees": (
        {"trees_roots": Z(0, int), "trees_leaves": Z((20, 0), int)},
        "trees_leaves must hold leaves; got none",
    ),
    "weight of trees": ({"trees_weight": np.array(1e300)}, "trees_weight must be from 0 to 1e"),
    "neighbors": ({"classifier_n_neighbors": np.array(99)}, "must be from 1 to 80; got 99"),
}


def test_small_integers_in_trees_do_not_overflow(saved, blobs):
    """Sums of them would send rows around in circles."""
    expected = SSDML.load(saved).predict_proba(blobs[0])
    arrays = load_file(saved / ARRAYS)
    small = {name: arrays[name].astype(np.int16) for name in ("trees_roots", "trees_children")}
    rewrite_arrays(saved, **small)
    loaded = SSDML.load(saved)
    assert loaded.classifier_.trees.nodes.roots.dtype == np.intp
    np.testing.assert_array_equal(loaded.predict_proba(blobs[0]), expected)


@pytest.mark.parametrize("case", FORGED)
def test_forged_arrays_are_refused(saved, case):
    changes, message = FORGED[case]
    rewrite_arrays(saved, **changes)
    with pytest.raises(ValueError, match=rf"SSDML\.load: .* is damaged: .*{message}"):
        SSDML.load(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"params": {"color": "red"}}, "color"),
        ({"params": {"n_neighbors": -1}}, "n_neighbors"),
        ({"params": []}, "must be a mapping"),
        ({"n_features_in": "4"}, "n_features_in must be a positive integer; got '4'"),
        ({"feature_names_in": ["a"]}, "feature_names_in must be 4 names"),
        ({"input_weight": "1"}, "input_weight must be a number of at least 0; got '1'"),
        ({"class_names": [1, 2, 3]}, "class_names must be a list of names"),
        ({"class_names": ["a"]}, "transduction_ must be integers from 0 to 0"),
        ({"arrays": "../outside.safetensors"}, r"arrays must be model\.safetensors or"),
    ],
)
def test_forged_config_is_refused(saved, changes, message):
    rewrite(saved, **changes)
    with pytest.raises(ValueError, match=rf"SSDML\.load: .* is damaged: .*{message}"):
        SSDML.load(saved)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b'{"n": NaN}', "must hold finite numbers; got NaN"),
        (b'{"n": ' + b"[" * 10**5, "nested too deeply"),
    ],
)
def test_config_of_infinite_numbers_or_depth_is_refused(saved, config, message):
    (saved / CONFIG).write_bytes(config)
    with pytest.raises(ValueError, match=rf"SSDML\.load: .* is damaged: config\.json .*{message}"):
        SSDML.load(saved)


def test_infinite_parameters_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match=r"save: parameters must be finite numbers"):
        save_state(tmp_path / "model", "SSDML", {"angle": np.inf}, {})
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("file", [CONFIG, ARRAYS])
def test_pipe_in_place_of_a_file_is_refused(saved, file):
    (saved / file).unlink()
    os.mkfifo(saved / file)
    with pytest.raises(ValueError, match=r"must be a regular file; got a named pipe"):
        SSDML.load(saved)


def test_model_of_another_class_raises(saved):
    with pytest.raises(ValueError, match=r"must hold a Other; got a SSDML \(written by ssdml "):
        load_state(saved, "Other")


def test_later_schema_names_the_version_that_wrote_it(saved):
    rewrite(saved, schema=SCHEMA + 1, ssdml="7.5")
    message = rf"\(written by ssdml 7\.5\) has schema {SCHEMA + 1}; .* to {SCHEMA}\. Upgrade ssdml"
    with pytest.raises(ValueError, match=message):
        SSDML.load(saved)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"params": {"backbone": None}}, "argument 'backbone'"), ({"input_weight": ...}, "input_w")],
)
def test_parts_of_another_version_are_no_damage_alone(saved, changes, problem):
    rewrite(saved, ssdml="0.1", **changes)
    message = rf"\(written by ssdml 0\.1\) does not fit ssdml {__version__}, or is damaged: .*"
    with pytest.raises(ValueError, match=f"{message}{problem}.*Load it with the version that wr"):
        SSDML.load(saved)


def test_model_without_a_checksum_warns(saved, blobs):
    before = SSDML.load(saved).transform(blobs[0])
    rewrite(saved, schema=1, sha256=..., arrays=...)
    with pytest.warns(UserWarning, match=r"written by ssdml .*\) has no checksum.* Save it again"):
        loaded = SSDML.load(saved)
    np.testing.assert_array_equal(loaded.transform(blobs[0]), before)
    for schema in (1, SCHEMA):
        rewrite(saved, schema=schema, sha256="f" * 64)
        with pytest.raises(ValueError, match=r"is damaged: its checksum is wrong"):
            SSDML.load(saved)
    rewrite(saved, sha256=...)
    with pytest.raises(ValueError, match=r"is damaged: 'sha256'"):
        SSDML.load(saved)


def test_unserializable_parameters_raise_and_write_nothing(tmp_path):
    with pytest.raises(TypeError, match=r"save: parameters must be JSON; got object"):
        save_state(tmp_path / "model", "SSDML", {"angle": object()}, {})
    assert not (tmp_path / "model").exists()


class Bomb:
    """Unpickled, it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("file", [CONFIG, ARRAYS])
def test_loading_runs_no_code(saved, tmp_path, file):
    (saved / file).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises(ValueError, match="is damaged"):
        SSDML.load(saved)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("array", [np.arange(3.0), np.eye(2, dtype=np.float32)[:0], np.array(7)])
def test_a_cached_array_comes_back_or_nothing(array, tmp_path):
    """Every bit flipped, every cut, and what is no file at all."""
    path = tmp_path / "cache" / "a"
    assert kept_array(path) is None
    keep_array(path, array)
    found = kept_array(path)
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(found, array)
    whole = path.read_bytes()
    flipped = (
        whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :]
        for i in range(len(whole))
        for bit in range(8)
    )
    for content in (*flipped, *(whole[:i] for i in range(len(whole))), whole + b"0"):
        path.write_bytes(content)
        with pytest.warns(RuntimeWarning, match=r"cache/a is damaged .*computed again"):
            assert kept_array(path) is None
    for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to(tmp_path / "nowhere")):
        path.unlink() if path.is_file() else None
        make(path)
        with pytest.warns(RuntimeWarning, match=r"cache/a is damaged .*computed again"):
            assert kept_array(path) is None
        path.rmdir() if path.is_dir() else path.unlink()
    keep_array(path, array)
    assert path.read_bytes() == whole
