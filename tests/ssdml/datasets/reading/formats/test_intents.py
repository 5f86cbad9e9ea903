"""Sentences and their intents in the JSON of programs for chatbots."""

from __future__ import annotations

import json

import pytest

from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice

TEXTS = ["how do I pay", "pay a bill now", "where is my card"]
INTENTS = ["pay", "pay", "card"]
PAIRS = list(zip(TEXTS, INTENTS, strict=True))
UTTERANCES = [{"text": text, "intent": intent, "entities": []} for text, intent in PAIRS]
PARTS = [[{"text": text[:4]}, {"text": text[4:], "entity": "x"}] for text in TEXTS]
OF_INTENTS = {"pay": [{"data": PARTS[0]}, {"data": PARTS[1]}], "card": [{"data": PARTS[2]}]}


def read(tmp_path, content):
    (tmp_path / "t.json").write_text(json.dumps(content))
    return read_dataset(tmp_path / "t.json", Choice())


@pytest.mark.parametrize(
    "content",
    [
        {
            "rasa_nlu_data": {
                "common_examples": UTTERANCES,
                "entity_synonyms": [{"value": "card", "synonyms": ["plastic"]}],
            }
        },
        {
            "intents": [{"name": "pay"}, {"name": "card"}],
            "utterances": UTTERANCES,
            "patterns": [{"pattern": "pay {x}", "intent": "pay"}],
        },  # LUIS
        {
            "intents": {name: {"utterances": found} for name, found in OF_INTENTS.items()},
            "entities": {"x": {"data": []}},
        },  # Snips
        OF_INTENTS,  # Snips, 2017
        {
            "intents": [
                {"tag": "pay", "patterns": TEXTS[:2], "responses": ["Here."]},
                {"tag": "card", "patterns": TEXTS[2:], "responses": []},
            ]
        },
        {
            "intents": [
                {"intent": "pay", "examples": [{"text": text} for text in TEXTS[:2]]},
                {"intent": "card", "examples": [{"text": TEXTS[2]}]},
                {"intent": "none", "examples": []},
            ],
            "entities": [{"entity": "x", "values": []}],
        },  # Watson
    ],
    ids=["rasa", "luis", "snips", "snips 2017", "tags", "watson"],
)
def test_sentences_of_intents_are_read(tmp_path, content):
    data = read(tmp_path, content)
    assert data.texts.tolist() == TEXTS
    assert [data.class_names[code] for code in data.y] == INTENTS


@pytest.mark.parametrize("form", ["botpress", "lex", "dialogflow"])
def test_files_of_an_intent_each_are_joined(tmp_path, form):
    for name in ("pay", "card"):
        texts = [text for text, intent in PAIRS if intent == name]
        path, content = tmp_path / "intents" / f"{name}.json", {"name": name, "slots": []}
        path.parent.mkdir(exist_ok=True)
        if form == "botpress":
            content["utterances"] = {"fr": texts[:1], "de": [], "en": texts[1:]}
        elif form == "lex":
            content["sampleUtterances"] = [{"utterance": text} for text in texts]
        else:
            path.write_text(json.dumps({"name": name, "responses": [{"speech": "OK"}]}))
            path = path.with_stem(f"{name}_usersays_pt-BR")
            content = [{"data": [{"text": t[:4]}, {"text": t[4:]}], "count": 0} for t in texts]
        path.write_text(json.dumps(content))
    if form == "dialogflow":
        (tmp_path / "agent.json").write_text('{"language": "en"}')
    data = read_dataset(tmp_path, Choice())
    assert data.texts.tolist() == [*TEXTS[2:], *TEXTS[:2]]
    assert [data.class_names[code] for code in data.y] == ["card", "pay", "pay"]


@pytest.mark.parametrize("key", ["label", "intent"])
def test_names_of_data_sets_are_no_intents(tmp_path, key):
    rows = [{"text": text, key: intent} for text, intent in PAIRS]
    data = read(tmp_path, {"name": "my bot", "examples": rows})
    assert [data.class_names[code] for code in data.y] == INTENTS


def test_intents_of_rasa_in_markdown_are_named(tmp_path):
    lines = ["<!-- a", "comment -->", "## intent:pay", *(f"- {text}" for text in TEXTS)]
    (tmp_path / "t.txt").write_text("\n".join(lines))
    with pytest.raises(
        ValueError, match=r"got intents, as Rasa writes\. .*: rasa data convert nlu"
    ):
        read_dataset(tmp_path, Choice(needs_label=False))


def test_samples_in_a_second_list_are_not_dropped(tmp_path):
    content = {"labeled": UTTERANCES, "unlabeled": [{"text": "hello there you"}]}
    with pytest.raises(ValueError, match="must be a list of objects, or an object of columns"):
        read(tmp_path, content)


@pytest.mark.parametrize("form", ["lists", "objects", "columns"])
def test_splits_are_rows_below_each_other(tmp_path, form):
    def rows(some):
        if form == "lists":
            return [list(pair) for pair in some]
        if form == "columns":
            return {"text": [text for text, _ in some], "label": [intent for _, intent in some]}
        return [{"text": text, "label": intent} for text, intent in some]

    content = {"oos_val": PAIRS[:1], "train": PAIRS, "test": PAIRS[1:], "oos_test": PAIRS[2:]}
    data = read(tmp_path, {name: rows(some) for name, some in content.items()})
    assert data.texts.tolist() == [TEXTS[i] for i in (0, 0, 1, 2, 1, 2, 2)]
    assert [data.class_names[code] for code in data.y] == [
        INTENTS[i] for i in (0, 0, 1, 2, 1, 2, 2)
    ]
    assert data.test.tolist() == [False] * 4 + [True] * 3
