# Everything that is done with the repository. Needs make, Python 3.11 or newer and, for all but
# `lint` and `docs`, a Java runtime of version 17 or newer; `test-servers` and `nightly` need Go, Node with npm, and Chromium as well. Where cargo
# (Rust 1.88 or newer) runs, the compiled part (native/) is built and used.
#
#   make demo           records above the broker's size limit, through Kafka into a Spark DataFrame
#   make test           each module on real servers, in a few minutes
#   make test-all       all tests but those of test-servers: also rounds, clusters, killed processes, the docs' pages
#   make test-servers   tests on servers of three clouds, of a fault-injecting proxy, and of the site in a browser
#   make programs       what the servers of test-servers run, built beforehand: MinIO takes minutes
#   make test-ci        both of them in one run, in which one computes while the other waits
#   make build          the compiled part (native/) in place, where cargo runs; the goals that need it do so themselves
#   make test-native    the compiled part compared with fastavro, and the tests of Avro with it
#   make test-pure      the same tests without the compiled part
#   make nightly        all of them, with more examples, rounds, kills and combinations than the others have: hours
#   make test-lowest    most tests, with the lowest versions of other packages that pyproject.toml allows
#   make test-pythons   most tests, with each Python from 3.11 on that this machine has
#   make chaos          processes killed and interrupted: make chaos ARGS="--rounds 1000 --seed 7"
#   make spark-versions some tests with other versions of pyspark: make spark-versions ARGS="4.0.5 4.3.0"
#   make kafka-versions some tests with other versions of Kafka: make kafka-versions KAFKAS="4.2.2 4.4.0"
#   make lint           ruff, mypy --strict, import-linter
#   make lint-native    rustfmt and clippy
#   make audit          known vulnerabilities of what is pinned (asks OSV)
#   make audit-crates   those of the compiled part's crates: needs cargo-audit
#   make docs           the documentation's site, in build/docs, out of docs/ and the docstrings
#   make tables         the tables of configuration keys and of figures on the pages, out of the code and the report
#   make bench          benchmarks side by side, into benchmarks/report, and bench-pure; or some: make bench ARGS="--check chain avro"
#   make bench-pure     those that differ without the compiled part, into benchmarks/report/pure
#   make dist           source archive, pure wheel, and the wheel of this platform, checked
#   make wheels         after that, wheels for Linux, by zig: make wheels TARGETS="aarch64-unknown-linux-musl"
#   make lock           pin the newest dependencies, with hashes, in requirements/*.txt
#   make lock-jars      note the checksums of the jars of broker, registry and Spark's connector
#   make clean          remove what the above made in this folder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo build test test-all test-servers programs test-ci test-native test-pure nightly lint-native test-lowest test-pythons chaos spark-versions kafka-versions lint audit audit-crates docs tables bench bench-pure dist wheels lock lock-jars clean check-python check-java check-go \
	check-cargo check-node check-browser check-tools

VENV ?= .venv
BIN := $(VENV)/bin
PIP_QUIET := --quiet --disable-pip-version-check
# Each of the processes that tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# More arguments for pytest, the demo or the benchmarks: make test ARGS="-k avro".
ARGS ?=
# Processes for the tests, of up to 1 GiB each, and 0 for none but pytest's own. They share the servers, and Spark is in one
# of them: 5 GiB more. Many tests wait for servers, so that four help on two cores, where there is memory for them.
WORKERS ?= $(shell awk '/^MemAvailable/ { enough = $$2 > 12000000 } END { print enough ? 4 : 2 }' /proc/meminfo 2>/dev/null || echo 2)

IS_PYTHON_311 := -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))'
# The first interpreter that is new enough and can make virtual environments.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" $(IS_PYTHON_311) >/dev/null 2>&1 && echo "$$python" && break; done)
# As Spark does it: JAVA_HOME first, then PATH.
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

# How cog fills the tables: `make tables`, and the test that they are current.
COG := -r -P -I docs -I . -p "from declared import *"

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

check-cargo:
	@cargo --version >/dev/null 2>&1 || { \
		echo "Missing: cargo, which builds the compiled part. Install Rust 1.88 or newer and put it on PATH." >&2; exit 1; }

check-node:
	@command -v node >/dev/null && command -v npm >/dev/null || { \
		echo "Missing: Node with npm, which runs Azure's emulator in \`make test-servers\`. Install it and put it on" \
			"PATH." >&2; exit 1; }

check-browser:
	@[ -n "$$CHROMIUM" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
		echo "Missing: Chromium, in which \`make test-servers\` looks at the documentation's site. Install it (on Debian and" \
			"Ubuntu: chromium) or set CHROMIUM to its path." >&2; exit 1; }

CHECK_VENV = $(BIN)/python -c pass 2>/dev/null || { \
	echo "The interpreter of $(VENV) is gone, or does not run: remove the folder (rm -rf $(VENV)), and this goal" \
		"sets it up again." >&2; exit 1; }

check-tools: check-python check-java

venv: $(VENV)/.stamp
	@$(CHECK_VENV)

# cargo rebuilds only what changed.
build: venv
	@$(BIN)/python hatch_build.py

# All that is locked, and this project; jars are fetched meanwhile.
$(VENV)/.stamp: pyproject.toml requirements/build.txt requirements/dev.txt | check-python
	@"$(PYTHON)" requirements/install.py $(VENV) requirements/dev.txt --jars kafka registry spark
	@touch $@ $(VENV)/.stamp-demo

# What the demo needs, with the same versions; `make venv` adds the rest.
$(VENV)/.stamp-demo: pyproject.toml requirements/build.txt requirements/demo.txt | check-python
	@"$(PYTHON)" requirements/install.py $(VENV) requirements/demo.txt --jars kafka spark
	@touch $@

demo: check-tools $(VENV)/.stamp-demo
	@$(CHECK_VENV)
	@$(BIN)/serde-chain demo $(ARGS)

chaos: check-tools build
	$(BIN)/python -m tests.chaos $(ARGS)

test: check-tools build
	$(BIN)/python -m pytest -n $(WORKERS) -m "not servers and not full and not nightly" $(ARGS)

test-all: check-tools build
	$(BIN)/python -m pytest -n $(WORKERS) -m "not servers and not nightly" $(ARGS)

nightly: check-tools check-go check-node check-browser build
	HYPOTHESIS_PROFILE=full SERDE_CHAIN_SWEEP_ROUNDS=200 SERDE_CHAIN_STREAM_KILLS=10 SERDE_CHAIN_ENGINE_CASES=100 \
		$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)
	$(BIN)/python -m tests.chaos --rounds 200

test-servers: check-tools check-go check-node check-browser build
	$(BIN)/python -m pytest -n $(WORKERS) -m "servers and not nightly" $(ARGS)

programs: check-go check-node venv
	@$(BIN)/python -m tests.servers.programs

test-ci: check-tools check-go check-node check-browser build
	$(BIN)/python -m pytest -n $(WORKERS) -m "not nightly" $(ARGS)

lint-native: check-cargo
	@cargo fmt --manifest-path native/Cargo.toml --check
	@cargo clippy --quiet --locked --manifest-path native/Cargo.toml -- -D warnings

# What differs with the compiled part.
NATIVE := -m "not servers and not nightly" tests/native tests/stages/avro tests/arrow tests/fuzz

test-native: check-tools lint-native venv
	@SERDE_CHAIN_NATIVE=on $(BIN)/python hatch_build.py
	$(BIN)/python -m pytest -n $(WORKERS) $(NATIVE) $(ARGS)

test-pure: check-tools venv
	SERDE_CHAIN_NATIVE=off $(BIN)/python -m pytest -n $(WORKERS) $(NATIVE) $(ARGS)

spark-versions: check-tools build
	$(BIN)/python -m tests.spark.versions $(ARGS)

# Brokers of serde_chain/testing/services/jars.py, other than the default.
KAFKAS ?= 4.2.2 4.3.1 4.4.0

kafka-versions: check-tools build
	@for version in $(KAFKAS); do echo "Kafka $$version"; \
		SERDE_CHAIN_KAFKA=$$version $(BIN)/python -m pytest -n $(WORKERS) -m "not servers and not full and not spark and not nightly" \
		tests/clients/confluent tests/payload_stores/kafka tests/testing $(ARGS) || exit 1; done

# Without those that share a Spark session, need a type checker, or look at pages, whose environments are made of what $(VENV) has.
MOST := -m "not servers and not spark and not nightly" --ignore tests/test_pages.py --ignore tests/test_wheel.py --ignore tests/site --ignore tests/typing

# Old versions warn of what newer Pythons and packages have deprecated.
test-lowest: check-tools
	@"$(PYTHON)" requirements/install.py $(VENV)-lowest requirements/lowest.txt
	$(VENV)-lowest/bin/python -m pytest -n $(WORKERS) -W default $(MOST) $(ARGS)

# Names or paths.
PYTHONS ?= $(shell for python in python3.11 python3.12 python3.13 python3.14; do \
	"$$python" $(IS_PYTHON_311) >/dev/null 2>&1 && echo "$$python"; done)

test-pythons: check-tools
	@[ -n "$(PYTHONS)" ] || { echo "Missing: python3.11, 3.12, 3.13 or 3.14 on PATH, with the venv module. Name" \
		"some: make test-pythons PYTHONS=\"/path/to/python3.12 /path/to/python3.13\"" >&2; exit 1; }
	@for python in $(PYTHONS); do own=$(VENV)-$$(basename "$$python"); \
		"$$python" requirements/install.py "$$own" requirements/dev.txt && \
		"$$own/bin/python" -m pytest -n $(WORKERS) $(MOST) $(ARGS) || exit 1; done

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Not of lowest.txt, whose versions are old on purpose.
audit: venv
	$(BIN)/pip-audit --vulnerability-service osv --disable-pip --progress-spinner off \
		$(foreach pins,build dev lock wheels,--requirement requirements/$(pins).txt) $(ARGS)

# Of the crates: needs cargo-audit.
audit-crates:
	cargo audit --file native/Cargo.lock

# A link, an anchor or a reference that leads nowhere is an error.
docs: venv tables
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "Written: build/docs/index.html"

# The tables of configuration keys on the pages, out of the options that the code declares; those of figures, out of the report.
tables: venv
	$(BIN)/cog $(COG) docs/configuration.md docs/confluent-kafka.md docs/limits.md docs/stores.md docs/stores/s3.md docs/stores/kafka.md docs/at-scale.md docs/spark-execution.md docs/troubleshooting.md benchmarks/README.md README.md

# In a wheel that is made with `on`, the compiled part cannot be missing; check_wheels.py looks nevertheless.
dist: venv
	@rm -rf dist
	@SERDE_CHAIN_NATIVE=off $(BIN)/python -m build --no-isolation --outdir dist .
	@if cargo --version >/dev/null 2>&1; then SERDE_CHAIN_NATIVE=on $(BIN)/pip wheel $(PIP_QUIET) --no-deps --no-build-isolation \
		--wheel-dir dist dist/serde_chain-*.tar.gz; else echo "Without this platform's wheel: cargo does not run" >&2; fi
	@$(CHECK_DIST)

# Each needs the standard library of its target: rustup target add. Package indexes refuse wheels for this very Linux.
TARGETS ?= $(foreach library,gnu musl,$(addsuffix -unknown-linux-$(library),x86_64 aarch64))

wheels: check-cargo venv
	@$(BIN)/pip install $(PIP_QUIET) --require-hashes -r requirements/wheels.txt
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python requirements/wheels.py dist/serde_chain-*.tar.gz $(TARGETS)
	@rm -f dist/*-linux_*.whl
	@$(CHECK_DIST)

define CHECK_DIST
$(BIN)/twine check --strict dist/* && $(BIN)/check-wheel-contents dist && $(BIN)/python requirements/check_wheels.py dist/*.whl
endef

# All of it, or what ARGS names: the report of one commit, in some 40 minutes on a quiet machine of two cores.
bench: build
	@$(BIN)/python -m benchmarks $(ARGS); failed=$$?; \
	$(MAKE) --no-print-directory $(if $(ARGS),tables,bench-pure) && exit $$failed

bench-pure: venv
	@SERDE_CHAIN_NATIVE=off $(BIN)/python -m benchmarks --report benchmarks/report/pure \
		chain avro arrow alerts clients large_records spark_encode $(ARGS); failed=$$?; \
	$(MAKE) --no-print-directory tables && exit $$failed

# Universal: one file for every Python version and platform. Without index addresses, so that
# whoever installs uses the index that pip is configured with.
LOCK := $(VENV)-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock"

lock: check-python
	@"$(PYTHON)" -m venv $(VENV)-lock
	@$(VENV)-lock/bin/pip install $(PIP_QUIET) --require-hashes -r requirements/lock.txt
	@$(LOCK) --group lock --output-file requirements/lock.txt
	@$(LOCK) --group build --output-file requirements/build.txt
	@$(LOCK) --group wheels --output-file requirements/wheels.txt
	@$(LOCK) --constraints requirements/constraints.in --extra all --extra services \
		--group test --group protoc --group lint --group docs --group release \
		--output-file requirements/dev.txt pyproject.toml
	@$(LOCK) --constraints requirements/dev.txt --extra services --extra avro --extra compression --extra json --extra cli \
		--output-file requirements/demo.txt pyproject.toml
	@$(LOCK) --resolution lowest-direct --constraints requirements/constraints.in --extra all --extra services --extra testing \
		--group test --output-file requirements/lowest.txt pyproject.toml
	@if cargo --version >/dev/null 2>&1; then cargo update --quiet --manifest-path native/Cargo.toml && \
		"$(PYTHON)" requirements/crates.py; else echo "The crates of native/ stay: cargo does not run" >&2; fi
	@echo "Pinned in requirements/*.txt, native/Cargo.lock and sbom.cdx.json; now run: make test"

# After a change of versions in ivy.xml.
lock-jars: check-tools venv
	@$(BIN)/python -m serde_chain.testing.services.jars

clean:
	rm -rf $(VENV) $(VENV)-* build dist native/target serde_chain/_native.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
