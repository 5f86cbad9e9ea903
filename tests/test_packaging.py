"""What is built, and how it is found: from the root, from elsewhere, in a worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import ssdml

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ssdml", "graphs", "baselines", "tests", "examples", "tools")
PAGES = ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")
IN_WHEEL = {"ssdml": "ssdml", "graphs": "ssdml/graphs", "baselines": "ssdml/baselines"}
KINDS = {".py", ".pyi", ".typed", ".jinja", ".css", ".js"}

# Where the modules come from, seen from one interpreter.
WHERE = """
import ssdml, ssdml.graphs, ssdml.baselines
for module in (ssdml, ssdml.graphs, ssdml.baselines):
    print(module.__file__)
"""
# The same, seen from a process that the first one spawned: the worker of joblib and of DataLoader.
WHERE_IN_A_WORKER = f"""
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(exec, ({WHERE!r}, {{}}))
"""


def checkout(folder: Path) -> Path:
    """Copy of what a clone holds, without what was built in this one."""
    for name in FOLDERS:
        ignore = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in (*PAGES, "pyproject.toml", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    return folder


def run_python(*arguments: str, cwd: Path, path: tuple[Path, ...] = ()) -> str:
    """Output of an interpreter that sees the dependencies, ``path``, and no installed ssdml."""
    # -S leaves the .pth files alone, and with them a `pip install -e` of this project.
    libraries = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*path, *libraries]))}
    command = [sys.executable, "-S", "-W", "error", *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def homes(*arguments: str, cwd: Path, path: tuple[Path, ...] = ()) -> list[Path]:
    """Files of ssdml, ssdml.graphs and ssdml.baselines as a program sees them."""
    return [
        Path(cwd, line) for line in run_python(*arguments, cwd=cwd, path=path).split("\n") if line
    ]


def in_checkout(root: Path) -> list[Path]:
    return [root / folder / "__init__.py" for folder in ("ssdml", "graphs", "baselines")]


def in_wheel(site: Path) -> list[Path]:
    return [site / folder / "__init__.py" for folder in IN_WHEEL.values()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the sdist, and the wheel that was built from it."""
    source = checkout(tmp_path_factory.mktemp("source"))
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked, as pip would do it."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def test_wheel_holds_the_three_folders_only(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {
        f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, target in IN_WHEEL.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in KINDS
    }


def test_the_wheel_claims_the_name_ssdml_alone(site):
    (top_level,) = site.glob("*.dist-info/top_level.txt")
    assert top_level.read_text().split() == ["ssdml"]


def test_wheel_carries_license_and_py_typed(site):
    (license,) = site.glob("*.dist-info/licenses/LICENSE")
    assert license.read_text() == (ROOT / "LICENSE").read_text()
    assert (site / "ssdml" / "py.typed").is_file()


def test_the_version_is_the_same_everywhere(built, site):
    metadata = Parser().parsestr(next(site.glob("*.dist-info/METADATA")).read_text())
    assert metadata["Version"] == ssdml.__version__
    names = {path.name.split("-")[1].removesuffix(".tar.gz") for path in built.iterdir()}
    assert names == {ssdml.__version__}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert metadata["Requires-Python"] == project["requires-python"]


def test_the_sdist_holds_the_tests_and_the_examples(built):
    (sdist,) = built.glob("*.tar.gz")
    names = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
    expected = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in KINDS]
    expected += [ROOT / name for name in PAGES]
    missing = {path.relative_to(ROOT).as_posix() for path in expected} - names
    assert missing == set()
    assert not [name for name in names if name.endswith(".pyc")]


def test_an_installed_wheel_is_found_from_elsewhere(site, tmp_path):
    assert homes("-c", WHERE, cwd=tmp_path, path=(site,)) == in_wheel(site)


def test_an_installed_wheel_searches_its_own_folder_alone(site, tmp_path):
    code = "import ssdml; print(*ssdml.__path__, sep='\\n')"
    assert run_python("-c", code, cwd=tmp_path, path=(site,)).split() == [str(site / "ssdml")]


def test_the_bare_names_stay_free_for_other_projects(site, tmp_path):
    code = (
        "from importlib.util import find_spec; print(find_spec('graphs'), find_spec('baselines'))"
    )
    assert run_python("-c", code, cwd=tmp_path, path=(site,)).split() == ["None", "None"]


def test_checkout_wins_over_an_installed_wheel(site, tmp_path):
    root = checkout(tmp_path)
    assert homes("-c", WHERE, cwd=root, path=(site,)) == in_checkout(root)


def test_at_the_root_a_checkout_needs_no_installation(tmp_path):
    root = checkout(tmp_path)
    assert homes("-c", WHERE, cwd=root) == in_checkout(root)


def test_a_spawned_worker_finds_the_same_files(site, tmp_path):
    root = checkout(tmp_path / "root")
    script = tmp_path / "script.py"
    script.write_text(WHERE_IN_A_WORKER)
    assert homes("-c", WHERE_IN_A_WORKER, cwd=root) == in_checkout(root)
    assert homes(str(script), cwd=tmp_path, path=(site,)) == in_wheel(site)


def test_pickles_from_a_checkout_load_elsewhere(site, tmp_path):
    root, file = checkout(tmp_path / "root"), f"Path({str(tmp_path / 'graph.pickle')!r})"
    write = f"""
import pickle, numpy
from pathlib import Path
from ssdml.graphs import knn_graph
{file}.write_bytes(pickle.dumps(knn_graph(numpy.eye(3), 1)))
"""
    read = f"import pickle; from pathlib import Path; print(pickle.loads({file}.read_bytes()))"
    run_python("-c", write, cwd=root)
    assert run_python("-c", read, cwd=tmp_path, path=(site,)).startswith("KNNGraph(")


def test_editable_install_yields_to_another_checkout(tmp_path):
    first, second = checkout(tmp_path / "first"), checkout(tmp_path / "second")
    editable, elsewhere = tmp_path / "editable", tmp_path / "elsewhere"
    elsewhere.mkdir()
    hook = f"from setuptools.build_meta import build_editable; build_editable({str(tmp_path)!r})"
    run_python("-W", "ignore", "-c", hook, cwd=first)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(editable)
    code = f"import site; site.addsitedir({str(editable)!r})\n{WHERE}"
    assert homes("-c", code, cwd=elsewhere, path=(editable,)) == in_checkout(first)
    # two worktrees, one environment: nothing of the first is mixed into the second
    assert homes("-c", code, cwd=second, path=(editable,)) == in_checkout(second)


def test_the_command_is_declared_and_its_function_exists(site, tmp_path):
    (entry_points,) = site.glob("*.dist-info/entry_points.txt")
    assert "ssdml = ssdml.__main__:main" in entry_points.read_text()
    code = "from ssdml.__main__ import main; print(callable(main))"
    assert run_python("-c", code, cwd=tmp_path, path=(site,)).strip() == "True"
