"""Residual heads as plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from ssdml.metric.features import ResidualRepresentation
from ssdml.networks.backbones import ResidualHead


@pytest.fixture
def parts(rng):
    """Random weights of a head on 6 columns, 16 hidden units, 3 components."""
    d, h, n_components = 6, 16, 3
    weights = [rng.standard_normal(s) for s in ((h, d), (h,), (d, h), (d,))]
    L = np.linalg.qr(rng.standard_normal((d, n_components)))[0]
    return rng.standard_normal(d), np.asarray(0.4), *weights, L


def test_arrays_agree_with_the_torch_head(parts, rng):
    mean, scale, *weights, L = parts
    head = ResidualHead(6, n_hidden=16).eval()
    with torch.no_grad():
        for parameter, weight in zip(head.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
    X = rng.standard_normal((50, 6)).astype(np.float32)
    with torch.no_grad():
        features = head(torch.from_numpy(((X - mean) * scale).astype(np.float32)))
        expected = functional.normalize(features @ torch.from_numpy(L).float(), dim=1).numpy()
    representation = ResidualRepresentation(*parts)
    assert representation.embed(X).dtype == np.float32
    # sums of some 20 float32 products of order 1, divided by lengths of order 5
    np.testing.assert_allclose(representation.embed(X), expected, atol=2e-6)
    np.testing.assert_allclose(representation.features(X), features.numpy(), atol=2e-5)


def test_input_follows_the_embedding(parts, rng):
    X = rng.standard_normal((7, 6))
    X.flags.writeable = False
    representation = ResidualRepresentation(*parts)
    rows = representation(X)
    assert rows.shape == (7, 3 + 6)
    np.testing.assert_array_equal(rows[:, 3:], X)
    np.testing.assert_allclose(np.linalg.norm(rows[:, :3], axis=1), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(parts, rng, dtype):
    representation = ResidualRepresentation(*parts)
    assert representation(rng.standard_normal((4, 6)).astype(dtype)).dtype == dtype


def test_rows_are_embedded_one_by_one(parts, rng):
    X = rng.standard_normal((5, 6))
    representation = ResidualRepresentation(*parts)
    alone = np.vstack([representation(x[None]) for x in X])
    np.testing.assert_allclose(representation(X), alone, atol=1e-13)


def test_zero_head_standardizes_and_projects(parts, rng):
    mean, scale, *weights, L = parts
    representation = ResidualRepresentation(mean, scale, *map(np.zeros_like, weights), L)
    X = rng.standard_normal((5, 6))
    np.testing.assert_allclose(representation.features(X), (X - mean) * 0.4, atol=1e-15)
    projected = (X - mean) @ L
    expected = projected / np.linalg.norm(projected, axis=1, keepdims=True)
    np.testing.assert_allclose(representation.embed(X), expected, atol=1e-14)
