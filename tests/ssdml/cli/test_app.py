"""The command line: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer

import ssdml
from ssdml.__main__ import main
from ssdml.cli.app import app, signals_as_interrupts
from ssdml.cli.examples import EXAMPLES
from ssdml.cli.options import put
from ssdml.cli.parsing import is_repeatable
from ssdml.experiments import METHODS

COMMANDS = sorted(EXAMPLES)


def test_version_is_that_of_the_package(run):
    assert run("--version").stdout == f"ssdml {ssdml.__version__}\n"


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_every_command_has_help(run, command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "--help" in result.stdout


def test_every_command_has_examples():
    assert set(COMMANDS) == set(typer.main.get_command(app).commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_parse(run, name):
    shown = " ".join(run(name, "--help").stdout.split())
    for example in EXAMPLES[name]:
        assert example[:40] in shown
        _, command, *words = example.partition(" >")[0].split()
        assert command == name
        typer.main.get_command(app).commands[name].make_context(name, words)


def test_help_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from ssdml.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit as end: status = end.code\n"
        "print(status, {'numpy', 'sklearn', 'torch', 'matplotlib'} & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "0 set()"


def test_python_m_ssdml_is_the_command_line():
    command = [sys.executable, "-m", "ssdml"]
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"ssdml {ssdml.__version__}\n"
    refused = subprocess.run([*command, "compar"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "python -m ssdml" in refused.stderr


def test_unknown_command_suggests_the_nearest(run):
    result = run("compar")
    assert result.exit_code == 2
    assert "compare" in result.stderr


def test_compare_writes_rows_report_and_table(run, data, tmp_path, quick_maps):
    out = tmp_path / "out"
    result = run(
        "compare", "--dataset", data, "--methods", "input,lda", "--labels-per-class", "2,5",
        "--seeds", 2, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {(r["method"], r["labels_per_class"], r["seed"]) for r in rows} == {
        (method, labels, seed)
        for method in ("input", "lda")
        for labels in (2, 5)
        for seed in (0, 1)
    }
    assert (out / "report.html").stat().st_size > 10_000
    assert "blobs, 5 labels per class, 2 seeds" in result.stdout
    assert f"The report: {out / 'report.html'}" in result.stderr
    assert "\x1b" not in result.output  # no control codes where there is no terminal


def test_compare_needs_resume_for_existing_results(run, data, tmp_path, quick_maps):
    command = ["compare", "--dataset", data, "--methods", "input", "--seeds", 1]
    command += ["--out", tmp_path / "out"]
    assert run(*command).exit_code == 0
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    again = run(*command)
    assert again.exit_code == 1
    told = again.stderr.splitlines()[-1]  # after what was read
    assert "holds results already" in told
    assert "--resume" in told
    assert run(*command, "--resume").exit_code == 0
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before


def test_form_named_as_features_is_told(run, tmp_path):
    refused = run("compare", "--dataset", "digits", "--features", "unit", "--out", tmp_path)
    assert refused.exit_code == 2
    assert "--form unit" in refused.stderr


def test_method_without_enough_labels_is_left_out(run, data, tmp_path):
    out = tmp_path / "out"
    result = run(
        "compare", "--dataset", data, "--methods", "input,lda", "--labels-per-class", 1,
        "--seeds", 1, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0
    assert "left out" in result.stderr
    assert "lda" in result.stderr


def test_any_failure_is_an_error(run, data, tmp_path, monkeypatch):
    def broken(self, X, y=None):
        raise RuntimeError("no luck")

    monkeypatch.setattr("sklearn.decomposition.PCA.fit", broken)
    result = run(
        "compare", "--dataset", data, "--methods", "input,pca", "--seeds", 1, "--map-rows", 0,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 1
    assert "no luck" in result.stderr
    assert "Next: repeat the command with --resume" in result.stderr


def test_only_failures_is_an_error(run, data, tmp_path):
    result = run(
        "compare", "--dataset", data, "--methods", "lda", "--labels-per-class", 1, "--seeds", 1,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("option", "value", "code", "message"),
    [
        ("--methods", "nac", 1, "Did you mean 'nca'?"),
        ("--dataset", "digit", 1, "Did you mean 'digits'?"),
        ("--dataset", "nothing.npz", 1, "nothing.npz"),
        ("--labels-per-class", "1,x", 2, "whole numbers"),
        ("--labels-per-class", "0", 2, "whole numbers"),
        ("--seeds", "0", 2, "--seeds"),
        ("--seeds", "0", 2, "'0'|0 is not"),
        ("--seeds", "many", 2, "--seeds"),
        ("--seeds", "many", 2, "'many'"),
        ("--n-jobs", "0", 2, "other than 0"),
    ],
)
def test_wrong_value_is_named(run, data, tmp_path, option, value, code, message):
    options = {"--dataset": data, "--methods": "input", "--seeds": 1, "--out": tmp_path / "out"}
    result = run(
        "compare", *(word for pair in (options | {option: value}).items() for word in pair)
    )
    assert result.exit_code == code
    assert any(words in result.stderr for words in message.split("|"))
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_all_means_every_registered_method(run, data, tmp_path, monkeypatch):
    _, *others = METHODS
    for name in reversed(others):  # restored in their order
        monkeypatch.delitem(METHODS, name)
    run("compare", "--dataset", data, "--methods", "all", "--seeds", 1, "--out", tmp_path / "out")
    (row,) = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    assert json.loads(row)["method"] == "input"


def test_ctrl_c_names_what_is_kept(run, data, tmp_path, monkeypatch):
    class Interrupted:
        def fit(self, X, y):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(METHODS, "interrupted", lambda seed, n_jobs: Interrupted())
    out = tmp_path / "out"
    # Jobs in the background of a shell ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = run(
            *("compare", "--dataset", data, "--methods", "input,interrupted"),
            *("--seeds", 1, "--out", out),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert "Interrupted. 1 finished run" in result.stderr
    assert "--resume" in result.stderr
    assert "Traceback" not in result.stderr
    assert len((out / "results.jsonl").read_text().splitlines()) == 1
    assert not list((out / "runs").glob("*.running"))


# Only methods that train networks need torch, which takes two seconds to load.
WITHOUT_TORCH = """
import sys
from ssdml.cli.app import main
class Finder:
    @staticmethod
    def find_spec(name, *_):
        assert name != "torch"
sys.meta_path.insert(0, Finder)
main()
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["datasets"]])
def test_full_standard_output_is_named(words, unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        told = subprocess.run(
            [sys.executable, "-m", "ssdml", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
    assert told.returncode == 1
    assert told.stderr == "error: standard output: No space left on device\n"


def test_closed_standard_output_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OSError, match="it is closed: 'standard output'"):
        put("scores")


def test_interrupted_imports_leave_one_line(run, monkeypatch):
    def interrupted(folder):
        for name in [name for name in sys.modules if name.startswith("ssdml.experiments")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "numpy", None)  # which cannot be loaded a second time
        raise KeyboardInterrupt

    monkeypatch.setattr("ssdml.experiments.runs.folder.read_status", interrupted)
    told = run("status", "folder")
    assert told.exit_code == 130
    assert told.stderr == "Interrupted.\n"


@pytest.mark.skipif(os.name == "nt", reason="sends a signal of POSIX")
def test_interrupt_that_an_import_turns_into_an_error_is_told(run, monkeypatch):
    def interrupted(folder):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr("ssdml.experiments.runs.folder.read_status", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        told = run("status", "folder")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (told.exit_code, told.stderr) == (130, "Interrupted.\n")


def test_interrupt_while_the_command_line_loads_is_told(monkeypatch, capsys):
    class Finder:
        @staticmethod
        def find_spec(name, *_):
            if name == "ssdml.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "ssdml.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(SystemExit, match="130"):
        main()
    assert capsys.readouterr().err == "Interrupted.\n"


@pytest.mark.skipif(os.name == "nt", reason="sends a signal of POSIX")
def test_termination_ends_with_its_status(data, tmp_path):
    command = [sys.executable, "-c", WITHOUT_TORCH, "compare"]
    command += ["--dataset", data, "--methods", "input", "--seeds", "60", "--out", tmp_path / "o"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        results = tmp_path / "o" / "results.jsonl"
        while not (results.exists() and results.stat().st_size):
            assert process.poll() is None
            time.sleep(0.02)
        process.terminate()
        message = process.stderr.read()
    assert process.returncode == 143
    assert "Traceback" not in message
    assert re.search(r"Terminated. \d+ finished runs? .* kept", message)
    assert not list((tmp_path / "o" / "runs").glob("*.running"))


def test_handlers_of_signals_are_restored_and_need_the_main_thread():
    before = signal.getsignal(signal.SIGTERM)
    with signals_as_interrupts():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    try:
        with signals_as_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, ignored)

    def elsewhere():
        with signals_as_interrupts() as received:
            return received, signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(elsewhere).result() == ([], before)


def test_full_disk_names_the_file(run, data, tmp_path, monkeypatch):
    def full(path, text, *given, write=Path.write_text, **settings):
        if path.name.startswith("results.jsonl"):
            raise OSError(28, "No space left on device", str(path))
        return write(path, text, *given, **settings)

    monkeypatch.setattr(Path, "write_text", full)
    result = run(
        "compare", "--dataset", data, "--methods", "input", "--seeds", 1, "--out", tmp_path / "o"
    )
    assert result.exit_code == 1
    assert "results.jsonl" in result.stderr
    assert "No space left on device" in result.stderr
    assert "--resume" in result.stderr


def test_traceback_is_shown_on_demand(run, data, tmp_path):
    command = ["compare", "--dataset", data, "--methods", "nac", "--out", tmp_path / "out"]
    assert isinstance(run("--traceback", *command).exception, ValueError)
    assert isinstance(run(*command).exception, SystemExit)


def test_demo_needs_resume_or_force_to_repeat(run, tmp_path, monkeypatch, quick_maps):
    monkeypatch.setattr("ssdml.experiments.demo.SMALL_METHODS", ("input", "lda"))
    command = ["demo", "--small", "--seeds", 1, "--out", tmp_path / "demo"]
    first = run(*command)
    assert first.exit_code == 0, first.output
    assert "digits, 5 labels per class, 1 seed" in first.stdout
    assert (tmp_path / "demo" / "demo.png").is_file()
    again = run(*command)
    assert again.exit_code == 1
    assert "--resume" in again.stderr
    assert again.stderr.endswith(" --force replaces them.\n")
    before = (tmp_path / "demo" / "results.jsonl").read_bytes()
    assert run(*command, "--resume").exit_code == 0
    assert (tmp_path / "demo" / "results.jsonl").read_bytes() == before
    assert run(*command, "--force").exit_code == 0
    assert (tmp_path / "demo" / "results.jsonl").read_bytes() != before  # other seconds


def test_datasets_lists_found_and_missing_data(run, tmp_path, monkeypatch):
    monkeypatch.delenv("SSDML_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "data" / "MNIST" / "raw").mkdir(parents=True)
    shown = run("datasets", "--data-dir", tmp_path / "data")
    lines = shown.stdout.splitlines()
    found = {line.split()[0]: line for line in lines if line.split()}
    assert "yes" in found["digits"]
    assert str(tmp_path / "data" / "MNIST" / "raw") in found["mnist"]
    assert "no" in found["banking77"].split()
    assert "train" in found["banking77"]
    assert "cars196 or stanford_cars (" in found["cars"]
    assert max(map(len, lines)) <= max(150, 60 + len(str(tmp_path)))
    told = f"Looked in {tmp_path / 'data'}, {tmp_path / 'ssdml'} (no such folder). Put missing "
    assert shown.stderr.startswith(told)


def test_control_characters_do_not_reach_the_terminal(run, tmp_path):
    name = "red\x1b[31m\u202etxt.npy"
    shown = run("report", tmp_path / name)
    assert shown.exit_code == 1
    assert r"red\x1b[31m\u202etxt.npy" in shown.stderr
    assert not {"\x1b", "\u202e"} & set(shown.stderr)


def without_frame(text):
    """Words of an error without the frame around them."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def single_valued():
    """Every option of every command that takes one value."""
    for name, command in typer.main.get_command(app).commands.items():
        for option in command.params:
            if not is_repeatable(option):
                yield pytest.param(name, option, id=f"{name} {option.opts[0]}")


@pytest.mark.parametrize(("name", "option"), list(single_valued()))
def test_an_option_given_twice_is_refused(run, name, option):
    twice = [option.opts[0], *["1"] * option.nargs] * 2
    told = run(name, *twice)
    assert told.exit_code == 2
    said = without_frame(told.stderr)
    assert f"{option.opts[0]} must be given once; got it 2 times." in said


def valued():
    """Every option and argument of every command that takes a value."""
    for name, command in typer.main.get_command(app).commands.items():
        before = [name]
        for option in command.params:
            if option.param_type_name == "argument":
                shown, words = option.metavar, [*before, ""]
                before.append("given")
            elif not is_repeatable(option):
                shown, words = option.opts[0], [name, option.opts[0], *[""] * option.nargs]
            else:
                continue
            yield pytest.param(words, shown, id=f"{name} {option.name}")


@pytest.mark.parametrize(("words", "shown"), list(valued()))
def test_an_empty_value_is_refused(run, words, shown):
    told = run(*words)
    assert told.exit_code == 2
    assert f"{shown.strip('[]')} must not be empty; got ''." in without_frame(told.stderr)


@pytest.mark.parametrize("words", [("--out", "~/t.csv"), ("--out=~/t.csv",)])
def test_the_home_folder_is_found_in_quoted_paths(run, arrays, tmp_path, monkeypatch, words):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "t.csv").touch()
    told = run("label", "~/X.npy", *words)
    assert f"{tmp_path / 't.csv'} exists already" in told.stderr


def test_several_data_sets_are_for_study(run):
    told = run("compare", "--dataset", "digits", "--dataset", "banking77", "--out", "o")
    said = without_frame(told.stderr)
    assert "`ssdml study A B --out FOLDER` compares on several data sets" in said
