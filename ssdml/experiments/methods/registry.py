"""The methods of a comparison, by name. Add your own to `METHODS`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

from ssdml.experiments.methods.base import Compared, Factory, Method
from ssdml.experiments.methods.classifiers import LabeledRowsClassifier
from ssdml.experiments.methods.estimators import ClassDistributions, LabeledRowsOnly

__all__ = ["METHODS"]


def _logistic(random_state: int, n_jobs: int | None) -> Compared:
    from sklearn.linear_model import LogisticRegression  # its n_jobs is deprecated

    model = LogisticRegression(C=10.0, max_iter=1000, random_state=random_state)
    return LabeledRowsClassifier(model, {"C": (10.0, 1.0, 100.0, 0.1, 1000.0)})


def _self_training(random_state: int, n_jobs: int | None) -> Compared:
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import SelfTrainingClassifier

    return ClassDistributions(SelfTrainingClassifier(LogisticRegression(max_iter=1000)))


def _tabpfn(random_state: int, n_jobs: int | None) -> Compared:
    from tabpfn import TabPFNClassifier  # it loads its weights, downloading them once

    return LabeledRowsClassifier(TabPFNClassifier(random_state=random_state))


_HERE = "ssdml.experiments.methods"
METHODS: dict[str, Factory] = {
    "input": Method(f"{_HERE}.estimators:InputFeatures"),
    "logistic": _logistic,
    "knn": Method(
        "sklearn.neighbors:KNeighborsClassifier",
        n_neighbors=1,
        wrapper=partial(LabeledRowsClassifier, grid={"n_neighbors": (1, 3, 5, 10, 20)}),
    ),
    "poisson": Method(f"{_HERE}.classifiers:PoissonClassifier"),
    **({"tabpfn": _tabpfn} if find_spec("tabpfn") else {}),
    "pca": Method("sklearn.decomposition:PCA", n_components=0.95, svd_solver="full"),
    # The Ledoit-Wolf estimate is singular where a feature is constant in the labeled samples;
    # equal shares are as strong with 5 labels per class.
    "lda": Method(
        "sklearn.discriminant_analysis:LinearDiscriminantAnalysis",
        solver="eigen",
        shrinkage=0.5,
        wrapper=LabeledRowsOnly,
    ),
    "nca": Method("sklearn.neighbors:NeighborhoodComponentsAnalysis", wrapper=LabeledRowsOnly),
    "label-spreading": Method(
        "sklearn.semi_supervised:LabelSpreading",
        kernel="knn",
        n_neighbors=10,
        wrapper=ClassDistributions,
    ),
    "self-training": _self_training,
    **({"umap": Method(f"{_HERE}.estimators:SupervisedUMAP")} if find_spec("umap") else {}),
    "lrml": Method("ssdml.baselines:LRML"),
    "seraph": Method("ssdml.baselines:SERAPH"),
    "isdml": Method("ssdml.baselines:ISDML"),
    "apllr": Method("ssdml.baselines:APLLR"),
    "apit": Method("ssdml.baselines:APIT"),
    "ssdml": Method("ssdml:SSDML"),
    "ssdml-paper": Method("ssdml:SSDML.paper"),
}

# Makes a method from the name of a network and the dimension of the embedding; None: all features.
DeepFactory = Callable[[str, int | None], Factory]


def _pretrain_epochs(network: str) -> int:
    from ssdml.networks.backbones import paper_network  # loads torch

    return paper_network(network).pretrain_epochs


def _alternation(method: str, network: str, n_components: int | None) -> Factory:
    """A metric learner in alternation with a network; its metric is a full matrix."""
    epochs = _pretrain_epochs(network)
    return Method("ssdml.baselines:DeepBaseline", method, network, pretrain_epochs=epochs)


def _supervised(method: str, network: str, n_components: int | None) -> Factory:
    """A network trained on the labeled images."""
    return Method(
        "ssdml.baselines:DeepSupervised",
        method,
        network,
        n_components=n_components,
        pretrain_epochs=_pretrain_epochs(network),
    )


def _unsupervised(method: str, network: str, n_components: int | None) -> Factory:
    """A network trained without labels."""
    return Method("ssdml.baselines:DeepUnsupervised", method, network, n_components=n_components)


DEEP_METHODS: dict[str, DeepFactory] = {
    "initial": lambda network, _: Method("ssdml.experiments.methods.deep:InitialFeatures", network),
    "deep-ssdml": lambda *network: Method("ssdml:DeepSSDML", *network),
    "deep-ssdml-paper": lambda *network: Method("ssdml:DeepSSDML.paper", *network),
    "deep-lrml": partial(_alternation, "lrml"),
    "deep-seraph": partial(_alternation, "seraph"),
    "deep-isdml": partial(_alternation, "isdml"),
    "deep-apllr": partial(_alternation, "apllr"),
    "deep-apit": partial(_alternation, "apit"),
    "deep-triplet": partial(_supervised, "triplet"),
    "deep-angular": partial(_supervised, "angular"),
    "deep-exemplar": partial(_unsupervised, "exemplar"),
    "deep-rotnet": partial(_unsupervised, "rotnet"),
    "deep-nce": partial(_unsupervised, "nce"),
    "deep-deepcluster": partial(_unsupervised, "deepcluster"),
    "deep-suml": partial(_unsupervised, "suml"),
}
