"""In a source checkout, find ``ssdml.graphs`` and ``ssdml.baselines`` beside this folder.

The wheel carries both inside the package, and there this module does nothing.
``ssdml/__init__.py`` imports it first.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

PACKAGE = Path(__file__).parent
SIBLINGS = {
    f"ssdml.{name}": PACKAGE.parent / name / "__init__.py" for name in ("graphs", "baselines")
}


class SiblingFinder:
    """Finds the names in ``SIBLINGS`` and nothing else."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Spec of a sibling package, or None for every other name."""
        return spec_from_file_location(name, SIBLINGS[name]) if name in SIBLINGS else None


if not (PACKAGE / "graphs").exists() and all(init.is_file() for init in SIBLINGS.values()):
    # First in line: another checkout, installed with `pip install -e`, must not answer for this.
    sys.meta_path.insert(0, SiblingFinder)
