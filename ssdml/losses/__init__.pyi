from .angular import (
    AngularTripletLoss as AngularTripletLoss,
)
from .base import (
    Loss as Loss,
    LossSum as LossSum,
)
from .centers import (
    DecorrelatedCentersLoss as DecorrelatedCentersLoss,
    GlobalCenterRankingLoss as GlobalCenterRankingLoss,
    NormalizeScale as NormalizeScale,
)
from .consistency import (
    GraphConsistency as GraphConsistency,
)
from .density import (
    DensityAdaptivity as DensityAdaptivity,
    class_densities as class_densities,
)
from .pairs import (
    BinomialDevianceLoss as BinomialDevianceLoss,
    ContrastiveLoss as ContrastiveLoss,
    NPairBatchLoss as NPairBatchLoss,
)
from .proxy_gml import (
    ProxyGMLLoss as ProxyGMLLoss,
)
from .regularizers import (
    EntropyRegularizer as EntropyRegularizer,
    GlobalOrthogonalRegularizer as GlobalOrthogonalRegularizer,
)
