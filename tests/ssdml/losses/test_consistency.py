"""Graph consistency of two halves, Chen et al. (2021)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ssdml.losses import GraphConsistency
from tests.losses import batch

FORMS = pytest.mark.parametrize("form", ["smoothed", "graphs"])


def slow(first, second, weights, sigma, form):
    """Eqs. (1) and (3), entry by entry."""
    n, d = first.shape

    def graph(x):
        return [[math.exp(-((x[i] - x[j]) ** 2).sum() / sigma) for j in range(n)] for i in range(n)]

    one, other, total = graph(first), graph(second), 0.0
    for i in range(n):
        if form == "graphs":
            for j in range(n):
                total += weights[i] * weights[j] * (one[i][j] - other[i][j]) ** 2
        else:
            gap = np.zeros(d)
            for j in range(n):
                gap += weights[j] * (one[i][j] * first[j] - other[i][j] * second[j])
            total += weights[i] * (gap**2).sum()
    return total if form == "graphs" else math.sqrt(total)


@FORMS
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_matches_a_slow_version(form, normalize, weighted):
    z, labels, weights = batch()
    weights = weights if weighted else torch.ones_like(weights)
    loss = GraphConsistency(sigma=0.7, form=form, normalize=normalize)
    rows = z / z.norm(dim=1, keepdim=True) if normalize else z
    known = (labels != -1).double() * weights
    halves = rows[:8].numpy(), rows[8:].numpy()
    expected = slow(*halves, (known[:8] * known[8:]).numpy(), 0.7, form)
    assert loss(z, labels, weights=weights).item() == pytest.approx(expected, rel=1e-9)


@FORMS
def test_equal_halves_have_zero_loss_and_gradient(form):
    half = batch()[0][:8]
    z = torch.cat([half, half]).requires_grad_()
    value = GraphConsistency(form=form)(z)
    value.backward()
    assert value == 0
    assert (z.grad == 0).all()


@FORMS
def test_common_permutation_of_halves_changes_nothing(form, rng):
    z, order = batch()[0], torch.from_numpy(rng.permutation(8))
    loss, first, second = GraphConsistency(form=form), z[:8], z[8:]
    value = loss(z)
    torch.testing.assert_close(loss(torch.cat([first[order], second[order]])), value)
    assert loss(torch.cat([first[order], second])).item() != pytest.approx(value.item(), rel=1e-3)


@FORMS
def test_second_half_as_reference(form):
    z, labels, _ = batch()
    loss = GraphConsistency(form=form)
    apart = loss(z[:8], labels[:8], ref_emb=z[8:], ref_labels=labels[8:])
    torch.testing.assert_close(apart, loss(z, labels))


def test_row_unlabeled_in_one_half_is_ignored():
    z, labels, _ = batch()
    labels = labels.clone()
    labels[9] = -1
    kept = torch.ones(16, dtype=torch.bool)
    kept[[1, 9]] = False
    loss = GraphConsistency()
    torch.testing.assert_close(loss(z, labels), loss(z[kept], labels[kept]))


def test_paper_bound_holds_for_full_rank(rng):
    """Eq. (2): (S' - S'') X' = S'X' - S''X'' + S''(X'' - X'), and X' has a right inverse."""
    X = torch.from_numpy(rng.standard_normal((8, 16)))
    first, second = X, X + 0.1 * torch.from_numpy(rng.standard_normal((8, 16)))
    z = torch.cat([first, second])
    graphs = GraphConsistency(form="graphs", normalize=False, sigma=20.0)(z).sqrt()
    S = (-torch.cdist(second, second).square() / 20.0).exp()
    smoothed = GraphConsistency(normalize=False, sigma=20.0)(z)
    across = smoothed + (S @ (second - first)).norm()
    assert graphs <= across * torch.linalg.pinv(first).norm()


@pytest.mark.parametrize(("form", "power"), [("smoothed", 1), ("graphs", 2)])
def test_loss_grows_with_the_rows_per_class(form, power, rng):
    """Twice the rows of a class take half the weight, or a quarter for Eq. (1)."""
    centers, values = rng.standard_normal((5, 32)), []
    for per_class in (8, 16):
        classes = np.tile(np.repeat(np.arange(5), per_class), (200, 2))
        rows = centers[classes] + rng.standard_normal((*classes.shape, 32))
        loss = GraphConsistency(form=form)
        values.append(np.mean([loss(torch.from_numpy(z)).item() for z in rows]))
    assert values[1] / values[0] == pytest.approx(2**power, rel=0.1)


def test_misaligned_halves_raise():
    z, labels, _ = batch()
    with pytest.raises(ValueError, match=r"same in both halves, row by row; got 0 and 1 in row 0"):
        GraphConsistency()(z, torch.cat([labels[:8], labels[:8].roll(-1)]))
    with pytest.raises(ValueError, match="two halves with the same classes in order; got 15 rows"):
        GraphConsistency()(z[1:], labels[1:])
    with pytest.raises(ValueError, match="ref_emb must have as many rows as embeddings = 8; got 7"):
        GraphConsistency()(z[:8], ref_emb=z[:7])
    with pytest.raises(ValueError, match="ref_emb must have as many rows as embeddings = 8; got 7"):
        GraphConsistency()(z[:8], labels[:8], ref_emb=z[:7], ref_labels=labels[:7])


def test_invalid_form_or_sigma_raises():
    with pytest.raises(ValueError, match=r"form must be one of 'smoothed', 'graphs'; got 'graph'"):
        GraphConsistency(form="graph")
    with pytest.raises(ValueError, match="sigma must be above 0; got 0"):
        GraphConsistency(sigma=0)
