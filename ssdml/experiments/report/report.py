"""The report of a comparison: one HTML file that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

from ssdml.experiments.analysis.formats import duration, interval, number, signed
from ssdml.experiments.analysis.study import LEVEL, MARGIN, rank_over_datasets
from ssdml.experiments.analysis.tables import ALL_SCORES, HEADLINE, conditions
from ssdml.experiments.report.explorer import MOST_CLASSES
from ssdml.experiments.report.figures import looks, ranking_picture
from ssdml.experiments.report.sections import Section, make_section
from ssdml.experiments.runs.details import load_details
from ssdml.experiments.runs.results import RESULTS, Row, budget_of, latest, read_rows
from ssdml.experiments.runs.thumbnails import Cards, cards_path, load_cards
from ssdml.utils.persistence import whole_file

REPORT = "report.html"
PAGE, TEMPLATE = "page", "report.html.jinja"


def write_report(out: str | Path, sections: Sequence[Section] | None = None) -> Path:
    """Write ``out/report.html``.

    Parameters
    ----------
    out : path
        Folder that :func:`ssdml.experiments.compare` wrote.
    sections : sequence of Section, optional
        What `read_sections` gave, where it was called already: the maps take a few seconds.

    Returns
    -------
    report : Path
    """
    out = Path(out)
    page = render_report(read_sections(out) if sections is None else sections)
    report = out / REPORT
    with whole_file(report) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return report


def read_sections(out: str | Path) -> list[Section]:
    """What the report says, from the results and details in a folder.

    A section a data set; where labels are drawn in several ways or are wrong, one for each.

    Raises
    ------
    ValueError
        Where no run has been done.
    """
    out = Path(out)
    rows = latest(read_rows(out / RESULTS))
    if not rows:
        raise ValueError(f"{out / RESULTS}: no run is done yet, there is nothing to report.")
    hashes = [row["config_hash"] for row in rows]
    details = {name: load_details(out / "details" / f"{name}.npz") for name in hashes}
    drawn_as = looks(list(dict.fromkeys(row["method"] for row in rows)))
    sections: list[Section] = []
    for group in conditions(rows):
        name = group[0]["dataset"]
        is_first = all(name != section.headline.dataset for section in sections)
        every = [row for row in rows if row["dataset"] == name] if is_first else []
        cards = partial(_cards, out)
        sections.append(make_section(group, details, every, cards, drawn_as))
    return sections


def _cards(out: Path, data: str) -> Cards | None:
    return load_cards(cards_path(out, data))


def render_report(sections: Sequence[Section]) -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ssdml.experiments.report", PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "signed": signed,
        "interval": interval,
        "duration": duration,
    }
    rows = [row for section in sections for row in section.rows]
    drawn_as = {name: look for section in sections for name, look in section.looks.items()}
    # Of the conditions of a data set the first: each set counts once.
    studies = {s.headline.dataset: s.study for s in reversed(sections) if s.study is not None}
    ranking = rank_over_datasets(list(studies.values()))
    return environment.get_template(TEMPLATE).render(
        sections=sections,
        explores=any(section.atlas.data for section in sections),
        part=_part,
        table_of_classes=MOST_CLASSES,
        looks=drawn_as,
        headline_scores=HEADLINE,
        all_scores=ALL_SCORES,
        budget_of=budget_of,
        margin=MARGIN,
        level=LEVEL,
        over_datasets=ranking,
        over_datasets_picture=ranking and ranking_picture(ranking, "all data sets", drawn_as),
        versions=_versions(rows),
        n_rows=len(rows),
    )


def _part(name: str) -> str:
    """A file of the page, as it is: the style, the script."""
    return (files("ssdml.experiments.report") / PAGE / name).read_text(encoding="utf-8")


def _versions(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Each package with the version, or the versions, that the runs had."""
    seen: dict[str, list[str]] = {}
    for row in rows:
        for name, version in row["versions"].items():
            seen.setdefault(name, []).append(version)
    return [(name, ", ".join(dict.fromkeys(found))) for name, found in seen.items()]
