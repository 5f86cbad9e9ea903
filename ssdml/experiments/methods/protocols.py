"""What the papers say of their experiments on photographs: networks, images, labels, learning.

Where a paper is silent an entry is missing, or says so. Seeds are numbered as everywhere here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

# The K of R@K for each data set. Seed 002 goes on to 128 on CUB and Cars, seed 004 to 32.
RECALL_AT: dict[str, tuple[int, ...]] = {
    "cub": (1, 2, 4, 8),
    "cars": (1, 2, 4, 8),
    "sop": (1, 10, 100, 1000),
    "inshop": (1, 10, 20, 30, 40, 50),
}

# Images and classes, learned | scored, as the papers count them. Of In-Shop's 26,830 test images
# 14,218 are queries and 12,612 the gallery; seed 000 prints 28,760 for their sum, and seed 004
# 8,045 for the 8,054 of Cars.
SIZES: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "cub": ((5864, 100), (5924, 100)),
    "cars": ((8054, 98), (8131, 98)),
    "sop": ((59551, 11318), (60502, 11316)),
    "inshop": ((25882, 3997), (26830, 3985)),
}


@dataclass(frozen=True)
class Protocol:
    """How a paper learns from photographs.

    Attributes
    ----------
    source : str
        The paper, and where in it.
    architecture, pooling : str
        Of `ssdml.networks.fine_grained.fine_grained_backbone`.
    n_components : int or None
        Columns of the embedding; None: as many as the network has features.
    image_size : int
        Side of the images.
    input_scales : tuple of float
        Sides at which each image is seen, relative to that.
    frozen_norms : bool, or dict by data set
        Whether batch normalization keeps its statistics.
    labels_per_class : int or None
        None: all images that are learned from are labeled.
    data_sets : tuple of str
    learning : dict
        Of seed 003, parameters of `ssdml.DeepSSDML`; of others, what they say of their steps. Some
        values are dicts by data set; :meth:`on` takes one out of each.
    """

    source: str
    architecture: str
    pooling: str
    n_components: int | None
    image_size: int
    data_sets: tuple[str, ...]
    input_scales: tuple[float, ...] = (1.0,)
    frozen_norms: bool | Mapping[str, bool] = False
    labels_per_class: int | None = None
    learning: Mapping[str, Any] = field(default_factory=dict)

    def on(self, name: str, n_items: int) -> Protocol:
        """The protocol on one data set: its own values, and in the place of steps passes.

        Parameters
        ----------
        name : str
            Of the data set.
        n_items : int
            That are learned from: ``n_steps`` batches are ``epochs`` passes over so many.

        Raises
        ------
        ValueError
            If a value is printed for other data sets alone.

        Examples
        --------
        >>> learning = SEED_002.on("cub", 5864).learning
        >>> learning["learning_rate"], learning["epochs"]
        (1e-05, 512)
        """
        learning = {key: self._of(key, value, name) for key, value in self.learning.items()}
        if "n_steps" in learning:
            learning["epochs"] = ceil(learning.pop("n_steps") * learning["batch_size"] / n_items)
        frozen = self._of("frozen_norms", self.frozen_norms, name)
        return replace(self, frozen_norms=frozen, learning=learning)

    def _of(self, key: str, value: Any, name: str) -> Any:
        if not isinstance(value, Mapping):
            return value
        if name not in value:
            raise ValueError(
                f"protocol: {key} must be known for the data set; its paper has it for "
                f"{', '.join(value)}, and got {name}. Take the protocol of another paper."
            )
        return value[name]


SEED_000 = Protocol(
    source='Chen et al., "Deep metric learning with graph consistency", AAAI 2021, Implementation',
    architecture="googlenet",  # and bn_inception in the place of it
    pooling="average",
    n_components=512,
    image_size=227,  # cut at random from 256 x 256
    data_sets=("cub", "cars", "sop", "inshop"),
    learning={
        "optimizer": "Adam",
        "learning_rate": 1e-5,  # ten times that for the embedding
        "weight_decay": 2e-4,
        "batch_size": 130,  # 13 classes, 10 images of each
        "n_steps": {"cub": 5_000, "cars": 10_000, "sop": 20_000, "inshop": 20_000},
    },
)
SEED_001 = Protocol(
    source='Zhu et al., "Fewer is more", NeurIPS 2020, with its code, as the poster is silent',
    architecture="bn_inception",
    pooling="average",
    n_components=512,  # the poster's table has 64 and 384
    image_size=224,  # silent
    data_sets=("cub", "cars", "sop"),
    frozen_norms={"cub": True, "cars": True, "sop": False},
    learning={
        "optimizer": "Adam",
        "learning_rate": 1e-4,  # of the proxies 0.03; both a tenth from epochs 20 and 40 on
        "weight_decay": 1e-4,
        "batch_size": 32,
        "epochs": 50,
    },
)
SEED_002 = Protocol(
    source='Li et al., "Deep metric learning with density adaptivity", IEEE TMM 2020, Section IV-A',
    architecture="googlenet",
    pooling="average",
    n_components=128,
    image_size=224,  # silent
    data_sets=("cub", "cars", "sop"),
    learning={
        "optimizer": "Adam",
        "learning_rate": {"cars": 5e-4, "cub": 1e-5, "sop": 3e-5},
        "batch_size": 100,  # 10 classes, 10 images of each; on sop whole classes
        "n_steps": 30_000,
    },
)
SEED_003 = Protocol(
    source='Dutta et al., "Semi-supervised metric learning: a deep resurrection", AAAI 2021, p. 5',
    architecture="googlenet",
    pooling="rmac",
    n_components=128,
    image_size=512,
    data_sets=("cub", "cars"),
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
SEED_004 = Protocol(
    source='Zheng et al., "Toward optimal fine grained retrieval via decorrelated centralized '
    'loss with normalize-scale layer", AAAI 2019, Implementation details',
    architecture="resnet50",
    pooling="max+average",
    n_components=None,
    image_size=224,  # silent
    data_sets=("cub", "cars"),
    learning={
        "learning_rate": 1e-4,  # a tenth of it every 100 epochs
        "batch_size": 60,
        "epochs": 20,  # that many sufficed
    },
)
PROTOCOLS = {
    "000": SEED_000,
    "001": SEED_001,
    "002": SEED_002,
    "003": SEED_003,
    "004": SEED_004,
}
PAPER = "003"  # whose tables are reproduced
