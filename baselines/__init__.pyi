from .apit import (
    APIT as APIT,
)
from .apllr import (
    APLLR as APLLR,
)
from .deep.alternation import (
    DeepBaseline as DeepBaseline,
)
from .deep.supervised import (
    DeepSupervised as DeepSupervised,
)
from .deep.unsupervised import (
    DeepUnsupervised as DeepUnsupervised,
)
from .isdml import (
    ISDML as ISDML,
)
from .lrml import (
    LRML as LRML,
)
from .seraph import (
    SERAPH as SERAPH,
)
