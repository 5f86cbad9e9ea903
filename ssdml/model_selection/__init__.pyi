from .fit_cost import plan_fit as plan_fit
from .labeling import suggest_labels as suggest_labels
from .split import (
    SemiSupervisedSplit as SemiSupervisedSplit,
    labeled_scorer as labeled_scorer,
)
from .suggest import suggest_parameters as suggest_parameters
