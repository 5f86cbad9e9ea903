"""What a method of a comparison is, and two that scikit-learn does not have ready."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if

from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED, choose


class Embedder(Protocol):
    """What a method makes: labels hold -1 where there is none."""

    def fit(self, X: Array, y: Array) -> Any:
        """Learn from the training rows."""

    def transform(self, X: Array) -> Array:
        """Embedding of any rows."""


# A method: from a seed and the number of jobs to an estimator that has not been fitted.
Factory = Callable[[int, int | None], Embedder]

LIBRARIES = {"umap": "umap-learn"}  # modules that are not installed with the rest


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """A method without its brackets, and the values that stand in them, as text.

    Examples
    --------
    >>> split_name("ssdml[n_neighbors=20;decay=0.9]")
    ('ssdml', {'n_neighbors': '20', 'decay': '0.9'})
    """
    plain, bracket, rest = name.partition("[")
    parts = rest.removesuffix("]").split(";") if bracket else []
    return plain, dict(part.partition("=")[::2] for part in parts)


def joined_name(plain: str, changes: Mapping[str, str]) -> str:
    """The name that :func:`split_name` takes apart.

    Examples
    --------
    >>> joined_name("ssdml", {"decay": "0.9"}), joined_name("lda", {})
    ('ssdml[decay=0.9]', 'lda')
    """
    values = ";".join(f"{name}={value}" for name, value in changes.items())
    return f"{plain}[{values}]" if values else plain


def with_parameters(name: str, known: Mapping[str, Factory]) -> Factory:
    """A method by its name, some of its parameters changed: ``"ssdml[n_neighbors=20;decay=0.9]"``.

    Values are read as JSON; what is none is text. Those that the method does not take are an error
    here already.

    Examples
    --------
    >>> from ssdml.experiments import METHODS
    >>> with_parameters("ssdml[n_neighbors=20]", METHODS)(0, None).n_neighbors
    20
    """
    plain, changes = split_name(name)
    library = plain.partition("-")[0]  # of "umap-tuned" as well
    if library in LIBRARIES and not find_spec(library):
        raise ImportError(f"{plain} needs {LIBRARIES[library]}: pip install 'ssdml[{library}]'.")
    factory = choose(known, plain, "method")
    if not changes:
        return factory
    if not name.endswith("]") or not all(changes) or not all(changes.values()):
        raise ValueError(
            f"method must be a name, or a name[parameter=value;parameter=value]; got {name!r}."
        )
    made = partial(_changed, factory, {key: _value(text) for key, text in changes.items()})
    model: Any = made(0, None)
    for part in (model, *model.get_params().values()):
        if isinstance(part, BaseEstimator) and hasattr(part, "_parameter_constraints"):
            part._validate_params()  # before hours of runs, each of which would say so
    return made


def _changed(
    factory: Factory, changes: dict[str, Any], random_state: int, n_jobs: int | None
) -> Embedder:
    model: Any = factory(random_state, n_jobs)
    changed: Embedder = model.set_params(**changes)
    return changed


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class AroundEstimator(TransformerMixin, BaseEstimator):
    """A method around an estimator, fitted as ``estimator_``: it says what that says."""

    estimator_: Any

    def given(self, X: Any) -> Any:
        """What the estimator is given of rows."""
        return X

    def transform(self, X: Any) -> Array:
        """Embedding of any rows."""
        embedding: Array = self.estimator_.transform(self.given(X))
        return embedding

    @available_if(lambda self: hasattr(self.estimator_, "predict"))
    def predict(self, X: Any) -> Array:
        """Classes of any rows."""
        classes: Array = self.estimator_.predict(self.given(X))
        return classes

    @available_if(lambda self: hasattr(self.estimator_, "predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """Distributions of the classes at any rows."""
        distributions: Array = self.estimator_.predict_proba(self.given(X))
        return distributions

    @property
    def classes_(self) -> Array:
        """Columns of :meth:`predict_proba`."""
        classes: Array = self.estimator_.classes_
        return classes

    @property
    def triplets_(self) -> Any:
        """The last that were mined, by an estimator that mines."""
        return self.estimator_.triplets_

    @property
    def history_(self) -> Any:
        """How it was learned."""
        return self.estimator_.history_


class InputFeatures(TransformerMixin, BaseEstimator):
    """The features as they are: what every method has to beat."""

    def fit(self, X: Array, y: Array | None = None) -> Self:
        """Nothing is learned."""
        return self

    def transform(self, X: Array) -> Array:
        """Return X."""
        return X


class LabeledRowsOnly(TransformerMixin, BaseEstimator):
    """A supervised transformer, fitted on the labeled rows and no others."""

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Array, y: Array) -> Self:
        """Fit on the rows with ``y != -1``."""
        is_labeled = np.asarray(y) != UNLABELED
        self.transformer_ = clone(self.transformer).fit(X[is_labeled], y[is_labeled])
        return self

    def transform(self, X: Array) -> Array:
        """Embedding of any rows."""
        embedding: Array = self.transformer_.transform(X)
        return embedding
