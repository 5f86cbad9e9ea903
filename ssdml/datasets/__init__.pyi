from .base import (
    Dataset as Dataset,
)
from .budgets import (
    Budget as Budget,
)
from .known.layouts import (
    DatasetStatus as DatasetStatus,
    dataset_status as dataset_status,
)
from .loading import (
    encode_partial_labels as encode_partial_labels,
    load_dataset as load_dataset,
)
from .splits import (
    LabelScarceSplit as LabelScarceSplit,
    label_scarce_split as label_scarce_split,
)
