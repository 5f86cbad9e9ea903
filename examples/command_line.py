"""Arguments, usage errors and rows of results of the example scripts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of earlier runs, one JSON object per line; make the file if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add_row(path: Path, row: dict[str, Any]) -> None:
    """Append the row of a run."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(row)}\n")
