"""Scores of an embedding, against slow twins, closed forms and pytorch-metric-learning."""

from __future__ import annotations

import tracemalloc
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.metrics import accuracy_score
from sklearn.neighbors import NearestCentroid
from threadpoolctl import threadpool_limits

from ssdml.evaluation import (
    evaluate,
    few_label_accuracy,
    pairwise_f1,
    retrieval as ranking,
    retrieval_scores,
    scores as evaluation,
    triplet_purity,
)
from ssdml.evaluation.clustering import kmeans_clusters, normalized_mutual_information
from ssdml.evaluation.scores import is_embedding_score

RETRIEVAL = ["R@1", "R@2", "R@4", "R@8", "MAP@R", "RP"]


def embedding(rng, n=120, d=4, n_classes=5):
    y = rng.integers(0, n_classes, n)
    Z = (np.eye(n_classes, d)[y] + rng.normal(scale=0.6, size=(n, d))).astype(np.float32)
    Z.flags.writeable = y.flags.writeable = False
    return Z, y


def retrieval_slowly(Z, y, ks, ties=0):
    """Slow twin: one query, one rank at a time. Ties: the query's class first (-1) or last (1)."""
    Z = np.asarray(Z, dtype=np.float64)
    answers = {f"R@{k}": [] for k in ks} | {"MAP@R": [], "RP": []}
    for i in range(len(Z)):
        R = int(np.sum(y == y[i])) - 1
        if R == 0:
            continue
        squared = np.square(Z - Z[i]).sum(axis=1)
        ranking = [j for j in np.lexsort((ties * (y == y[i]), squared)) if j != i]
        right = [bool(y[j] == y[i]) for j in ranking]
        for k in ks:
            answers[f"R@{k}"].append(any(right[:k]))
        answers["RP"].append(sum(right[:R]) / R)
        answers["MAP@R"].append(
            sum(sum(right[:r]) / r for r in range(1, R + 1) if right[r - 1]) / R
        )
    return {name: 100 * float(np.mean(values)) for name, values in answers.items()}


def peer_scores(Z, y, clusters=None):
    """Scores of pytorch-metric-learning's calculator, in percent and under our names."""
    distances = pytest.importorskip("pytorch_metric_learning.distances")
    calculator = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    inference = pytest.importorskip("pytorch_metric_learning.utils.inference")
    names = {
        "precision_at_1": "R@1",
        "mean_average_precision_at_r": "MAP@R",
        "r_precision": "RP",
        "NMI": "NMI",
    }
    peer = calculator.AccuracyCalculator(
        include=tuple(names),
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=inference.CustomKNN(distances.LpDistance(normalize_embeddings=False)),
        kmeans_func=lambda rows, n_clusters: torch.as_tensor(clusters),
    )
    scores = peer.get_accuracy(torch.tensor(np.array(Z)), torch.tensor(np.array(y)))
    return {names[name]: 100 * score for name, score in scores.items()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lone", [[], [77, 88]])
def test_scores_match_pytorch_metric_learning(seed, lone):
    Z, y = embedding(np.random.default_rng(seed))
    y = np.concatenate([lone, y[len(lone) :]]).astype(np.int64)
    clusters = kmeans_clusters(Z, len(np.unique(y)), random_state=seed)
    ours = evaluate(Z, y, random_state=seed)
    for name, score in peer_scores(Z, y, clusters).items():
        assert ours[name] == pytest.approx(score, abs=1e-6), name


def test_large_labels_are_told_apart():
    Z = [[0.0], [1.0], [2.1], [3.3], [4.6], [6.0]]
    near = 2**24 + np.array([0, 1, 0, 1, 0, 1])
    assert len(np.unique(near.astype(np.float32))) == 1  # what a cast of the labels would do
    assert evaluate(Z, near, ks=(1,))["R@1"] == 0.0


def test_class_numbers_may_be_as_large_as_ids(rng):
    Z, y = embedding(rng)
    ids, rows = 10**15 * (y + 1), rng.normal(size=(9, Z.shape[1]))
    assert retrieval_scores(Z, ids, [1, 4]) == retrieval_scores(Z, y, [1, 4])
    others = np.array([0, 1, 2, 0, 1, 2, -1, 77, 0])
    large = np.where(others < 0, -1, 10**15 * (others + 1))
    expected = retrieval_scores(Z, y, [1, 4], gallery=(rows, others))
    assert retrieval_scores(Z, ids, [1, 4], gallery=(rows, large)) == expected


def test_retrieval_matches_the_slow_twin(rng):
    Z, y = embedding(rng)
    expected = retrieval_slowly(Z, y, (1, 2, 4, 8))
    scores = retrieval_scores(Z, y, [1, 2, 4, 8])
    assert list(scores) == RETRIEVAL
    assert scores == pytest.approx(expected, abs=1e-10)


def test_nmi_matches_its_definition(rng):
    codes, clusters = rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    joint = np.histogram2d(codes, clusters, bins=(3, 4))[0] / 50
    a, b = joint.sum(axis=1), joint.sum(axis=0)
    seen = joint > 0
    information = (joint[seen] * np.log(joint[seen] / np.outer(a, b)[seen])).sum()
    entropies = -(a * np.log(a)).sum() - (b * np.log(b)).sum()
    assert normalized_mutual_information(codes, clusters) == pytest.approx(
        200 * information / entropies, abs=1e-9
    )


def test_f1_counts_pairs(rng):
    codes, clusters = rng.integers(0, 3, 30), rng.integers(0, 4, 30)
    pairs = [
        (codes[i] == codes[j], clusters[i] == clusters[j]) for i, j in combinations(range(30), 2)
    ]
    true_positive = pairs.count((True, True))
    wrong = pairs.count((True, False)) + pairs.count((False, True))
    expected = 100 * 2 * true_positive / (2 * true_positive + wrong)
    assert pairwise_f1(codes, clusters) == pytest.approx(expected, abs=1e-10)


def test_f1_without_any_pair_is_nan():
    assert np.isnan(pairwise_f1(np.arange(4), np.arange(4)))


def test_f1_with_more_pairs_than_int32():
    codes = np.repeat([0, 1], 100_000)
    assert pairwise_f1(codes, codes) == 100.0


def test_scores_are_ordered_and_in_percent():
    scores = evaluate([[0.0], [0.1], [5.0], [5.1]], ["a", "a", "b", "b"], ks=(1, 3))
    assert scores == {
        "NMI": 100.0,
        "F1": 100.0,
        "R@1": 100.0,
        "R@3": 100.0,
        "MAP@R": 100.0,
        "RP": 100.0,
    }
    assert list(scores) == ["NMI", "F1", "R@1", "R@3", "MAP@R", "RP"]
    assert all(type(score) is float for score in scores.values())


@pytest.mark.parametrize("mark", [-1, None, float("nan"), ""])
def test_rows_without_a_label_never_count(rng, mark):
    Z, y = embedding(rng)
    names = [f"class {label}" for label in y] if mark in (None, "") else y.tolist()
    partial = [label for name in names for label in (name, mark)]
    crowded = np.repeat(Z, 2, axis=0)  # each row has an unlabeled copy, its nearest neighbor
    assert evaluate(crowded, partial) == evaluate(Z, y)


def test_scores_depend_on_random_state_alone(rng):
    Z, y = embedding(rng, n=300)
    assert evaluate(Z, y, random_state=3) == evaluate(Z, y, random_state=3)


def test_random_state_reaches_kmeans_if_needed(monkeypatch, rng):
    seen = []
    kmeans = evaluation.kmeans_clusters

    def recorded(rows, n_clusters, *, random_state):
        seen.append((n_clusters, random_state))
        return kmeans(rows, n_clusters, random_state=random_state)

    monkeypatch.setattr(evaluation, "kmeans_clusters", recorded)
    Z, y = embedding(rng)
    evaluate(Z, y, random_state=11)
    evaluate(Z, y, random_state=12, scores=["NMI"])
    evaluate(Z, y, random_state=13, scores=["R@1", "MAP@R"])
    assert seen == [(5, 11), (5, 12)]


def test_similarity_transforms_change_nothing(rng):
    Z, y = embedding(rng)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    moved = 3.0 * Z.astype(np.float64) @ rotation + rng.normal(size=4)
    assert evaluate(moved, y) == pytest.approx(evaluate(Z.astype(np.float64), y), abs=1e-9)


def test_class_names_and_row_order_do_not_matter(rng):
    Z, y = embedding(rng)
    order = rng.permutation(len(y))
    renamed = np.array(list("qwert"))[y]
    shuffled = evaluate(Z[order], renamed[order])
    assert {name: shuffled[name] for name in RETRIEVAL} == pytest.approx(
        {name: evaluate(Z, y)[name] for name in RETRIEVAL}, abs=1e-10
    )


def test_each_score_alone_equals_its_value_among_all(rng):
    Z, y = embedding(rng)
    for name, score in evaluate(Z, y).items():
        assert is_embedding_score(name)
        assert evaluate(Z, y, scores=[name]) == {name: score}


@pytest.mark.parametrize("name", ["accuracy", "R@0", "R@", "R@1.5", "MAP"])
def test_unknown_scores_are_refused(name):
    assert not is_embedding_score(name)
    with pytest.raises(ValueError, match=f"scores must be among 'NMI', .*; got '{name}'. Write"):
        evaluate([[0.0], [1.0]], [0, 0], scores=["R@1", name])


def test_lone_rows_are_neighbors_but_no_queries():
    # Rows 0 and 3 are a class; the lone row 1 is the nearest of 0, the lone row 2 that of 3.
    scores = evaluate([[0.0], [1.0], [9.0], [10.0]], ["a", "lone", "only", "a"], ks=(1, 2, 3))
    assert [scores[name] for name in ("R@1", "R@2", "R@3")] == [0.0, 0.0, 100.0]


@pytest.mark.parametrize("n", [1, 3])
def test_retrieval_is_nan_without_queries_and_warns(n):
    message = f"evaluate: y must have a class with two rows, .*; got {n} rows of {n} classes"
    with pytest.warns(UserWarning, match=message) as caught:
        scores = evaluate(np.arange(4.0)[:n, None], range(n))
    assert all(np.isnan(scores[name]) for name in RETRIEVAL)
    assert scores["NMI"] == pytest.approx(100.0)
    assert [warning.filename for warning in caught] == [__file__]


def test_one_class_scores_100(rng):
    scores = evaluate(rng.normal(size=(10, 2)), np.zeros(10), ks=(1,))
    assert scores == {
        "NMI": 100.0,
        "F1": 100.0,
        "R@1": 100.0,
        "MAP@R": pytest.approx(100.0),
        "RP": 100.0,
    }


def test_tied_scores_lie_between_worst_and_best_order(rng):
    Z, y = embedding(rng)
    Z = np.round(Z)
    scores = retrieval_scores(Z, y, [1, 2, 4, 8])
    worst, best = (retrieval_slowly(Z, y, (1, 2, 4, 8), ties) for ties in (1, -1))
    for name, score in scores.items():
        assert worst[name] < score < best[name], name
    assert retrieval_scores(Z, y, [1, 2, 4, 8]) == scores


@pytest.mark.parametrize("order", [1, -1])
def test_identical_rows_score_by_chance(order):
    # Sorted by class, as many data sets are: an order of the rows must not help.
    y = np.repeat(np.arange(10), 40)[::order]
    scores = evaluate(np.full((400, 3), 0.1), y, ks=(1,), scores=["R@1", "RP", "NMI"])
    assert scores["R@1"] == pytest.approx(10, abs=5)
    assert scores["RP"] == pytest.approx(10, abs=2)
    assert scores["NMI"] == pytest.approx(0.0, abs=1e-9)


def test_more_clusters_than_distinct_rows():
    rows = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [-0.0, 1.0]])
    clusters = kmeans_clusters(rows, 4, random_state=0)
    assert clusters[0] == clusters[2] != clusters[1] == clusters[3]


def test_one_distant_row_costs_no_digits(rng):
    Z, y = embedding(rng)
    Z = Z.astype(np.float64)
    far = retrieval_scores(np.r_[Z, [[1e9, 0, 0, 0]]], np.append(y, 99), [1, 4])
    assert far == pytest.approx(retrieval_scores(Z, y, [1, 4]), abs=1e-9)


@pytest.mark.parametrize("exponent", [-660, 660])
def test_overflowing_squares_do_not_matter(rng, exponent):
    Z, y = embedding(rng)
    scaled = np.ldexp(Z.astype(np.float64), exponent)
    assert evaluate(scaled, y) == pytest.approx(evaluate(Z, y), abs=1e-9)
    few = few_label_accuracy(scaled[:25], y[:25], scaled, y)
    assert few == few_label_accuracy(Z[:25], y[:25], Z, y)


def test_number_of_threads_does_not_matter(rng):
    Z, y = embedding(rng, n=300)
    with threadpool_limits(1):
        alone = evaluate(Z, y)
    with threadpool_limits(2):
        assert evaluate(Z, y) == alone


def test_k_may_exceed_the_number_of_rows(rng):
    Z, y = embedding(rng, n=12, n_classes=2)
    assert evaluate(Z, y, ks=(1000,))["R@1000"] == 100.0


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_scale_of_float32_rows_does_not_matter(rng, size):
    Z, y = embedding(rng)
    scaled = Z * np.float32(2.0) ** np.float32(round(np.log2(size)))
    assert evaluate(scaled, y) == pytest.approx(evaluate(Z, y), abs=1e-9)


@pytest.mark.parametrize(
    ("Z", "y", "message"),
    [
        ([[0.0, 1.0], [2.0, np.nan]], [0, 1], "Z must be finite; got nan at row 1, column 1"),
        ([[0.0, -np.inf], [2.0, 1.0]], [0, 1], "Z must be finite; got -inf at row 0, column 1"),
        ([[0.0], [1.0]], [0, 1, 1], "y must have a label for each of the 2 rows of Z; got 3"),
        ([[0.0], [1.0]], [-1, -1], "y must contain labels; all 2 entries are unlabeled"),
        ([0.0, 1.0], [0, 1], r"Z must have two dimensions .*; got shape \(2,\)"),
        (np.empty((0, 2)), [], r"Z must not be empty; got shape \(0, 2\)"),
        ([[0.0], [1.0]], [[0], [1]], r"evaluate: y must have one dimension, .* shape \(2, 1\)"),
    ],
)
def test_bad_input_is_named(Z, y, message):
    with pytest.raises(ValueError, match=message):
        evaluate(Z, y)


def test_k_may_be_one_number(rng):
    Z, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    assert evaluate(Z, y, ks=3) == evaluate(Z, y, ks=[3])


def test_scores_may_be_one_name(rng):
    Z, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    assert evaluate(Z, y, scores="R@1") == evaluate(Z, y, scores=["R@1"])


def test_pieces_take_class_numbers_only(rng):
    Z, y = rng.normal(size=(4, 2)), np.array([0, 0, 1, 1])
    names, unlabeled = ["a", "a", "b", "b"], np.array([0, 0, 1, -1])
    for score in (lambda y: retrieval_scores(Z, y, [1]), lambda y: pairwise_f1(y, y)):
        score(y.tolist())
        with pytest.raises(ValueError, match=r"codes must be whole numbers .*encode_partial"):
            score(names)
        with pytest.raises(ValueError, match=r"codes must be at least 0; got -1\. Leave out rows"):
            score(unlabeled)
        with pytest.raises(ValueError, match=r"codes must have rows of one length"):
            score([[0], [0, 1], [1], [1]])
    assert pairwise_f1(y, unlabeled) == pairwise_f1(y, unlabeled + 1)  # clusters may have noise
    with pytest.raises(
        ValueError, match=r"clusters must be .* shape \(4,\); got int64 of shape \(3"
    ):
        pairwise_f1(y, y[:3])
    with pytest.raises(ValueError, match=r"^retrieval_scores: ks must be integers from 1; got 0"):
        retrieval_scores(Z, y, [0])
    with pytest.raises(ValueError, match=r"gallery\[1\] must be whole numbers of shape \(4,\)"):
        retrieval_scores(Z, y, 1, gallery=(Z, names))


@pytest.mark.parametrize("ks", [(0,), (1, -2), (1.5,), ("a",)])
def test_k_must_be_positive_integer(ks):
    with pytest.raises(ValueError, match=f"ks must be integers from 1; got {ks[-1]!r}"):
        evaluate([[0.0], [1.0]], [0, 0], ks=ks)


def test_memory_is_not_quadratic(monkeypatch, rng):
    monkeypatch.setattr(ranking, "BLOCK_ENTRIES", 2**18)
    n = 3000
    Z, y = rng.normal(size=(n, 2)), rng.integers(0, 200, n)
    tracemalloc.start()
    retrieval_scores(Z, y, [1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.3 * n * n * 8


def test_accuracy_matches_nearest_centroid(rng):
    Z, y = embedding(rng, n=200)
    few = np.arange(25)
    model = NearestCentroid().fit(Z[few].astype(np.float64), y[few])
    expected = 100 * accuracy_score(y[25:], model.predict(Z[25:].astype(np.float64)))
    assert few_label_accuracy(Z[few], y[few], Z[25:], y[25:]) == pytest.approx(expected)


def test_accuracy_ignores_unlabeled_rows():
    labeled, names = [[0.0], [4.0], [99.0]], ["a", "b", None]
    rows, truth = [[1.0], [3.0], [0.0]], ["a", "b", None]
    assert few_label_accuracy(labeled, names, rows, truth) == 100.0


def test_class_without_labels_counts_as_wrong():
    assert few_label_accuracy([[0.0], [4.0]], [0, 1], [[0.0], [4.0]], [0, 7]) == 50.0


def test_no_class_in_common_is_told():
    Z = [[0.0], [1.0]]
    with pytest.warns(
        UserWarning, match=r"y_labeled and y must share a class; got \[1, 2\] and \[3"
    ):
        assert few_label_accuracy(Z, [1, 2], Z, [3, 4]) == 0


def test_tied_means_go_to_first_class():
    assert few_label_accuracy([[2.0], [0.0]], [1, 0], [[1.0]], [0]) == 100.0


@pytest.mark.parametrize(
    ("labeled", "names", "rows", "message"),
    [
        ([[0.0, 1.0]], [0], [[0.0]], "Z must have the 2 columns of Z_labeled; got 1"),
        ([[0.0]], [-1], [[0.0]], "y_labeled must contain labels; all 1 entries"),
        ([[np.nan]], [0], [[0.0]], "Z_labeled must be finite; got nan at row 0, column 0"),
        ([[0.0]], [0, 1], [[0.0]], "y_labeled must have a label for each of the 1 rows"),
    ],
)
def test_bad_input_of_accuracy_is_named(labeled, names, rows, message):
    with pytest.raises(ValueError, match=message):
        few_label_accuracy(labeled, names, rows, [0])


def test_labels_of_a_table_in_another_order_are_doubted(rng):
    Z, y = map(pd.DataFrame, embedding(rng, 20))
    shuffled = y[0].sort_values()
    with pytest.warns(UserWarning, match="evaluate: y must be in the order of Z"):
        evaluate(Z, shuffled)
    message = r"must be in the order of .*gallery\[1\]\.to_numpy"
    with pytest.warns(UserWarning, match=message) as record:
        evaluate(Z[::2], y[0][::2], gallery=(Z[1:], shuffled[shuffled.index > 0]))
    assert record[0].filename == __file__
    with pytest.warns(UserWarning, match=r"y_labeled\.loc\[Z_labeled\.index\]"):
        few_label_accuracy(Z, shuffled, Z, y[0])


def triplets(rng, n_rows, n):
    anchor, positive, negative = rng.integers(n_rows, size=(3, n))
    return SimpleNamespace(
        anchor=anchor, positive=positive, negative=negative, weight=rng.random(n)
    )


def test_purity_matches_counting_one_by_one(rng):
    y = rng.integers(-1, 3, size=30)
    mined = triplets(rng, 30, 500)
    ends = zip(mined.anchor, mined.positive, mined.negative, mined.weight, strict=True)
    judged = [(y[a], y[p], y[n], w) for a, p, n, w in ends if min(y[a], y[p], y[n]) >= 0]
    purity = triplet_purity(mined, y)
    assert purity["n"] == len(judged)
    assert purity["positive"] == pytest.approx(100 * np.mean([a == p for a, p, _, _ in judged]))
    assert purity["negative"] == pytest.approx(100 * np.mean([a != n for a, _, n, _ in judged]))
    right = np.array([a == p and a != n for a, p, n, _ in judged])
    weight = np.array([w for *_, w in judged])
    assert purity["both"] == pytest.approx(100 * right.mean())
    assert purity["weighted"] == pytest.approx(100 * weight[right].sum() / weight.sum())


def test_purity_leaves_out_every_mark_of_no_label(rng):
    mined, y = triplets(rng, 30, 50), rng.integers(-1, 3, 30)
    names = np.array(["a", "b", "c", None], dtype=object)[y]
    assert triplet_purity(mined, names) == triplet_purity(mined, y)
    assert triplet_purity(mined, np.where(y < 0, np.nan, y)) == triplet_purity(mined, y)


def test_triplets_without_labels_have_no_purity(rng):
    assert triplet_purity(triplets(rng, 5, 10), np.full(5, -1)) is None
    assert triplet_purity(triplets(rng, 5, 0), np.zeros(5)) is None


def test_triplets_of_rows_below_zero_are_named():
    triplets = SimpleNamespace(anchor=[0], positive=[-1], negative=[2], weight=[1.0])
    with pytest.raises(ValueError, match="of y, from 0 to 2; got rows from -1 to 2"):
        triplet_purity(triplets, [0, 0, 1])


@pytest.mark.parametrize("as_table", [pd.DataFrame, pl.DataFrame, pa.table])
def test_columns_in_another_order_are_refused(as_table, rng):
    Z, y = embedding(rng, 20)
    columns = {name: Z[:, place] for place, name in enumerate("abcd")}
    table, reversed_ = as_table(columns), as_table(dict(reversed(columns.items())))
    message = r"got 'd' where Z has 'a'. Pass them in the order of Z"
    with pytest.raises(ValueError, match=message):
        evaluate(table, y, gallery=(reversed_, y), scores="R@1")
    with pytest.raises(ValueError, match="Z must have the columns of Z_labeled, in their order"):
        few_label_accuracy(table, y, reversed_, y)
    codes = np.unique(y, return_inverse=True)[1]
    with pytest.raises(ValueError, match="must have the columns of embeddings, in their order"):
        retrieval_scores(table, codes, 1, gallery=(reversed_, codes))
    other = as_table({name.upper(): column for name, column in columns.items()})
    with pytest.raises(ValueError, match=r"got 'A' where .* 'a'. Pass Z.to_numpy\(\), if"):
        few_label_accuracy(table, y, other, y)
    assert few_label_accuracy(table, y, Z, y) == few_label_accuracy(Z, y, table, y)
