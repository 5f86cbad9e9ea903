from .deep.estimator import DeepSSDML as DeepSSDML
from .metric.estimator import SSDML as SSDML

__version__: str
