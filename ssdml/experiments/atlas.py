"""The maps of a data set's rows before and after learning, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ssdml.experiments.cards import Cards
from ssdml.experiments.confusions import Confused, confused
from ssdml.experiments.details import Answers, RunDetails
from ssdml.experiments.explorer import explorer_data
from ssdml.experiments.figures import CLASS_COLORS, Picture
from ssdml.experiments.maps import ClassMap, map_svg, project
from ssdml.experiments.tables import ScoreTable


@dataclass(frozen=True)
class Atlas:
    """Maps of the same rows by method: the reference, then the best beside it."""

    dataset: str
    maps: dict[str, ClassMap]
    answers: dict[str, Answers]  # of those methods; none of runs of an earlier version
    cards: Cards | None

    @property
    def pictures(self) -> list[Picture]:
        """The maps as figures for the page."""
        return [
            Picture(method, map_svg(drawn, f"{self.dataset}: rows by {method}"))
            for method, drawn in self.maps.items()
        ]

    @property
    def n_dots(self) -> int:
        """Test rows on a map."""
        return max((int((~m.sample.is_labeled).sum()) for m in self.maps.values()), default=0)

    @property
    def class_names(self) -> Sequence[str]:
        """Of the data set."""
        return next((drawn.class_names for drawn in self.maps.values()), [])

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Classes and their colours; empty where classes share a colour."""
        if len(self.class_names) > len(CLASS_COLORS):
            return []
        return list(zip(self.class_names, CLASS_COLORS, strict=False))

    @cached_property
    def data(self) -> dict[str, Any] | None:
        """What the page's script needs; None where the runs kept too little."""
        return explorer_data(self.maps, self.answers, self.cards)

    @property
    def colorings(self) -> list[tuple[str, str]]:
        """What the maps can be coloured by, and what a reader calls it."""
        choices = [("class", "class")]
        if any(answers.predictions is not None for answers in self.answers.values()):
            choices.append(("errors", "errors"))
        return choices + [("confidence", "confidence")] * any(map(self._is_own, self.answers))

    @property
    def questions(self) -> list[tuple[str, str]]:
        """Which rows the gallery can be asked for, and what a reader calls them."""
        if len(self.maps) < 2:
            return [("any", "all")]
        before, after = self.maps
        alone = [("gained", f"right by {after} alone"), ("lost", f"right by {before} alone")]
        return [("any", "all"), *alone]

    @cached_property
    def confusions(self) -> dict[str, Confused]:
        """What is taken for what, by method."""
        return {
            method: confused(answers.confusion, self.class_names)
            for method, answers in self.answers.items()
            if answers.confusion is not None
        }

    @property
    def caption(self) -> str:
        """Whose word the predicted classes are."""
        own = [method for method in self.confusions if self._is_own(method)]
        others = [method for method in self.confusions if not self._is_own(method)]
        told = [f"{', '.join(own)}: by its own predict_proba"] if own else []
        told += [f"{', '.join(others)}: by the nearest mean of the labelled rows"] if others else []
        return f"Classes are predicted by: {'; '.join(told)}." if told else ""

    def _is_own(self, method: str) -> bool:
        found = self.answers[method].predictions
        return found is not None and found.are_own


def make_atlas(
    table: ScoreTable,
    details: Mapping[str, RunDetails],
    cards: Callable[[str], Cards | None],
) -> Atlas:
    """Map of the reference and that of the best method beside it, which learned something.

    Parameters
    ----------
    table : ScoreTable
    details : dict of RunDetails
        By method, of the runs that kept a sample of their embedding.
    cards : callable
        Gives the cards of a data set, by its fingerprint.
    """
    after = [line.method for line in table.lines if line.method != table.reference]
    wanted = [name for name in (table.reference, *after[:1]) if name in details]
    maps, answers, data = {}, {}, set()
    for method in wanted:
        kept = details[method]
        if kept.sample is not None:
            maps[method] = ClassMap(project(kept.sample), kept.sample, kept.class_names)
            data.add(kept.config.get("data", ""))
        if kept.answers is not None:
            answers[method] = kept.answers
    return Atlas(table.dataset, maps, answers, cards(data.pop()) if len(data) == 1 else None)
