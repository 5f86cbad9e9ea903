"""R-MAC against its definition, region by region; max and average pooling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from ssdml.networks.pooling import (
    RMAC,
    AveragePooling,
    MaxAveragePooling,
    SelectivePooling,
    main_component,
    regions,
)


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def pooled_slowly(maps, n_scales):
    """Slow twin: one region after another."""
    total = np.zeros(maps.shape[:2])
    for side, tops, lefts in regions(*maps.shape[2:], n_scales):
        for top in tops:
            for left in lefts:
                region = maps[:, :, top : top + side, left : left + side]
                assert region.shape[2:] == (side, side)
                total += unit(region.max(axis=(2, 3)))
    return unit(total)


@pytest.mark.parametrize("shape", [(7, 7), (8, 8), (14, 14), (9, 13), (16, 5), (3, 3), (1, 1)])
@pytest.mark.parametrize("n_scales", [1, 3])
def test_rmac_equals_the_slow_twin(rng, shape, n_scales):
    maps = rng.random((2, 6, *shape))
    found = RMAC(n_scales)(torch.from_numpy(maps)).numpy()
    np.testing.assert_allclose(found, pooled_slowly(maps, n_scales), rtol=1e-12)


@pytest.mark.parametrize("side", [7, 8, 16])
def test_square_maps_have_1_4_9_regions(side):
    found = regions(side, side, 3)
    assert [len(tops) * len(lefts) for _, tops, lefts in found] == [1, 4, 9]
    assert [side for side, _, _ in found] == [side, 2 * side // 3, side // 2]


@pytest.mark.parametrize(
    ("length", "starts"),
    [
        (12, [0, 2]),  # two are the least that cover it
        (16, [0, 6]),  # they overlap by 4 of 10
        (22, [0, 6, 12]),
        (28, [0, 6, 12, 18]),
        (19, [0, 4, 9]),  # three overlap by 5.5 of 10, two by 1
    ],
)
def test_regions_overlap_by_nearly_40_percent(length, starts):
    ((side, tops, lefts),) = regions(10, length, 1)
    assert (side, tops, lefts) == (10, [0], starts)
    ((_, tops, lefts),) = regions(length, 10, 1)
    assert (tops, lefts) == (starts, [0])


@pytest.mark.parametrize("shape", [(7, 7), (10, 16), (32, 9), (5, 6)])
def test_the_regions_of_each_scale_reach_both_ends(shape):
    for side, tops, lefts in regions(*shape, 3):
        for length, starts in zip(shape, (tops, lefts), strict=True):
            assert starts[0] == 0
            assert starts[-1] + side in (length, side)
    assert {len(lefts) >= len(tops) for _, tops, lefts in regions(5, 9, 3)} == {True}


def test_rmac_is_invariant_to_scale(rng):
    maps = torch.from_numpy(rng.random((3, 5, 8, 8)))
    torch.testing.assert_close(RMAC()(7 * maps), RMAC()(maps))


def test_half_precision_maps_sum_in_float32(rng):
    maps = torch.from_numpy(rng.random((3, 5, 8, 8))).bfloat16()
    pooled = RMAC()(maps)
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, RMAC()(maps.float()), rtol=1e-5, atol=1e-6)


def test_zero_maps_have_finite_gradients():
    maps = torch.zeros(2, 4, 6, 6, requires_grad=True)
    pooled = RMAC()(maps)
    assert not pooled.any()
    pooled.sum().backward()
    assert torch.isfinite(maps.grad).all()


def test_gradient_equals_finite_differences(rng):
    maps = torch.from_numpy(rng.permutation(90).reshape(1, 3, 5, 6) / 90.0).requires_grad_()
    assert torch.autograd.gradcheck(RMAC(), maps)


def test_rejects_zero_scales():
    with pytest.raises(ValueError, match="n_scales must be at least 1; got 0"):
        RMAC(0)


def test_maxima_come_before_means(rng):
    maps = rng.random((4, 3, 5, 7))
    found = MaxAveragePooling()(torch.from_numpy(maps)).numpy()
    np.testing.assert_allclose(found, np.hstack([maps.max(axis=(2, 3)), maps.mean(axis=(2, 3))]))
    np.testing.assert_array_equal(AveragePooling()(torch.from_numpy(maps)).numpy(), found[:, 3:])


def largest_component(activations):
    """Slow twin: label the cells above the mean with SciPy, take the first of the largest."""
    above = activations > activations.mean()
    if not above.any():
        return np.ones_like(above)
    labeled, count = ndimage.label(above, structure=np.ones((3, 3)))
    sizes = np.bincount(labeled.ravel(), minlength=count + 1)[1:]
    return labeled == 1 + sizes.argmax()


@pytest.mark.parametrize("shape", [(1, 1), (4, 6), (7, 7), (14, 9)])
def test_main_component_matches_scipy(shape, rng):
    maps = rng.integers(0, 4, (60, *shape)).astype(np.float32) ** 3
    maps[0] = 2.0  # no cell above the mean
    found = main_component(torch.from_numpy(maps)).numpy()
    for chosen, activations in zip(found, maps, strict=True):
        np.testing.assert_array_equal(chosen, largest_component(activations))


def test_a_winding_component_is_followed_to_its_end():
    """A spiral takes as many steps as it has cells."""
    spiral = np.zeros((7, 7), np.float32)
    spiral[::2] = 1
    spiral[1, -1] = spiral[3, 0] = spiral[5, -1] = 1
    chosen = main_component(torch.from_numpy(spiral)[None])[0].numpy()
    np.testing.assert_array_equal(chosen, spiral > 0)


def test_selection_pools_the_main_object(rng):
    maps = rng.normal(size=(5, 3, 6, 7))
    found = SelectivePooling()(torch.from_numpy(maps)).numpy()
    for row, of_image in zip(found, maps, strict=True):
        cells = of_image[:, largest_component(of_image.sum(axis=0))]
        np.testing.assert_allclose(row, [*cells.max(axis=1), *cells.mean(axis=1)])


def test_selection_passes_gradients_of_its_cells(rng):
    maps = torch.from_numpy(rng.permutation(84).reshape(2, 1, 6, 7) / 84).requires_grad_()
    assert torch.autograd.gradcheck(SelectivePooling(), maps, eps=1e-7)
    SelectivePooling()(maps).sum().backward()
    assert torch.equal(maps.grad[:, 0] != 0, main_component(maps.detach()[:, 0]))
