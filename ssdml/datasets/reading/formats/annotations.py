"""Exports of annotation tools in JSON as columns: text or image, and what was answered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any

from ssdml.datasets.reading.table import LABEL_STUDIO
from ssdml.utils.files import parse_json

ANSWERS = {"choices", "number", "rating", "taxonomy"}  # of Label Studio about a sample


def annotated(row: Any) -> Any:
    """Return what an annotation tool writes about a sample as columns; other rows unchanged.

    Columns are the answers to a task of Label Studio, the responses of Argilla, the
    classifications of Labelbox, the attributes of VIA and the classes of SageMaker Ground Truth.
    Accepted answers of Prodigy, and the answer to the only message in a chat, are the label.
    """
    if not isinstance(row, dict):
        return row
    return next((columns for form in FORMS if (columns := form(row)) is not None), row)


def _of_prodigy(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return an answer of Prodigy, without a label unless it was accepted."""
    if "_task_hash" not in row or row.keys().isdisjoint({"label", "accept"}):
        return None
    is_label = row.get("answer", "accept") == "accept"
    return row | {"label": row.get("accept", row.get("label")) if is_label else None}


def _of_argilla(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields, vectors and responses of a record of Argilla."""
    fields, responses = row.get("fields"), row.get("responses")
    if not isinstance(fields, dict) or not isinstance(responses, dict):
        return None
    answers = {n: _answers(given) for n, given in responses.items()}
    return {"id": row.get("id")} | fields | (row.get("vectors") or {}) | answers


def _answers(given: Any) -> Any:
    """Return what all of Argilla's annotators answered; a list if they differ."""
    answers = [a["value"] for a in given or [] if isinstance(a, dict) and "value" in a]
    found = [answer for i, answer in enumerate(answers) if answer not in answers[:i]]
    return _only(found)


def _of_labelbox(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a sample of Labelbox with its classifications; lists if annotators differ."""
    sample, projects = row.get("data_row"), row.get("projects")
    if not isinstance(sample, dict) or not isinstance(projects, dict):
        return None
    answers: dict[str, list[Any]] = {}
    with suppress(KeyError, TypeError, AttributeError):  # of objects, texts
        for label in chain.from_iterable(project["labels"] for project in projects.values()):
            for found in label["annotations"]["classifications"]:
                given = found.get("checklist_answers", [found.get("radio_answer")])
                known = answers.setdefault(found["name"], [])
                known += [a["name"] for a in given if a and a["name"] not in known]
    named = {"id": sample.get("external_id") or sample.get("id"), "content": sample.get("row_data")}
    return named | {name: _only(found) for name, found in answers.items()}


def _of_openai(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the embedding of a text in a batch of OpenAI."""
    if "custom_id" in row:
        with suppress(KeyError, TypeError, ValueError):  # of another form, or of several texts
            [found] = row["response"]["body"]["data"]
            return {"id": row["custom_id"], "embedding": found["embedding"]}
    return None


def _of_label_studio_short(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row of a short export of Label Studio."""
    if not set(LABEL_STUDIO).issubset(row):
        return None
    return {name: unwrapped(value) for name, value in row.items()}


def unwrapped(cell: Any) -> Any:
    """Return the answer in a cell of a short export of Label Studio, or the cell.

    Examples
    --------
    >>> unwrapped('[{"rating": 3}]'), unwrapped("a")
    (3, 'a')
    """
    with suppress(KeyError, TypeError, ValueError, RecursionError, AttributeError):
        value = parse_json(cell) if isinstance(cell, str) and cell[:1] in ("[", "{") else cell
        [value] = value if isinstance(value, list) else [value]
        return _only(_given(value))
    return cell


def _of_via(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return an image of VIA with its attributes, and those of its regions, each once."""
    if not {"filename", "regions", "file_attributes"} <= row.keys():
        return None
    regions = row["regions"]
    found: dict[str, list[Any]] = {}
    for region in regions.values() if isinstance(regions, dict) else regions:
        for name, given in region.get("region_attributes", {}).items():
            known = found.setdefault(name, [])
            known += [value for value in _checked_boxes(given) if value not in known]
    of_file = {name: _checked_boxes(given) for name, given in row["file_attributes"].items()}
    return {"filename": row["filename"]} | {n: _only(f) for n, f in (found | of_file).items()}


def _checked_boxes(given: Any) -> list[Any]:
    """Return the values of an attribute of VIA, which may be several boxes; none for ""."""
    return [value for value in (given if isinstance(given, dict) else [given]) if value != ""]


def _of_chat(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the only message to an assistant, and its answer as the label; else the row."""
    if not isinstance(messages := row.get("messages"), list):
        return None
    given: dict[str, list[Any]] = {"user": [], "assistant": []}
    for message in messages:
        if isinstance(message, dict) and message.get("role") in given:
            given[message["role"]].append(message.get("content"))
    if len(given["user"]) != 1 or len(given["assistant"]) > 1:
        return row
    rest = {name: value for name, value in row.items() if name != "messages"}
    return {"text": given["user"][0], "label": next(iter(given["assistant"]), None)} | rest


def _of_ground_truth(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row of SageMaker Ground Truth, with the names of its classes for each job."""
    jobs = [n for n in row if isinstance(row[n], dict) and n.endswith("-metadata")]
    if not jobs:
        return None
    rest = {name: value for name, value in row.items() if name not in jobs}
    return rest | dict(_of_job(row[job], job) for job in jobs)


def _of_job(metadata: dict[str, Any], name: str) -> tuple[str, Any]:
    """Return the name of a job of SageMaker Ground Truth, and the names of its classes."""
    classes = metadata.get("class-name") or [*(metadata.get("class-map") or {}).values()]
    return (name.removesuffix("-metadata"), classes) if classes else (name, metadata)


def _of_create_ml(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return an image of Create ML with the labels of its objects, each once."""
    if row.keys() != {"image", "annotations"} or not isinstance(row["annotations"], list):
        return None
    labels = dict.fromkeys(a.get("label") for a in row["annotations"])
    return {"image": row["image"], "label": [label for label in labels if label is not None]}


def _of_label_studio(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a task of Label Studio with its answers; lists if annotators differ."""
    data, annotations = row.get("data"), row.get("annotations")
    if not isinstance(data, dict) or not isinstance(annotations, list):
        return None
    answers: dict[str, list[Any]] = {}
    kept = [a for a in annotations if isinstance(a, dict) and not a.get("was_cancelled")]
    for result in chain.from_iterable(a.get("result") or [] for a in kept):
        with suppress(KeyError, TypeError, ValueError):  # of regions, texts
            given = _given(result["value"])
            found = answers.setdefault(str(result["from_name"]), [])
            found += [choice for choice in given if choice not in found]
    return data | {name: _only(found) for name, found in answers.items()}


def _given(value: dict[str, Any]) -> list[Any]:
    """Return what an answer of Label Studio gives; a path in a taxonomy is one text.

    Raises KeyError, TypeError or ValueError for other values.

    Examples
    --------
    >>> _given({"rating": 3}), _given({"taxonomy": [["Animal", "Cat"]]})
    ([3], ['Animal>Cat'])
    """
    [kind] = ANSWERS & value.keys()
    given = value[kind] if isinstance(value[kind], list) else [value[kind]]
    return [">".join(entry) if isinstance(entry, list) else entry for entry in given]


def _only(answers: list[Any]) -> Any:
    """Return the only answer, or all of several; None for none."""
    return answers[0] if len(answers) == 1 else answers or None


# In this order; each returns None for rows of another tool.
FORMS: tuple[Callable[[dict[str, Any]], dict[str, Any] | None], ...] = (
    _of_prodigy,
    _of_argilla,
    _of_labelbox,
    _of_openai,
    _of_label_studio_short,
    _of_via,
    _of_chat,
    _of_ground_truth,
    _of_create_ml,
    _of_label_studio,
)
