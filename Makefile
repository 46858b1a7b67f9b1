# One command does everything: `make test` sets up its own virtual environment, checks and tests.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Some images switch the storing of bytecode off. Then each worker and each process that a test starts
# compiles all sources again: a worker takes 15 s to collect the tests instead of 6 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install services check lint format test verify interpreters coverage bench soak demo docs clean

help:
	@echo "make test   set up if needed, then lint, type-check and run the tests that make a change safe"
	@echo "make verify the rest of what CI runs: Apache Kafka, Spark, kill runs, long searches, other Pythons"
	@echo "make check  lint, types and layers only"
	@echo "make format rewrite the sources in the house style"
	@echo "make coverage  how much of each module the unit and integration tests reach"
	@echo "make bench  run all benchmarks against their peers, write benchmarks/RESULTS.md"
	@echo "make soak   the long fuzz, chaos and comparison runs"
	@echo "make docs   build the documentation site"
	@echo "make demo   show the whole of Ottla at work"

install: $(STAMP)

# Reinstalls only when what is installed could have changed.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Ottla needs Python 3.11 or later; name one with: make PYTHON=python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $(STAMP)

# Redis and PostgreSQL for the tests that talk to real servers.
services:
	@scripts/install_services.sh

check: lint
	$(BIN)/mypy

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Whole files to each worker: brokers are shared within a file. In the order that tests/conftest.py
# makes, which ends with many short files: the last worker ends 1 % after the first, so there is
# nothing to be won by `worksteal`, which starts the servers of a file once more for each worker that
# takes a part of it. tests/conftest.py says what the marks mean, too.
# A worker that crashes, or that a test keeps for ten minutes, ends the run and fails it: xdist would
# start another one and wait for the lost tests for ever.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder --max-worker-restart=0 \
  -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

# Half of the time of a test is waiting, so four workers fill two cores; a JVM fills one alone.
# mypy has one thread, so it runs beside the tests and its word comes after theirs. Before the first
# run one process collects the tests, which stores their bytecode for the four workers.
QUICK := HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not (jvm or long or soak)"
test: lint services
	@echo "$(BIN)/mypy beside the tests"
	@$(BIN)/mypy > $(VENV)/mypy.log 2>&1 & types=$$!; \
	  ls tests/__pycache__/*-pytest-*.pyc > /dev/null 2>&1 || $(QUICK) --collect-only > /dev/null 2>&1; \
	  (set -x; $(QUICK) -n 4); tests=$$?; \
	  wait $$types; types=$$?; \
	  cat $(VENV)/mypy.log; test $$tests$$types = 00

# Here the tests with many cases try all of them; `make test` tries a part.
verify: install
	@scripts/install_services.sh --all
	$(PYTEST) -n 2 -m "(jvm or long or hypothesis or sampled) and not soak"
	$(BIN)/python scripts/run_on_interpreters.py

# The unit and client tests on every other Python that is installed; says which it did not find.
interpreters: install
	$(BIN)/python scripts/run_on_interpreters.py

coverage: install
	$(BIN)/python -m pytest --cov --cov-report=term -m "not (jvm or long or soak)" tests/unit tests/integration

bench: install
	$(BIN)/python -m benchmarks

soak: install
	OTTLA_TEST_LOOP_MONITOR=1 HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -q

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "built: site/index.html"

demo: install
	$(BIN)/ottla demo

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site htmlcov .coverage
