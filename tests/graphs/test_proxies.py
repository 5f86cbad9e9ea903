"""Proxy subgraphs and reverse label propagation, against slow twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import nll_loss

from ssdml.graphs import proxy_similarities, proxy_subgraph, reverse_label_propagation

C, N = 4, 3
CLASSES = torch.arange(C).repeat_interleave(N)
UNEQUAL = torch.tensor([2, 0, 1, 1, 2, 1, 3, 1])  # 1, 4, 2, 1 proxies per class, in no order
LABELS = torch.tensor([0, 3, -1, 1, 2, -1, 1])


@pytest.fixture
def embeddings(rng):
    """A random row per label, in 5 columns."""
    return torch.from_numpy(rng.standard_normal((len(LABELS), 5))).requires_grad_()


@pytest.fixture
def proxies(rng):
    return torch.from_numpy(rng.standard_normal((C * N, 5))).requires_grad_()


def predict(embeddings, proxies, labels=LABELS, classes=CLASSES, **size):
    subgraph = proxy_subgraph(proxy_similarities(embeddings, proxies), labels, classes, **size)
    return reverse_label_propagation(subgraph.weights, classes[subgraph.indices], C)


def loss_of(prediction, labels=LABELS):
    return nll_loss(prediction.log_probabilities, labels, ignore_index=-1)


def slow_indices(similarities, labels, classes, k):
    """Slow twin: sort by class, similarity and index, take k."""
    rows = []
    for row, label in zip(similarities.tolist(), labels.tolist(), strict=True):
        places = [(label == -1 or classes[j] != label, -row[j], j) for j in range(len(row))]
        rows.append(sorted(j for *_, j in sorted(places)[:k]))
    return rows


def published_log_probabilities(S, labels, classes, k):
    """The published arithmetic: S + 1000, the mask of nonzero sums, two epsilons."""
    lifted = S + 1000.0 * (labels[:, None] == classes)
    W = torch.where(lifted >= lifted.topk(k, dim=1).values[:, -1:], S, 0)
    Z = W @ torch.eye(int(classes.max()) + 1, dtype=S.dtype)[classes]
    masses = (Z != 0) * Z.exp()
    return (masses / (1e-8 + masses.sum(dim=1, keepdim=True)) + 1e-20).log()


@pytest.mark.parametrize(
    ("k", "loss", "published"),
    [(1, 0.0, 1e-8 / math.e), (2, math.log1p(math.exp(-1)), 1e-8 / math.e)],
)
def test_class_at_right_angles_is_reached(k, loss, published):
    x, axes = torch.tensor([[1.0, 0.0]]).double(), torch.eye(2).double()
    label, classes = torch.tensor([0]), torch.tensor([0, 1])
    S = proxy_similarities(x, axes)
    weights, ends = proxy_subgraph(S, label, classes, k=k)[::-1]
    ours = reverse_label_propagation(weights, classes[ends], 2).log_probabilities
    assert -ours[0, 0].item() == pytest.approx(loss, abs=1e-15)
    # The mask by exact zeros drops that class whether it was selected or not.
    theirs = published_log_probabilities(S, label, classes, k)
    assert -theirs[0, 0].item() == pytest.approx(published, rel=1e-6)


def test_regularizer_on_orthogonal_proxies():
    axes, classes = torch.eye(2), torch.tensor([0, 1])
    prediction = reverse_label_propagation(proxy_similarities(axes, axes), classes, 2)
    assert nll_loss(prediction.log_probabilities, classes).item() == pytest.approx(
        0.313262, abs=1e-6
    )


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 12])
def test_matches_published_arithmetic_without_exact_zeros(embeddings, proxies, k):
    labeled = LABELS != -1
    S = proxy_similarities(embeddings, proxies)[labeled].detach()
    theirs = published_log_probabilities(S, LABELS[labeled], CLASSES, k)
    ours = predict(embeddings, proxies, k=k)
    reached, log_p = ours.reached[labeled], ours.log_probabilities[labeled]
    torch.testing.assert_close(log_p[reached], theirs[reached], rtol=0, atol=1e-7)
    assert (theirs[~reached] < -46).all()  # log 1e-20
    assert (log_p[~reached] == -math.inf).all()


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("digits", [0, 1, 8])
def test_subgraph_matches_slow_twin(rng, k, digits):
    S = torch.from_numpy(rng.uniform(-1, 1, (60, 8)).round(digits)).float()
    labels = torch.from_numpy(rng.integers(-1, C, 60))
    subgraph = proxy_subgraph(S, labels, UNEQUAL, k=k)
    assert subgraph.indices.tolist() == slow_indices(S, labels, UNEQUAL.tolist(), k)
    assert torch.equal(subgraph.weights, S.gather(1, subgraph.indices))


def test_unlabeled_row_takes_most_similar_proxies(rng):
    S = torch.from_numpy(rng.uniform(-1, 1, (20, 12)))
    indices = proxy_subgraph(S, torch.full((20,), -1), CLASSES, k=5).indices
    assert torch.equal(indices, S.topk(5, dim=1).indices.sort(dim=1).values)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 12])
def test_proxies_of_own_class_come_first(rng, k):
    S = torch.from_numpy(rng.uniform(-1, 1, (20, 12)))
    labels = torch.from_numpy(rng.integers(C, size=20))
    of_class = CLASSES[proxy_subgraph(S, labels, CLASSES, k=k).indices] == labels[:, None]
    assert (of_class.sum(dim=1) == min(k, N)).all()


def test_proxies_are_compared_to_last_bit():
    S = torch.tensor([[0.5, 0.500001, 0.9]])
    assert S[0, 0] + 1000 == S[0, 1] + 1000  # what the published offset would compare
    indices = proxy_subgraph(S, torch.tensor([0]), torch.tensor([0, 0, 1]), k=1).indices
    assert indices.tolist() == [[1]]


@pytest.mark.parametrize(("ratio", "k"), [(0.05, 5), (0.051, 6), (0.07, 8), (1, 100), (1e-12, 1)])
def test_ratio_gives_number_of_proxies(ratio, k):
    many, label = torch.arange(100), torch.tensor([3])
    assert proxy_subgraph(torch.zeros(1, 100), label, many, ratio=ratio).indices.shape == (1, k)


def test_without_the_positive_mask_all_rows_are_alike(rng):
    S = torch.from_numpy(rng.uniform(-1, 1, (20, 12)))
    labels = torch.from_numpy(rng.integers(-1, C, 20))
    indices = proxy_subgraph(S, labels, CLASSES, k=5, positive_mask=False).indices
    assert torch.equal(indices, S.topk(5, dim=1).indices.sort(dim=1).values)


def test_without_mask_softmax_all_classes_count(rng):
    weights = torch.from_numpy(rng.uniform(-1, 1, (9, 4)))
    ends = torch.from_numpy(rng.integers(3, size=(9, 4)))
    prediction = reverse_label_propagation(weights, ends, 5, mask_softmax=False)
    assert not prediction.reached[:, 3:].any()
    torch.testing.assert_close(prediction.log_probabilities, prediction.sums.log_softmax(dim=1))


def test_default_ratio_on_cars_gives_59():
    S, classes = torch.zeros(1, 98 * 12), torch.arange(98).repeat_interleave(12)
    assert proxy_subgraph(S, torch.tensor([5]), classes).indices.shape == (1, 59)


@pytest.mark.parametrize(("k", "found"), [(7, 7), (np.int64(3), 3), (0, 1), (-4, 1), (13, 12)])
def test_k_replaces_ratio_and_is_clipped(k, found):
    indices = proxy_subgraph(torch.zeros(1, 12), torch.tensor([0]), CLASSES, ratio=0.5, k=k).indices
    assert indices.tolist() == [list(range(found))]


def test_prediction_matches_slow_twin(rng):
    weights = torch.from_numpy(rng.uniform(-1, 1, (9, 4)))
    ends = torch.from_numpy(rng.integers(5, size=(9, 4)))
    prediction = reverse_label_propagation(weights, ends, 5)
    for i in range(9):
        sums = {}
        for weight, end in zip(weights[i].tolist(), ends[i].tolist(), strict=True):
            sums[end] = sums.get(end, 0) + weight
        total = sum(map(math.exp, sums.values()))
        for c in range(5):
            log_p = sums[c] - math.log(total) if c in sums else -math.inf
            assert prediction.sums[i, c].item() == pytest.approx(sums.get(c, 0))
            assert prediction.reached[i, c].item() == (c in sums)
            assert prediction.log_probabilities[i, c].item() == pytest.approx(log_p)


def test_all_proxies_give_softmax_of_summed_cosines(embeddings, proxies):
    unit_x = embeddings / embeddings.norm(dim=1, keepdim=True)
    unit_p = proxies / proxies.norm(dim=1, keepdim=True)
    sums = (unit_x @ unit_p.T).view(-1, C, N).sum(dim=2)
    for prediction in (
        predict(embeddings, proxies, k=C * N),
        reverse_label_propagation(proxy_similarities(embeddings, proxies), CLASSES, C),
    ):
        torch.testing.assert_close(prediction.sums, sums)
        torch.testing.assert_close(prediction.log_probabilities, sums.log_softmax(dim=1))
        assert prediction.reached.all()


def test_one_proxy_per_class_gives_masked_softmax(embeddings, proxies):
    one_each = torch.arange(C)
    S = proxy_similarities(embeddings, proxies[:C])
    subgraph = proxy_subgraph(S, LABELS, one_each, k=2)
    log_p = reverse_label_propagation(subgraph.weights, subgraph.indices, C).log_probabilities
    expected = subgraph.weights.log_softmax(dim=1)
    torch.testing.assert_close(log_p.gather(1, subgraph.indices), expected)


def test_large_sums_do_not_overflow():
    weights = torch.ones(1, 10_003)  # e^10000 is far beyond float32
    ends = torch.zeros(1, 10_003, dtype=torch.int64)
    ends[0, :2] = 1
    log_p = reverse_label_propagation(weights, ends, 3).log_probabilities
    assert log_p.tolist() == [[0.0, -9999.0, -math.inf]]


def test_prediction_is_equivariant_to_renaming(embeddings, proxies, rng):
    rows, columns = (torch.from_numpy(rng.permutation(n)) for n in (len(LABELS), C * N))
    renamed = torch.from_numpy(rng.permutation(C))
    labels = torch.where(LABELS == -1, -1, renamed[LABELS])
    before = predict(embeddings, proxies, k=5)
    after = predict(
        embeddings[rows], proxies[columns], labels[rows], renamed[CLASSES[columns]], k=5
    )
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(other[:, renamed], one[rows])


def test_lengths_do_not_matter(embeddings, proxies):
    scales = torch.arange(1.0, C * N + 1).double()[:, None]
    torch.testing.assert_close(
        predict(3 * embeddings, scales * proxies).sums, predict(embeddings, proxies).sums
    )


def test_autograd_agrees_with_finite_differences(embeddings, proxies):
    def objective(embeddings, proxies):
        prediction = predict(embeddings, proxies, k=5)
        return prediction.sums, loss_of(prediction)

    assert torch.autograd.gradcheck(objective, (embeddings, proxies))


def test_gradient_is_probability_minus_indicator(embeddings, proxies):
    subgraph = proxy_subgraph(proxy_similarities(embeddings, proxies), LABELS, CLASSES, k=5)
    weights, ends = subgraph.weights.detach().requires_grad_(), CLASSES[subgraph.indices]
    log_p = reverse_label_propagation(weights, ends, C).log_probabilities
    nll_loss(log_p, LABELS, ignore_index=-1, reduction="sum").backward()
    expected = log_p.detach().exp().gather(1, ends) - (ends == LABELS[:, None]).double()
    torch.testing.assert_close(weights.grad, expected * (LABELS != -1).double()[:, None])


def test_only_selected_proxies_have_gradient(embeddings, proxies):
    one_row, label = embeddings[:1], LABELS[:1]
    indices = proxy_subgraph(proxy_similarities(one_row, proxies), label, CLASSES, k=4).indices
    loss_of(predict(one_row, proxies, label, k=4), label).backward()
    selected = torch.zeros(C * N, dtype=torch.bool).index_fill(0, indices[0], True)
    assert (proxies.grad[~selected] == 0).all()
    assert (proxies.grad[selected] != 0).any(dim=1).all()
    assert not indices.requires_grad


def test_entropy_has_finite_gradient(embeddings, proxies):
    prediction = predict(embeddings, proxies, torch.full_like(LABELS, -1), k=2)
    log_p = prediction.log_probabilities
    (-log_p.exp() * log_p.masked_fill(~prediction.reached, 0)).sum().backward()
    assert not prediction.reached.all()
    assert embeddings.grad.isfinite().all()
    assert (embeddings.grad != 0).any()


def test_zero_row_has_finite_gradient(proxies):
    nothing = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
    S = proxy_similarities(nothing, proxies)
    assert (S == 0).all()
    prediction = predict(nothing, proxies, torch.tensor([2]), k=4)
    assert prediction.reached.tolist() == [[True, False, True, False]]  # ties: proxy 0 is first
    assert loss_of(prediction, torch.tensor([2])).item() == pytest.approx(math.log(2))
    S.sum().backward()
    assert 0 < nothing.grad.norm() < 100


def test_no_row_has_no_prediction(proxies):
    prediction = predict(torch.zeros(0, 5).double(), proxies, LABELS[:0])
    assert [part.shape for part in prediction] == [(0, C)] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_precision_is_kept_and_inputs_unchanged(embeddings, proxies, dtype):
    inputs = [embeddings.detach().to(dtype), proxies.detach().to(dtype), LABELS.int(), CLASSES]
    copies = [part.clone() for part in inputs]
    prediction = predict(*inputs, k=12)
    assert {prediction.sums.dtype, prediction.log_probabilities.dtype} == {dtype}
    exact = predict(embeddings, proxies, k=12)
    torch.testing.assert_close(
        prediction.sums.double(), exact.sums, rtol=0, atol=30 * torch.finfo(dtype).eps
    )
    assert all(map(torch.equal, inputs, copies))


S, Y = torch.zeros(2, 3), torch.tensor([0, -1])
P = torch.arange(3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: proxy_similarities(S, S.numpy()), TypeError, "proxies .* tensor; got ndarray"),
        (lambda: proxy_similarities(S[0], S), ValueError, r"embeddings .* got shape \(3,\)"),
        (lambda: proxy_similarities(S, S[:, :2]), ValueError, "columns as embeddings = 3; got 2"),
        (lambda: proxy_subgraph(S.int(), Y, P), TypeError, "similarities .* got torch.int32"),
        (lambda: proxy_subgraph(S, Y.float(), P), TypeError, "labels .* got torch.float32"),
        (lambda: proxy_subgraph(S, P, P), ValueError, r"labels .* \(2,\); got shape \(3,\)"),
        (lambda: proxy_subgraph(S, Y, P[:2]), ValueError, r"proxy_classes .* \(3,\); got"),
        (lambda: proxy_subgraph(S, Y + 3, P), ValueError, r"labels must be -1 .* got 3\. Number"),
        (lambda: proxy_subgraph(S, Y - 1, P), ValueError, r"labels must be -1 .* got -2\."),
        (lambda: proxy_subgraph(S, Y, P - 1), ValueError, "proxy_classes must .* 0; got -1"),
        (lambda: proxy_subgraph(S / 0, Y, P), ValueError, "similarities must be finite; got nan"),
        (lambda: proxy_subgraph(S, Y, P, k=2.0), TypeError, r"k must be an integer .* got 2\.0"),
        (lambda: proxy_subgraph(S, Y, P, ratio=20), ValueError, "ratio must .* at most 1; got 20"),
        (lambda: proxy_subgraph(S, Y, P, ratio=0.0), ValueError, r"ratio must .* got 0\.0"),
        (lambda: proxy_subgraph(S, Y, P, ratio=math.nan), ValueError, "ratio must .* got nan"),
        (lambda: reverse_label_propagation(S, P, 2), ValueError, "n_classes - 1 = 1; got 2"),
        (lambda: reverse_label_propagation(S, P - 1, 3), ValueError, "from 0 .* got -1"),
        (lambda: reverse_label_propagation(S, P[:2], 3), ValueError, r"classes .* \(3,\); got"),
        (lambda: reverse_label_propagation(S[:, :0], P, 3), ValueError, "weights .* and a column"),
        (lambda: reverse_label_propagation(S / 0, P, 3), ValueError, "weights must be finite; got"),
    ],
)
def test_bad_input_is_named_with_value(call, error, message):
    with pytest.raises(error, match=message):
        call()
