"""The compared losses, and training under them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from reproduction.loss_embedding import LossEmbedding
from reproduction.losses import (
    ABLATION,
    BASES,
    COMPARED,
    LIBRARY_BASES,
    LOSSES,
    TERMS,
    AtLength,
    Problem,
    make_loss,
    unavailable,
)

from ssdml.losses import DensityAdaptivity, GraphConsistency, LossSum, NPairBatchLoss, ProxyGMLLoss
from tests.losses import batch

PROBLEM = Problem(3, 5, torch.tensor([0.2, 0.5, 0.9]))


@pytest.fixture
def blobs(rng) -> tuple[np.ndarray, np.ndarray]:
    """Four classes of 20 samples, separated by four of six features."""
    y = np.repeat(np.arange(4), 20)
    return (rng.normal(size=(80, 6)) + 2 * np.eye(6)[y]).astype(np.float32), y


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_a_gradient(name):
    torch.manual_seed(0)
    z, labels, _ = batch(torch.float32)
    z.requires_grad_()
    value = make_loss(name, PROBLEM, LOSSES[LOSSES[name].base].values[0], 1.0)(z, labels)
    (slope,) = torch.autograd.grad(value, z)
    assert torch.isfinite(slope).all()
    assert slope[labels >= 0].abs().sum() > 0


def test_terms_are_added_with_their_weights():
    z, labels, _ = batch(torch.float32)
    for name in ("cgml", "da", "en", "gor"):
        alone = TERMS[name].make(PROBLEM, 0.0)(z, labels)
        total = make_loss(f"binomial+{name}", PROBLEM, 5.0, 0.3)(z, labels)
        base = BASES["binomial"].make(PROBLEM, 5.0)(z, labels)
        torch.testing.assert_close(total, base + 0.3 * alone)


def test_terms_of_the_contrastive_loss_differ_in_their_targets():
    """Learned with D⁰, learned without, and fixed in proportion to D⁰."""
    z, labels, _ = batch(torch.float32)
    base = BASES["contrastive"].make(PROBLEM, 1.0)(z, labels)
    expected = {
        "da": DensityAdaptivity(3, PROBLEM.densities),
        "da-free": DensityAdaptivity(3),
        "da-fixed": DensityAdaptivity(3, PROBLEM.densities, learned=False),
    }
    values = {}
    for name, term in expected.items():
        loss = make_loss(f"contrastive+{name}", PROBLEM, 1.0, 10.0)
        values[name] = loss(z, labels)
        torch.testing.assert_close(values[name], base + 10.0 * term(z, labels))
        assert len(loss.parameter_groups()) == (name != "da-fixed")
    assert len({round(value.item(), 4) for value in values.values()}) == 3


def test_ablation_has_the_eight_rows_of_the_poster():
    losses = [make_loss(name, Problem(40, 5), *LOSSES[name].values).losses[0] for name in ABLATION]
    switches = [
        (loss.positive_mask, loss.mask_softmax, loss.regularization == 0.3) for loss in losses
    ]
    assert len(set(switches)) == len(ABLATION) == 8
    assert switches[0] == (False, False, False)
    assert switches[6:] == [(True, True, False), (True, True, True)]
    assert {loss.k for loss in losses} == {59}
    assert not set(ABLATION) & set(COMPARED)


def test_dgcrl_without_decorrelation_is_softmax():
    z, labels, _ = batch(torch.float32)
    softmax, centers = make_loss("softmax", PROBLEM, 4.0), make_loss("dgcrl", PROBLEM, 4.0, 0.0)
    with torch.no_grad():
        centers.losses[0].centers.copy_(softmax.losses[0].W.T)
    torch.testing.assert_close(centers(z, labels), softmax(z, labels))


def test_at_length_scales_the_embeddings():
    z, labels, _ = batch(torch.float32)
    unit = z / z.norm(dim=1, keepdim=True)
    expected = NPairBatchLoss()(3 * unit, labels)
    torch.testing.assert_close(AtLength(NPairBatchLoss(), 3.0)(z, labels), expected)


def test_at_length_keeps_parameter_groups():
    loss = LossSum(
        [AtLength(ProxyGMLLoss(3, 5, ratio=1.0), 2.0), AtLength(DensityAdaptivity(3), 2.0)]
    )
    proxies, targets = loss.parameter_groups()
    assert proxies["lr"] == 0.03
    assert (targets.get("lr"), targets["weight_decay"]) == (None, 0.0)


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].base in LIBRARY_BASES])
def test_losses_of_a_missing_library_are_unavailable(name, monkeypatch):
    assert unavailable(LOSSES) == []
    for module in ("", ".losses", ".distances"):
        monkeypatch.setitem(sys.modules, f"pytorch_metric_learning{module}", None)
    assert name in unavailable(LOSSES)
    base = LOSSES[name].base
    with pytest.raises(
        ImportError, match=r'proxy-nca, soft-triple .*pip install "ssdml\[losses\]"'
    ):
        make_loss(base, PROBLEM, 1.0)
    for other in set(LOSSES) - set(unavailable(LOSSES)):
        assert isinstance(make_loss(other, PROBLEM, 1.0, 0.1), LossSum)


def test_proxy_gml_links_other_classes_too():
    loss = make_loss("proxy-gml", Problem(5, 8), 0.3).losses[0]
    assert loss.ratio * len(loss.proxies) > loss.n_proxies
    many = make_loss("proxy-gml", Problem(98, 8), 0.3).losses[0]
    assert many.ratio == pytest.approx(0.05, abs=5e-4)  # the paper's on Cars-196
    fewer = make_loss("proxy-gml-14-links", Problem(5, 8), 0.3).losses[0]
    assert (fewer.k, loss.k) == (14, 59)


def test_initial_distances_are_those_of_the_input(blobs):
    X, y = blobs
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    Z = LossEmbedding("n-pair", 1.0, n_steps=1, learning_rate=0.0).fit(X, y).transform(X)
    np.testing.assert_allclose(Z @ Z.T, unit @ unit.T, atol=1e-5)


def test_the_loss_falls_and_classes_separate(blobs):
    X, y = blobs
    model = LossEmbedding("n-pair", 3.0, n_steps=60, learning_rate=1e-2).fit(X, y)
    assert np.mean(model.losses_[-5:]) < 0.7 * np.mean(model.losses_[:5])
    Z = model.transform(X)
    cosines, same = Z @ Z.T, y[:, None] == y
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    before = (unit @ unit.T)[same].mean() - (unit @ unit.T)[~same].mean()
    assert cosines[same].mean() - cosines[~same].mean() > before + 0.2


def test_results_depend_on_the_seed_not_class_names(blobs):
    X, y = blobs
    kinds = [(y, 0), (y * 7 + 3, 0), (y, 1)]
    first, renamed, other = (
        LossEmbedding("binomial+da", 5.0, 1.0, n_steps=3, random_state=seed).fit(X, of).transform(X)
        for of, seed in kinds
    )
    np.testing.assert_array_equal(first, renamed)
    assert np.abs(first - other).max() > 1e-3


def test_terms_keep_the_batches_of_the_base(blobs, monkeypatch):
    X, y = blobs
    seen: dict[str, list] = {"binomial": [], "binomial+cgml": []}
    for name, labels in seen.items():

        def keep(self, batch, kept=labels):
            kept.append(batch.labels.tolist())
            return batch.embeddings.sum()

        monkeypatch.setattr("ssdml.losses.BinomialDevianceLoss.of_batch", keep)
        LossEmbedding(name, 5.0, 0.01, n_steps=3).fit(X, y)
    assert seen["binomial"] == seen["binomial+cgml"]


def test_unlabeled_samples_count_only_with_propagation(blobs, rng):
    X, y = blobs
    few = np.where(np.arange(80) % 20 < 3, y, -1)
    other = np.where(few[:, None] < 0, rng.normal(size=X.shape), X).astype(np.float32)
    for propagated, same in ((False, True), (True, False)):
        model = LossEmbedding("n-pair", 2.0, propagated=propagated, n_steps=3)
        Z = [model.fit(of, few).transform(X) for of in (X, other)]
        assert np.array_equal(*Z) == same


def test_propagated_labels_follow_the_clusters(rng, monkeypatch):
    centers = 6 * np.eye(5)[:3]
    y = np.repeat(np.arange(3), 30)
    X = (centers[y][:, :5] + 0.3 * rng.normal(size=(90, 5))).astype(np.float32)
    few = np.where(np.arange(90) % 30 < 2, y, -1)
    seen = []
    real = GraphConsistency.of_batch

    def keep(self, batch):
        seen.append(batch)
        return real(self, batch)

    monkeypatch.setattr(GraphConsistency, "of_batch", keep)
    model = LossEmbedding("binomial+cgml", 5.0, 0.01, propagated=True, n_steps=4).fit(X, few)
    assert all(torch.isfinite(torch.tensor(model.losses_)))
    for given in seen:  # classes are clusters
        z = given.embeddings / given.embeddings.norm(dim=1, keepdim=True)
        same = given.labels[:, None] == given.labels
        assert (z @ z.T)[same].min() > (z @ z.T)[~same].max()


def test_images_use_the_network_of_their_size(rng):
    X, y = rng.random((40, 784)).astype(np.float32), np.repeat([0, 1], 20)
    model = LossEmbedding("triplet+gor", 0.2, 0.1, item_shape=(28, 28), n_steps=2).fit(X, y)
    Z = model.transform(X)
    assert Z.shape == (40, 64)
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-5)
