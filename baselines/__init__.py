"""Published metric learners, one method a file; estimators like SSDML and DeepSSDML.

Names load on first use, so that ``import ssdml.baselines`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssdml.baselines.apit import APIT
    from ssdml.baselines.apllr import APLLR
    from ssdml.baselines.deep import DeepBaseline
    from ssdml.baselines.isdml import ISDML
    from ssdml.baselines.lrml import LRML
    from ssdml.baselines.seraph import SERAPH
    from ssdml.baselines.supervised import DeepSupervised
    from ssdml.baselines.unsupervised import DeepUnsupervised

__all__ = [
    "APIT",
    "APLLR",
    "ISDML",
    "LRML",
    "SERAPH",
    "DeepBaseline",
    "DeepSupervised",
    "DeepUnsupervised",
]

_HOMES = {  # the others stand in files of their names
    "DeepBaseline": "deep",
    "DeepSupervised": "supervised",
    "DeepUnsupervised": "unsupervised",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ssdml.baselines' has no attribute {name!r}")
    return getattr(import_module(f"ssdml.baselines.{_HOMES.get(name, name.lower())}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
