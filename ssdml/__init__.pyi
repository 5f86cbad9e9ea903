from ._version import (
    __version__ as __version__,
)
from .deep.estimator import (
    DeepSSDML as DeepSSDML,
)
from .metric.estimator import (
    SSDML as SSDML,
)
