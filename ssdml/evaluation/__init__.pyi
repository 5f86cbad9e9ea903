from .calibration import (
    Reliability as Reliability,
    calibration_error as calibration_error,
    reliability as reliability,
)
from .clustering import pairwise_f1 as pairwise_f1
from .retrieval import retrieval_scores as retrieval_scores
from .scores import (
    evaluate as evaluate,
    few_label_accuracy as few_label_accuracy,
    triplet_purity as triplet_purity,
)
