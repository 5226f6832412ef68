# Two commands matter: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
SMALL := .venv/.small
SETUP := .venv/.done
EMPTY := .venv-empty
LOWEST := .venv-lowest
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile  # files have fixtures of their own: run them once
BRIDGES := .venv-bridges

.PHONY: help setup demo test test-bridges test-gpu fuzz mutants lint format docs paper serve gallery package lowest bench stale clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ \t/'

$(SMALL): pyproject.toml src/minigibbs/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "minigibbs needs Python 3.11 or later; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) install --no-compile --editable ".[plot]"
	@touch $(SMALL)

$(SETUP): $(SMALL)
	$(PIP) install "pip>=25.1"
	$(PIP) install --editable ".[all]" --group dev
	@touch $(SETUP)

setup: $(SETUP)  ## create .venv with everything that the tests and the docs need

demo: $(SMALL)  ## sample the paper's Potts model and draw the result
	$(BIN)/minigibbs demo

test: $(SETUP) lint  ## lint, check types and run the whole test suite
	$(PYTEST) --durations=10

quick: $(SETUP)  ## one test per file and per sampler: about 2 minutes, for work in progress
	$(PYTEST) -m quick tests

GPU_WORKERS ?= 4

test-gpu: $(SETUP)  ## the tests that need an NVIDIA GPU; most of their time is compilation
	$(BIN)/python -m pytest tests/gpu -v -W default -n $(GPU_WORKERS)

test-bridges:  ## the tests that need PyTorch, PyMC and NumPyro, in an environment of their own: see CONTRIBUTING.md
	$(PYTHON) -m venv $(BRIDGES)
	$(BRIDGES)/bin/pip --quiet --disable-pip-version-check install "pip>=25.1"
	$(BRIDGES)/bin/pip --quiet install --editable ".[all,torch,pymc,numpyro]" --group bridges
	$(BRIDGES)/bin/python -m pytest tests/interop tests/system/test_arrays.py src/minigibbs/interop \
	  "tests/docs/test_examples.py::test_example_runs_and_draws[segmentation]" \
	  "tests/docs/test_examples.py::test_example_runs_and_draws[torch_rbm]"

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

docs: $(SETUP)  ## build the site into site/; a broken link or a missing name is an error
	$(BIN)/python docs/build.py
	$(BIN)/python docs/stage.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file build/mkdocs.yml

paper: $(SETUP)  ## build/paper/minigibbs.pdf, with numbers and figures from benchmarks/results
	$(BIN)/python paper/build.py

serve: $(SETUP)  ## show the site on this machine
	$(BIN)/python docs/stage.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --config-file build/mkdocs.yml

gallery: $(SETUP)  ## run the examples and keep their pictures; EXAMPLES=name for one
	$(BIN)/python docs/gallery.py $(EXAMPLES)

package: $(SETUP)  ## build sdist and wheel, check them, install the wheel in an empty environment
	rm -rf dist $(EMPTY)
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/pip --quiet --disable-pip-version-check install dist/*.whl
	cd $(EMPTY) && bin/minigibbs --version && bin/minigibbs sample ising-lattice:side=8,beta=0.2
	rm -rf $(EMPTY)

lowest:  ## install the lowest versions that pyproject.toml allows, and test the essentials with them
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip --quiet --disable-pip-version-check install "pip>=25.1"
	$(LOWEST)/bin/pip --quiet install --editable ".[plot,pandas,networkx,dimod]" --constraint tests/lowest.txt
	$(LOWEST)/bin/pip --quiet install "pytest>=8" "hypothesis>=6.100" --constraint tests/lowest.txt
	$(LOWEST)/bin/python -m pytest tests/cli tests/running/test_sample.py tests/results/test_diagnostics.py

bench: $(SETUP)  ## run the benchmarks, peers beside us, and write benchmarks/results
	$(PIP) install --group bench
	$(BIN)/python -m benchmarks

stale: $(SETUP)  ## list the tables of benchmarks that are older than the code they measure
	$(BIN)/python -m benchmarks.stale

clean:  ## remove everything that was built
	rm -rf .venv $(EMPTY) $(LOWEST) $(BRIDGES) build dist site .pytest_cache .mypy_cache .ruff_cache
