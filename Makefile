# Everything a newcomer or CI needs. Needs Python 3.11+, pip and make; nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One process a core, one torch thread each: two threads in each of two processes are many times slower.
ONE_THREAD := OMP_NUM_THREADS=1

.PHONY: help install run test test-fast lint types bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(VENV)/.installed  ## make .venv with geointerp in it

run: install  ## train the quick preset, measure it, write runs/quick/report.html
	$(BIN)/geointerp run --preset quick --out runs/quick --force

test: $(VENV)/.installed-test  ## run the whole test suite
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto

test-fast: $(VENV)/.installed-test  ## run the quick tests
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto -m "not slow"

lint: $(VENV)/.installed-test  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test  ## check types
	$(BIN)/pyright

bench: $(VENV)/.installed-test  ## paired benchmarks; prints ratios
	$(BIN)/python -m tests.benchmarks.training_step

clean:  ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "geointerp needs Python 3.11 or newer; give one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@
