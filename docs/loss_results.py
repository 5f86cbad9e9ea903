"""Tables of the losses of four papers, from the rows in ``results/losses`` and ``ablation``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from reproduction.loss_search import ANY_RATE, FROM_ALL, FROM_FEW
from reproduction.loss_tables import by_method
from reproduction.losses import ABLATION, FEW_LINKED, FEWER, N_LINKED
from reproduction.published_losses import PROXY_GML_ABLATION, published_differences
from result_rows import SEEDS, Lines, gap, interval, succeeded

LOSS_SETS = {
    "digits": "digits",
    "banking77": "Banking77",
    "caltech101": "Caltech-101",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
}
BASE_LOSSES = {
    "input": "input",
    "triplet": "triplet",
    "n-pair": "N-pair",
    "binomial": "binomial deviance",
    "softmax": "softmax",
    "proxy-nca": "Proxy-NCA",
    "soft-triple": "SoftTriple",
    "proxy-gml": "ProxyGML",
}
TERMS = {"cgml": "CGML", "da": "DML-DA", "en": "EN", "gor": "GOR"}
WITH_TERMS = {
    f"{base}+{term}": (base, f"{BASE_LOSSES[base]} + {title}")
    for base in ("triplet", "n-pair", "binomial")
    for term, title in TERMS.items()
} | {
    "dgcrl": ("softmax", "DGCRL, over softmax"),
    "proxy-gml": ("soft-triple", "ProxyGML, over SoftTriple"),
}
CONTRASTIVE = {
    "da": "density adaptivity (DML-DA)",
    "da-free": "DML-DA without D⁰",
    "da-fixed": "DML-DA, fixed targets",
    "en": "entropy (EN)",
    "gor": "orthogonality (GOR)",
    "cgml": "graph consistency (CGML)",
}


def loss_scores(kind: str, score: str = "R@1") -> dict[str, dict[str, list[float]]]:
    """Scores of the losses with all seeds, by title of the data set and by method."""
    every = {title: by_method(succeeded(kind, name), score) for name, title in LOSS_SETS.items()}
    found = {t: {n: v[:SEEDS] for n, v in of.items() if len(v) >= SEEDS} for t, of in every.items()}
    return {title: scores for title, scores in found.items() if scores}


def all_losses() -> dict[str, dict[str, list[float]]]:
    """R@1 of the losses on data sets where all of them ran."""
    return {title: of for title, of in loss_scores("losses").items() if "triplet" in of}


def base_losses() -> Lines:
    """R@1 of the losses without terms."""
    yield "", *(found := all_losses())
    for name, title in BASE_LOSSES.items():
        yield title, *(interval(scores.get(name)) for scores in found.values())


def terms() -> Lines:
    """What each term adds to its base loss in R@1."""
    yield "", *(found := all_losses())
    title = f"ProxyGML with {FEW_LINKED} links, over {N_LINKED}"
    fewer = {name: ("proxy-gml", title) for name in FEWER}
    for name, (base, title) in (WITH_TERMS | fewer).items():
        yield title, *(gap(scores, name, base) for scores in found.values())


def any_rate() -> Lines:
    """The triplet loss at the better of two rates, and what a term at its better rate adds."""
    yield "", *(found := loss_scores("any-rate"))
    base = "triplet" + ANY_RATE
    yield "triplet", *(interval(scores.get(base)) for scores in found.values())
    for term, title in TERMS.items():
        with_term = f"triplet+{term}{ANY_RATE}"
        yield f"+ {title}", *(gap(scores, with_term, base) for scores in found.values())


def few_labels() -> Lines:
    """What propagated classes of unlabeled samples add to a loss."""
    yield "", *(found := loss_scores("few"))
    titles = BASE_LOSSES | {name: title for name, (_, title) in WITH_TERMS.items()}
    for name, title in (titles | {"dgcrl": "DGCRL", "proxy-gml": "ProxyGML"}).items():
        if name != "input":
            methods = name + FROM_ALL, name + FROM_FEW
            yield title, *(gap(scores, *methods) for scores in found.values())


def contrastive(score: str) -> Lines:
    """The contrastive loss, and what a term adds to it, with published differences."""
    found = loss_scores("losses", score)
    yield "", *found, "published: Cars-196, CUB, SOP"
    for name in ("input", "contrastive"):
        yield name, *(interval(scores.get(name)) for scores in found.values()), ""
    for term, title in CONTRASTIVE.items():
        name, base = f"contrastive+{term}", "contrastive"
        published = (f"{gain:+.1f}" for _, gain in published_differences(name, base, score))
        gaps = (gap(scores, name, base) for scores in found.values())
        yield f"+ {title}", *gaps, ", ".join(published)


def ranking() -> Lines:
    """The center ranking loss by its hinge."""
    found = {title: of for title, of in loss_scores("losses").items() if "gcrl" in of}
    yield "", *found
    for name, title in (("gcrl", "hinge per row"), ("gcrl-batch", "hinge around the sum")):
        yield title, *(interval(scores.get(name)) for scores in found.values())
    yield "difference", *(gap(scores, "gcrl-batch", "gcrl") for scores in found.values())


def proxy_ablation() -> Lines:
    """The whole of ProxyGML, and the change without its parts, with the poster's rows."""
    found = {score: loss_scores("ablation", score) for score in ("NMI", "R@1")}
    titles = [f"{title} {score}" for title in found["R@1"] for score in found]
    yield "S^pos", "M", "L^p", *titles, "published: Cars-196 NMI", "R@1"
    columns = [found[score][title] for title in found["R@1"] for score in found]
    whole = list(ABLATION)[-1]
    for name, (*switches, nmi, recall) in zip(ABLATION, PROXY_GML_ABLATION, strict=True):
        yield (
            *("✓" * switch for switch in switches),
            *(interval(of[name]) if name == whole else gap(of, name, whole) for of in columns),
            f"{nmi:.1f}",
            f"{recall:.1f}",
        )


TABLES: Mapping[str, Callable[[], Lines]] = {
    "base losses": base_losses,
    "terms": terms,
    "any rate": any_rate,
    "few": few_labels,
    "contrastive": partial(contrastive, "R@1"),
    "contrastive NMI": partial(contrastive, "NMI"),
    "ranking": ranking,
    "proxy-gml": proxy_ablation,
}
