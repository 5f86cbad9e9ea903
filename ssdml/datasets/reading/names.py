"""Columns that the user names, and what the names of columns tell."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ssdml.datasets.reading.table import SPLIT_NAMES, SPLITS, folded, mentioned_split

# Whose id a name such as userid, without a sign between the words, may be.
OF_ID = (
    "account|article|booking|case|cell|client|customer|device|doc|document|employee|encounter|"
    "event|household|image|invoice|item|loan|member|message|movie|order|page|participant|"
    "passenger|patient|person|player|plot|post|product|question|record|reference|respondent|"
    "response|review|row|sample|school|sensor|sequence|session|shop|site|specimen|station|store|"
    "student|study|subj|subject|ticket|town|track|transaction|tree|trip|tweet|user|vehicle|visit"
)
KEY = re.compile(
    rf"(.*[_\-. ])?({OF_ID})?(id|ids|idx|uid|uuid|guid)|[cpst]id|.*[a-z]I[dD]", re.ASCII
)
# Whose rows these are: a number of them is an id, which several rows may have.
WHOSE = "(subject|patient|participant|respondent|specimen|sample|volunteer|patientin|proband|"
WHOSE += "paciente|sujeto|sujet)"
OWNER = re.compile(  # but not age_patient
    rf"{WHOSE}|(.*[_\-. ])?{WHOSE}[_\-. ]?(code[_\-. ])?(no|nr|num|number|code|#)"
)
# These may be ids or, if there are few, kinds.
ID_OR_KIND = re.compile(
    r"(annotator|cliente?|customer|device|kunde|rater|user|usuario)([_\-. ]?(no|nr|num|number|#))?"
    r"|[efgoqr]id|c[oó]digo|codice"
)
MOST_KINDS = 20
# Unnamed columns, and columns of who wrote or labeled a row, which is hardly its class.
NO_CLASSES = re.compile(
    r"unnamed: \d+(\.\d+)?|(user|screen)[_\-. ]?name|user|annotator|rater|worker|coder|labell?er|"
    r"reviewer|interviewer|(annotated|created|edited|labell?ed|modified|reviewed|started|submitted|"
    r"updated)[_\-. ]?by"
)
# What another model says of the labels.
PREDICTED = re.compile(r"(.*[_\W])?(pred|preds|predicted|predictions?|y_?hat|y_?pred)([_\W].*)?")
# Large numbers of these are no quantities: postal codes, phones, numbers of accounts and the like.
NUMBER_OF = (
    "account|card|case|client|contract|customer|employee|fax|invoice|member|mobile|nhs|order|"
    "passenger|passport|phone|policy|record|reference|registration|serial|social[_\\- ]security|"
    "student|telephone|ticket|transaction|user|kunden|matrikel|patienten|probanden|telefon|"
    "rechnungs|auftrags|vertrags"
)
CODES = re.compile(
    r"(.*[_\-. ])?(zip|plz|ean|upc|isbn|(zip|post|postal|bar)[_\- ]?code|phone|telephone|mobile|"
    rf"mrn|ssn|imei|hash|({NUMBER_OF})[_\-. ]*(no|nr|num|number|nummer|#)\.?)s?"
)
QUANTITY = re.compile(r".*(size|count|weight|prob|probability|score|confidence|rank)s?")
# Why a column is no feature.
IS_ID = "its name is that of ids"
IS_USE = "its name is that of folds, parts or weights"
PLURALS = {why: why.replace("its name is that", "their names are those") for why in (IS_ID, IS_USE)}
# How rows are used: folds, parts and weights of a training.
FOLDS = re.compile(
    r"((cv|k|data|inner|outer|train|test)[_\-]?)?folds?([_\-]?(no|nr|num|number|index))?"
    r"|(data[_\-]?)?(split|partition|set)|subset"
)
PARTS = re.compile(
    r"((is|in)[_\-]?)?(train|training|test|testing|val|validation|holdout)([_\-]?set)?"
)
USES = re.compile(r"(ml[_\-]?)?use|usage|phase|part")  # of text that may tell the test rows
MOST_FOLDS = 20
WEIGHTS = re.compile(r"(sample|instance|row|example)_weights?")
NUMBERED = re.compile(r"\.\d+$")  # a name that occurs again
# Dates and times, with words such as Mon, Apr, PM and PDT.
TIME = re.compile(
    r"(?=\D*\d)(?=.*(?:\d[-/:]\d|[A-Z]))"
    r"(?:\d+(?:st|nd|rd|th)?|[-/:.,+\s]|[AP]\.?M\.?|[ap]m|UTC|GMT|CES?T|[A-Z]{1,2}[DS]T|T(?=\d)|Z"
    r"|(?i:(?:mon|tue|wed|thu|fri|sat|sun|"
    r"jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*))++"
)
# How genes, transcripts and the like are called: names of rows, if samples are in the columns.
GENES = re.compile(
    r"(hugo_)?(gene|probe|probe[_ ]?set|transcript|protein|metabolite|otu|asv|taxon|cpg|symbol)"
    r"([_\-. ]?(id|name|symbol|label))?s?|id_ref"
)
GENE = re.compile(r"ENS[A-Z]*[GTP]\d{6,}(\.\d+)?|\w+_at|[NX][MR]_\d+(\.\d+)?|cg\d{8}")
# Columns that `ssdml label` adds to a table.
IS_NEW = "is_new_label"
ADDED = ("confidence", IS_NEW, "runner_up", "map_x", "map_y")
LEAST_ADDED = 3  # of these, if the former is missing


@dataclass(frozen=True)
class Choice:
    """Columns that the user names; None and () leave them to the rule of `choose_columns`.

    ``features`` and ``ignore`` are names, or patterns such as ``"f*"``. With ``texts`` the samples
    are texts, even if there are numbers. Without ``needs_label`` there need be no label. ``model``
    names the model whose features and texts these are, ``label_of_fit`` its labels, which may be
    missing.
    """

    label: str | None = None
    text: str | None = None
    id: str | None = None
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    texts: bool = False
    needs_label: bool = True
    model: str | None = None
    label_of_fit: str | None = None

    def roles(self) -> list[str]:
        """Return the roles of the columns that the user named, not a model."""
        of_model = ("text", "features") if self.model is not None else ()
        roles = ("label", "text", "id", "features", "ignore")
        return [role for role in roles if getattr(self, role) and role not in of_model]


def most_kinds(name: str) -> float:
    """Return how many different whole numbers of this name may be no ids.

    Examples
    --------
    >>> most_kinds("patient"), most_kinds("device"), most_kinds("age")
    (2, 20, inf)
    """
    if OWNER.fullmatch(name):
        return 2
    return MOST_KINDS if ID_OR_KIND.fullmatch(name) else math.inf


def use_of_rows(name: str, n_codes: float) -> str | None:
    """Return how a column of numbers says that rows are used: folds, parts or weights; else None.

    Examples
    --------
    >>> use_of_rows("CV_fold", 5), use_of_rows("test", 2), use_of_rows("test", 100)
    ('folds', 'parts', None)
    """
    name = folded(name)
    if PARTS.fullmatch(name) and n_codes <= 2:
        return "parts"
    if FOLDS.fullmatch(name) and n_codes <= MOST_FOLDS:
        return "folds"
    return "weights" if WEIGHTS.fullmatch(name) else None


def may_tell_split(name: str, cells: Collection[str]) -> bool:
    """Whether a column of these texts tells training from test rows, if in other words as well.

    Examples
    --------
    >>> may_tell_split("subset", {"train", "holdout"}), may_tell_split("vehicle", {"train", "bus"})
    (True, False)
    >>> may_tell_split("where", {"Train set", "Test set"})
    True
    """
    if len(cells) > MOST_FOLDS:
        return False
    parts = {mentioned_split(cell) for cell in cells}
    if None not in parts and len(parts) > 1:
        return True
    name, exact = folded(name), {SPLITS.get(folded(cell)) for cell in cells} - {None}
    is_named = any(form.fullmatch(name) for form in (FOLDS, PARTS, USES))
    return name in SPLIT_NAMES or len(exact) > (not is_named)


def added_columns(names: Iterable[str]) -> dict[str, str]:
    """Return the columns that `ssdml label` added, by their names in `ADDED`.

    There are none without is_new_label, or else three others. Of several, the last was added: it
    has a number if the table had such a column before.

    Examples
    --------
    >>> added_columns(["a", "confidence"])
    {}
    >>> added_columns(["confidence", "label", "confidence.1", "Is_new_label"])
    {'confidence': 'confidence.1', 'is_new_label': 'Is_new_label'}
    """
    found = {NUMBERED.sub("", folded(name)): name for name in names}
    added = {name: found[name] for name in ADDED if name in found}
    return added if IS_NEW in added or len(added) >= LEAST_ADDED else {}
