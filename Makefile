# make help lists the targets. Every target that needs the environment builds .venv when it is missing or older than
# the files that define it, and only then.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check install --constraint constraints.txt
ARGS ?=
NEWEST_PYTHON ?= $(PYTHON)
NEWEST := .venv-newest
SUITE := -m pytest -m "not slow" --numprocesses auto --maxprocesses 8 --dist worksteal

# Tests start some hundred processes: where nothing compiled is kept, each compiles the package, and each run of pytest
# all test files.
suite test-quick test-newest: export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help setup maml test test-quick suite faults test-gpu test-newest lint style types docs ui clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## build .venv with everything, learn2learn included where it builds; a torch that is in .venv is kept

# learn2learn 0.2.0 is a source archive whose shipped C does not compile on Python 3.11, and whose build does not ask for
# Cython; Cython is put there first and told (build_ext) to write the C anew. Of its requirements it imports gym, requests and tqdm; qpth, which it
# can do without, would hold numpy below 2.
$(READY): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) cython setuptools wheel
	$(BIN)/python -c "import torch, torchvision" 2>/dev/null || $(PIP) torch torchvision
	$(PIP) --editable '.[test]'
	@$(BIN)/python -c "import learn2learn" 2>/dev/null || { $(PIP) gym requests tqdm && \
	  $(PIP) --no-deps --use-pep517 --no-build-isolation --config-settings=--global-option=build_ext learn2learn==0.2.0; } || \
	  echo "learn2learn does not build here: --engine learn2learn and its benchmarks are left out, everything else works"
	@touch $@

maml: $(READY) ## meta-train and test: 5-way 1-shot MAML on bundled digits (ARGS="--activation relu" adds flags)
	$(BIN)/python -m arelu_meta.maml --ways 5 --shots 1 $(ARGS)

test: style ## lint, types and all tests but the slow ones (ARGS="-k sampler" picks some)
	@$(MAKE) --no-print-directory --jobs 2 types suite

# Formulas, gradients, statistics, data, console and the rules of the house; no run, store or comparison.
QUICK := tests/activations tests/analysis tests/console tests/kernels tests/learners tests/test_house.py tests/test_layers.py tests/test_mirror.py tests/test_public_names.py

test-quick: $(READY) ## lint and a part of the tests: formulas, gradients, statistics, console, rules of the house
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -m "not slow" --numprocesses auto --maxprocesses 8 --dist worksteal $(QUICK) $(ARGS)

lint: style types ## ruff (lint and format) and mypy

suite: $(READY)
	$(BIN)/python $(SUITE) $(ARGS)

faults: $(READY) ## kill, starve and damage for hours, then write docs/reliability.md (ARGS="--only kills" picks some)
	$(BIN)/python -m tests.faults $(ARGS)

test-newest: ## the tests with the newest of everything, without learn2learn (NEWEST_PYTHON=python3.13 ARGS=tests/data)
	$(NEWEST_PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip --disable-pip-version-check install --upgrade --upgrade-strategy eager --editable '.[test]'
	$(NEWEST)/bin/python $(SUITE) $(ARGS)

test-gpu: $(READY) ## every kind of run on a GPU; without one, says so and skips
	$(BIN)/python -m pytest -m cuda -rs tests/test_cuda.py $(ARGS)

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY) ## build the documentation site into docs/_build/html, its notebooks run; a warning fails
	@$(BIN)/python -c "import furo, myst_nb" 2>/dev/null || $(PIP) --editable '.[docs]'
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -b html docs docs/_build/html

ui: $(READY) ## open the tracked runs in the MLflow UI
	$(BIN)/mlflow ui --backend-store-uri $${MLFLOW_TRACKING_URI:-sqlite:///mlflow.db} --port $${PORT:-5000}

clean: ## remove .venv and caches; runs and mlflow.db stay
	rm -rf $(VENV) $(NEWEST) build docs/_build *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
