"""Exports of annotation tools in JSON as columns: text or image, and what was answered."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import Any

from ssdml.datasets.reading.table import LABEL_STUDIO
from ssdml.utils.files import parse_json

ANSWERS = {"choices", "number", "rating", "taxonomy"}  # of Label Studio about a sample


def annotated(row: Any) -> Any:
    """Return what an annotation tool writes about a sample as columns; other rows unchanged.

    The answers to a task of Label Studio, the responses of Argilla and the classifications of
    Labelbox are columns. Prodigy's are the label, where accepted.
    """
    if not isinstance(row, dict):
        return row
    if "_task_hash" in row and row.keys() & {"label", "accept"}:
        is_label = row.get("answer", "accept") == "accept"
        return row | {"label": row.get("accept", row.get("label")) if is_label else None}
    fields, responses = row.get("fields"), row.get("responses")
    if isinstance(fields, dict) and isinstance(responses, dict):  # of Argilla
        answers = {n: _answers(given) for n, given in responses.items()}
        return {"id": row.get("id")} | fields | (row.get("vectors") or {}) | answers
    if isinstance(row.get("data_row"), dict) and isinstance(row.get("projects"), dict):
        return _of_labelbox(row["data_row"], row["projects"])
    if "custom_id" in row and isinstance(row.get("response"), dict):  # a batch of OpenAI
        with suppress(KeyError, TypeError, ValueError):  # of another form, or of several texts
            [found] = row["response"]["body"]["data"]
            return {"id": row["custom_id"], "embedding": found["embedding"]}
    if set(LABEL_STUDIO).issubset(row):  # a short export of Label Studio
        return {name: unwrapped(value) for name, value in row.items()}
    data, annotations = row.get("data"), row.get("annotations")
    if not isinstance(data, dict) or not isinstance(annotations, list):
        return row
    choices: dict[str, list[Any]] = {}
    for annotation in annotations:
        if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
            continue
        for result in annotation.get("result") or []:
            with suppress(KeyError, TypeError, ValueError):  # of regions, texts
                given = _given(result["value"])
                found = choices.setdefault(str(result["from_name"]), [])
                found += [choice for choice in given if choice not in found]
    return data | {name: _only(found) for name, found in choices.items()}


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


def _of_labelbox(sample: dict[str, Any], projects: dict[str, Any]) -> dict[str, Any]:
    """Return a sample of Labelbox with its classifications; lists if annotators differ."""
    answers: dict[str, list[Any]] = {}
    with suppress(KeyError, TypeError, AttributeError):  # of objects, texts
        for label in chain.from_iterable(project["labels"] for project in projects.values()):
            for found in label["annotations"]["classifications"]:
                given = found.get("checklist_answers", [found.get("radio_answer")])
                known = answers.setdefault(found["name"], [])
                known += [a["name"] for a in given if a and a["name"] not in known]
    named = {"id": sample.get("external_id") or sample.get("id"), "content": sample.get("row_data")}
    return named | {name: _only(found) for name, found in answers.items()}


def _answers(given: Any) -> Any:
    """Return what all of Argilla's annotators answered; a list if they differ."""
    answers = [a["value"] for a in given or [] if isinstance(a, dict) and "value" in a]
    found = [answer for i, answer in enumerate(answers) if answer not in answers[:i]]
    return _only(found) if found else None


def _only(answers: list[Any]) -> Any:
    """Return the only answer, or all of several."""
    return answers[0] if len(answers) == 1 else answers
