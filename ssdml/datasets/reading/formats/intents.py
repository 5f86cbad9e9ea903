"""Sentences listed under their intents, as programs for chatbots write them in JSON."""

from __future__ import annotations

import re
from typing import Any

from ssdml.datasets.reading.table import LABEL_NAMES

INTENT = ("intent", "tag", "name")  # of an object: the name of the intent
SENTENCES = ("examples", "patterns", "utterances", "phrases", "trainingPhrases", "sampleUtterances")
TEXT = ("text", "utterance")  # of the object of a sentence
# The file of the sentences of an intent in a folder of Dialogflow.
USER_SAYS = re.compile(r"(?P<intent>.+)_usersays_[a-z]{2}(-[a-z]+)?\.json", re.IGNORECASE)


def sentences_of_intents(content: Any) -> list[dict[str, str]] | None:
    """Return the sentences of each intent as rows; None for other content.

    Intents are objects in a list, or in an object by their names, or the whole content is one. A
    sentence is a text, an object with a text, or a list of its parts called data.

    Examples
    --------
    >>> sentences_of_intents({"intents": [{"tag": "pay", "patterns": ["How do I pay?"]}]})
    [{'text': 'How do I pay?', 'intent': 'pay'}]
    >>> sentences_of_intents({"pay": [{"data": [{"text": "How do I "}, {"text": "pay?"}]}]})
    [{'text': 'How do I pay?', 'intent': 'pay'}]
    """
    if isinstance(content, dict) and isinstance(content.get("intents"), list | dict):
        content = content["intents"]
    elif isinstance(content, dict) and (sentences := _sentences_in(content)) is not None:
        keys = {key for sentence in sentences if isinstance(sentence, dict) for key in sentence}
        content = content if keys & {*INTENT, *LABEL_NAMES} else [content]
    if isinstance(content, dict):
        named = [(name, _sentences_in(intent)) for name, intent in content.items()]
    elif isinstance(content, list) and all(isinstance(intent, dict) for intent in content):
        named = [(_name_of(intent), _sentences_in(intent)) for intent in content]
    else:
        return None
    rows = []
    for name, sentences in named:
        if not isinstance(name, str) or sentences is None:
            return None
        for sentence in sentences:
            if (text := _text_of(sentence)) is None:
                return None
            rows.append({"text": text, "intent": name})
    return rows or None


def _name_of(intent: dict[str, Any]) -> Any:
    return next((intent[key] for key in INTENT if key in intent), None)


def _sentences_in(intent: Any) -> list[Any] | None:
    """Return the list of sentences in an object, or of objects with their parts; else None."""
    if isinstance(intent, dict):
        found = next((intent[key] for key in SENTENCES if key in intent), None)
        if isinstance(found, dict):  # by language
            found = [text for texts in found.values() if isinstance(texts, list) for text in texts]
        return found if isinstance(found, list) else None
    if isinstance(intent, list) and all(isinstance(s, dict) and "data" in s for s in intent):
        return intent
    return None


def _text_of(sentence: Any) -> str | None:
    if not isinstance(sentence, dict):
        return sentence if isinstance(sentence, str) else None
    if isinstance(parts := sentence.get("data"), list):
        texts = [part["text"] for part in parts if isinstance(part, dict) and "text" in part]
        return "".join(map(str, texts)) if len(texts) == len(parts) else None
    text = next((sentence[key] for key in TEXT if key in sentence), None)
    return text if isinstance(text, str) else None
