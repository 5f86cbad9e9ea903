"""DeepUnsupervised: each recipe against its formulas, and training with all of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_info, threadpool_limits
from torch.nn import functional

from ssdml.baselines import DeepUnsupervised
from ssdml.baselines.deep.deepcluster import clusters, refilled, whitened
from ssdml.baselines.deep.instance import Memory, log_normalizer, noise_contrast
from ssdml.baselines.deep.recipe import Softmax
from ssdml.baselines.deep.rotnet import quarter_turns
from ssdml.baselines.deep.suml import objective, random_triplets
from ssdml.baselines.deep.unsupervised import METHODS
from ssdml.evaluation import evaluate
from ssdml.networks.augmentation import default_views
from ssdml.networks.data import as_samples
from ssdml.networks.metric_network import new_network
from tests.deep import assert_same_weights, small_images, small_network

every_method = pytest.mark.parametrize("name", METHODS)
QUICK = {"suml": {"n_triplets": 60, "max_iter": 2}}


@pytest.fixture(scope="module", autouse=True)
def same_numbers(one_thread):
    """Seed torch's generator."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="module")
def digits():
    return small_images()


def model(name, **options):
    recipe = {
        "backbone": small_network(),
        "n_components": 16,
        "method_params": QUICK.get(name),
        "epochs": 4,
        "epochs_per_partition": 2,
        "batch_size": 120 if name == "suml" else 40,  # which minimizes in each step
        "random_state": 0,
        "device": "cpu",
    }
    return DeepUnsupervised(name, **(recipe | options))


@pytest.fixture
def begun(digits):
    """A trainer before its first partition."""
    X, _, labels = digits
    items = as_samples(X, "test")

    def begin(name, **options):
        estimator = model(name, augment=None, **options)
        network = new_network(
            small_network(), items, 16, 10, 0, "cpu", orthogonal=estimator.orthogonal
        )
        return estimator._new_trainer(items, labels, network, 0, "cpu")

    return begin


class TestExemplar:
    def test_surrogate_classes_stay_in_every_partition(self, begun):
        run = begun("exemplar", method_params={"n_seeds": 50})
        assert run.head.linear.out_features == 50
        pairs = set()
        for number in (0, 1):
            for rows, codes in run._batches(np.arange(600), number, np.random.default_rng(number)):
                pairs |= set(zip(codes.tolist(), rows.tolist(), strict=True))
        assert len(pairs) == 50
        assert {code for code, _ in pairs} == set(range(50))
        assert len({row for _, row in pairs}) == 50

    def test_exemplar_loss_is_the_cross_entropy(self, begun):
        run = begun("exemplar")
        rows = np.array([5, 9, 70])
        logits = run.head(run.layer(run.samples.batch(rows)))
        chances = logits.softmax(dim=1)[[0, 1, 2], [2, 0, 1]]
        loss = run.recipe.loss(run, (rows, np.array([2, 0, 1])))
        torch.testing.assert_close(loss, -chances.log().mean())

    def test_exemplar_views_are_stronger(self):
        recipe = METHODS["exemplar"]()
        gray, colored = (recipe.default_views(shape) for shape in ((1, 8, 8), (3, 8, 8)))
        usual = default_views((1, 8, 8))
        for name in ("rotation", "scale", "shift"):
            assert getattr(gray, name) > getattr(usual, name)
        assert (gray.flip, colored.flip) == (False, True)
        assert recipe.default_views((64,)) is None


class TestRotNet:
    def test_rotations_match_numpy(self, rng):
        images = rng.random((3, 2, 5, 5))
        turned, turns = quarter_turns(torch.from_numpy(images))
        assert turns.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
        for k in range(4):
            expected = np.rot90(images, k, axes=(2, 3))
            np.testing.assert_array_equal(turned[3 * k : 3 * k + 3], expected)

    def test_rotnet_loss_sees_four_rotations(self, begun, monkeypatch):
        run, seen = begun("rotnet"), []
        cross_entropy = functional.cross_entropy

        def spy(logits, labels):
            seen.append(labels.tolist())
            return cross_entropy(logits, labels)

        monkeypatch.setattr(functional, "cross_entropy", spy)
        run.recipe.loss(run, np.arange(10)).backward()
        assert seen == [[k for k in range(4) for _ in range(10)]]
        assert run.head.linear.weight.grad.any()
        assert run.network.metric.grad.any()

    @pytest.mark.parametrize("shape", [(64,), (8, 6)])
    def test_items_that_are_not_square_raise(self, shape):
        X = np.random.default_rng(0).random((20, *shape), dtype=np.float32)
        backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(8))
        backbone(torch.zeros(1, *shape))
        with pytest.raises(ValueError, match="rotnet: items must be square images; got items of"):
            model("rotnet", backbone=backbone, n_components=4).fit(X)

    def test_learning_rate_drops_to_a_fifth_three_times(self, begun):
        run = begun("rotnet", epochs=10, epochs_per_partition=5, learning_rate=1.0)
        rates = [run._rate(number, step) for number in (0, 1) for step in range(75)]
        assert rates == pytest.approx([1.0] * 45 + [0.2] * 45 + [0.04] * 30 + [0.008] * 30)


class TestInstanceDiscrimination:
    def test_noise_contrast_follows_its_formula(self, rng):
        positive, noise, n, Z = rng.normal(size=6), rng.normal(size=(6, 9)), 40, 55.0
        P, P_noise = np.exp(positive) / Z, np.exp(noise) / Z
        level = 9 / n
        expected = -np.log(P / (P + level)) - np.log(level / (P_noise + level)).sum(axis=1)
        found = noise_contrast(
            torch.from_numpy(positive), torch.from_numpy(noise), torch.tensor(Z).log(), n
        )
        assert found.item() == pytest.approx(expected.mean())

    def test_z_is_estimated_from_the_first_batch(self, rng):
        positive, noise = rng.normal(size=6), rng.normal(size=(6, 9))
        mean = np.exp(np.append(positive, noise)).mean()
        found = log_normalizer(torch.from_numpy(positive), torch.from_numpy(noise), 40)
        assert found.exp().item() == pytest.approx(40 * mean)

    def test_learning_rate_drops_to_a_tenth_twice(self, begun):
        run = begun("nce", epochs=10, epochs_per_partition=5, learning_rate=1.0)
        rates = [run._rate(number, step) for number in (0, 1) for step in range(75)]
        assert rates == pytest.approx([1.0] * 90 + [0.1] * 30 + [0.01] * 30)

    def test_z_stays_fixed_after_the_first_batch(self, begun):
        run = begun("nce")
        batches = run._batches(np.arange(600), 0, np.random.default_rng(0))
        assert run.head.log_normalizer.isnan()
        run._loss(next(batches))
        first = run.head.log_normalizer.clone()
        run._loss(next(batches))
        assert first.isfinite()
        assert torch.equal(run.head.log_normalizer, first)

    def test_memory_starts_at_the_embedding_and_averages(self, begun):
        run = begun("nce")
        rows = next(run._batches(np.arange(600), 0, np.random.default_rng(0)))
        np.testing.assert_allclose(run.head.rows, run.embed("embedding"), atol=1e-6)
        run.head.rows.copy_(functional.normalize(torch.randn(600, 16), dim=1))
        before = run.head.rows.numpy().copy()
        run._loss(rows)
        with torch.no_grad():
            embedding = run.network(run.samples.batch(rows)).numpy()
        mixed = before[rows] + embedding
        expected = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
        np.testing.assert_allclose(run.head.rows[rows], expected, atol=1e-6)
        others = np.setdiff1d(np.arange(600), rows)
        np.testing.assert_array_equal(run.head.rows[others], before[others])

    def test_initial_memory_is_uniform(self):
        rows = Memory(2000, 12).rows
        assert rows.abs().max() <= 0.5  # 1 / sqrt(12 / 3)
        assert rows.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.02)

    def test_nce_loss_uses_the_memory(self, begun):
        """With every other item as noise, but for the one that is drawn by chance."""
        run, rows = begun("nce"), np.arange(40)
        run.head.rows.copy_(torch.from_numpy(run.embed("embedding")))
        torch.manual_seed(3)
        found = run.recipe.loss(run, rows)
        torch.manual_seed(3)
        noise = torch.randint(600, (599,)).numpy()
        memory = run.embed("embedding").astype(np.float64)
        logits = memory[rows] @ memory.T / 0.1
        positive, others = logits[rows, rows], logits[:, noise]
        Z = 600 * np.exp(np.append(positive, others)).mean()
        P, level = np.exp(logits) / Z, 599 / 600
        loss = -np.log(P[rows, rows] / (P[rows, rows] + level))
        loss -= np.log(level / (P[:, noise] + level)).sum(axis=1)
        assert found.item() == pytest.approx(loss.mean(), rel=1e-5)


class TestDeepCluster:
    def test_whitening_matches_principal_components(self, rng):
        X = rng.normal(size=(80, 6)) @ rng.normal(size=(6, 6))
        centered = X - X.mean(axis=0)
        U, _, _ = np.linalg.svd(centered, full_matrices=False)
        expected = U[:, :4] / np.linalg.norm(U[:, :4], axis=1, keepdims=True)
        found = whitened(X, 4)
        signs = np.sign((found * expected).sum(axis=0))
        np.testing.assert_allclose(found, expected * signs, atol=1e-10)
        theirs = PCA(4, whiten=True).fit_transform(X)
        theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
        np.testing.assert_allclose(found @ found.T, theirs @ theirs.T, atol=1e-10)

    def test_empty_clusters_take_half_of_the_largest(self, rng):
        codes = np.repeat([1, 3], [20, 7])
        found = refilled(codes, 5, rng)
        assert sorted(np.bincount(found, minlength=5).tolist()) == [5, 5, 5, 5, 7]
        assert (found[codes == 3] == 3).all()
        np.testing.assert_array_equal(codes, np.repeat([1, 3], [20, 7]))

    def test_clusters_match_k_means_with_max_iter(self):
        rows, seed = load_digits().data, int(np.random.default_rng(0).integers(2**31))
        few, many = (
            KMeans(10, n_init=1, max_iter=steps, random_state=seed).fit_predict(rows)
            for steps in (1, 20)
        )
        assert (few != many).any()
        np.testing.assert_array_equal(clusters(rows, 10, 1, np.random.default_rng(0)), few)
        np.testing.assert_array_equal(clusters(rows, 10, 20, np.random.default_rng(0)), many)

    def test_clusters_are_found_by_one_thread(self, rng, monkeypatch):
        """Three would sum the rows of a cluster in any order."""
        seen, fit = set(), KMeans.fit_predict

        def spy(kmeans, rows):
            seen.update(library["num_threads"] for library in threadpool_info())
            return fit(kmeans, rows)

        monkeypatch.setattr(KMeans, "fit_predict", spy)
        with threadpool_limits(3):
            clusters(rng.normal(size=(40, 3)), 4, 20, rng)
        assert seen == {1}

    def test_clusters_of_equal_rows_are_all_filled(self, rng):
        rows = np.repeat(np.eye(3), 10, axis=0)
        codes = clusters(rows, 8, 20, rng)
        assert (np.bincount(codes, minlength=8) > 0).all()

    def test_each_epoch_resets_the_head_and_balances(self, begun):
        run = begun("deepcluster", method_params={"n_clusters": 8})
        seen, heads, fresh = [], [], []
        for rows, codes in run._batches(np.arange(600), 0, np.random.default_rng(0)):
            assert np.bincount(codes, minlength=8).tolist() == [5] * 8
            seen.append(dict(zip(rows.tolist(), codes.tolist(), strict=True)))
            heads.append(run.head.linear.weight.detach().clone())
            fresh.append(run.head.linear.weight not in run.stepper.optimizer.state)
            run.stepper.step(run._loss((rows, codes)), 0.03)
        assert len(heads) == 30
        jumps = [(b - a).norm().item() for a, b in pairwise(heads)]
        assert np.argmax(jumps) == 14
        assert np.flatnonzero(fresh).tolist() == [0, 15]  # no momentum of the head that was
        one, two = ({k: v for part in seen[i : i + 15] for k, v in part.items()} for i in (0, 15))
        assert any(one[row] != two[row] for row in one.keys() & two.keys())

    def test_optimizer_state_of_the_head_is_reset(self, begun):
        run = begun("deepcluster")
        batches = run._batches(np.arange(600), 0, np.random.default_rng(0))
        run.stepper.step(run._loss(next(batches)), 0.03)
        state = run.stepper.optimizer.state
        assert state[run.head.linear.weight]
        kept = len(state)
        run.forget_head()
        assert len(state) == kept - 2


@pytest.mark.parametrize("name", sorted(METHODS))
def test_sgd_uses_momentum_and_rotnet_nesterov(begun, name):
    optimizer = begun(name).stepper.optimizer
    assert isinstance(optimizer, torch.optim.SGD)
    for group in optimizer.param_groups:
        assert (group["momentum"], group["nesterov"]) == (0.9, name == "rotnet")


class TestSUML:
    def test_batch_updates_both_matrices_and_the_network(self, begun):
        run = begun("suml")
        before = run.head.get_buffer("synthesis").clone(), run.network.metric.clone()
        run.stepper.step(run._loss(np.arange(40)), 0.03)
        assert not torch.equal(run.head.get_buffer("synthesis"), before[0])
        assert not torch.equal(run.network.metric, before[1])
        assert "metric" not in dict(run.network.named_parameters())

    def test_network_descends_the_updated_objective(self, begun):
        run, rows = begun("suml"), np.arange(40)
        torch.manual_seed(3)
        found = run.recipe.loss(run, rows)
        torch.manual_seed(3)
        triplets = random_triplets(40, QUICK["suml"]["n_triplets"])
        learned = run.head.get_buffer("synthesis"), run.network.metric
        features = run.network.features(run.samples.batch(rows))
        expected = objective(features, *learned, triplets, angle=40.0, penalty=0.5)
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)
        assert found.item() > 0  # entropies


class TestWhatIsLearned:
    @every_method
    def test_loss_falls_without_collapse(self, digits, name):
        X, y, _ = digits
        fitted = model(name, epochs=6, epochs_per_partition=6, learning_rate=0.01).fit(X)
        losses = fitted.history_[0]["losses"]
        assert losses[-1] < losses[0]
        Z = fitted.transform(X)
        variances = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False) ** 2
        assert variances.sum() ** 2 / (variances**2).sum() > 2  # dimensions, on the whole
        assert evaluate(Z, y, random_state=0)["R@1"] > 75  # by chance 10

    @every_method
    def test_training_ignores_labels(self, digits, name):
        X, y, labels = digits
        with_labels, without = (model(name, epochs=2).fit(X, given) for given in (labels, None))
        np.testing.assert_array_equal(with_labels.transform(X), without.transform(X))
        assert (with_labels.transduction_ == y).mean() > 0.5
        assert (with_labels.predict(X) == y).mean() > 0.3

    def test_fit_without_labels_has_no_classes(self, digits, tmp_path):
        X, y, _ = digits
        fitted = model("nce", epochs=2).fit(X, np.full(len(X), -1), validation=(X[:99], y[:99]))
        assert fitted.history_[0]["validation"]["R@1"] > 50
        assert (fitted.transduction_ == -1).all()
        assert fitted.label_distributions_.shape == (len(X), 0)
        with pytest.raises(ValueError, match=r"DeepUnsupervised.predict: classes must be known"):
            fitted.predict(X)
        fitted.save(tmp_path / "model")
        loaded = DeepUnsupervised.load(tmp_path / "model", backbone=small_network())
        np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))
        assert_same_weights(fitted, model("nce", epochs=2).fit(X))

    def test_l_is_a_layer_except_in_suml(self, digits):
        X, _, _ = digits
        short = {"epochs": 1, "epochs_per_partition": 1}
        for name in ("nce", "suml"):
            L = model(name, **short).fit(X).components_
            assert np.abs(L @ L.T - np.eye(16)).max() > 1e-4


class TestParameters:
    def test_method_params_reach_the_recipe(self, digits):
        X, _, _ = digits
        plain, other = (
            model("nce", epochs=2, method_params=params).fit(X).transform(X)
            for params in (None, {"temperature": 0.5})
        )
        assert np.abs(plain - other).max() > 1e-3

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"heat": 1}, "Invalid parameter 'heat' for estimator InstanceDiscrimination"),
            ({"n_noise": 0}, "The 'n_noise' parameter of InstanceDiscrimination must be"),
        ],
    )
    def test_invalid_method_params_raise(self, digits, params, message):
        with pytest.raises(ValueError, match=message):
            model("nce", method_params=params).fit(digits[0])

    def test_unknown_method_raises(self, digits):
        with pytest.raises(ValueError, match="The 'method' parameter of DeepUnsupervised must be"):
            model("moco").fit(digits[0])

    def test_softmax_head_is_scale_invariant(self):
        head, rows = Softmax(3, 5), torch.randn(20, 3)
        torch.testing.assert_close(
            head(rows), head(100 * rows + torch.tensor([1.0, 2.0, 3.0])), atol=1e-3, rtol=1e-3
        )
