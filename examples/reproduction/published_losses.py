"""Published scores of four papers' losses on photographs.

Percent, on test classes that were not trained on, with networks pretrained on ImageNet. Data and
networks differ from ours, so only signs and sizes of differences are comparable. Names are those of
:data:`reproduction.losses.LOSSES`; some methods are in the papers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

Scores = Mapping[str, tuple[float, ...]]


class PublishedTable(NamedTuple):
    """A published table: source, scores and lines by data set, at one embedding dimension."""

    source: str
    columns: Mapping[str, tuple[str, ...]]
    lines: Mapping[str, Scores]


_SMALL = ("R@1", "R@2", "R@4", "R@8", "NMI", "F1")
_LARGE = ("R@1", "R@10", "R@100", "R@1000", "NMI", "F1")
_INSHOP = ("R@1", "R@10", "R@20", "R@30", "R@40", "R@50")

CGML = PublishedTable(
    'Chen et al., "Deep metric learning with graph consistency", AAAI 2021, Tables 2-4; '
    "λ = 0.001 (triplet), 0.002 (N-pair, binomial)",
    {"cars": _SMALL, "cub": _SMALL, "sop": _LARGE, "inshop": _INSHOP},
    {
        "cars": {
            "triplet": (68.1, 78.8, 86.4, 92.0, 59.1, 26.7),
            "triplet+cgml": (75.8, 84.7, 90.9, 95.2, 63.5, 32.9),
            "n-pair": (74.4, 83.6, 89.8, 93.8, 61.8, 29.9),
            "n-pair+cgml": (75.8, 84.4, 90.5, 94.4, 62.6, 31.0),
            "binomial": (73.1, 82.3, 88.3, 92.7, 61.7, 28.4),
            "binomial+cgml": (79.3, 86.9, 91.5, 94.7, 65.4, 33.9),
        },
        "cub": {
            "triplet": (49.4, 61.8, 73.0, 82.1, 57.2, 24.3),
            "triplet+cgml": (53.3, 64.9, 75.7, 84.5, 60.2, 27.0),
            "n-pair": (50.5, 63.2, 74.2, 83.1, 59.2, 26.3),
            "n-pair+cgml": (52.1, 64.2, 75.4, 84.5, 60.4, 28.5),
            "binomial": (52.5, 64.1, 74.8, 84.0, 59.2, 26.9),
            "binomial+cgml": (54.8, 66.2, 76.2, 84.5, 61.6, 30.7),
        },
        "sop": {
            "triplet": (57.6, 75.5, 88.3, 96.2, 86.4, 20.6),
            "triplet+cgml": (64.1, 79.5, 90.2, 96.8, 87.1, 23.2),
            "n-pair": (67.8, 83.9, 93.1, 97.8, 87.7, 25.6),
            "n-pair+cgml": (68.4, 84.3, 93.2, 97.8, 88.1, 27.0),
            "binomial": (68.2, 84.0, 93.1, 97.7, 88.5, 29.9),
            "binomial+cgml": (70.8, 85.4, 93.3, 97.8, 89.7, 32.3),
        },
        "inshop": {
            "triplet": (63.8, 86.8, 91.0, 92.6, 93.9, 94.8),
            "triplet+cgml": (67.5, 89.7, 93.2, 94.8, 95.7, 96.2),
            "n-pair": (78.3, 94.1, 95.8, 96.7, 97.4, 97.7),
            "n-pair+cgml": (78.9, 94.3, 95.9, 96.8, 97.4, 97.7),
            "binomial": (81.8, 94.1, 96.3, 97.2, 97.6, 97.9),
            "binomial+cgml": (82.6, 94.4, 96.5, 97.3, 97.7, 97.9),
        },
    },
)

_DA_SMALL = ("NMI", "R@1", "R@2", "R@4", "R@8", "R@16", "R@32", "R@64", "R@128")
_DA_LARGE = ("NMI", "R@1", "R@10", "R@100", "R@1000")

DML_DA = PublishedTable(
    'Li et al., "Deep metric learning with density adaptivity", IEEE TMM 22(5), 2020, Table I; '
    "λ = 10",
    {"cars": _DA_SMALL, "cub": _DA_SMALL, "sop": _DA_LARGE},
    {
        "cars": {
            "triplet": (47.23, 42.54, 53.94, 65.74, 75.06, 82.40, 88.70, 93.17, 96.42),
            "triplet+da": (56.59, 62.51, 73.58, 82.24, 88.56, 93.17, 95.89, 97.86, 98.98),
            "n-pair": (57.29, 56.52, 68.42, 78.01, 85.70, 91.19, 94.81, 97.38, 98.83),
            "n-pair+da": (62.07, 71.34, 81.29, 87.92, 92.74, 95.89, 97.70, 98.82, 99.53),
            "contrastive": (59.09, 67.95, 78.05, 85.78, 91.60, 95.34, 97.58, 98.78, 99.51),
            "contrastive+da": (65.17, 77.62, 86.25, 91.71, 95.35, 97.54, 98.89, 99.37, 99.73),
        },
        "cub": {
            "triplet": (50.99, 39.57, 51.74, 63.35, 74.14, 82.98, 89.53, 94.80, 97.65),
            "triplet+da": (55.53, 45.90, 57.97, 69.53, 80.23, 88.15, 94.01, 97.00, 98.63),
            "n-pair": (57.41, 47.30, 59.57, 70.75, 80.98, 88.28, 93.50, 96.79, 98.43),
            "n-pair+da": (59.67, 51.45, 63.01, 74.38, 83.78, 90.58, 95.16, 97.64, 98.89),
            "contrastive": (60.07, 52.01, 65.16, 75.71, 84.25, 90.82, 95.17, 97.70, 98.99),
            "contrastive+da": (62.32, 55.64, 66.96, 77.92, 86.23, 92.10, 95.95, 98.11, 99.21),
        },
        "sop": {
            "triplet": (86.20, 59.49, 76.23, 87.95, 95.70),
            "triplet+da": (87.25, 61.16, 78.99, 90.54, 96.96),
            "n-pair": (88.77, 65.89, 81.94, 91.83, 97.30),
            "n-pair+da": (88.93, 67.49, 82.20, 91.94, 97.69),
            "contrastive": (88.57, 68.20, 82.20, 90.87, 96.61),
            "contrastive+da": (89.50, 70.56, 84.09, 94.09, 97.72),
        },
    },
)

_GML = ("NMI", "R@1", "R@2", "R@4")

_GML_SETS = {"cub": _GML, "cars": _GML, "sop": ("NMI", "R@1", "R@10", "R@100")}
_GML_SOURCE = (
    'Zhu et al., "Fewer is more: a deep graph metric learning perspective using fewer proxies", '
    "NeurIPS 2020, poster; "
)

PROXY_GML = PublishedTable(
    _GML_SOURCE + "embeddings of 512 dimensions",
    _GML_SETS,
    {
        "cub": {
            "soft-triple": (69.3, 65.4, 76.4, 84.5),
            "proxy-gml": (69.8, 66.6, 77.6, 86.4),
        },
        "cars": {
            "soft-triple": (70.1, 84.5, 90.7, 94.5),
            "proxy-gml": (72.4, 85.5, 91.8, 95.3),
        },
        "sop": {
            "soft-triple": (92.0, 78.3, 90.3, 95.9),
            "proxy-gml": (90.2, 78.0, 90.6, 96.2),
        },
    },
)

PROXY_GML_64 = PublishedTable(
    _GML_SOURCE + "embeddings of 64 dimensions",
    _GML_SETS,
    {
        "cub": {
            "proxy-nca": (59.5, 49.2, 61.9, 67.9),
            "proxy-gml": (65.1, 59.4, 70.1, 80.4),
        },
        "cars": {
            "proxy-nca": (64.9, 73.2, 82.4, 86.4),
            "proxy-gml": (67.9, 78.9, 87.5, 91.9),
        },
        "sop": {
            "proxy-nca": (90.6, 73.7),
            "proxy-gml": (89.8, 76.2, 89.4, 95.4),
        },
    },
)

# S^pos, M, L^p; NMI and R@1 on Cars-196.
PROXY_GML_ABLATION = (
    (False, False, False, 52.1, 47.3),
    (True, False, False, 69.6, 83.3),
    (False, True, False, 54.9, 66.1),
    (False, False, True, 67.1, 81.7),
    (False, True, True, 68.8, 82.6),
    (True, False, True, 71.6, 84.5),
    (True, True, False, 70.7, 84.0),
    (True, True, True, 72.4, 85.5),
)

_DGCRL = ("R@1", "R@2", "R@4", "R@8", "R@16", "R@32")

DGCRL = PublishedTable(
    'Zheng et al., "Toward optimal fine grained retrieval via decorrelated centralized loss with '
    'normalize-scale layer", AAAI 2019, Tables 2 and 3; "softmax" is its λ = 0, "dgcrl" λ = 0.1',
    {"cub": _DGCRL},
    {
        "cub": {
            "softmax": (66.7, 76.7, 85.0, 90.4, 93.8, 96.4),
            "dgcrl": (67.9, 79.1, 86.2, 91.8, 94.8, 97.1),
            "dgcrl, λ = 0.2": (67.0, 77.1, 84.9, 90.5, 93.9, 96.4),
            "dgcrl, λ = 0.4": (65.9, 76.3, 84.5, 90.2, 93.8, 96.5),
            "triplet": (64.4, 75.5, 84.2, 90.3, 94.5, 96.9),
        },
    },
)

PUBLISHED = (CGML, DML_DA, PROXY_GML, PROXY_GML_64, DGCRL)


def published_differences(one: str, other: str, score: str = "R@1") -> Iterator[tuple[str, float]]:
    """Data set and difference of two losses in each published table that has both.

    Examples
    --------
    >>> [(dataset, round(more, 1)) for dataset, more in published_differences("dgcrl", "softmax")]
    [('cub', 1.2)]
    """
    for table in PUBLISHED:
        for dataset, lines in table.lines.items():
            # Lines may lack the last scores.
            first, second = (
                dict(zip(table.columns[dataset], lines.get(name, ()), strict=False))
                for name in (one, other)
            )
            if score in first and score in second:
                yield dataset, first[score] - second[score]
