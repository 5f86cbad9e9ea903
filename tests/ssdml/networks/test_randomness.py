"""Draws from a generator of one's own, beside other threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ssdml.networks.randomness import SeededDraws

ONES = torch.ones(2, 4, 8, 8)

DRAWS = {
    "rand": lambda: torch.rand(3, 2),
    "rand of doubles": lambda: torch.rand(3, dtype=torch.float64),
    "randn": lambda: torch.randn(3),
    "rand_like": lambda: torch.rand_like(ONES),
    "randn_like": lambda: torch.randn_like(ONES),
    "randint": lambda: torch.randint(9, (20,)),
    "randint from": lambda: torch.randint(3, 9, (20,)),
    "randint_like": lambda: torch.randint_like(ONES, 9),
    "randperm": lambda: torch.randperm(20),
    "normal": lambda: torch.normal(torch.zeros(5), 1.0),
    "bernoulli": lambda: torch.bernoulli(ONES / 2),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 4),
    "exponential": lambda: torch.empty(4).exponential_(),
    "dropout": lambda: functional.dropout(ONES),
    "dropout of maps": lambda: functional.dropout2d(ONES),
    "alpha dropout": lambda: functional.alpha_dropout(ONES, training=True),
    "leaky": lambda: functional.rrelu(-ONES, training=True),
    "pooling": lambda: nn.FractionalMaxPool2d(2, output_size=2)(
        torch.arange(64.0).view(1, 1, 8, 8)
    ),
    "attention": lambda: functional.scaled_dot_product_attention(*[ONES[0]] * 3, dropout_p=0.5),
    "weights": lambda: nn.Linear(9, 9).weight,
    "recurrent": lambda: nn.LSTM(3, 3, 2, dropout=0.5)(torch.ones(2, 2, 3))[0],
    "gumbel": lambda: functional.gumbel_softmax(torch.ones(2, 3)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_those_of_the_seeded_global_generator(name):
    draw = DRAWS[name]
    with torch.random.fork_rng():
        torch.manual_seed(7)
        expected = [draw() for _ in range(2)]
    before = torch.get_rng_state()
    with SeededDraws(7):
        found = [draw() for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    if name != "pooling":  # few numbers, which may be equal
        assert not torch.equal(*found)


def test_blocks_continue_where_the_last_one_ended():
    whole, parts = SeededDraws(3), SeededDraws(3)
    with whole:
        expected = torch.rand(4), torch.rand(4)
    with parts:
        first = torch.rand(4)
    torch.rand(100)
    with parts:
        second = torch.rand(4)
    assert torch.equal(torch.stack([first, second]), torch.stack(expected))


def test_suspended_blocks_draw_from_the_global_generator():
    draws = SeededDraws(3)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        expected = torch.rand(4)
        torch.manual_seed(7)
        with draws:
            first = torch.rand(4)
            with draws.suspended():
                between = torch.rand(4)
            second = torch.rand(4)
    whole = torch.rand(8, generator=torch.Generator().manual_seed(3))
    assert torch.equal(between, expected)
    assert torch.equal(torch.cat([first, second]), whole)


def test_a_generator_that_is_given_is_used():
    with SeededDraws(0):
        drawn = torch.rand(4, generator=torch.Generator().manual_seed(5))
        dropped = torch.empty(9).bernoulli_(0.5, generator=torch.Generator().manual_seed(5))
    assert torch.equal(drawn, torch.rand(4, generator=torch.Generator().manual_seed(5)))
    again = torch.empty(9).bernoulli_(0.5, generator=torch.Generator().manual_seed(5))
    assert torch.equal(dropped, again)


def test_threads_do_not_disturb_each_other():
    def drawn(seed):
        with SeededDraws(seed):
            return torch.stack([functional.dropout(torch.rand(50)) for _ in range(300)])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(drawn, [0, 1, 0, 1]))
    for seed, rows in zip([0, 1, 0, 1], found, strict=True):
        assert torch.equal(rows, drawn(seed))


def test_gradients_pass_through_dropout():
    x = torch.ones(100, requires_grad=True)
    with SeededDraws(0):
        y = functional.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("train", [True, False])
def test_fused_dropout_keeps_the_mean_and_its_mask(p, train):
    with SeededDraws(0):
        rows, kept = torch.ops.aten.native_dropout(torch.ones(20_000), p, train)
    share = 1 - p if train else 1.0
    assert kept.double().mean().item() == pytest.approx(share, abs=0.02)
    torch.testing.assert_close(rows, kept / share if share else torch.zeros(20_000))


def test_draws_without_a_generator_seed_the_global_one_for_a_moment(monkeypatch):
    monkeypatch.setattr("ssdml.networks.randomness._with_generator", lambda func: None)
    before = torch.get_rng_state()
    found = []
    for _ in range(2):
        with SeededDraws(0):
            found.append(torch.stack([torch.rand(5), torch.rand(5)]))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*found)
    assert not torch.equal(*found[0])


def test_draws_of_the_backward_pass_are_refused():
    layer, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), torch.ones(2, 4)
    draws = SeededDraws(0)
    with draws:
        loss = checkpoint(layer, x, use_reentrant=False).sum()
    with (
        draws.forbidden(),
        pytest.raises(RuntimeError, match=r"in the backward pass.* Disable one"),
    ):
        loss.backward()
    with draws:
        loss = layer(x).sum()
    with draws.forbidden():
        loss.backward()
