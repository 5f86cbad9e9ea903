from .deep.estimator import DeepSSDML as DeepSSDML
from .metric.estimator import SSDML as SSDML
from .model_selection.labeling import suggest_labels as suggest_labels

__version__: str
