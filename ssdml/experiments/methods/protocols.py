"""Published protocols for photographs: network, images, labels and training of each paper.

An entry that its paper does not state is missing or marked "not stated".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

# The K of R@K. Li et al. go on to 128 on CUB and Cars, Zheng et al. to 32.
RECALL_AT: dict[str, tuple[int, ...]] = {
    "caltech101_images": (1, 2, 4, 8),
    "cub": (1, 2, 4, 8),
    "cars": (1, 2, 4, 8),
    "sop": (1, 10, 100, 1000),
    "inshop": (1, 10, 20, 30, 40, 50),
}


@dataclass(frozen=True)
class Protocol:
    """Training and evaluation of a paper on photographs.

    Attributes
    ----------
    source : str
        Citation, and where in the paper.
    architecture, pooling : str
        As in `ssdml.networks.fine_grained.fine_grained_backbone`.
    n_components : int or None
        Dimension of the embedding; None: that of the network's features.
    image_size : int
        Side of the images in pixels.
    datasets : tuple of str
    input_scales : tuple of float
        Relative sides at which each image is seen.
    frozen_norms : bool, or dict by data set
        Whether batch normalization keeps its statistics.
    labels_per_class : int or None
        None: all training images are labeled.
    learning : dict
        Parameters of the estimators, and ``n_steps`` where the paper counts batches. A value may be
        a dict by data set.
    """

    source: str
    architecture: str
    pooling: str
    n_components: int | None
    image_size: int
    datasets: tuple[str, ...]
    input_scales: tuple[float, ...] = (1.0,)
    frozen_norms: bool | Mapping[str, bool] = False
    labels_per_class: int | None = None
    learning: Mapping[str, Any] = field(default_factory=dict)

    def on(self, dataset: str, n_images: int) -> Protocol:
        """Resolve the values for one data set, and convert steps to epochs.

        Parameters
        ----------
        dataset : str
        n_images : int
            Number of training images.

        Raises
        ------
        ValueError
            If the paper gives a value for other data sets only.

        Examples
        --------
        >>> learning = LI2020.on("cub", 5864).learning
        >>> learning["learning_rate"], learning["epochs"]
        (1e-05, 512)
        """
        learning = {name: _value(name, of, dataset) for name, of in self.learning.items()}
        if "n_steps" in learning:
            learning["epochs"] = ceil(learning.pop("n_steps") * learning["batch_size"] / n_images)
        frozen_norms = _value("frozen_norms", self.frozen_norms, dataset)
        return replace(self, frozen_norms=frozen_norms, learning=learning)


def _value(name: str, value: Any, dataset: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    if dataset not in value:
        raise ValueError(
            f"protocol: dataset must be one of {', '.join(value)}, for which the paper gives "
            f"{name}; got {dataset}. Choose another protocol."
        )
    return value[dataset]


CHEN2021 = Protocol(
    source='Chen et al., "Deep metric learning with graph consistency", AAAI 2021, Implementation',
    architecture="googlenet",  # or bn_inception
    pooling="average",
    n_components=512,
    image_size=227,  # cut at random from 256 x 256
    datasets=("cub", "cars", "sop", "inshop"),
    learning={
        "optimizer": "Adam",
        "learning_rate": 1e-5,  # ten times as much for the embedding
        "weight_decay": 2e-4,
        "batch_size": 130,  # 13 classes with 10 images each
        "n_steps": {"cub": 5_000, "cars": 10_000, "sop": 20_000, "inshop": 20_000},
    },
)
ZHU2020 = Protocol(
    source='Zhu et al., "Fewer is more", NeurIPS 2020, and its code',
    architecture="bn_inception",
    pooling="average",
    n_components=512,  # the poster's table has 64 and 384
    image_size=224,  # not stated
    datasets=("cub", "cars", "sop"),
    frozen_norms={"cub": True, "cars": True, "sop": False},
    learning={
        "optimizer": "Adam",
        "learning_rate": 1e-4,  # proxies: 0.03; both divided by 10 at epochs 20 and 40
        "weight_decay": 1e-4,
        "batch_size": 32,
        "epochs": 50,
    },
)
LI2020 = Protocol(
    source='Li et al., "Deep metric learning with density adaptivity", IEEE TMM 2020, Section IV-A',
    architecture="googlenet",
    pooling="average",
    n_components=128,
    image_size=224,  # not stated
    datasets=("cub", "cars", "sop"),
    learning={
        "optimizer": "Adam",
        "learning_rate": {"cars": 5e-4, "cub": 1e-5, "sop": 3e-5},
        "batch_size": 100,  # 10 classes with 10 images each; whole classes on sop
        "n_steps": 30_000,
    },
)
DUTTA2021 = Protocol(
    source='Dutta et al., "Semi-supervised metric learning: a deep resurrection", AAAI 2021, p. 5',
    architecture="googlenet",
    pooling="rmac",
    n_components=128,
    image_size=512,
    datasets=("cub", "cars"),
    input_scales=(1.0, 2**-0.5, 0.5),  # 512, 512 / √2 and 256 pixels
    labels_per_class=5,
    learning={
        "n_neighbors": 50,
        "decay": 0.99,
        "angle": 45.0,
        "partition_size": None,
        "epochs": 200,
    },
)
# Dutta et al. (2021) with a pretrained network and images that a CPU can train on.
DUTTA2021_LITE = replace(
    DUTTA2021,
    source=f"{DUTTA2021.source}, with another network, smaller images and less training",
    architecture="efficientnet_lite0",
    pooling="average",
    image_size=128,
    datasets=("caltech101_images",),
    input_scales=(1.0,),
    frozen_norms=True,
    learning={
        **DUTTA2021.learning,
        "epochs": 2,
        "epochs_per_partition": 1,
        "n_neighbors": 10,  # classes have as few as 31 images
        "partition_size": 250,
        "batch_size": 100,
    },
)
ZHENG2019 = Protocol(
    source='Zheng et al., "Toward optimal fine grained retrieval via decorrelated centralized '
    'loss with normalize-scale layer", AAAI 2019, Implementation details',
    architecture="resnet50",
    pooling="scda",
    n_components=None,
    image_size=224,  # not stated
    datasets=("cub", "cars"),
    learning={
        "learning_rate": 1e-4,  # divided by 10 every 100 epochs
        "batch_size": 60,
        "epochs": 20,
    },
)
PROTOCOLS = {
    "chen2021": CHEN2021,
    "zhu2020": ZHU2020,
    "li2020": LI2020,
    "dutta2021": DUTTA2021,
    "zheng2019": ZHENG2019,
    "dutta2021-lite": DUTTA2021_LITE,
}
DEFAULT_PROTOCOL = "dutta2021"  # whose tables examples/ reproduces
