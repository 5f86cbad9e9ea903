from .compare import (
    compare as compare,
)
from .methods.registry import (
    METHODS as METHODS,
)
from .runs.job import (
    run_one as run_one,
)
