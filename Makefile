# Everything runs in .venv, made on first use. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
# Prints errors and warnings only, except for places that pip has looked in.
SHOWN := 2>&1 | awk '!/^WARNING: Location/ { print; fflush() }'
# Python compiles what is imported; to compile all that is installed takes a minute and a half.
INSTALL := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt
DEMO ?= bothways-demo
# Tests run in random order, in one process more than there are cores, since some wait for others; at most 8.
#   make test SEED=123           in the order of that seed
#   make test TESTS="tests/cli"  some of the tests
#   make test WORKERS=0          in one process
#   make test DIST=loadfile      the tests of a file in one process
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1 + os.cpu_count())')
DIST ?= worksteal
SEED ?=
TESTS ?=
PYTEST := $(BIN)/python -m pytest -p tests.minutes -n $(WORKERS) --maxprocesses 8 --dist $(DIST) --durations 10
ORDER := $(if $(SEED),--randomly-seed=$(SEED))

# Compiled files are kept, whatever the user's shell says: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-fast english gpu gpu-wheels soak check figures docs clean

install: $(VENV)/installed

# The C library is compiled by the editable install; a change of its sources compiles again.
CORE := bothways/core
CORE_SOURCES := $(wildcard $(CORE)/*.c $(CORE)/*.h)

$(VENV)/installed: pyproject.toml constraints.txt $(CORE_SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"Bothways needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}: make PYTHON=/path/to/python3.11")'
	@echo "Installing into $(VENV): PyTorch and what training needs (1.3 GB, a minute or more)"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) torch==2.13.0 $(SHOWN)
	@$(INSTALL) --editable '.[train]' $(SHOWN)
	@$(BIN)/python -P $(CORE)/build.py || true  # pip hides it if there is no library: prints the reason
	@touch $@

$(VENV)/installed-tests: $(VENV)/installed
	@echo "Installing what the tests need, among them libraries that results are compared with (1.5 GB)"
	@$(INSTALL) --editable '.[test,check]' $(SHOWN)
	@$(PYTHON) -m venv $(VENV)/light
	@$(VENV)/light/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[serve,xlsx]' $(SHOWN)
	@touch $@

$(VENV)/installed-demo: $(VENV)/installed
	@$(INSTALL) --editable '.[train,serve]' $(SHOWN)
	@touch $@

demo: $(VENV)/installed-demo
	@test ! -e $(DEMO) || { echo "$(DEMO) is there already: delete it, or make demo DEMO=another-directory"; exit 1; }
	$(BIN)/bothways demo --out $(DEMO)

test: $(VENV)/installed-tests
	$(PYTEST) $(ORDER) $(TESTS)

# Without the tests marked slow: about a minute, for use while editing.
test-fast: $(VENV)/installed-tests
	$(PYTEST) $(ORDER) -m "not slow" $(TESTS)

# Trains the packaged English model again, from the development data: 75 minutes on two cores.
english: $(VENV)/installed-tests
	$(BIN)/python tools/english.py -o build/english

# Checks and measures on a GPU, in eight minutes, with the PyTorch of $(PYTHON) and without $(VENV). What else it lacks
# comes from build/gpu-wheels, which `make gpu-wheels` fetches (Python 3.12, Linux, x86-64).
gpu:
	$(PYTHON) -m tools.gpu -o build/gpu --wheels build/gpu-wheels

gpu-wheels:
	$(PYTHON) -m pip download --disable-pip-version-check --quiet --no-deps --only-binary=:all: --python-version 3.12 \
		--implementation cp $(foreach n,39 34 31 28 27 24 17 12 5,--platform manylinux_2_$(n)_x86_64) \
		--platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d build/gpu-wheels -r tools/gpu/wheels.txt $(SHOWN)
	@du -ch build/gpu-wheels/*.whl | tail -1

# First the tests in tests/ that are marked for it, then those of soak/.
soak: $(VENV)/installed-tests
	$(PYTEST) -m soak
	$(BIN)/python -m pytest soak --timeout 3600 -s

check: $(VENV)/installed-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.house

$(VENV)/installed-docs: $(VENV)/installed
	@$(INSTALL) --editable '.[docs]' $(SHOWN)
	@touch $@

# Computes the scores of README.md and docs/RESULTS.md from docs/measurements, and fails where a page says another number.
figures: $(VENV)/installed
	$(BIN)/python -m benchmarks.figures

# The site, in build/docs/index.html. Needs no network once the packages are there; a broken link is an error.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -E -b html -d build/docs-cache docs build/docs

clean:
	rm -rf $(VENV) build *.egg-info $(CORE)/libcore-*
