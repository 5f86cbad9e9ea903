"""What seed 003 sets with each of its two networks, beside the layers."""

from __future__ import annotations

from typing import Any, NamedTuple


class PaperNetwork(NamedTuple):
    """Protocol of a network of seed 003 (implementation details)."""

    image_size: tuple[int, int]
    n_components: int  # columns of L
    pretrain_epochs: int  # by softmax, on the labelled images


PAPER_NETWORKS = {
    "mnist": PaperNetwork((28, 28), 64, 0),
    "cifar": PaperNetwork((32, 32), 32, 30),
}


def paper_network(backbone: Any) -> PaperNetwork:
    """What the seed sets with a backbone; with one that it does not have, as with its first."""
    name = backbone if isinstance(backbone, str) else ""
    return PAPER_NETWORKS.get(name, PAPER_NETWORKS["mnist"])
