# Every target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= results/reproduce
TESTS ?= tests src
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test lint check guarantee bench docs notebook clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

setup: $(BIN)/.done  ## virtual environment with everything installed

$(BIN)/.done: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "flipproof needs Python 3.11 or newer; '$(PYTHON)' is older (make PYTHON=python3.12 ...)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

reproduce: setup  ## the paper, end to end, into results/reproduce (OUT=... to change)
	$(BIN)/flipproof reproduce --out $(OUT)

test: setup  ## the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal $(TESTS)

lint: setup  ## format, lint and types, without changing anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

check: lint test  ## format, lint, types, tests

guarantee: setup  ## slow tests of the guarantee: brute force, coverage
	$(BIN)/python -m pytest -n 2 -m guarantee tests

bench: setup  ## speed, as ratios within one run; rewrites docs/benchmarks/performance.md
	$(BIN)/python benchmarks/performance.py

docs: $(BIN)/.docs  ## the documentation site, into site/ (open site/index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

notebook: $(BIN)/.docs  ## execute the example notebooks in place
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONWARNINGS="ignore:IProgress not found" jupyter nbconvert --to notebook --execute \
		--ExecutePreprocessor.record_timing=False --inplace examples/*.ipynb
	$(BIN)/jupyter nbconvert --to notebook --coalesce-streams --inplace examples/*.ipynb

$(BIN)/.docs: $(BIN)/.done
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
