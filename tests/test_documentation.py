"""The site: it builds without a warning, its links lead somewhere, what it says to add works."""

from __future__ import annotations

import ast
import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from contextlib import redirect_stderr
from html.parser import HTMLParser
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.short import shorten

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WANTED = (
    *("sphinx", "furo", "myst_parser", "numpydoc"),
    *("sphinx_copybutton", "sphinx_gallery", "latex2mathml"),
)
needs_sphinx = pytest.mark.skipif(
    not all(map(find_spec, WANTED)), reason='the site needs pip install ".[docs]"'
)


class Links(HTMLParser):
    """What a page points at, what it loads, and what can be pointed at in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.pointed: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {""}
        self.n_formulas = 0
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for value in (given.get("id"), given.get("name")) if value}
        self.n_formulas += tag == "math"
        if tag == "a" and given.get("href"):
            self.pointed.append(given["href"] or "")
        elif tag in ("link", "script", "img") and (where := given.get("href") or given.get("src")):
            self.loaded.append(where)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Pages of the site by their path; the builder runs in this process, which has ssdml."""
    from sphinx.cmd.build import build_main

    out = tmp_path_factory.mktemp("site")
    pages = out / "pages"  # the gallery is written beside its sources
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("gallery"))
    command = ["--builder", "html", "--fail-on-warning", "--quiet"]
    told = StringIO()
    levels = {name: logging.getLogger(name).level for name in ("ssdml", "faiss")}  # of conf.py
    with (
        warnings.catch_warnings(),  # Sphinx uses what it deprecates
        redirect_stderr(told),
        pytest.MonkeyPatch.context() as patch,  # the gallery is not looked at
    ):
        warnings.simplefilter("ignore")
        shorten(patch)
        status = build_main([*command, "--conf-dir", *map(str, (DOCS, pages, out))])
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    assert status == 0, told.getvalue()
    return {page: Links(page) for page in out.rglob("*.html")}


# Autodoc imports all of ssdml, and renders 40 docstrings.
@pytest.mark.long
@needs_sphinx
class TestSite:
    def test_every_page_is_there(self, site):
        pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
        (home,) = (page.parent for page in site if page.name == "why-and-when.html")
        assert {home / page for page in pages} <= site.keys()

    def test_the_gallery_shows_pictures(self, site):
        (home,) = (page.parent for page in site if page.name == "why-and-when.html")
        for script in (DOCS.parent / "examples" / "gallery").glob("*.py"):
            loaded = site[home / "gallery" / f"{script.stem}.html"].loaded
            assert [where for where in loaded if "sphx_glr_plot" in where], script

    def test_its_links_lead_somewhere(self, site):
        broken = []
        for page, links in site.items():
            for link in links.pointed + links.loaded:
                parts = urlsplit(link)
                target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
                if parts.scheme in ("http", "https", "data", "mailto"):
                    continue
                known = site[target].anchors if target in site else {""}
                if not target.is_file() or unquote(parts.fragment) not in known:
                    broken.append(f"{page.name}: {link}")
        assert broken == []

    def test_nothing_is_fetched_from_elsewhere(self, site):
        fetched = {where for links in site.values() for where in links.loaded}
        assert {where for where in fetched if urlsplit(where).netloc} == set()

    def test_screen_readers_get_its_roles(self, site):
        for page, links in site.items():
            roles = re.findall(r"<[^>]* role=[^>]*>", page.read_text(encoding="utf-8"))
            headings = [tag for tag in roles if 'role="heading"' in tag]
            assert all("aria-level" in tag for tag in headings), page.name
            assert not [tag for tag in roles if "biblio" in tag or "citation" in tag], page.name
            assert any("scrolling.js" in where for where in links.loaded), page.name

    def test_its_formulas_are_drawn(self, site):
        drawn = {page.name: links.n_formulas for page, links in site.items()}
        assert drawn["affinities.html"] > 30
        assert drawn["graphs.html"] > 5
        for page in site:
            text = re.sub(r"<pre>.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
            assert not re.search(r"\\(?:gamma|frac|top|mathbf|operatorname)\b", text), page.name


@pytest.fixture
def copy(tmp_path):
    """A copy of what is needed to add to the code and to test it."""
    for folder in ("ssdml", "graphs", "baselines", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def add_file(copy: Path, page: str) -> None:
    """Put the page's first block where the page says, as it stands."""
    text = (DOCS / "extending" / page).read_text()
    where, block = re.search(
        r"^`([\w/]+\.py)`:\n\n```python\n(.*?)^```", text, re.S | re.M
    ).groups()
    assert not (copy / where).exists()
    (copy / where).write_text(block)
    run(copy, "ruff", "check", where)
    run(copy, "ruff", "format", "--check", where)


def add_entry(copy: Path, where: str, table: str, entry: str) -> None:
    """Add to a list, tuple or dictionary that stands in a file."""
    lines = (copy / where).read_text().splitlines(keepends=True)
    nodes = ast.walk(ast.parse("".join(lines)))
    named = [n for n in nodes if isinstance(n, ast.Assign | ast.AnnAssign)]
    (value,) = (n.value for n in named if ast.unparse(n).split()[0].rstrip(":") == table)
    last = (value.values if isinstance(value, ast.Dict) else value.elts)[-1]
    line, column = last.end_lineno - 1, last.end_col_offset
    lines[line] = f"{lines[line][:column]}, {entry}{lines[line][column:]}"
    (copy / where).write_text("".join(lines))


def add_import(copy: Path, where: str, line: str) -> None:
    """Add an import to those of a file, or to the stub of a package."""
    text = (copy / where).read_text()
    place = "" if where.endswith(".pyi") else "import annotations\n"
    assert text.count(place) == 1 or not place
    (copy / where).write_text(text.replace(place, f"{place}{line}\n", 1))


def run(copy: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# A process that imports all of ssdml again; torch.compile, which is not asked for, would double it.
@pytest.mark.long
def test_classes_of_the_pages_keep_the_contracts(copy):
    add_file(copy, "baseline.md")
    add_import(copy, "baselines/__init__.pyi", "from .rca import RCA as RCA")
    entry = '"rca": Method("ssdml.baselines:RCA")'
    add_entry(copy, "ssdml/experiments/methods/registry.py", "METHODS", entry)
    of_baselines = ["tests/contracts/test_estimators.py", "tests/baselines/test_laws.py"]
    for where, table in zip(of_baselines, ("ESTIMATORS", "METHODS"), strict=True):
        add_import(copy, where, "from ssdml.baselines import RCA")
        add_entry(copy, where, table, "RCA()")
    add_file(copy, "loss.md")
    of_losses = [f"tests/contracts/test_losses{of}.py" for of in ("", "_of_pairs")]
    line = "from .cosine_margin import CosineMarginLoss as CosineMarginLoss"
    add_import(copy, "ssdml/losses/__init__.pyi", line)
    add_import(copy, "tests/losses.py", "from ssdml.losses import CosineMarginLoss")
    add_entry(copy, "tests/losses.py", "LOSSES", '"cosine margin": CosineMarginLoss')
    add_entry(copy, "tests/losses.py", "PAIRED", '"cosine margin"')
    tests = [*of_baselines, *of_losses, "tests/test_layout.py"]
    named = "(rca or cosine or every_exported or downwards or across) and not compiles"
    done = run(copy, "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", named)
    assert int(re.search(r"(\d+) passed", done).group(1)) > 115
