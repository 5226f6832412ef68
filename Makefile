# Two commands matter: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.done

.PHONY: help setup demo test test-gpu fuzz mutants lint format docs bench clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ \t/'

$(SETUP): pyproject.toml src/minigibbs/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "minigibbs needs Python 3.11 or later; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[all]" --group dev
	@touch $(SETUP)

setup: $(SETUP)  ## create .venv with everything that the demo and the tests need

demo: $(SETUP)  ## sample the paper's Potts model and draw the result
	$(BIN)/minigibbs demo

test: $(SETUP) lint  ## lint, check types and run the whole test suite
	$(BIN)/python -m pytest -n 2 --durations=10

test-gpu: $(SETUP)  ## the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest tests/gpu -v -W default

FUZZ_SECONDS ?= 300
FUZZ_SEED ?= 0

fuzz: $(SETUP)  ## spoil files, draw wild graphs and kill runs for FUZZ_SECONDS; see docs/testing.md
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

mutants: $(SETUP)  ## make deliberate mistakes one by one: a named test must catch each
	$(BIN)/python -m tests.mutants

lint: $(SETUP)  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(SETUP)  ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(SETUP)  ## write docs/reference.md from docstrings, run the tutorial for its pictures
	$(BIN)/python docs/build.py

bench: $(SETUP)  ## run the benchmarks, peers beside us, and write benchmarks/results
	$(BIN)/pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python -m benchmarks

clean:  ## remove everything that was built
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
