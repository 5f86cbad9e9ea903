"""Arguments and usage errors of the example scripts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ssdml import datasets
from ssdml.datasets.image_files import ImageFiles


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number of at least 1.")
    return int(text)


def existing_file(path: str) -> str:
    """Check that a file exists."""
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{path} must be an existing file.")
    return path


@contextmanager
def usage_errors(parser: argparse.ArgumentParser) -> Iterator[None]:
    """End the process with one line: status 2 for an invalid value or file, 1 for a failed run."""
    try:
        yield
    except (ValueError, OSError) as error:
        parser.error(" ".join(str(error).split()))
    except RuntimeError as error:
        parser.exit(1, f"{error}\n")


def images_in_memory(
    parser: argparse.ArgumentParser, name: str, data_dir: Path | None = None
) -> datasets.Dataset:
    """Load a data set of images; end the process with one line if it is none, or is in files."""
    with usage_errors(parser):
        data = datasets.load_dataset(name, data_dir=data_dir)
    if data.item_shape is None or isinstance(data.X, ImageFiles):
        parser.error(f"dataset must hold images in memory; got {data.name}.")
    return data
