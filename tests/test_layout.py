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
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

import ssdml

ROOT = Path(__file__).resolve().parents[1]
IMPORT_NAME = {"ssdml": "ssdml", "graphs": "ssdml.graphs", "baselines": "ssdml.baselines"}

# From the ground up: a module imports from its own floor and from those below.
FLOORS = (
    {"ssdml", "ssdml._checkout"},
    {"ssdml.graphs"},
    {
        f"ssdml.{name}"
        for name in "linalg projections scatter representation agreement calibration".split()
    }
    | {"ssdml.leave_one_out"}
    | {f"ssdml.{name}" for name in "angular losses backbones sampling augmentation".split()}
    | {"ssdml.paper_networks"}
    | {
        f"ssdml.{name}"
        for name in "files items ranks checkpoints device_graph input_side journal".split()
    }
    | {f"ssdml.{name}" for name in "pooling bn_inception wide_resnet pretrained".split()}
    | {f"ssdml.{name}" for name in "labels ranking retrieval evaluation progress".split()}
    | {f"ssdml.{name}" for name in "persistence dask_arrays datasets budgets splits".split()}
    | {
        f"ssdml.{name}"
        for name in "image_readers image_shapes fine_grained_readers image_files".split()
    }
    | {"ssdml.table_readers", "ssdml.texts"},
    {"ssdml.stiefel", "ssdml.metric", "ssdml.induction", "ssdml.model_selection"}
    | {"ssdml.offered", "ssdml.onnx_export"},
    {
        "ssdml.training",
        "ssdml.residual_training",
        "ssdml.features",
        "ssdml.conclusion",
        "ssdml.alternation",
        "ssdml.partitions",
        "ssdml.distributed",
        "ssdml.costs",
        "ssdml.planning",
        "ssdml.suggestion",
        "ssdml.estimator",
    },
    {f"ssdml.deep_{part}" for part in "config estimator literal metric network run".split()}
    | {"ssdml.deep", "ssdml.partition_run", "ssdml.run_folder"},
    {"ssdml.experiments"},
    {"ssdml.cli", "ssdml.cli_model", "ssdml.cli_study", "ssdml.cli_values", "ssdml.__main__"},
    {"ssdml.baselines"},
)
# The registry of methods may name the floor above it, inside a function.
REACHES_UP = {("ssdml.experiments.run", "ssdml.baselines")}


def import_name(path: Path) -> str:
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([IMPORT_NAME[folder], *(part for part in rest if part != "__init__")])


FILES = {import_name(p): p for folder in IMPORT_NAME for p in sorted((ROOT / folder).rglob("*.py"))}
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())


class Import(NamedTuple):
    module: str
    line: int
    within: str  # "module", "function", or "types" under `if TYPE_CHECKING`


def imports(source: str) -> Iterator[Import]:
    """Every import of a source text; a relative one keeps its dots."""
    yield from imports_below(ast.parse(source), "module")


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
        return [
            ssdml._HOMES.get(n.removeprefix("ssdml."), n if n in FILES else home) for n in names
        ]
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
    for name, line, within in imports(source):
        if name.startswith("."):
            found.append(f"line {line}: relative import of {name}")
        elif name.split(".")[0] in {"graphs", "baselines"}:
            found.append(f"line {line}: {name} is ssdml.{name}")
        elif name.split(".")[0] == "ssdml" and floor(name) > floor(module):
            reach = (module, ".".join(name.split(".")[:2]))
            if not (within == "function" and reach in REACHES_UP):
                found.append(f"line {line}: {module} must not import {name}, a floor above it")
    return found


def test_every_package_is_shipped():
    packages = {name for name, path in FILES.items() if path.name == "__init__.py"}
    assert set(CONFIG["tool"]["setuptools"]["packages"]) == packages


def test_every_folder_of_modules_is_a_package():
    bare = {p.parent for p in FILES.values() if not (p.parent / "__init__.py").exists()}
    assert not bare, f"folders without __init__.py: {bare}"


# The package names its lazy exports for the type checker; what it loads is tested below.
@pytest.mark.parametrize("module", sorted(FILES.keys() - {"ssdml"}))
def test_a_module_imports_from_its_own_floor_or_below(module):
    assert violations(module, FILES[module].read_text()) == []


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("ssdml.graphs.neighbors", "import ssdml.evaluation", "a floor above"),
        ("ssdml.graphs.neighbors", "from ssdml import evaluation", "a floor above"),
        ("ssdml.graphs.neighbors", "def f():\n    import ssdml.cli", "a floor above"),
        ("ssdml.stiefel", "from ssdml import SSDML", "a floor above"),
        ("ssdml.stiefel", "if TYPE_CHECKING:\n    import ssdml.cli", "a floor above"),
        ("ssdml.cli", "def f():\n    from ssdml.baselines import LRML", "a floor above"),
        ("ssdml.experiments.run", "from ssdml.baselines import LRML", "a floor above"),
        ("ssdml.experiments.run", "import_module('ssdml.baselines')", "a floor above"),
        ("ssdml.cli", "from . import estimator", "relative import"),
        ("ssdml.cli", "from ..graphs import x", "relative import"),
        ("ssdml.cli", "import graphs.neighbors", "is ssdml.graphs.neighbors"),
        ("ssdml.cli", "from baselines import LRML", "is ssdml.baselines"),
    ],
)
def test_a_forbidden_import_is_seen(module, source, message):
    (found,) = violations(module, source)
    assert message in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ssdml.experiments.run", "def f():\n    from ssdml.baselines import LRML"),
        ("ssdml.cli", "from ssdml import SSDML, __version__, graphs"),
        ("ssdml.graphs.laplacian", "from ssdml.graphs.neighbors import KNNGraph"),
        ("ssdml.baselines.lrml", "from ssdml.estimator import SSDML\nimport numpy"),
    ],
)
def test_an_allowed_import_is_not_reported(module, source):
    assert violations(module, source) == []


def test_a_module_on_no_floor_is_told_where_to_stand():
    with pytest.raises(LookupError, match=r"ssdml\.brandnew stands on no floor: add it to FLOORS"):
        violations("ssdml.brandnew", "import ssdml.graphs")


def test_no_modules_import_each_other_in_a_circle():
    edges = {
        module: {i.module for i in imports(path.read_text()) if i.within != "types"}
        & FILES.keys() - {up for low, up in REACHES_UP if low == module}
        for module, path in FILES.items()
    }
    TopologicalSorter(edges).prepare()  # raises CycleError, which names the circle


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    declared = {re.split(r"[<>=!~\[]", d)[0].lower() for d in CONFIG["project"]["dependencies"]}
    extras = CONFIG["project"]["optional-dependencies"].values()
    optional = {re.split(r"[<>=!~\[]", d)[0].lower() for extra in extras for d in extra}
    home = {"umap": ["umap-learn"], "sentence_transformers": ["sentence-transformers"]}
    home |= packages_distributions()  # the first need not be installed
    imported = {
        home.get(top, [top])[0].lower()
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


def test_importing_the_graphs_loads_neither_torch_nor_scikit_learn():
    assert loaded_by("import ssdml.graphs") & {"torch", "sklearn"} == set()


def test_importing_the_command_line_loads_neither_torch_nor_scikit_learn():
    assert loaded_by("import ssdml.cli") & {"torch", "sklearn", "matplotlib"} == set()


def test_importing_the_estimator_loads_neither_torch_nor_numba():
    assert loaded_by("from ssdml import SSDML") & {"torch", "faiss", "numba", "matplotlib"} == set()


@pytest.mark.parametrize("name", ssdml.__all__)
def test_a_lazy_name_is_the_object_of_its_home(name):
    assert getattr(ssdml, name) is getattr(importlib.import_module(ssdml._HOMES[name]), name)
    assert name in dir(ssdml)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ssdml' has no attribute 'SSDLM'"):
        ssdml.SSDLM  # noqa: B018


@pytest.mark.parametrize("module", sorted(FILES))
def test_doctests_pass(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("module", sorted(FILES))
def test_every_exported_function_and_class_shows_an_example(module):
    loaded = importlib.import_module(module)
    exported = [getattr(loaded, name) for name in getattr(loaded, "__all__", ())]
    records = {x for x in exported if is_dataclass(x) or hasattr(x, "_fields")}
    shown = [x for x in exported if callable(x) and x not in records]
    silent = [x.__name__ for x in shown if ">>>" not in (inspect.getdoc(x) or "")]
    assert silent == [], f"no example in the docstring of {silent}"


def test_mypy_strict_finds_nothing(tmp_path):
    # Static tools run no finder: they see one tree of links, laid out as the wheel is.
    tree = tmp_path / "ssdml"
    tree.mkdir()
    for item in [*(ROOT / "ssdml").iterdir(), ROOT / "graphs", ROOT / "baselines"]:
        (tree / item.name).symlink_to(item)
    options = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
    run_tool("mypy", *options, tree)


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


def test_no_file_names_a_path_of_one_machine_or_a_registry_host():
    home = r"(?<![\w.~*}/-])/(?:home|mnt|opt|root|tmp|work|Users)/\w+"
    host = r"https?://(?:files|registry|deb)\.\w+|extra-index[-]url"
    found = {name: re.findall(f"{home}|{host}", text) for name, text in written_files().items()}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_what_is_cited_is_this_version():
    cited = written_files()["CITATION.cff"]
    assert re.findall("(?m)^version: (.*)$", cited) == [ssdml.__version__]
    assert re.findall("(?m)^license: (.*)$", cited) == [CONFIG["project"]["license"]]


def test_no_source_file_is_longer_than_400_lines():
    lengths = {n: text.count("\n") for n, text in written_files().items() if n.endswith(".py")}
    assert {name: n for name, n in lengths.items() if n > 400} == {}, "perhaps two ideas: split"
