"""The interface of a compared method, and names such as ``"ssdml[n_neighbors=20]"``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from sklearn.base import BaseEstimator

from ssdml.utils.typing import Array
from ssdml.utils.validation import check_rows, choose


class Compared(Protocol):
    """A compared estimator, with ``transform(X)``, ``predict(X)`` or both."""

    def fit(self, X: Array, y: Array) -> Any:
        """Learn from the training samples; y holds -1 for unlabeled ones."""


# Makes an unfitted method from a random seed and a number of jobs.
Factory = Callable[[int, int | None], Compared]


class Method:
    """Factory of an estimator, which is imported when the method is first used.

    Parameters
    ----------
    path : str
        ``module:Class``, or a function in the place of the class.
    *arguments, **parameters
        Passed to it, with ``random_state`` and ``n_jobs`` if it takes them.
    wrapper : callable, optional
        Applied to the estimator.
    """

    def __init__(
        self,
        path: str,
        *arguments: Any,
        wrapper: Callable[[Any], Compared] | None = None,
        **parameters: Any,
    ) -> None:
        self.path = path
        self.arguments = arguments
        self.wrapper = wrapper
        self.parameters = parameters

    def __call__(self, random_state: int, n_jobs: int | None) -> Compared:
        """Make the estimator."""
        make = resolve_name(self.path)
        taken = signature(make).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
        given = {"random_state": random_state, "n_jobs": n_jobs}
        options = {name: value for name, value in given.items() if takes_all or name in taken}
        estimator: Compared = make(*self.arguments, **self.parameters, **options)
        return estimator if self.wrapper is None else self.wrapper(estimator)


PACKAGES = {"umap": "umap-learn", "tabpfn": "tabpfn"}  # optional dependencies, by import name


def embed(model: Any, X: Array) -> Array:
    """Embed samples; a classifier without ``transform`` leaves them as they are."""
    if not hasattr(model, "transform"):
        return X
    who = f"{type(model).__name__}.transform"
    Z = check_rows(model.transform(X), who, "embedding")
    if len(Z) != len(X):
        raise ValueError(
            f"{who} must return one row per sample, shape ({len(X)}, n_components); got shape "
            f"{Z.shape}."
        )
    return Z


def parse_method(name: str) -> tuple[str, dict[str, str]]:
    """Split a name into the method and its parameters, as text.

    Examples
    --------
    >>> parse_method("ssdml[n_neighbors=20;decay=0.9]")
    ('ssdml', {'n_neighbors': '20', 'decay': '0.9'})
    """
    method, bracket, rest = name.partition("[")
    parts = rest.removesuffix("]").split(";") if bracket else []
    return method, dict(part.partition("=")[::2] for part in parts)


def format_method(method: str, parameters: Mapping[str, str]) -> str:
    """Join what :func:`parse_method` splits.

    Examples
    --------
    >>> format_method("ssdml", {"decay": "0.9"}), format_method("lda", {})
    ('ssdml[decay=0.9]', 'lda')
    """
    values = ";".join(f"{name}={value}" for name, value in parameters.items())
    return f"{method}[{values}]" if values else method


def with_parameters(name: str, known: Mapping[str, Factory]) -> Factory:
    """Factory of a method by its name, with the bracketed parameters set.

    Values are read as JSON, or as text if they are not JSON. A parameter that the method rejects
    raises here, before any run. A name ``module:Class`` is a method of the caller's own; its module
    is imported from the current folder, or as installed.

    Examples
    --------
    >>> from ssdml.experiments import METHODS
    >>> with_parameters("ssdml[n_neighbors=20]", METHODS)(0, None).n_neighbors
    20
    """
    method, parameters = parse_method(name)
    module = method.partition("-")[0]  # that of "umap-tuned" too
    if module in PACKAGES and not find_spec(module):
        raise ImportError(f"{method} needs {PACKAGES[module]}: pip install 'ssdml[{module}]'.")
    factory = _own_method(method) if ":" in method else choose(known, method, "method")
    if not parameters:
        return factory
    if not name.endswith("]") or not all(parameters) or not all(parameters.values()):
        raise ValueError(
            f"method must be a name, or name[parameter=value;parameter=value]; got {name!r}."
        )
    changed = partial(_changed, factory, {key: _value(text) for key, text in parameters.items()})
    model: Any = changed(0, None)
    for part in (model, *model.get_params().values()):
        if isinstance(part, BaseEstimator) and hasattr(part, "_parameter_constraints"):
            part._validate_params()
    return changed


def _own_method(path: str) -> Factory:
    """Factory of ``module:Class``, with the errors of importing and making it."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; joblib passes it to its workers
    factory = Method(path)
    try:
        model = factory(0, None)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImportError(
            f"method must be module:Class, importable from {here}; got {path!r} "
            f"({type(error).__name__}: {error}). Run in the folder of the module, or install it."
        ) from error
    except TypeError as error:
        raise TypeError(
            f"method {path} must be made without arguments; got {error}. Give its parameters "
            "defaults, or name a function that makes it."
        ) from error
    if not hasattr(model, "fit") or not (hasattr(model, "transform") or hasattr(model, "predict")):
        raise TypeError(
            f"method {path} must have fit(X, y), and transform(X) or predict(X); got "
            f"{type(model).__name__}. Add what is missing."
        )
    return factory


def _changed(
    factory: Factory, parameters: dict[str, Any], random_state: int, n_jobs: int | None
) -> Compared:
    model: Any = factory(random_state, n_jobs)
    return model.set_params(**parameters)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
