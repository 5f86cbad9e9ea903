"""Write the report of a comparison, one self-contained HTML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ssdml.experiments.analysis.formats import duration, interval, number, percent, signed, visible
from ssdml.experiments.analysis.study import MARGIN, rank_over_datasets
from ssdml.experiments.analysis.tables import ALL_SCORES, HEADLINE, LEVEL, conditions
from ssdml.experiments.report.explorer import MAX_CLASSES
from ssdml.experiments.report.figures import ranking_picture
from ssdml.experiments.report.lead import lead
from ssdml.experiments.report.sections import Section, make_section
from ssdml.experiments.report.styles import method_styles
from ssdml.experiments.runs.details import RunDetails, load_details
from ssdml.experiments.runs.folder import read_folder
from ssdml.experiments.runs.results import RESULTS, Row, budget_of, latest, methods_of
from ssdml.experiments.runs.thumbnails import Thumbnails, load_thumbnails, thumbnails_path
from ssdml.metric.fitted.maps import CLASS_COLORS, DARK_CLASS_COLORS
from ssdml.utils.files import as_path
from ssdml.utils.persistence import atomic_write

if TYPE_CHECKING:
    from jinja2 import Environment

REPORT = "report.html"
PAGE, TEMPLATE = "page", "report.html.jinja"
BREAKS = re.compile(r"([_/.\\]+)(?=\w)")  # lines may break after these


def write_report(out: str | Path, sections: Sequence[Section] | None = None) -> Path:
    """Write ``out/report.html``.

    Parameters
    ----------
    out : path
        Folder that :func:`ssdml.experiments.compare` wrote.
    sections : sequence of Section, optional
        The result of ``read_sections``, to save a second layout of the maps.

    Returns
    -------
    report : Path

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from ssdml.datasets import load_dataset
    >>> from ssdml.experiments import compare
    >>> with TemporaryDirectory() as out:
    ...     rows = compare(load_dataset("digits"), ["input"], seeds=[0], out=out)
    ...     write_report(out).name
    'report.html'
    """
    out = as_path(out)
    page = render_report(read_sections(out) if sections is None else sections)
    report = out / REPORT
    with atomic_write(report) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return report


def read_sections(out: str | Path) -> list[Section]:
    """Make the sections of the report from the results in a folder.

    Each data set has a section per way of drawing labels, label noise and imbalance.

    Raises
    ------
    ValueError
        If the folder has no finished run.
    """
    out = as_path(out)
    rows = [_visible_row(row) for row in latest(read_folder(out))]
    if not rows:
        raise ValueError(f"{out / RESULTS}: no run has finished. Run the comparison first.")
    hashes = [row["config_hash"] for row in rows]
    details = {name: _visible_details(out / "details" / f"{name}.npz") for name in hashes}
    styles = method_styles(methods_of(rows))
    sections: list[Section] = []
    for group in conditions(rows):
        name = group[0]["dataset"]
        is_first = all(name != section.headline.dataset for section in sections)
        sections.append(
            make_section(
                group,
                details,
                all_rows=[row for row in rows if row["dataset"] == name] if is_first else [],
                thumbnails=lambda data: _visible_thumbnails(thumbnails_path(out, data)),
                styles=styles,
            )
        )
    return sections


# Names and texts may come from others' files: no control character reaches the page.


def _visible_row(row: Row) -> Row:
    changes = {name: visible(row[name]) for name in ("dataset", "method")}
    versions = {visible(name): visible(str(version)) for name, version in row["versions"].items()}
    error = row["error"] and visible(row["error"])
    return row | changes | {"versions": versions, "error": error}  # type: ignore[return-value]


def _visible_details(path: Path) -> RunDetails | None:
    found = load_details(path)
    if found is None:
        return None
    return replace(
        found,
        class_names=list(map(visible, found.class_names)),
        warnings=list(map(visible, found.warnings)),
    )


def _visible_thumbnails(path: Path) -> Thumbnails | None:
    found = load_thumbnails(path)
    return found and replace(found, texts=list(map(visible, found.texts)))


def render_report(sections: Sequence[Section]) -> str:
    """Render the page."""
    environment, part = page_environment()
    rows = [row for section in sections for row in section.rows]
    styles = {name: style for section in sections for name, style in section.styles.items()}
    # Each data set counts once, by its first condition.
    studies = {s.headline.dataset: s.study for s in reversed(sections) if s.study is not None}
    ranking = rank_over_datasets(list(studies.values()))
    by_name: dict[str, list[Section]] = {}
    for section in sections:
        by_name.setdefault(section.headline.dataset, []).append(section)
    return environment.get_template(TEMPLATE).render(
        datasets=[
            {"name": name, "key": f"set-{i}", "sections": group}
            for i, (name, group) in enumerate(by_name.items(), 1)
        ],
        colors=CLASS_COLORS,
        dark_colors=DARK_CLASS_COLORS,
        lead=lead,
        is_interactive=any(section.explorer.data for section in sections),
        part=part,
        max_classes=MAX_CLASSES,
        styles=styles,
        headline_scores=HEADLINE,
        all_scores=ALL_SCORES,
        budget_of=budget_of,
        margin=MARGIN,
        level=LEVEL,
        over_datasets=ranking,
        over_datasets_picture=ranking and ranking_picture(ranking, "all data sets", styles),
        versions=_versions(rows),
        n_rows=len(rows),
    )


def page_environment() -> tuple[Environment, Callable[[str], str]]:
    """Return the templates of pages, and a function that reads a part of a page."""
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
        "percent": percent,
        "breakable": breakable,
        "signed": signed,
        "interval": interval,
        "duration": duration,
    }
    folder = files("ssdml.experiments.report") / PAGE
    return environment, lambda name: (folder / name).read_text("utf-8")


def breakable(name: str) -> str:
    """Escape a name, and let its line break after underscores, slashes and dots.

    Examples
    --------
    >>> str(breakable("card_arrival <1>"))
    'card_<wbr>arrival &lt;1&gt;'
    """
    from jinja2.filters import do_forceescape, do_mark_safe

    return do_mark_safe(BREAKS.sub(r"\1<wbr>", str(do_forceescape(name))))


def _versions(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """List each package with the versions that the runs used."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, version in row["versions"].items():
            found.setdefault(name, []).append(version)
    return [(name, ", ".join(dict.fromkeys(versions))) for name, versions in found.items()]
