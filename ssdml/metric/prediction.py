"""Predictions from distributions of neighbors, and suspected labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ssdml.classification.learning import HeldOut
from ssdml.utils.typing import Array, Ints


class SuspectedLabels(NamedTuple):
    """Labels that contradict the others, the most confident contradictions first."""

    rows: Ints
    labels: Array
    classes: Array  # predicted from the other labels
    confidences: Array  # in these classes


def suspects(held_out: HeldOut, classes: Array) -> SuspectedLabels:
    """Labels that the others predict to be another class, the most confident first."""
    found, confidences = held_out.distributions.argmax(1), held_out.distributions.max(1)
    wrong = np.flatnonzero(found != held_out.codes)
    wrong = wrong[np.argsort(-confidences[wrong], kind="stable")]
    labels = classes[held_out.codes[wrong]]
    return SuspectedLabels(held_out.rows[wrong], labels, classes[found[wrong]], confidences[wrong])


def neighbor_votes(distances: Array, distributions: Array) -> Array:
    """Average the distributions (m, k, n_classes) of neighbors, weighted by their distance.

    Examples
    --------
    >>> neighbor_votes(np.array([[0.0, 1.0]]), np.array([[[1.0, 0.0], [0.0, 1.0]]])).round(3)
    array([[0.731, 0.269]])
    """
    scale = np.maximum(distances[:, -1:], np.finfo(distances.dtype).tiny)
    weights = np.exp(-((distances / scale) ** 2))[:, :, None]
    votes: Array = (weights * distributions).sum(axis=1)
    votes /= votes.sum(axis=1, keepdims=True)
    return votes
