from .split import (
    LabelledScorer as LabelledScorer,
    SemiSupervisedSplit as SemiSupervisedSplit,
    labelled_scorer as labelled_scorer,
)
