"""Arrays, tensors and Datasets give the same batches; bad data raise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image

from ssdml.networks import data as data_module
from ssdml.networks.data import (
    SAMPLED,
    StoredSamples,
    as_samples,
    has_room,
    mean_and_scale,
    validation_samples,
)


class Listed(torch.utils.data.Dataset):
    """A map-style Dataset that records reads."""

    def __init__(self, entries):
        self.entries, self.read = entries, []

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, index):
        self.read.append(index)
        return self.entries[index]


@pytest.fixture
def photographs(rng):
    """Six images as bytes, channels last, read-only."""
    images = rng.integers(0, 256, (6, 8, 10, 3), np.uint8)
    images.flags.writeable = False
    return images


@pytest.fixture
def features(rng):
    table = rng.standard_normal((7, 4)).astype(np.float32)
    table.flags.writeable = False
    return table


def _first(photographs):
    return np.ascontiguousarray(photographs.transpose(0, 3, 1, 2))


def test_mixed_bytes_and_floats_share_a_scale(photographs):
    first = _first(photographs)
    mixed = Listed([first[0], first[1].astype(np.float32) / np.float32(255)])
    torch.testing.assert_close(
        as_samples(mixed, "fit").batch(np.arange(2)), torch.from_numpy(first[:2]).float() / 255
    )


@pytest.mark.parametrize(("numbers", "n_read"), [(2**20, 50), (16 * 30, 30), (1, 1)])
def test_large_samples_need_fewer_reads_for_statistics(rng, monkeypatch, numbers, n_read):
    monkeypatch.setattr("ssdml.networks.data.SAMPLED_NUMBERS", numbers)
    entries = Listed(list(rng.standard_normal((50, 1, 4, 4))))
    samples = as_samples(entries, "fit")
    entries.read.clear()
    mean, _ = mean_and_scale(samples, 0)
    assert len(set(entries.read)) == len(entries.read) == n_read
    known = np.mean([entries.entries[i] for i in entries.read])
    torch.testing.assert_close(float(mean), known, rtol=1e-6, atol=1e-6)


FORMS = {
    "bytes, channels last": lambda last: last,
    "bytes, channels first": _first,
    "bytes in another order of memory": lambda last: np.asfortranarray(last),
    "tensor of bytes, channels last": lambda last: torch.tensor(last),
    "tensor of bytes, channels first": lambda last: torch.tensor(_first(last)),
    "floats": lambda last: _first(last).astype(np.float32) / np.float32(255),
    "tensor of floats": lambda last: torch.tensor(_first(last)).float() / 255,
    "data set of tensors": lambda last: Listed(list(torch.tensor(_first(last)))),
    "data set of arrays": lambda last: Listed(list(_first(last))),
    "data set of tuples": lambda last: Listed([(sample, 3) for sample in _first(last)]),
    "data set of lists": lambda last: Listed([[sample, "cat", 3] for sample in _first(last)]),
    "list": lambda last: list(_first(last)),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_input_forms_give_the_same_bits(photographs, form):
    samples = as_samples(FORMS[form](photographs), "fit")
    assert (len(samples), samples.shape) == (6, (3, 8, 10))
    batch = samples.batch(np.array([4, 0, 4]))
    expected = torch.tensor(_first(photographs)[[4, 0, 4]]).float() / 255
    assert batch.dtype == torch.float32
    assert torch.equal(batch, expected)


def test_batches_are_consistent_with_slices(features, photographs):
    for data in (features, photographs, Listed(list(torch.tensor(features)))):
        samples = as_samples(data, "fit")
        numbers = np.array([5, 1, 3])
        parts = [samples.batch(numbers[i : i + 1]) for i in range(3)]
        assert torch.equal(samples.batch(numbers), torch.cat(parts))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4", np.int64, np.uint16])
def test_only_bytes_are_divided(dtype):
    table = np.arange(6).reshape(3, 2).astype(dtype)
    batch = as_samples(table, "fit").batch(np.array([2, 0]))
    assert torch.equal(batch, torch.tensor([[4.0, 5.0], [0.0, 1.0]]))


def test_gray_images_get_a_channel(photographs):
    gray = photographs[..., 0]
    for images in (gray, torch.tensor(gray)):
        samples = as_samples(images, "fit")
        assert samples.shape == (1, 8, 10)
        expected = torch.tensor(gray[[1]]).float()[:, None] / 255
        assert torch.equal(samples.batch(np.array([1])), expected)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 3, 4, 3), np.uint8), ((2, 8, 8, 3), np.float32), ((2, 8, 8, 5), np.uint8)],
    ids=["both may be channels", "floats", "neither may be channels"],
)
def test_ambiguous_axes_are_kept(shape, dtype):
    assert as_samples(np.zeros(shape, dtype), "fit").shape == shape[1:]


def test_input_is_not_modified(features, photographs):
    """Torch warns of a read-only array once; here each time."""
    warned = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        for data in (features, photographs, list(features), photographs[::-1]):
            before = np.array(data)
            as_samples(data, "fit").batch(np.array([0, 1])).zero_()
            np.testing.assert_array_equal(np.array(data), before)
    finally:
        torch.set_warn_always(warned)


def test_datasets_are_read_on_demand():
    data = Listed([torch.full((2,), float(i)) for i in range(9)])
    samples = as_samples(data, "fit")
    data.read.clear()
    assert torch.equal(samples.batch(np.array([7, 2])), torch.tensor([[7.0, 7.0], [2.0, 2.0]]))
    assert data.read == [7, 2]
    assert all(type(index) is int for index in data.read)


class Missing(Listed):
    """A Dataset with one sample that cannot be read."""

    def __getitem__(self, index):
        if index == 2:
            raise OSError("image file is truncated")
        return super().__getitem__(index)


class AtOnce(Missing):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


@pytest.mark.parametrize("kind", [Missing, AtOnce])
def test_names_samples_that_cannot_be_read(kind):
    samples = as_samples(kind([torch.zeros(2)] * 4), "fit")
    assert samples.batch(np.array([3, 1])).shape == (2, 2)
    with pytest.raises(OSError, match="image file is truncated") as raised:
        samples.batch(np.array([1, 2, 3]))
    assert raised.value.__notes__ == ["dataset: sample 2 cannot be read."]


class Collated(Listed):
    """Batches in a tuple, as a DataLoader makes them."""

    def __getitems__(self, indices):
        return torch.zeros(len(indices), 2), torch.zeros(len(indices))


def test_rejects_collated_batches():
    samples = as_samples(Collated([torch.zeros(2)] * 4), "fit")
    message = r"must return a list with one sample per index; got tuple of 2 for 3 indices\."
    with pytest.raises(ValueError, match=message):
        samples.batch(np.arange(3))
    with pytest.raises(ValueError, match="must have one shape"):
        samples.batch(np.arange(2))


class Noisy(Listed):
    """A Dataset with a random transform."""

    def __getitem__(self, index):
        return super().__getitem__(index) + torch.rand(2)


def test_warns_of_random_transforms():
    with pytest.warns(UserWarning, match="got two versions of sample 0. Leave out random") as told:
        as_samples(Noisy([torch.zeros(2)]), "fit")
    assert told[0].filename == __file__


def test_rejects_samples_of_several_shapes():
    samples = as_samples([torch.zeros(3, 4, 4), torch.zeros(3, 5, 4), torch.zeros(3, 4, 4)], "fit")
    assert samples.batch(np.array([0, 2])).shape == (2, 3, 4, 4)
    message = (
        r"dataset: samples must have one shape; got \[\(3, 4, 4\), \(3, 5, 4\)\]\. Resize them"
    )
    for rows in ([0, 1], [1]):
        with pytest.raises(ValueError, match=message):
            samples.batch(np.array(rows))


def test_names_samples_that_are_no_tensors():
    message = (
        "dataset: samples must be tensors or arrays, or tuples that begin with one; got str at "
        "index {}. Give the Dataset a transform, such as torchvision's ToTensor."
    )
    with pytest.raises(TypeError) as first:
        as_samples(["cat.png", "dog.png"], "fit")
    assert str(first.value) == message.format(0)
    samples = as_samples([(np.zeros(2), 0), ("dog.png", 1)], "fit")
    with pytest.raises(TypeError) as second:
        samples.batch(np.array([0, 1]))
    assert str(second.value) == message.format(1)


def refused(dataset, name, dtype, way_out):
    """Whether the error names the dtype and the conversion."""
    with pytest.raises(TypeError) as error:
        as_samples(dataset, "fit")
    return str(error.value) == (
        f"{name} must hold bytes or floating-point numbers; got dtype {dtype}. Convert it, pixels "
        f"to between 0 and 1: .{way_out}."
    )


@pytest.mark.parametrize("dtype", [bool, complex, object, "U3", "M8[s]"])
def test_rejects_non_numeric_arrays(dtype):
    table = np.zeros((3, 2)).astype(dtype)
    assert refused(table, "fit: dataset", table.dtype, "astype('float32')")
    assert refused(list(table), "dataset: sample 0", table.dtype, "astype('float32')")


@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize("n_columns", [1, 2])
def test_tables_of_booleans_are_numbers(library, n_columns):
    flags = np.array([[True, False], [False, True], [True, True]])[:, :n_columns]
    table = library.DataFrame({name: flags[:, j] for j, name in enumerate("ab"[:n_columns])})
    batch = as_samples(table, "fit").batch(np.arange(3))
    assert batch.dtype == torch.float32
    np.testing.assert_array_equal(batch, flags)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64])
def test_rejects_non_numeric_tensors(dtype):
    table = torch.zeros(3, 2, dtype=dtype)
    assert refused(table, "fit: dataset", dtype, "float()")
    assert refused(list(table), "dataset: sample 0", dtype, "float()")


def test_rejects_images_of_integers():
    images = np.zeros((3, 1, 8, 8), np.int64)
    tensors = torch.from_numpy(images)
    assert refused(images, "fit: dataset", "int64", "astype('float32')")
    assert refused(list(images), "dataset: sample 0", "int64", "astype('float32')")
    assert refused(tensors, "fit: dataset", "torch.int64", "float()")
    assert refused(list(tensors), "dataset: sample 0", "torch.int64", "float()")
    assert refused(images.astype(np.uint16), "fit: dataset", "uint16", "astype('float32')")


@pytest.mark.parametrize("dtype", [">f4", ">f8", np.longdouble, np.float16])
def test_reads_any_precision_and_byte_order(dtype):
    table = np.array([[0.5, 2.0], [3.0, 4.0]]).astype(dtype)
    for dataset in (table, list(table)):
        batch = as_samples(dataset, "fit").batch(np.array([1]))
        assert (batch.dtype, batch.tolist()) == (torch.float32, [[3.0, 4.0]])


def test_bytes_of_a_dataset_may_have_channels_last(photographs):
    first = torch.from_numpy(_first(photographs)).float() / 255
    for dataset in (list(photographs), list(torch.tensor(photographs)), Listed(photographs)):
        torch.testing.assert_close(as_samples(dataset, "fit").batch(np.arange(6)), first)


def test_rejects_sparse_samples():
    samples = [torch.eye(3).to_sparse()] * 2
    with pytest.raises(TypeError, match=r"dataset: samples must be dense; .*samples\.to_dense"):
        as_samples(samples, "fit")


def test_rejects_arrays_of_dask():
    dask = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match=r"fit: dataset must be in .*; got a .* dataset\.compute"):
        as_samples(dask.zeros((4, 2)), "fit")


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_names_numbers_too_large_for_float32(convert):
    table = np.array([[1.0], [1e200]])
    with pytest.raises(ValueError, match=r"finite in float32; got .* in sample 1\..* scale them"):
        as_samples(convert(table), "fit")


def test_reads_integer_features():
    counts = np.array([[1, 2], [3, 200]])
    for dataset in (counts, torch.from_numpy(counts), list(counts), list(torch.from_numpy(counts))):
        batch = as_samples(dataset, "fit").batch(np.array([1]))
        assert (batch.dtype, batch.tolist()) == (torch.float32, [[3.0, 200.0]])


@pytest.mark.parametrize("shape", [(5,), (0, 4), (0, 3, 8, 8), (5, 0)])
@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["array", "tensor"])
def test_rejects_empty_arrays(make, shape):
    with pytest.raises(ValueError, match=r"fit: dataset must have shape \(n, \.\.\.\)") as error:
        as_samples(make(shape), "fit")
    way_out = " Pass X[None] for one sample." if shape == (5,) else ""
    assert str(error.value).endswith(f"at least one sample of one number; got {shape}.{way_out}")


def test_rejects_an_empty_dataset():
    with pytest.raises(
        ValueError, match=r"^fit: dataset must have at least one sample; got none\."
    ):
        as_samples(Listed([]), "fit")


@pytest.mark.parametrize("n_bytes", [50, 51])
def test_samples_take_half_of_the_gpu_memory(monkeypatch, n_bytes):
    """Torch 2.4 needs the index of a device, or None."""
    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda d: asked.append(d) or (100, 1000))
    assert has_room("cuda:1", n_bytes) == has_room("cuda", n_bytes) == (n_bytes == 50)
    assert asked == [1, None]


@pytest.mark.parametrize("stream", [False, True])
def test_samples_are_detached(stream):
    made = torch.rand(4, 3, requires_grad=True)
    samples = as_samples(Listed(list(made)) if stream else made, "fit")
    assert not samples.batch(np.array([1])).requires_grad
    assert made.requires_grad


def test_samples_that_do_not_fit_travel_by_batch(monkeypatch):
    stored, rows = torch.rand(4, 3), np.array([2, 0])
    assert StoredSamples(stored, "meta")._stored.device.type == "meta"
    monkeypatch.setattr(data_module, "has_room", lambda device, n_bytes: False)
    assert StoredSamples(stored, "meta")._stored is stored
    assert StoredSamples(stored, "meta").batch(rows).device.type == "meta"
    assert torch.equal(StoredSamples(stored).batch(rows), stored[[2, 0]])


class Streamed:
    """An iterable Dataset."""

    def __iter__(self):
        return iter([])


class SizedStream(torch.utils.data.IterableDataset):
    """One of torch, with a length."""

    def __iter__(self):
        return iter([])

    def __len__(self):
        return 3


@pytest.mark.parametrize("dataset", [None, 3, Streamed(), SizedStream()])
def test_rejects_iterable_datasets(dataset):
    message = "map-style torch Dataset with a length; got " + type(dataset).__name__
    with pytest.raises(TypeError, match=message):
        as_samples(dataset, "fit")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (torch.eye(3).to_sparse(), r"layout torch\.sparse_coo\. Pass dataset\.to_dense\(\)"),
        (torch.eye(3, device="meta"), "got a tensor on the device 'meta'"),
        (
            torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            r"got a nested tensor\. Pass torch\.nested\.to_padded_tensor\(dataset, 0\.0\)",
        ),
    ],
)
def test_rejects_tensors_that_are_not_dense(dataset, message):
    with pytest.raises(TypeError, match="fit: dataset must .*" + message):
        as_samples(dataset, "fit")


def test_rejects_a_loader_of_a_dataset():
    with pytest.raises(TypeError, match=r"got DataLoader\. Pass its dataset\."):
        as_samples(torch.utils.data.DataLoader(torch.eye(3)), "fit")


@pytest.mark.parametrize("shape", [(50, 4), (50, 3, 5, 6), (50, 5, 6)])
def test_mean_and_scale_equal_numpys(rng, shape):
    data = (3 + 2 * rng.standard_normal(shape)).astype(np.float32)
    samples = as_samples(data, "fit")
    mean, scale = mean_and_scale(samples, 0)
    data = data if data.ndim != 3 else data[:, None]
    axes = (0, *range(2, data.ndim))
    kept = (data.shape[1],) + (1,) * (data.ndim - 2)
    assert mean.shape == scale.shape == kept
    np.testing.assert_allclose(mean.flatten(), data.mean(axes, np.float64), rtol=1e-6)
    np.testing.assert_allclose(scale.flatten(), data.std(axes, np.float64), rtol=1e-6)
    standardized = (samples.batch(np.arange(50)) - mean) / scale
    assert standardized.mean(axes).abs().max() < 1e-5
    assert (standardized.std(axes, correction=0) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1e6])
def test_a_constant_channel_has_scale_one(rng, value):
    data = rng.random((40, 2, 7, 9)).astype(np.float32)
    data[:, 1] = value
    mean, scale = mean_and_scale(as_samples(data, "fit"), 0)
    assert scale[1] == 1
    assert mean[1] == np.float32(value)
    assert 0.25 < scale[0] < 0.32  # of uniform numbers: 1 / √12


def test_single_sample_is_its_own_mean():
    mean, scale = mean_and_scale(as_samples(np.array([[2.0, -3.0]]), "fit"), 0)
    assert (mean.tolist(), scale.tolist()) == ([2.0, -3.0], [1.0, 1.0])


def test_statistics_use_a_random_subset(rng):
    """Of samples that grow with their number: the sample is spread over all, once each."""
    n = 3 * SAMPLED
    data = Listed([torch.tensor([float(i)]) for i in range(n)])
    samples = as_samples(data, "fit")
    data.read.clear()
    mean, scale = mean_and_scale(samples, 0)
    assert len(set(data.read)) == len(data.read) == SAMPLED
    assert abs(mean.item() / n - 0.5) < 0.02  # three standard errors: 3 / √(12 · 2000)
    assert abs(scale.item() / n - 12**-0.5) < 0.02
    assert torch.equal(mean_and_scale(samples, 0)[0], mean)
    assert not torch.equal(mean_and_scale(samples, 1)[0], mean)


def test_reads_data_frames(rng):
    pandas = pytest.importorskip("pandas")
    X = rng.random((5, 3)).astype(np.float32)
    table = pandas.DataFrame(X, columns=list("abc"))
    rows = np.array([4, 1])
    assert torch.equal(as_samples(table, "test").batch(rows), as_samples(X, "test").batch(rows))
    mixed, cells = table.convert_dtypes().assign(d=X[:, 0] > 0.5), np.c_[X, X[:, 0] > 0.5]
    assert torch.equal(as_samples(mixed, "test").batch(rows), as_samples(cells, "test").batch(rows))
    mixed.iloc[2, 1] = pandas.NA
    with pytest.raises(ValueError, match=r"dataset must be finite; got nan in sample 2\. Drop"):
        as_samples(mixed, "test")
    with pytest.raises(ValueError, match="dataset must hold numbers; column 'e' holds text"):
        as_samples(table.assign(e="red"), "test")


@pytest.mark.parametrize(
    ("sample", "way_out"),
    [
        ({"image": 1, "label": 0}, r"Wrap the Dataset in .* among \['image', 'label'\]"),
        (([np.zeros(2), np.zeros(2)], 0), "got list .* Return one view of each sample"),
        ((3, np.zeros(2)), "got int .* Return the sample first"),
        (([[1.0, 2.0], [3.0, 4.0]], 0), "got list .* Return one view of each sample"),
        (([1.0, 2.0], 0), "got list .* Return the sample first, as numpy.asarray"),
        ((torch.tensor(3), np.zeros(2)), "got one number in a Tensor .* Return the sample first"),
        (Image.new("L", (4, 4)), r"got Image .* Convert it, .*numpy\.asarray\(image\.convert"),
    ],
)
def test_samples_of_other_kinds_have_a_way_out(sample, way_out):
    with pytest.raises(TypeError, match=way_out):
        as_samples([sample] * 3, "fit")


def test_lists_of_numbers_are_samples():
    for rows in ([[1, 2], [3, 4]], [[[1.0, 2.0]], [[3.0, 4.0]]]):
        found = as_samples(rows, "fit")
        assert len(found) == 2
        np.testing.assert_array_equal(found.batch(np.array([1])).flatten(), [3, 4])
    with pytest.raises(ValueError, match="fit: dataset must have rows of one length"):
        as_samples([[1.0], [2.0, 3.0]], "fit")


def test_labels_of_the_validation_are_read_as_others():
    samples = np.zeros((2, 3), np.float32)
    codes = validation_samples((samples, ["a", None]), (3,), "cpu")[1]
    np.testing.assert_array_equal(codes, [0, -1])
    with pytest.raises(TypeError, match="validation: y must hold labels of one kind"):
        validation_samples((samples, ["a", 1]), (3,), "cpu")
    with pytest.raises(ValueError, match=r"validation: y must have one dim.* numpy\.ravel"):
        validation_samples((samples, [[0], [1]]), (3,), "cpu")
