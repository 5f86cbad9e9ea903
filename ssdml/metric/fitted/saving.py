"""Save a fitted metric, and load it if its parts fit together."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ssdml.classification.new_rows import ClassInterpolator
from ssdml.classification.trees import Columns, Nodes, Trees
from ssdml.metric.features import ClassRepresentation
from ssdml.utils.persistence import check_arrays, load_state, restoring, save_state
from ssdml.utils.typing import Array

if TYPE_CHECKING:
    from ssdml.metric.fitted.base import EmbeddingMixin
    from ssdml.metric.fitted.metric import LearnedMetric

SAVED = ("components_", "label_distributions_", "embedding_")
# Kind and axes of saved arrays: l components of d features, n rows, r of them references,
# c classes, q columns of the form that neighbors are searched in.
LABEL_SHAPES = {"classes_": "* c", "transduction_": "* n"}
SHAPES = LABEL_SHAPES | {
    "components_": "f l {width}",
    "label_distributions_": "f n c",
    "embedding_": "f r l",
}
CLASSIFIER = {
    "classifier_mean": "f {d}",
    "classifier_matrix": "f {d} q",
    "classifier_rows": "f r q",
    "classifier_scales": "f r",
    "classifier_trend": "f {q} c",
    "classifier_residuals": "f r c",
    "classifier_n_neighbors": "i",
}
TREES = {  # of t nodes, s trees and g labeled rows
    "trees_mean": "f {d}",
    "trees_scale": "f {d}",
    "trees_columns": "i t",
    "trees_thresholds": "f t",
    "trees_children": "i t 2",
    "trees_roots": "i s",
    "trees_leaves": "i g s",
    "trees_codes": "i g",
    "trees_weight": "f",
}
OPTIONAL = {  # of m labeled rows, h of them held out, and u distinct ones
    "labeled_rows_": "i m",
    "classifier_center": "f {d}",
    "classifier_distinct": "i u",
    "classifier_power": "f",
    "held_out_rows": "i h",
    "held_out_codes": "i h",
    "held_out_distributions": "f h c",
    "novelty_log_odds": "f n",
    "novelty_farthest": "f n",
}
MOST_WEIGHT = 1e6  # of trees

Metric = TypeVar("Metric", bound="LearnedMetric")


def save_metric(model: LearnedMetric, folder: str | Path, more: dict[str, Array]) -> None:
    """Save a fitted metric with more arrays."""
    check_is_fitted(model)
    params = model.get_params()
    if not isinstance(params["random_state"], Integral | None):
        params["random_state"] = None
    labels, names = saved_names(model)
    arrays = {name: getattr(model, name) for name in SAVED} | labels
    for name in ("labeled_rows_", "reference_rows_"):
        if getattr(model, name) is not None:
            arrays[name] = getattr(model, name)
    if model.classifier_ is not None:
        parts = model.classifier_._asdict()
        trees = parts.pop("trees")
        arrays |= {f"classifier_{k}": v for k, v in parts.items() if v is not None}
        arrays |= {} if trees is None else _tree_arrays(trees)
    save_state(
        folder,
        type(model).__name__,
        params,
        arrays | model._more_arrays() | more,
        n_features_in=model.n_features_in_,
        represents_classes=model.representation_ is not None,
        input_weight=None if np.isinf(model.input_weight_) else model.input_weight_,
        **names,
    )


def load_metric(kind: type[Metric], folder: str | Path) -> tuple[Metric, dict[str, Array]]:
    """Load a metric that :func:`save_metric` saved; return it and all its arrays."""
    config, arrays = load_state(folder, kind.__name__)
    with restoring(folder, kind.__name__, config):
        model = kind(**config["params"])
        model._validate_params()
        _check_saved(config, arrays)
        for name in SAVED:
            setattr(model, name, arrays[name])
        restore_names(model, config, arrays)
        model.classifier_ = _classifier(arrays)
        model.representation_ = None
        if config["represents_classes"]:
            assert model.classifier_ is not None
            model.representation_ = ClassRepresentation(model.classifier_, model.n_jobs)
        model.n_features_in_ = config["n_features_in"]
        weight = config["input_weight"]
        model.input_weight_ = np.inf if weight is None else weight
        model.reference_rows_ = arrays.get("reference_rows_")
        model.labeled_rows_ = arrays.get("labeled_rows_")
        model._restore_more(arrays)
    model.triplets_, model.history_ = None, []
    return model, arrays


def _tree_arrays(trees: Trees) -> dict[str, Array]:
    parts = trees.standardized._asdict() | trees.nodes._asdict() | vars(trees)
    return {name: np.asarray(parts[name.removeprefix("trees_")]) for name in TREES}


def _classifier(arrays: Mapping[str, Array]) -> ClassInterpolator | None:
    names = {f"classifier_{name}": name for name in ClassInterpolator._fields}
    parts: dict[str, Any] = {n: arrays[field] for field, n in names.items() if field in arrays}
    if not parts:
        return None
    if "trees_columns" in arrays:
        parts["trees"] = _trees(arrays, parts["residuals"].shape[1])
    return ClassInterpolator(**parts)


def _trees(arrays: Mapping[str, Array], n_classes: int) -> Trees:
    own: dict[str, Any] = {}
    for name, kind in TREES.items():
        array = arrays[name]
        own[name.removeprefix("trees_")] = array.astype(np.intp) if kind[0] == "i" else array
    columns = Columns(*map(own.pop, Columns._fields))
    nodes = Nodes(*map(own.pop, Nodes._fields))
    own["weight"] = float(own["weight"])
    return Trees(columns, nodes, n_classes=n_classes, **own)


def saved_names(model: EmbeddingMixin) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays ``classes_`` and ``transduction_``, as codes if classes are names, and all names."""
    classes, found = model.classes_, model.transduction_
    arrays, class_names = {"classes_": classes, "transduction_": found}, None
    if classes.dtype.kind == "U":
        codes = np.arange(len(classes)), np.searchsorted(classes, found)
        arrays, class_names = dict(zip(arrays, codes, strict=True)), classes.tolist()
    columns = getattr(model, "feature_names_in_", None)
    columns = None if columns is None else list(columns)
    return arrays, {"class_names": class_names, "feature_names_in": columns}


def restore_names(
    model: EmbeddingMixin, config: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Set what :func:`saved_names` returned."""
    model.classes_, model.transduction_ = arrays["classes_"], arrays["transduction_"]
    if (names := config.get("class_names")) is not None:
        if len(names) != len(model.classes_):
            raise TypeError(f"{len(names)} names of {len(model.classes_)} classes")
        model.classes_ = np.array(names, dtype=np.str_)
        model.transduction_ = model.classes_[model.transduction_]
    if (columns := config.get("feature_names_in")) is not None:
        model.feature_names_in_ = np.array(columns, dtype=object)


def _check_saved(config: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Raise ValueError, KeyError or TypeError unless the parts of a saved model fit together."""
    _check_config(config)
    shapes = _shapes(config, arrays)
    check_arrays(arrays, shapes)
    if "classifier_rows" in shapes:
        k = int(arrays["classifier_n_neighbors"])
        most = len(arrays.get("classifier_distinct", arrays["classifier_rows"]))
        if not 1 <= k <= most:
            raise ValueError(f"classifier_n_neighbors must be from 1 to {most}; got {k}")
    n_rows, n_classes = arrays["label_distributions_"].shape
    limits = (
        (n_rows, ("reference_rows_", "labeled_rows_", "held_out_rows")),
        (len(arrays.get("classifier_rows", ())), ("classifier_distinct",)),
        (n_classes, ("held_out_codes", "trees_codes")),
        (config["n_features_in"], ("trees_columns",)),
        (len(arrays.get("trees_columns", ())), ("trees_children", "trees_roots", "trees_leaves")),
    )
    for limit, names in limits:
        for name in names:
            rows = arrays.get(name, np.empty(0))
            if rows.size and not 0 <= rows.min() <= rows.max() < limit:
                raise ValueError(f"{name} must be from 0 to {limit - 1}")
    if "trees_children" in shapes:
        _check_trees(arrays)
    check_class_names(config, arrays)


def _check_config(config: dict[str, Any]) -> None:
    """Raise ValueError if an entry is no number or name as a fit has it."""
    d, names, weight = (config[k] for k in ("n_features_in", "feature_names_in", "input_weight"))
    if type(d) is not int or d < 1:
        raise ValueError(f"n_features_in must be a positive integer; got {d!r}")
    if names is not None and (len(names) != d or {type(name) for name in names} != {str}):
        raise ValueError(f"feature_names_in must be {d} names; got {names!r}")
    if weight is not None and not (type(weight) in (int, float) and weight >= 0):
        raise ValueError(f"input_weight must be a number of at least 0; got {weight!r}")


def _shapes(config: dict[str, Any], arrays: dict[str, Array]) -> dict[str, str]:
    """Kind and axes of the arrays that a model must have, or may have and has."""
    d, q, shapes = config["n_features_in"], 0, dict(SHAPES)
    width = d
    if any(name in arrays for name in CLASSIFIER):
        shapes |= CLASSIFIER
        q = arrays["classifier_matrix"].shape[-1] + 1
        if any(name in arrays for name in TREES):
            shapes |= TREES
    elif config["represents_classes"]:
        raise KeyError("classifier_rows")
    if config["represents_classes"]:
        width += arrays["label_distributions_"].shape[-1]
    if "reference_rows_" in arrays:
        shapes["reference_rows_"] = "i r"
    else:
        shapes["embedding_"] = "f n l"
    shapes |= {name: shape for name, shape in OPTIONAL.items() if name in arrays}
    return {name: shape.format(d=d, width=width, q=q) for name, shape in shapes.items()}


def _check_trees(arrays: dict[str, Array]) -> None:
    """Raise ValueError if trees are empty, never end or weigh too much."""
    children = arrays["trees_children"].astype(np.intp)
    if (children.T < np.arange(len(children))).any():
        raise ValueError("trees_children must follow their parents")
    if not arrays["trees_leaves"].size:
        raise ValueError("trees_leaves must hold leaves; got none")
    if not 0 <= (weight := float(arrays["trees_weight"])) <= MOST_WEIGHT:
        raise ValueError(f"trees_weight must be from 0 to {MOST_WEIGHT:g}; got {weight:g}")


def check_class_names(config: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Raise ValueError unless the names of saved classes are text, and their codes name one."""
    names, codes = config.get("class_names"), arrays["transduction_"]
    if names is None:
        return
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"class_names must be a list of names; got {names!r}")
    if codes.dtype.kind != "i" or (codes.size and not 0 <= codes.min() <= codes.max() < len(names)):
        raise ValueError(f"transduction_ must be integers from 0 to {len(names) - 1}")
