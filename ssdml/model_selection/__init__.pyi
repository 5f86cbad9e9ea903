from .split import (
    LabeledScorer as LabeledScorer,
    SemiSupervisedSplit as SemiSupervisedSplit,
    labeled_scorer as labeled_scorer,
)
