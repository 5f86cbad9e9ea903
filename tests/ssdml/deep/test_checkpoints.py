"""Checkpoints are exact, atomic and bound to their run."""

from __future__ import annotations

import errno
import os

import pytest
import safetensors
import safetensors.torch
import torch

from ssdml.deep.checkpoints import SCHEMA, Checkpoint, load_checkpoint, save_checkpoint

CONFIG = {"seed": 0, "backbone": "mnist", "angle": 40.0}


def checkpoint(number):
    """A checkpoint that holds its number."""
    return Checkpoint(number, {"weight": torch.full((50,), float(number))}, {"losses": [number]})


def save(folder, *numbers):
    return [save_checkpoint(folder, checkpoint(number), CONFIG) for number in numbers]


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def cut(file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])


def bits(tensor):
    return tensor.detach().flatten().view(torch.uint8)


def test_checkpoint_round_trip_is_exact(tmp_path):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 3, generator=generator)
    weight = torch.tensor([[1.0, float("nan")], [-0.0, float("inf")]])
    tensors = {
        "odd": weight,
        "double": noise.double() / 3,
        "half": noise.bfloat16(),
        "step": torch.tensor(7),
        "mask": noise > 0,
        "none": torch.zeros(0, 3),
        "turned": noise.T,
        "spread": torch.ones(3).expand(2, 3),
        "parameter": torch.nn.Parameter(noise),
    }
    state = {"losses": [0.1, 1e-300, 2], "done": None, "names": ["é", '"']}
    save_checkpoint(tmp_path, Checkpoint(3, tensors, state), CONFIG)
    number, back, again = load_checkpoint(tmp_path, CONFIG, "fit")
    assert (number, again) == (3, state)
    assert set(back) == set(tensors)
    for name, tensor in tensors.items():
        assert (back[name].dtype, back[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(bits(back[name]), bits(tensor))
        assert not back[name].requires_grad


def test_tied_weights_are_saved_under_both_names(tmp_path):
    """Safetensors refuses tensors that share memory."""
    encoder, decoder = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    decoder.weight = encoder.weight
    tensors = torch.nn.ModuleDict({"encoder": encoder, "decoder": decoder}).state_dict()
    save_checkpoint(tmp_path, Checkpoint(1, tensors, {}), CONFIG)
    back = load_checkpoint(tmp_path, CONFIG, "fit").tensors
    assert set(back) == set(tensors)
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)


def test_loaded_tensors_do_not_depend_on_the_file(tmp_path):
    (file,) = save(tmp_path, 1)
    tensors = load_checkpoint(tmp_path, CONFIG, "fit").tensors
    file.unlink()
    tensors["weight"] += 1
    assert torch.equal(tensors["weight"], torch.full((50,), 2.0))


def test_keeps_two_checkpoints_and_reads_the_last(tmp_path):
    folder = tmp_path / "made" / "here"
    for number in range(1, 12):
        (file,) = save(folder, number)
        kept = [f"partition-{n:04d}.safetensors" for n in (number - 1, number) if n]
        assert names(folder) == kept
        assert file.name == kept[-1]
        assert load_checkpoint(folder, CONFIG, "fit").number == number


def test_checkpoint_numbers_exceed_four_digits(tmp_path):
    save(tmp_path, 9998, 9999, 10000)
    assert set(names(tmp_path)) == {"partition-9999.safetensors", "partition-10000.safetensors"}
    assert load_checkpoint(tmp_path, CONFIG, "fit").number == 10000


def test_leaves_other_files_alone(tmp_path):
    others = ["model.safetensors", "notes.txt", "partition-old.safetensors"]
    for name in others:
        (tmp_path / name).write_text("mine")
    save(tmp_path, 1, 2, 3)
    assert set(others) < set(names(tmp_path))
    assert load_checkpoint(tmp_path, CONFIG, "fit").number == 3


def test_empty_folder_has_no_checkpoint(tmp_path):
    assert load_checkpoint(tmp_path, CONFIG, "fit") is None
    assert load_checkpoint(tmp_path / "not there", CONFIG, "fit") is None


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_truncated_checkpoint_is_skipped_with_a_warning(tmp_path, share):
    earlier, last = save(tmp_path, 1, 2)
    cut(last, share)
    message = f"fit: {last} is damaged (.*); resuming from the checkpoint before it, or from"
    with pytest.warns(RuntimeWarning, match=message):
        found = load_checkpoint(tmp_path, CONFIG, "fit")
    assert (found.number, found.state) == (1, {"losses": [1]})
    cut(earlier, share)
    with pytest.warns(RuntimeWarning, match="is damaged") as warned:
        assert load_checkpoint(tmp_path, CONFIG, "fit") is None
    assert len(warned) == 2


@pytest.mark.parametrize("place", [-1, -100])
def test_corrupt_checkpoint_is_skipped_with_a_warning(tmp_path, place):
    _, last = save(tmp_path, 1, 2)
    content = bytearray(last.read_bytes())
    content[place] ^= 1
    last.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="damaged .its checksum is wrong"):
        assert load_checkpoint(tmp_path, CONFIG, "fit").number == 1


def test_checkpoint_with_a_turned_bit_is_skipped(tmp_path, rng):
    _, last = save(tmp_path, 1, 2)
    whole = last.read_bytes()
    for place in rng.choice(8 * len(whole), 300, replace=False):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        last.write_bytes(content)
        with pytest.warns(RuntimeWarning, match=r"partition-0002\.safetensors is damaged"):
            assert load_checkpoint(tmp_path, CONFIG, "fit").state == {"losses": [1]}


def test_pipe_in_place_of_a_checkpoint_is_skipped(tmp_path):
    _, last = save(tmp_path, 1, 2)
    last.unlink()
    os.mkfifo(last)
    with pytest.warns(RuntimeWarning, match=r"must be a regular file; got a named pipe"):
        assert load_checkpoint(tmp_path, CONFIG, "fit").number == 1


def test_restarted_run_replaces_damaged_checkpoints(tmp_path):
    for file in save(tmp_path, 2, 3):
        cut(file, 0.5)
    for number in (1, 2, 3):
        assert save(tmp_path, number)[0].exists()
        if number < 3:
            with pytest.warns(RuntimeWarning, match="is damaged"):
                found = load_checkpoint(tmp_path, CONFIG, "fit")
            assert found.number == number
    assert names(tmp_path) == ["partition-0002.safetensors", "partition-0003.safetensors"]
    assert load_checkpoint(tmp_path, CONFIG, "fit").number == 3


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        *(
            {"ssdml": header}
            for header in (
                "{",
                "[]",
                '{"config": {}}',
                '{"schema": "new", "config": {}, "state": {}}',
                '{"schema": 2, "state": {}}',
                '{"schema": 2, "config": 3, "state": {}}',
                "[" * 10**5,
            )
        ),
    ],
)
def test_foreign_file_is_skipped_with_a_warning(tmp_path, metadata):
    save(tmp_path, 1)
    foreign = tmp_path / "partition-0002.safetensors"
    safetensors.torch.save_file({"weight": torch.ones(2)}, foreign, metadata=metadata)
    with pytest.warns(RuntimeWarning, match="partition-0002.safetensors is damaged"):
        assert load_checkpoint(tmp_path, CONFIG, "fit").number == 1


def test_later_schema_is_skipped_with_a_warning(tmp_path, monkeypatch):
    save(tmp_path, 1)
    monkeypatch.setattr("ssdml.deep.checkpoints.SCHEMA", SCHEMA + 1)
    save(tmp_path, 2)
    monkeypatch.undo()
    message = f"schema {SCHEMA + 1}; this version reads schema {SCHEMA}"
    with pytest.warns(RuntimeWarning, match=message):
        assert load_checkpoint(tmp_path, CONFIG, "fit").number == 1


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (CONFIG | {"seed": 1}, "seed=0"),
        (CONFIG | {"seed": 1, "angle": 30.0}, "angle=40.0, seed=0"),
        ({"seed": 0, "angle": 40.0}, "backbone='mnist'"),
        (CONFIG | {"n_rows": 5}, "n_rows=None"),
    ],
    ids=["changed", "two changed", "gone", "new"],
)
def test_rejects_and_keeps_checkpoints_of_other_runs(tmp_path, config, told):
    earlier, file = save(tmp_path, 1, 2)
    before = file.read_bytes()
    with pytest.raises(ValueError) as error:
        load_checkpoint(tmp_path, config, "DeepSSDML")
    assert str(error.value) == (
        "DeepSSDML: checkpoint_dir must hold checkpoints of the same parameters and data; got "
        f"{told} in {file}. Use another checkpoint_dir or empty this one."
    )
    assert earlier.exists()
    assert file.read_bytes() == before


def test_parameters_are_compared_as_json(tmp_path):
    """Tuples equal lists."""
    config = {"shape": (1, 28, 28), "nested": {"size": (2,)}}
    save_checkpoint(tmp_path, checkpoint(1), config)
    assert load_checkpoint(tmp_path, config, "fit").number == 1
    assert load_checkpoint(tmp_path, {"nested": {"size": [2]}, "shape": [1, 28, 28]}, "fit")


def full_disk(tensors, file, metadata):
    file.write_bytes(b"half a checkpoint")
    raise OSError(errno.ENOSPC, "No space left on device")


def full_disk_by_safetensors(tensors, file, metadata):
    file.write_bytes(b"half a checkpoint")
    raise safetensors.SafetensorError("I/O error: no space")


@pytest.mark.parametrize(
    ("refuse", "number", "reason"),
    [
        (full_disk, errno.ENOSPC, "No space left on device"),
        (full_disk_by_safetensors, errno.EIO, "I/O error: no space"),
    ],
)
def test_full_disk_raises_and_keeps_earlier_checkpoints(
    tmp_path, monkeypatch, refuse, number, reason
):
    save(tmp_path, 1, 2)
    before = names(tmp_path)
    monkeypatch.setattr("safetensors.torch.save_file", refuse)
    with pytest.raises(OSError, match=r"checkpoint cannot be written") as error:
        save(tmp_path, 3)
    assert error.value.errno == number
    assert error.value.filename == str(tmp_path / "partition-0003.safetensors")
    assert f"({reason}). Free disk space or use another checkpoint_dir; the run" in str(error.value)
    assert names(tmp_path) == before
    assert load_checkpoint(tmp_path, CONFIG, "fit").number == 2


def test_rejects_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("a file")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(OSError, match="use another checkpoint_dir"):
            save(folder, 1)
        assert load_checkpoint(folder, CONFIG, "fit") is None
    assert (tmp_path / "taken").read_text() == "a file"


class Killed(BaseException):
    """Stands for a process killed in the middle of a write."""


def test_killed_write_keeps_earlier_checkpoints(tmp_path, monkeypatch):
    save(tmp_path, 1, 2)

    def die(tensors, file, metadata):
        file.write_bytes(b"half a checkpoint")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", die)
        with pytest.raises(Killed):
            save(tmp_path, 3)
    assert len(names(tmp_path)) == 3  # the unfinished third stays, unread
    assert load_checkpoint(tmp_path, CONFIG, "fit").number == 2
    save(tmp_path, 3)
    assert names(tmp_path) == ["partition-0002.safetensors", "partition-0003.safetensors"]
    assert load_checkpoint(tmp_path, CONFIG, "fit").state == {"losses": [3]}
