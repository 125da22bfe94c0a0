# Each target does the whole set-up first: on a bare Debian, Python 3.11 and make are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
ARGS ?=
TARGET ?= messages
RUNS ?= 100000
SEEDS ?= 0..199

# Where it is set, every process of the many would compile the whole project anew: half of a broker's start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test conformance test-all test-alone check bench fuzz sim soak docs page-pictures site
.DELETE_ON_ERROR:

help:
	@echo "make demo      three brokers, a year of real flights, three pipelines on Spark, a broker killed, results"
	@echo "make test      whether it works here: tests that need Python alone, three at a time (ARGS='-k words')"
	@echo "make test-all  every test: also long ones, Spark, Kafka, ZooKeeper, kcat and the fuzzers, where they are installed"
	@echo "make conformance  existing clients, Apache Kafka itself, long runs, and the fuzzers' findings"
	@echo "make test-alone  tests that share a fixture, each alone and any two in both orders (ARGS=tests/cli)"
	@echo "make check     format, lint, types, floors, tidiness: under a minute"
	@echo "make fuzz      one of the fuzzers for longer (TARGET=columns RUNS=1000000)"
	@echo "make sim       200 clusters with faults in virtual time (SEEDS=1000..9999)"
	@echo "make soak      50 rounds of faults on three brokers and three ZooKeeper servers (ARGS='--rounds 3 --seed 7')"
	@echo "make page-pictures   the screenshots of docs/page.md, by Chromium"
	@echo "make docs      the pictures and the printed tables of the lab's pages, made again by the commands that they name"
	@echo "make site      the pages of docs/ as a web site in site/, with references of every command, key, metric and class"
	@echo "make bench     figures beside their peers' (ARGS=compare: Apache Kafka's; ARGS='produce --help' for one)"

demo: .venv/demo
	$(BIN)/python -m demo $(ARGS)

test: .venv/test
	$(BIN)/python -m pytest --numprocesses 3 --dist loadgroup -m "not needs and not long" $(ARGS)

conformance: .venv/installed
	$(BIN)/python -m pytest --numprocesses 3 --dist loadgroup conformance $(ARGS)

test-all: .venv/installed
	$(BIN)/python -m pytest --numprocesses 3 --dist loadgroup $(ARGS)

test-alone: .venv/test
	$(BIN)/python -m pytest -p tests.alone -m "not needs and not long" $(ARGS)

check: .venv/installed
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports --cache-dir .import_linter_cache --no-logo
	$(BIN)/python -m pytest tests/test_tidy.py tests/test_iteration_order.py tests/test_project_files.py tests/test_specification.py

docs: .venv/installed
	$(BIN)/python -m tests.lab.pages

page-pictures: .venv/installed
	$(BIN)/python -m tests.page.browser.pictures

site: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/installed
	$(BIN)/odradek bench $(ARGS)

fuzz: .venv/installed
	$(BIN)/python -m conformance.fuzz.fuzz_engine $(TARGET) $(RUNS) $(ARGS)

sim: .venv/installed
	$(BIN)/odradek sim --seeds $(SEEDS) --workers 2 $(ARGS)

soak: .venv/installed
	PYTHONPATH=. $(BIN)/python conformance/soak/soak.py $(ARGS)

# Each stamp's locks have all packages that it needs: pip resolves nothing. Zig compiles where there is no cc.
.venv/demo: requirements-demo.lock
.venv/test: requirements-test.lock
.venv/installed: requirements-demo.lock requirements-test.lock requirements-tools.lock
ifeq ($(shell command -v cc),)
.venv/demo .venv/test .venv/installed: requirements-compiler.lock
endif

# The packages first, then the project itself: its build backend is one of them.
.venv/demo .venv/test .venv/installed: .venv/bin/pip pyproject.toml hatch_build.py src/odradek/kernels/records.c
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes $(addprefix -r ,$(filter %.lock,$^))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Debian keeps venv in a package of its own.
.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Odradek needs Python 3.11 or newer; PYTHON=/path/to/it chooses one" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "installing python3-venv" >&2 && apt-get install -y -q python3-venv >/dev/null; } \
		|| { echo "Python has no venv here: as root, apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
