"""The pages: what they tell a reader to type exists, what they point at is there, and it runs."""

from __future__ import annotations

import inspect
import re
import shlex
import warnings
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ssdml import SSDML, DeepSSDML
from ssdml.cli.app import app
from tests.short import shorten
from tests.test_layout import FLOORS

ROOT = Path(__file__).resolve().parents[1]
README, CONTRIBUTING, CHANGELOG, SECURITY = (
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
)
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [README, CONTRIBUTING, CHANGELOG, SECURITY, *DOCS]

COMMANDS = get_command(app).commands
COMMAND = r"(?:^|`|^\$ )ssdml ([a-z]+)"
FENCE = re.compile(r"^```(\S*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUN = ("python", "bash")
SHOWN = ("console", "text")  # what wants hours, a cluster or a network; and what is no program
TO_BE_MADE = {"baselines/rca.py", "ssdml/losses/cosine_margin.py"}  # by who reads the page


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def named(pattern: str, page: Path) -> set[str]:
    return set(re.findall(pattern, page.read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
class TestPage:
    def test_the_targets_of_make_that_it_names_exist(self, page):
        targets = named(r"^(\w+):", ROOT / "Makefile")
        assert named(r"(?:^|`)make ([a-z]+)", page) - targets == set()

    def test_the_commands_that_it_names_exist(self, page):
        assert named(COMMAND, page) - COMMANDS.keys() == set()

    def test_the_options_that_it_names_exist(self, page):
        for name, rest in named(COMMAND + r"((?: .*\\\n.*| [^`\n]*))", page):
            known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
            assert set(re.findall(r"--[a-z-]+", rest)) - known == set(), name

    def test_the_files_that_it_points_at_are_there(self, page):
        targets = named(r"\]\((?!https?:)([^)#]+)", page)
        assert {target for target in targets if not (page.parent / target).is_file()} == set()

    def test_the_files_that_it_names_are_there(self, page):
        folders = "examples|tests|graphs|baselines|ssdml|docs"
        paths = named(rf"(?:`|python )((?:{folders})/[\w/]+\.py)", page)
        assert {path for path in paths - TO_BE_MADE if not (ROOT / path).is_file()} == set()


def test_the_blocks_of_the_pages_are_found():
    languages = [
        language for page in (README, *DOCS) for language, _ in FENCE.findall(page.read_text())
    ]
    assert languages.count("python") > 60
    assert languages.count("bash") >= 6


@pytest.mark.parametrize("page", DOCS, ids=page_name)
def test_blocks_run_or_are_shown(page):
    languages = {language for language, _ in FENCE.findall(page.read_text())}
    directives = {language for language in languages if language.startswith("{")}
    assert languages - directives <= {*RUN, *SHOWN}
    assert directives <= {"{toctree}", "{eval-rst}"}


def test_contributing_draws_the_floors_that_are_checked():
    (drawing,) = re.findall(r"^```\n(  floor.*?)^```", CONTRIBUTING.read_text(), re.S | re.M)
    drawn, number = {}, 0
    for line in drawing.splitlines():
        number = int(line.split()[1]) if line.startswith("  floor") else number
        if not line.startswith(" " * 14):  # a package within a package
            name = line.removeprefix(f"  floor {number}").split()[0].rstrip("/")
            drawn.setdefault(number, set()).add(f"ssdml.{name.removeprefix('ssdml/')}")
    assert drawn == {
        number: floor - {"ssdml.__main__"} for number, floor in enumerate(FLOORS) if number
    }


def test_contributing_names_files_that_exist():
    section = CONTRIBUTING.read_text().partition("| to change | open |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([\w/]+(?:\.py|/))`", line) for line in section.splitlines()]
    assert sum(map(len, rows)) > 20
    for row in rows:
        folder = Path()
        for name in row:  # a bare name is in the folder of the one before
            path = (
                Path(name) if name.count("/") > 1 or name.startswith("graphs/") else folder / name
            )
            assert (ROOT / path).exists(), path
            folder = path.parent


@pytest.mark.parametrize("estimator", [SSDML, DeepSSDML])
def test_the_page_of_parameters_names_each_of_them(estimator):
    _, *sections = re.split(r"^## ", (ROOT / "docs/parameters.md").read_text(), flags=re.MULTILINE)
    (section,) = (text for text in sections if text.startswith(f"{estimator.__name__}\n"))
    told = set(re.findall(r"\*\*`(\w+)`\*\*", section))
    assert told == inspect.signature(estimator).parameters.keys()


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """An empty folder to work in, tables that may be added to, and short work where it is long."""
    from ssdml.datasets import loading as datasets
    from ssdml.experiments import METHODS

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the commands change it
    shorten(monkeypatch)
    with patch.dict(METHODS), patch.dict(datasets.LAYOUTS):  # also removes what a page adds
        yield


# Some seconds each, most of them fits: these are the lines that people copy first.
@pytest.mark.parametrize("page", [README, *DOCS], ids=page_name)
@pytest.mark.usefixtures("reader")
def test_blocks_of_a_page_run(page):
    text, names = page.read_text(), {}
    for fence in FENCE.finditer(text):
        language, block = fence.groups()
        if language == "python":
            above = text.count("\n", 0, fence.start(2))  # so that an error names the page's line
            exec(compile("\n" * above + block, page, "exec"), names)
        elif language == "bash":
            for line in block.replace("\\\n", " ").splitlines():
                run_command(line)


def run_command(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "ssdml", f"a bash block holds commands of ssdml; got {line!r}"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, f"{line}\n{done.output}"
