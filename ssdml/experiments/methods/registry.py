"""A comparison of methods when labels are scarce: paired, resumable, a row a run.

`METHODS` holds what can be compared; add to it what you want to see beside the rest.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ssdml.experiments.methods.base import Embedder, Factory, InputFeatures, LabeledRowsOnly
from ssdml.experiments.methods.classifiers import REFERENCES
from ssdml.experiments.methods.deep import DEEP
from ssdml.networks.backbones import paper_network

__all__ = ["METHODS"]

BASELINES = ("LRML", "SERAPH", "ISDML", "APLLR", "APIT")
DEEP_BASELINES = {
    "DeepBaseline": [name.lower() for name in BASELINES],
    "DeepSupervised": ["triplet", "angular"],
    "DeepUnsupervised": ["exemplar", "rotnet", "nce", "deepcluster", "suml"],
}


def _input(random_state: int, n_jobs: int | None) -> Embedder:
    return InputFeatures()


def _pca(random_state: int, n_jobs: int | None) -> Embedder:
    from sklearn.decomposition import PCA

    return PCA(n_components=0.95, svd_solver="full", random_state=random_state)


def _lda(random_state: int, n_jobs: int | None) -> Embedder:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    # Ledoit and Wolf's estimate ("auto") is singular where a feature is constant in the labeled
    # rows, as pixels are; half and half is as strong with 5 labels a class.
    return LabeledRowsOnly(LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5))


def _nca(random_state: int, n_jobs: int | None) -> Embedder:
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    return LabeledRowsOnly(NeighborhoodComponentsAnalysis(random_state=random_state))


def _ssdml(random_state: int, n_jobs: int | None) -> Embedder:
    from ssdml.metric.estimator import SSDML

    return SSDML(random_state=random_state, n_jobs=n_jobs)


def _ssdml_residual(random_state: int, n_jobs: int | None) -> Embedder:
    from ssdml.metric.estimator import SSDML

    return SSDML(backbone="residual", random_state=random_state, n_jobs=n_jobs)


def _ssdml_paper(random_state: int, n_jobs: int | None) -> Embedder:
    from ssdml.metric.estimator import SSDML

    return SSDML.paper(random_state=random_state, n_jobs=n_jobs)


def _baseline(name: str, random_state: int, n_jobs: int | None) -> Embedder:
    from ssdml import baselines

    model: Embedder = getattr(baselines, name)(random_state=random_state, n_jobs=n_jobs)
    return model


def _deep_baseline(
    kind: str,
    name: str,
    network: str,
    n_components: int | None,
    random_state: int,
    n_jobs: int | None,
) -> Any:
    from ssdml import baselines

    options: dict[str, Any] = {"random_state": random_state, "n_jobs": n_jobs}
    if kind != "DeepBaseline":  # whose metric is a full matrix
        options["n_components"] = n_components
    if kind != "DeepUnsupervised":  # which sees no label
        options["pretrain_epochs"] = paper_network(network).pretrain_epochs
    return getattr(baselines, kind)(name, network, **options)


METHODS: dict[str, Factory] = {
    "input": _input,
    "pca": _pca,
    "lda": _lda,
    "nca": _nca,
    **REFERENCES,
    **{name.lower(): partial(_baseline, name) for name in BASELINES},
    "ssdml": _ssdml,
    "ssdml-residual": _ssdml_residual,
    "ssdml-paper": _ssdml_paper,
}

DEEP_METHODS = DEEP | {
    f"deep-{name}": partial(_deep_baseline, kind, name)
    for kind, names in DEEP_BASELINES.items()
    for name in names
}
