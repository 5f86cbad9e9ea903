"""Thumbnails and other copies among images."""

from __future__ import annotations

import pytest

from ssdml.datasets.reading.paths import read_path
from tests.images import write_images

TOLD = "may be copies of others"


@pytest.mark.parametrize("end", ["_thumb", "-150x150", "@2x", " copy 2", " - Copy", ".thumbnail"])
def test_copies_beside_images_are_doubted(tmp_path, end):
    write_images(tmp_path, ["cat/1.png", f"cat/1{end}.png", "dog/1.png", "dog/2.png"])
    [doubt] = (d for d in read_path(tmp_path).summary.doubts if TOLD in d)
    assert doubt.startswith(f"1 image such as cat/1{end}.png {TOLD}")


def test_numbers_and_names_alone_are_no_copies(tmp_path):
    write_images(tmp_path, ["cat/1.png", "cat/1 (2).png", "cat/1_2.png", "cat/thumb.png"])
    write_images(tmp_path, ["dog/2_thumb.png", "dog/3-150x150.png", "dog/copy.png", "dog/3.jpg"])
    assert any(TOLD in doubt for doubt in read_path(tmp_path).summary.doubts)
    (tmp_path / "dog/3.jpg").unlink()
    assert not any(TOLD in doubt for doubt in read_path(tmp_path).summary.doubts)
