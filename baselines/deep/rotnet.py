"""RotNet: predict by how many quarters an image was rotated."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssdml.baselines.deep.recipe import Recipe, Softmax, UnsupervisedTrainer
from ssdml.utils.typing import Indices


class RotNet(Recipe):
    """Classify the four rotations of each image, all in the same batch.

    Notes
    -----
    The learning rate falls to a fifth after 30, 60 and 80% of the steps, as published. Expect
    little on digits: 0, 1 and 8 look alike upside down, and a rotated 6 is a 9.

    References
    ----------
    .. [1] Gidaris, Singh, Komodakis, "Unsupervised representation learning by predicting image
       rotations", ICLR 2018.
    """

    drops, drop, nesterov = (0.3, 0.6, 0.8), 0.2, True

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise unless items are square images."""
        if len(shape) != 3 or shape[1] != shape[2]:
            raise ValueError(
                f"rotnet: items must be square images; got items of shape {shape}. Crop them, or "
                "choose another method."
            )

    def new_head(self, n_items: int, d: int, n_components: int) -> nn.Module:
        """Return a softmax over the rotations."""
        return Softmax(n_components, 4)

    def loss(self, run: UnsupervisedTrainer, batch: Indices) -> Tensor:
        """Compute the cross-entropy of the rotations."""
        rotated, turns = quarter_turns(run.views(batch))
        return functional.cross_entropy(run.head(run.layer(rotated)), turns)


def quarter_turns(images: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate all images by 0, 1, 2 and 3 quarters, counterclockwise.

    Returns images (4 n, channels, side, side) and the number of quarters (4 n,).

    Examples
    --------
    >>> rotated, turns = quarter_turns(torch.tensor([[[[1, 2], [3, 4]]]]))
    >>> rotated[1, 0].tolist(), turns.tolist()
    ([[2, 4], [1, 3]], [0, 1, 2, 3])
    """
    rotated = torch.cat([torch.rot90(images, k, (2, 3)) for k in range(4)])
    return rotated, torch.arange(4, device=images.device).repeat_interleave(len(images))
