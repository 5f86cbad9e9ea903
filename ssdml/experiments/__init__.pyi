from .compare import (
    compare as compare,
)
from .methods.registry import (
    METHODS as METHODS,
)
