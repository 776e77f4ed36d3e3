# Everything that is done with the repository. Needs make, Python 3.11 or newer and, for all but
# `lint`, a Java runtime of version 17 or newer; `test-servers` needs Go, and Node with npm, as well.
#
#   make demo           records above the broker's size limit, through Kafka into a Spark DataFrame
#   make test           all tests but those below
#   make test-servers   tests on servers of three clouds and a fault-injecting proxy, which Go builds and npm fetches
#   make chaos          processes killed and interrupted: make chaos ARGS="--rounds 1000 --seed 7"
#   make lint           ruff, mypy --strict, import-linter
#   make bench          benchmarks side by side, as a table of ratios
#   make lock           pin the newest dependencies, with hashes, in requirements/*.txt
#   make lock-jars      note the checksums of the jars of broker, registry and Spark's connector
#   make clean          remove what the above made in this folder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-servers chaos lint bench lock lock-jars clean check-python check-java check-go check-node \
	check-tools

VENV ?= .venv
BIN := $(VENV)/bin
PIP_QUIET := --quiet --disable-pip-version-check
# More arguments for pytest, the demo or the benchmarks: make test ARGS="-k avro".
ARGS ?=
# Processes for the tests, each with servers of its own, which take up to 4 GiB; 0 for none but pytest's own. Most tests
# wait for servers, so a third process helps on two cores as well, where there is memory for it.
WORKERS ?= $(shell awk '/^MemAvailable/ { enough = $$2 > 16000000 } END { print enough ? 3 : 2 }' /proc/meminfo 2>/dev/null || echo 2)

IS_PYTHON_311 := -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))'
# The first interpreter that is new enough and can make virtual environments.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	"$$python" $(IS_PYTHON_311) >/dev/null 2>&1 && echo "$$python" && break; done)
# As Spark does it: JAVA_HOME first, then PATH.
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

help:
	@sed -n 's/^#   make/make/p' Makefile

check-python:
	@$(if $(PYTHON),"$(PYTHON)" $(IS_PYTHON_311) >/dev/null 2>&1,false) || { \
		echo "Missing: Python 3.11 or newer with its venv module. Install it (on Debian and Ubuntu:" \
			"python3 and python3-venv) or name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }

check-java:
	@version=$$("$(JAVA)" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	[ "$${version:-0}" -ge 17 ] || { \
		echo "Missing: a Java runtime of version 17 or newer; '$(JAVA)' is $${version:+version }$${version:-not there}." \
			"Install one (on Debian and Ubuntu: openjdk-17-jre-headless) or set JAVA_HOME to one." >&2; exit 1; }

check-go:
	@command -v go >/dev/null || { \
		echo "Missing: Go, which builds the servers of \`make test-servers\`. Install it and put it on PATH." >&2; exit 1; }

check-node:
	@command -v node >/dev/null && command -v npm >/dev/null || { \
		echo "Missing: Node with npm, which runs Azure's emulator in \`make test-servers\`. Install it and put it on" \
			"PATH." >&2; exit 1; }

check-tools: check-python check-java

venv: $(VENV)/.stamp

# The build tools come first and pinned as well, since a source archive among the dependencies
# (pyspark) and this project itself are built with them, without pip fetching others unpinned.
$(VENV)/.stamp: pyproject.toml requirements/build.txt requirements/dev.txt | check-python
	@echo "Setting up $(VENV) with $$("$(PYTHON)" --version); about a minute or two ..."
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/pip install $(PIP_QUIET) --require-hashes -r requirements/build.txt
	@$(BIN)/pip install $(PIP_QUIET) --require-hashes --no-build-isolation -r requirements/dev.txt
	@$(BIN)/pip install $(PIP_QUIET) --no-deps --no-build-isolation --editable .
	@touch $@

demo: check-tools venv
	@$(BIN)/serde-chain demo $(ARGS)

chaos: check-tools venv
	$(BIN)/python -m serde_chain.testing.chaos $(ARGS)

test: check-tools venv
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not servers" $(ARGS)

test-servers: check-tools check-go check-node venv
	$(BIN)/python -m pytest -m servers $(ARGS)

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: venv
	$(BIN)/python -m benchmarks $(ARGS)

# Universal: one file for every Python version and platform. Without index addresses, so that
# whoever installs uses the index that pip is configured with.
LOCK := $(VENV)-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock"

lock: check-python
	@"$(PYTHON)" -m venv $(VENV)-lock
	@$(VENV)-lock/bin/pip install $(PIP_QUIET) --require-hashes -r requirements/lock.txt
	@$(LOCK) --group lock --output-file requirements/lock.txt
	@$(LOCK) --group build --output-file requirements/build.txt
	@$(LOCK) --constraints requirements/constraints.in --extra all --extra services \
		--group test --group lint --output-file requirements/dev.txt pyproject.toml
	@echo "Pinned in requirements/*.txt; now run: make test"

# After a change of versions in ivy.xml.
lock-jars: check-tools venv
	@$(BIN)/python -m serde_chain.testing.services.jars

clean:
	rm -rf $(VENV) $(VENV)-lock build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
