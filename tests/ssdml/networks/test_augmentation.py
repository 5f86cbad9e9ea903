"""Random views: each range has its effect, up to its limit."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from ssdml.networks.augmentation import (
    RandomViews,
    _moved,
    _places,
    _toned,
    default_views,
    strong_and_weak,
    unchanged,
)

SIDE = 16
EDGE = 1 - 1 / SIDE  # coordinate of the outermost pixels' centers
TURN, SIZE, HEIGHT, SLANT, FLIP, ACROSS, DOWN = range(7)
ALL = RandomViews(
    rotation=20.0,
    scale=0.2,
    stretch=0.1,
    shift=0.1,
    shear=0.1,
    flip=True,
    brightness=0.3,
    contrast=0.5,
    saturation=0.5,
    tint=0.1,
    hole=0.4,
    border=True,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    """Twelve images of three channels, in [0, 1]."""
    return torch.rand(12, 3, SIDE, SIDE, generator=seeded(1))


def coordinates(n):
    """Images whose channels are the x and y coordinates, from -1 to 1."""
    line = torch.linspace(-EDGE, EDGE, SIDE, dtype=torch.float64)
    return torch.stack(torch.meshgrid(line, line, indexing="xy")).repeat(n, 1, 1, 1)


def maps_of(views, seed=0, n=300):
    """Recover the affine maps (n, 2, 3) of views from images of coordinates.

    Bilinear interpolation is exact on these.
    """
    seen, places = views(coordinates(n), seeded(seed)), coordinates(1)[0]
    middle = slice(SIDE // 4, 3 * SIDE // 4)
    given = places[:, middle, middle].reshape(2, -1).T
    given = torch.cat([given, torch.ones(len(given), 1)], dim=1)
    return (torch.linalg.pinv(given) @ seen[:, :, middle, middle].reshape(n, 2, -1).mT).mT


def drawn(**numbers):
    """Random numbers of one image: 0 but for these."""
    row = torch.zeros(1, 7)
    row[0, FLIP] = 1.0
    for name, number in numbers.items():
        row[0, globals()[name.upper()]] = number
    return row


@pytest.mark.parametrize("border", [True, False])
def test_ranges_of_zero_change_nothing(images, border):
    views = RandomViews(border=border)(images, seeded())
    torch.testing.assert_close(views, images, rtol=0, atol=1e-5)


def test_views_depend_on_the_seed_alone(images):
    before = images.clone()
    one, again, other = (ALL(images, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert all(not torch.allclose(a, b) for a, b in zip(one, other, strict=True))
    assert torch.equal(images, before)


@pytest.mark.parametrize(("n_rows", "n_columns"), [(16, 16), (16, 48), (40, 20)])
@pytest.mark.parametrize("flip", [1.0, -1.0])
def test_rotation_is_in_pixels_of_any_shape(n_rows, n_columns, flip):
    """In pixels the map is a rotation by this angle, flipped or not."""
    views = RandomViews(rotation=30.0, flip=True)
    linear = views._maps(drawn(turn=1.0, flip=flip), n_rows, n_columns)[0, :, :2].double()
    sides = torch.tensor([n_columns, n_rows]).double()
    found = sides[:, None] * linear / sides
    cosine, half = 3**0.5 / 2, 0.5
    expected = torch.tensor([[flip * cosine, -half], [flip * half, cosine]]).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_every_image_and_call_draws_anew(images):
    generator = seeded()
    same = images[:1].repeat(5, 1, 1, 1)
    views = torch.cat([ALL(same, generator), ALL(same, generator)])
    apart = (views[:, None] - views[None]).abs().amax(dim=(2, 3, 4))
    assert (apart + torch.eye(10) > 0.1).all()


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"across": 0.5, "down": 0.0}, lambda x: torch.nn.functional.pad(x, (0, 4))[..., 4:]),
        ({"across": -0.5, "down": 0.0}, lambda x: torch.nn.functional.pad(x, (4, 0))[..., :-4]),
        (
            {"across": 0.0, "down": 1.0},
            lambda x: torch.nn.functional.pad(x, (0, 0, 0, 8))[..., 8:, :],
        ),
        ({"turn": 1.0}, lambda x: torch.rot90(x, 1, (2, 3))),
        ({"turn": -1.0}, lambda x: torch.rot90(x, -1, (2, 3))),
        ({"flip": -1.0}, lambda x: torch.flip(x, (3,))),
        ({"turn": 1.0, "flip": -1.0}, lambda x: torch.rot90(x, 1, (2, 3)).flip(3)),
    ],
    ids=["left", "right", "up", "quarter turn", "and back", "mirror", "turned mirror image"],
)
def test_known_maps_move_pixels_correctly(images, numbers, expected):
    """A shift by whole pixels is a slice, a quarter turn is rot90, a mirror image is flip."""
    maps = RandomViews(rotation=90.0, shift=0.5, flip=True)._maps(drawn(**numbers), SIDE, SIDE)
    seen = _moved(images[:1], maps, border=False)
    torch.testing.assert_close(seen, expected(images[:1]), rtol=0, atol=1e-5)


def test_border_pixels_repeat(images):
    maps = torch.tensor([[[1.0, 0.0, 2 * 4 / SIDE], [0.0, 1.0, 0.0]]])
    seen = _moved(images[:1], maps, border=True)
    torch.testing.assert_close(seen[..., :-4], images[:1, ..., 4:], rtol=0, atol=1e-5)
    last = images[:1, ..., -1:].expand(-1, -1, -1, 4)
    torch.testing.assert_close(seen[..., -4:], last, rtol=0, atol=1e-5)


def test_scaling_by_two_skips_pixels():
    """Coordinates double."""
    maps = RandomViews(scale=1.0)._maps(drawn(size=1.0), SIDE, SIDE).double()
    seen = _moved(coordinates(1), maps, border=True)
    expected = (2 * coordinates(1)).clamp(-EDGE, EDGE)
    torch.testing.assert_close(seen, expected)


def rotations(maps, limit):
    angles = torch.atan2(maps[:, 1, 0], maps[:, 0, 0])
    cos, sin = angles.cos(), angles.sin()
    linear = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    return torch.cat([linear, torch.zeros(len(maps), 2, 1)], 2), angles.rad2deg() / limit


def diagonals(across, down):
    zero = torch.zeros_like(across)
    rows = torch.stack([across, zero, zero], 1), torch.stack([zero, down, zero], 1)
    return torch.stack(rows, 1)


def plain(maps):
    """Identity maps."""
    return torch.eye(2, 3).double().repeat(len(maps), 1, 1)


def sizes(maps, limit):
    size = maps[:, 0, 0]
    return diagonals(size, size), (size - 1) / limit


def stretches(maps, limit):
    height = maps[:, 1, 1]
    return diagonals(torch.ones_like(height), height), (height - 1) / limit


def shifts(maps, limit):
    expected = plain(maps)
    expected[:, :, 2] = maps[:, :, 2]
    return expected, maps[:, :, 2].flatten() / (2 * limit)  # the side is 2 long


def shears(maps, limit):
    expected = plain(maps)
    expected[:, 0, 1] = maps[:, 0, 1]
    return expected, maps[:, 0, 1] / limit


@pytest.mark.parametrize(
    ("name", "limit", "of_the_kind"),
    [
        ("rotation", 30.0, rotations),
        ("scale", 0.3, sizes),
        ("stretch", 0.2, stretches),
        ("shift", 0.1, shifts),
        ("shear", 0.2, shears),
    ],
)
def test_each_range_is_uniform_up_to_its_limit(name, limit, of_the_kind):
    maps = maps_of(RandomViews(**{name: limit}, border=True))
    expected, shares = of_the_kind(maps, limit)
    torch.testing.assert_close(maps, expected.to(maps), rtol=0, atol=1e-6)
    assert shares.abs().max() <= 1 + 1e-6
    quarters = torch.histc(shares, 4, -1, 1) / len(shares)
    assert (quarters - 0.25).abs().max() < 0.08  # three standard deviations of 300 draws


def test_warp_shifts_nodes_by_up_to_its_limit():
    """Images of coordinates show where pixels come from; beyond the border, it repeats."""
    n, apart = 200, 20  # of the nodes, in pixels
    line = torch.linspace(-1, 1, 3 * apart + 1, dtype=torch.float64)
    edge = 1 - 1 / len(line)
    grid = torch.stack(torch.meshgrid(edge * line, edge * line, indexing="xy")).repeat(n, 1, 1, 1)
    moved = RandomViews(warp=0.1, border=True)(grid, seeded()) - grid
    at_nodes = moved[:, :, ::apart, ::apart]
    inner = at_nodes[:, :, 1:3, 1:3] / 0.2  # the side is 2 long
    assert inner.abs().max() <= 1 + 1e-6
    quarters = torch.histc(inner.float(), 4, -1, 1) / inner.numel()
    assert (quarters - 0.25).abs().max() < 0.04
    assert moved.abs().max() < 0.3  # a cubic overshoots its nodes a little
    steps = moved[:, :, :, 1:] - moved[:, :, :, :-1]
    assert steps.abs().max() < 0.2 * 2 * 2 / apart  # twice the mean slope between two nodes


def test_warp_of_equal_shifts_is_a_shift(images):
    maps = torch.eye(2, 3).repeat(12, 1, 1)
    bends = torch.tensor([0.25, -0.5])[:, None].expand(2, 16).reshape(1, 32).repeat(12, 1)
    shifted = maps + torch.tensor([[0, 0, 0.25], [0, 0, -0.5]])
    torch.testing.assert_close(
        _moved(images, maps, True, bends),
        _moved(images, shifted, True),
    )


def test_flips_half_of_the_images(images):
    many = images.repeat(25, 1, 1, 1)
    views = RandomViews(flip=True)(many, seeded())
    mirrored = (views - many.flip(3)).abs().amax(dim=(1, 2, 3)) < 1e-5
    kept = (views - many).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert torch.equal(mirrored, ~kept)
    assert 0.41 < mirrored.float().mean() < 0.59  # three standard deviations of 300 draws


def test_ranges_do_not_change_other_draws(images):
    generators = [seeded(), seeded()]
    for views, generator in zip([RandomViews(), ALL], generators, strict=True):
        views(images, generator)
    assert torch.equal(generators[0].get_state(), generators[1].get_state())
    mirrored = maps_of(RandomViews(flip=True, border=True))[:, 0, 0] < 0
    turned_too = maps_of(RandomViews(flip=True, rotation=30.0, border=True))[:, 0, 0] < 0
    assert torch.equal(mirrored, turned_too)


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-4), (torch.float16, 0.2), (torch.bfloat16, 0.5)]
)
def test_draws_do_not_depend_on_the_dtype(images, dtype, atol):
    smooth = torch.nn.functional.avg_pool2d(images, 5, 1, 2)  # rounded places matter little
    views = RandomViews(rotation=20.0, shift=0.1, flip=True, tint=0.2)
    single, other = views(smooth, seeded()), views(smooth.to(dtype), seeded())
    assert other.dtype == dtype
    torch.testing.assert_close(other.float(), single, rtol=0, atol=atol)
    assert (other.float() - single).abs().mean() < 0.02


@pytest.mark.parametrize("n_channels", [1, 3])
def test_colors_stay_within_the_range_of_the_images(n_channels):
    images = 5 * torch.randn(40, n_channels, 8, 8, generator=seeded())
    views = RandomViews(brightness=2.0, contrast=2.0, saturation=2.0, tint=2.0, border=True)
    seen = views(images, seeded())
    assert (seen.amin(), seen.amax()) == (images.amin(), images.amax())  # reached, not passed


def test_views_scale_with_the_images(images):
    """Color ranges are relative to the images: -3 + 10 x changes as x does."""
    seen = ALL(10 * images.double() - 3, seeded())
    torch.testing.assert_close(seen, 10 * ALL(images.double(), seeded()) - 3)


@pytest.mark.parametrize(("name", "channels_alike"), [("brightness", True), ("tint", False)])
def test_brightness_and_tint_add_bounded_constants(name, channels_alike):
    images = 1.0 + 0.2 * torch.rand(50, 3, 8, 8, generator=seeded())
    images[:, :, 0, 0], images[:, :, 7, 7] = 0.0, 2.0
    views = RandomViews(**{name: 0.2}, border=True)(images, seeded())
    added = (views - images)[:, :, 2:6, 2:6]
    offsets = added.mean(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(added, offsets.expand_as(added), rtol=0, atol=1e-5)
    assert 0.35 < offsets.abs().max() <= 0.4
    spread = offsets.amax(dim=1) - offsets.amin(dim=1)
    assert (spread.max() < 1e-5) if channels_alike else (spread.median() > 0.05)


def test_known_colors(images):
    """No saturation gives gray, no contrast the mean; twice as much doubles the distance."""
    none, channels = torch.zeros(12, 3), torch.zeros(12, 3)
    gray, mean = images.mean(1, keepdim=True), images.mean((1, 2, 3), keepdim=True)
    full = RandomViews(contrast=1.0, saturation=1.0)

    def colored(**numbers):
        row = none.clone()
        for name, number in numbers.items():
            row[:, ["light", "contrast", "saturation"].index(name)] = number
        return full._colored(images, row, channels)

    torch.testing.assert_close(colored(), images)
    torch.testing.assert_close(colored(saturation=-1.0), gray.expand_as(images))
    torch.testing.assert_close(colored(contrast=-1.0), mean.expand_as(images))
    low, high = images.amin(), images.amax()
    doubled = (2 * images - gray).clamp(low, high)
    torch.testing.assert_close(colored(saturation=1.0), doubled)
    torch.testing.assert_close(colored(contrast=1.0), (2 * images - mean).clamp(low, high))


def operation(number, strength=0.0):
    """Random numbers of an operation on tones, of any number of images."""
    return [(2 * number + 1) / 6 - 1, 2 * strength - 1]


def rank(image):
    """The share of the pixels that are no lighter than each."""
    flat = image.flatten()
    return ((flat[:, None] >= flat).sum(1) / len(flat)).view_as(image)


def by_pillow(function, *arguments):
    """Apply a function of Pillow to a gray image in [0, 1]."""

    def applied(image):
        whole = Image.fromarray((255 * image[0]).round().byte().numpy())
        return torch.from_numpy(np.array(function(whole, *arguments)))[None] / 255

    return applied


@pytest.mark.parametrize(
    ("number", "strength", "expected"),
    [
        (0, 0.7, lambda image: image),
        (1, 100 / 255, by_pillow(ImageOps.solarize, 100)),
        (1, 0.0, by_pillow(ImageOps.invert)),
        (2, 1.0, by_pillow(ImageOps.posterize, 4)),
        (2, 0.5, by_pillow(ImageOps.posterize, 6)),
        (2, 0.0, by_pillow(ImageOps.posterize, 8)),
        (3, 0.3, by_pillow(ImageOps.autocontrast)),
        (4, 0.3, rank),
        (5, 0.0, torch.sqrt),
        (5, 1.0, torch.square),
    ],
)
def test_operations_on_tones_are_the_known_ones(number, strength, expected):
    levels = torch.randint(30, 200, (4, 1, SIDE, SIDE), generator=seeded())
    levels[3, 0, 0, :2] = torch.tensor([0, 255])  # the range of the batch
    images = levels / 255
    seen = _toned(images, torch.tensor([operation(number, strength)] * 4))
    torch.testing.assert_close(seen, torch.stack([*map(expected, images)]), rtol=0, atol=0.004)


def test_operations_on_tones_follow_each_other(images):
    pairs = [(5, 0.3, 3, 0.0), (3, 0.0, 5, 0.9), (1, 0.5, 4, 0.0), (4, 0.0, 1, 0.5)] * 3
    both = torch.tensor([[*operation(a, b), *operation(c, d)] for a, b, c, d in pairs])
    first = _toned(images, both[:, :2])
    torch.testing.assert_close(
        _toned(images, both), _toned(first, both[:, 2:]), rtol=0, atol=4 / 255
    )


def test_operations_on_tones_are_drawn_alike(images):
    dark = (images[:1] ** 2 / 2 + 0.1).repeat(600, 1, 1, 1)
    dark[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    seen = _toned(dark, RandomViews(tones=1).draw(600, 3, seeded())[:, -2:])
    for number in (3, 4):  # of those without a strength
        alike = _toned(dark, torch.tensor([operation(number)] * 600)) - seen
        count = (alike.abs().amax(dim=(1, 2, 3)) < 1e-6).sum()
        assert 73 < count < 127  # a sixth of them, within three standard deviations


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tones_stay_within_the_range_of_the_images(images, dtype):
    given = (5 * images - 3).to(dtype)
    seen = RandomViews(tones=3, border=True)(given, seeded())
    assert seen.dtype == dtype
    assert given.amin() <= seen.amin() < seen.amax() <= given.amax()
    dark = torch.full((1, 1, 40, 40), 0.5, dtype=dtype)
    dark[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    assert _toned(dark, torch.tensor([operation(4)]))[0, 0, 1, 1] > 0.99  # 1,600 pixels
    same = torch.full((6, 3, 8, 8), 0.7, dtype=dtype)
    assert torch.equal(RandomViews(tones=3, border=True)(same, seeded()), same)


class Sums(TorchDispatchMode):
    """Records the dtypes of cumulative sums."""

    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.cumsum.default:
            self.dtypes.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


def test_tones_are_counted_by_operations_that_cuda_repeats(images):
    """Under ``torch.use_deterministic_algorithms``, it refuses cumulative sums of floats."""
    with Sums() as sums:
        default_views((3, SIDE, SIDE))(images, seeded())
    assert sums.dtypes == {torch.int32}


@pytest.mark.parametrize(
    ("center", "rows", "columns"),
    [
        ((0.0, 0.0), slice(4, 12), slice(4, 12)),
        ((1.0, -1.0), slice(12, 16), slice(0, 4)),
        ((0.0, 1.0), slice(4, 12), slice(12, 16)),
    ],
    ids=["middle", "lower left", "right"],
)
def test_hole_fills_a_square_with_the_mean(images, center, rows, columns):
    seen = RandomViews(hole=0.5)._pierced(images, torch.tensor([center]).repeat(12, 1))
    expected = images.clone()
    expected[:, :, rows, columns] = images.mean(dim=(2, 3))[:, :, None, None]
    assert torch.equal(seen, expected)


def test_holes_lie_anywhere_with_bounded_size(images):
    many = images.repeat(25, 1, 1, 1)
    painted = ((RandomViews(hole=0.25)(many, seeded()) - many).abs() > 1e-4).any(dim=1)
    heights, widths = painted.any(2).sum(1), painted.any(1).sum(1)
    assert torch.equal(painted.sum(dim=(1, 2)), heights * widths)
    assert (max(heights), max(widths)) == (SIDE // 4, SIDE // 4)
    assert (min(heights), min(widths)) == (2, 2)  # a half or a quarter lies outside
    assert painted.any(dim=0).all()


def test_weakest_views_are_the_images_or_flips(images):
    views = ALL.weaker(0.0)
    seen = views(images, seeded())
    apart = torch.stack([seen - images, seen - images.flip(3)]).abs().amax(dim=(2, 3, 4))
    assert apart.amin(dim=0).max() < 1e-5
    assert (apart.argmin(dim=0) == 0).any()
    assert (apart.argmin(dim=0) == 1).any()
    still = RandomViews(rotation=90.0, shift=0.5, tint=1.0, hole=0.5).weaker(0.0)
    torch.testing.assert_close(still(images, seeded()), images, rtol=0, atol=1e-5)


def test_weaker_views_scale_ranges_without_holes():
    before, halved = asdict(ALL), asdict(ALL.weaker(0.5))
    kept = {"flip", "border"}
    without = {"hole": 0.0, "tones": 0}
    expected = {name: x if name in kept else x / 2 for name, x in before.items()} | without
    assert halved == expected
    assert asdict(replace(ALL, tones=2).weaker(1.0)) == before | without
    torch.testing.assert_close(
        maps_of(RandomViews(rotation=30.0, border=True).weaker(0.5)),
        maps_of(RandomViews(rotation=15.0, border=True)),
    )


def test_constant_images_stay():
    """They have no range, and their border repeats."""
    images = torch.full((6, 3, 8, 8), 0.7)
    torch.testing.assert_close(ALL(images, seeded()), images)


def test_unchanged_draws_nothing(images):
    generator = seeded()
    before = generator.get_state()
    assert unchanged(images, generator) is images
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("shape", [(5,), (28, 28), (2, 3, 8, 8)])
def test_only_images_have_default_views(shape):
    assert default_views(shape) is None


def test_only_photographs_are_flipped_and_colored():
    signs, photographs = default_views((1, 28, 28)), default_views((3, 32, 32))
    colors = ["brightness", "contrast", "saturation", "tint", "tones", "hole", "flip", "border"]
    assert not any(getattr(signs, name) for name in colors)
    assert all(getattr(photographs, name) for name in colors)
    moves = ["rotation", "scale", "stretch", "shift", "shear"]
    assert all(getattr(signs, name) == getattr(photographs, name) > 0 for name in moves)


def test_handwriting_is_warped_too():
    for shape in ((1, 28, 28), (3, 32, 32)):
        strong, weak = strong_and_weak("handwriting", shape)
        assert replace(strong, warp=0.0) == strong_and_weak("auto", shape)[0]
        assert strong.warp == 4 * weak.warp == 0.06
    with pytest.raises(ValueError, match=r"augment='handwriting' needs images .* \(64,\)\. Pass"):
        strong_and_weak("handwriting", (64,))
    with pytest.raises(ValueError, match=r"augment=RandomViews\(.* needs images .* \(64,\)\. Pass"):
        strong_and_weak(strong, (64,))


def test_grid_equals_torchs_affine_grid():
    maps = torch.randn(5, 2, 3, generator=seeded())
    given = functional.affine_grid(maps, [5, 1, 6, 9], align_corners=False)
    torch.testing.assert_close(_places(maps, 6, 9), given)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: (255 * x).byte(), TypeError, r"floating tensor; got torch\.uint8\. .*/ 255"),
        (lambda x: x.int(), TypeError, r"got torch\.int32\. Pass samples\.float\(\)"),
        (lambda x: x.numpy(), TypeError, r"got ndarray\. Pass torch\.as_tensor"),
        (lambda x: x[0], ValueError, r"got \(3, 4, 4\)\. Pass samples\[None\]"),
        (lambda x: x[..., :0], ValueError, r"height, width\); got \(2, 3, 4, 0\)"),
        (lambda x: x / 0, ValueError, "samples must be finite; got (nan|inf) at row 0"),
    ],
)
def test_other_samples_are_named(change, error, message):
    views = default_views((3, 4, 4))
    with pytest.raises(error, match=f"RandomViews: .*{message}"):
        views(change(torch.rand(2, 3, 4, 4)), torch.Generator())


def test_an_empty_batch_has_no_views():
    views = default_views((3, 4, 4))(torch.rand(0, 3, 4, 4), torch.Generator())
    assert views.shape == (0, 3, 4, 4)
