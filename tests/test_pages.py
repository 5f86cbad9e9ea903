"""The pages: what they tell a reader to type exists, what they point at is there, and it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from ssdml.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]


def named(pattern: str, page: Path) -> set[str]:
    return set(re.findall(pattern, page.read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
class TestPage:
    def test_the_targets_of_make_that_it_names_exist(self, page):
        targets = named(r"^(\w+):", ROOT / "Makefile")
        assert named(r"(?:^|`)make ([a-z]+)", page) - targets == set()

    def test_the_commands_that_it_names_exist(self, page):
        commands = get_command(app).commands.keys()
        assert named(r"(?:^|`)ssdml ([a-z]+)", page) - commands == set()

    def test_the_options_that_it_names_exist(self, page):
        commands = get_command(app).commands
        for name, rest in named(r"(?:^|`)ssdml ([a-z]+)((?: .*\\\n.*| [^`\n]*))", page):
            known = {option for parameter in commands[name].params for option in parameter.opts}
            assert set(re.findall(r"--[a-z-]+", rest)) - known == set(), name

    def test_the_files_that_it_points_at_are_there(self, page):
        targets = named(r"\]\((?!https?:)([^)#]+)", page)
        assert {target for target in targets if not (ROOT / target).is_file()} == set()


def test_the_floors_are_made_of_modules_that_exist():
    """The first column of the drawing; a module has no slash, a folder has one."""
    (drawing,) = re.findall(r"^## Floors\n\n```\n(.*?)^```", PAGES[1].read_text(), re.DOTALL | re.M)
    columns = (re.split(r"  +", line.strip())[0] for line in drawing.splitlines())
    names = {name for column in columns for name in re.findall(r"[a-z_]+/?", column)}
    assert {"graphs/", "estimator", "linalg"} <= names
    places = (ROOT, ROOT / "ssdml")
    files = {p.stem if p.is_file() else f"{p.name}/" for place in places for p in place.iterdir()}
    assert names - files == set()


# 5 s, most of them a search over 10 fits: these are the lines that people copy first.
def test_the_python_of_the_readme_runs_from_top_to_bottom():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGES[0].read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert len(blocks) >= 3
    assert names["Z"].shape[0] == len(names["X"])
