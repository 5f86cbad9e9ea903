"""Measure ssdml on a CUDA device: ``python -m tools.gpu``, or ``make gpu``.

Two parts, each of some minutes: ``checks`` and ``cifar10``. Rows go to ``docs/results/gpu/``, one
JSON line per measurement; a row that is there for this card is not measured again, one that failed
is. A machine without network needs torch, numpy, scipy and scikit-learn, the checkout, the data in
``SSDML_DATA``, and wheels: ``pip download --no-deps -d wheels faiss-cpu lazy_loader psutil pymanopt
safetensors`` before, and ``pip install --no-index --no-deps wheels/*.whl`` there.

Exit status: 0, or 1 where a measurement failed, or 2 where there is no card or no data.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from tools.gpu.rows import Rows, tell

ROOT = Path(__file__).resolve().parents[2]
DATA = {"checks": "mnist", "cifar10": "cifar10"}  # what each part needs
PARTS = tuple(DATA)
SECONDS = 400  # of each part, at most


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; else all")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "gpu")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each part, at most")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="a dry run on a few digits")
    given = parser.parse_args(arguments)
    for part in given.parts:
        if part not in PARTS:
            parser.error(f"PART must be one of {', '.join(PARTS)}; got {part}.")
    parts = given.parts or PARTS
    if problem := missing(given.device, parts, toy=given.toy):
        sys.stderr.write(f"tools.gpu: {problem}\n")
        return 2
    failed: list[str] = []
    for part in parts:
        failed += run(part, given)
    if failed:
        tell(f"failed: {', '.join(failed)}; the rows say why, and the same command tries again")
    return 1 if failed else 0


def run(part: str, given: argparse.Namespace) -> list[str]:
    """Run a part; the names of measurements that failed."""
    from tools.gpu.checks import run_checks
    from tools.gpu.recipes import run_cifar10

    rows = Rows(given.out / f"{part}.jsonl", given.device, given.seconds)
    {"checks": run_checks, "cifar10": run_cifar10}[part](rows, toy=given.toy)
    return rows.failed


def missing(device: str, parts: Sequence[str], *, toy: bool) -> str:
    """The card or the data that parts lack, with the way out; empty where nothing is missing."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        return (
            f"device must be a CUDA device that torch finds; got {device!r}, and torch "
            f"{torch.__version__} finds none. Run it on a machine with a card and a CUDA build of "
            "torch (pip install torch), or try it here: python -m tools.gpu --toy --device cpu "
            "--out DIR."
        )
    if toy:
        return ""
    if not device.startswith("cuda"):
        return f"device must be a CUDA device; got {device!r}. Add --toy for a dry run on it."
    from ssdml.datasets import dataset_status

    names = [DATA[part] for part in parts]
    absent = [s for s in dataset_status() if s.name in names and not s.available]
    return " ".join(status.note for status in absent)


if __name__ == "__main__":
    sys.exit(main())
