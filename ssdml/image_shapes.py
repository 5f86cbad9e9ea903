"""Where the channels of an image stand, by its shape."""

from __future__ import annotations

from collections.abc import Sequence

CHANNELS = (1, 3, 4)  # grey, colours, colours that let something through


def has_channels_last(shape: Sequence[int]) -> bool:
    """Whether the shape of an item is that of an image whose channels stand behind its pixels.

    Examples
    --------
    >>> has_channels_last((32, 32, 3)), has_channels_last((3, 32, 32)), has_channels_last((3, 9, 3))
    (True, False, False)
    """
    return len(shape) == 3 and shape[-1] in CHANNELS and shape[0] not in CHANNELS


def has_channels_first(shape: Sequence[int]) -> bool:
    """Whether the shape of an item is that of an image whose channels stand before its pixels.

    Examples
    --------
    >>> has_channels_first((3, 32, 32)), has_channels_first((32, 32, 3))
    (True, False)
    """
    return has_channels_last(shape[::-1])
