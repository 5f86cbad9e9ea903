"""The Makefile: one command each, installing once, honest when something fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Stands for every program of a virtual environment: notes its arguments, fails on demand.
PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >> log
case "$*" in *"$FAILS"*) exit 3;; esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Folder with the Makefile and a virtual environment whose programs only take notes."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("pip", "python", "ssdml"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    return tmp_path


def make(
    project: Path, *arguments: str, fails: str = "nothing"
) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    for name in ("ARGS", "VENV", "PYTHON"):
        inherited.pop(name, None)
    environment = inherited | {"FAILS": fails}
    command = ["make", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


def notes(project: Path) -> list[str]:
    return (project / "log").read_text().splitlines()


def test_the_tests_install_once_and_run_each_time(project):
    assert make(project, "test").returncode == 0
    assert make(project, "test", "ARGS=-k graph").returncode == 0
    assert notes(project) == [
        "python -m pip install --editable .[test]",
        "python -m pytest --numprocesses auto --dist worksteal",
        "python -m pytest --numprocesses auto --dist worksteal -k graph",
    ]


def test_a_change_of_the_requirements_installs_again(project):
    make(project, "test")
    stamp = (project / ".venv" / "installed-test").stat().st_mtime
    os.utime(project / "pyproject.toml", (stamp + 1, stamp + 1))
    make(project, "test")
    assert notes(project).count("python -m pip install --editable .[test]") == 2


def test_the_demo_says_where_its_report_is(project):
    done = make(project, "demo")
    assert notes(project) == ["python -m pip install --editable .", "ssdml demo --out demo --force"]
    assert done.stdout.splitlines()[-1] == f"Open {project}/demo/report.html in a browser."


@pytest.mark.parametrize(
    ("target", "fails"),
    [
        ("test", "pytest"),
        ("demo", "demo"),
        ("lint", "check"),
        ("types", "mypy"),
        ("docs", "sphinx"),
        ("bench", "bench"),
        ("gpu", "gpu"),
        ("robust", "tools.robust"),
    ],
)
def test_a_failure_is_not_swallowed(project, target, fails):
    done = make(project, target, fails=fails)
    assert done.returncode != 0
    assert "Error 3" in done.stderr
    assert ".html" not in done.stdout


def test_a_failed_installation_is_tried_again(project):
    assert make(project, "test", fails="install").returncode != 0
    assert make(project, "test").returncode == 0
    assert notes(project).count("python -m pip install --editable .[test]") == 2


def test_old_or_missing_python_is_reported(project):
    (project / ".venv" / "bin" / "pip").unlink()
    old = project / ".venv" / "bin" / "python"
    done = make(project, "test", f"PYTHON={old}", fails="sys.version_info < (3, 11)")
    assert done.returncode != 0
    assert f"ssdml needs Python 3.11 or newer, and '{old}' is not" in done.stderr
    assert "make PYTHON=python3.12" in done.stderr
    missing = make(project, "test", "PYTHON=python3.nowhere")
    assert "and 'python3.nowhere' is not" in missing.stderr


def test_make_alone_explains_every_target(project):
    targets = re.findall(r"^\.PHONY: help (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    explained = re.findall(r"^make (\w+)", make(project).stdout, flags=re.MULTILINE)
    assert explained == targets[0].split()
