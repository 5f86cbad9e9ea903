"""The residual head."""

from __future__ import annotations

import pytest
import torch

from ssdml.backbones import ResidualHead


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_an_untrained_head_returns_its_input(generator, mode):
    x = torch.randn(20, 5, generator=generator)
    head = getattr(ResidualHead(5), mode)()
    torch.testing.assert_close(head(x), x, rtol=0, atol=0)


def test_the_output_is_the_formula_of_the_docstring(generator):
    head = ResidualHead(4, n_hidden=7).eval()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    A, a, B, b = (parameter.detach() for parameter in head.parameters())
    x = torch.randn(4, generator=generator)
    hidden = torch.tensor([max(0.0, float(row @ x + bias)) for row, bias in zip(A, a, strict=True)])
    torch.testing.assert_close(head(x[None])[0].detach(), x + B @ hidden + b)


def test_units_are_dropped_in_training_only(generator):
    head = ResidualHead(4, n_hidden=64, dropout=0.5)
    torch.nn.init.ones_(head.output.weight)
    x = torch.randn(3, 4, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head.train()
        assert not torch.equal(head(x), head(x))
    head.eval()
    assert torch.equal(head(x), head(x))


def test_the_first_step_already_reaches_the_last_layer(generator):
    head = ResidualHead(4).eval()
    head(torch.randn(6, 4, generator=generator)).square().sum().backward()
    assert head.output.weight.grad.abs().sum() > 0
    assert head.hidden.weight.grad.abs().sum() == 0  # the last layer is still zero
