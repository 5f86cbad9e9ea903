from .calibration import (
    Reliability as Reliability,
    calibration_error as calibration_error,
    reliability as reliability,
)
from .clustering import (
    kmeans_clusters as kmeans_clusters,
    normalized_mutual_information as normalized_mutual_information,
    pairwise_f1 as pairwise_f1,
)
from .scores import (
    evaluate as evaluate,
    few_label_accuracy as few_label_accuracy,
    is_embedding_score as is_embedding_score,
    nearest_mean as nearest_mean,
    triplet_purity as triplet_purity,
)
