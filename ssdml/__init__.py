"""Learn a metric from many samples and a handful of labels.

Names load on first use: torch and scikit-learn are imported with the class that needs them.
"""

from __future__ import annotations

from pathlib import Path

from lazy_loader import attach_stub

from ssdml._version import __version__  # noqa: F401

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

# In a checkout, graphs/ and baselines/ lie beside this folder; in a wheel, inside of it.
if not (Path(__file__).parent / "graphs").exists():
    __path__.append(str(Path(__file__).parents[1]))
