# Each verb does its own set-up on a new machine with Python 3.11, 3.12 or 3.13, Java 17 and Maven. Only test-netns needs
# root. `make` prints these lines:
#   make demo            a broker, an unmodified producer and a streaming Spark job; checks the job's result
#   make test            the tests of every package, and compat_tests with real Python, Java and Spark clients
#   make test-long       the tests that take long and rarely fail: more seeds of the simulation, JVM starts, kills
#   make check           ruff, mypy --strict, import-linter
#   make test-peers      Apache Kafka as the oracle; its tools on the files that Odradek writes
#   make test-netns      brokers and ZooKeeper in network namespaces, under faults, ROUNDS times (Linux, root, TUN devices)
#   make test-spark-3.5  the Spark tests with PySpark 3.5 in place of 4.0
#   make test-container  the tests of the container image; skipped when no container engine responds
#   make bench           speed and memory as ratios to Apache Kafka; PEER=name=host:port adds a running broker
#   make docs            docs/compatibility.md from the tables of APIs and of topic settings
#   make release         dist/: sdist, wheel and bill of materials, checked; the image, if a container engine responds
#   make simulate        whole clusters on virtual time, SEEDS of each kind; prints the command that repeats a failed seed
#   make soak            the same tests with more seeds, EXAMPLES of each random test, ROUNDS of test-netns and KILLED runs
#                        of a process that ends by kill -9
#   make format          ruff's fixes and formatting
# ARGS goes to pytest, to the bench and to the simulation; WORKERS is the number of test processes.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
TESTED := $(wildcard wire/tests log/tests controller/tests broker/tests broker/simulation kit/tests pipeline/tests docker/tests tools/tests bench/tests compat_tests)
PACKAGES := wire/odradek_wire log/odradek_log controller/odradek_controller controller/zookeeper_double broker/odradek_broker broker/simulation kit/odradek pipeline/odradek_pipeline tools/odradek_peers tools/odradek_stacks bench compat_tests
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -ra --durations=15
# worksteal: each worker begins with an equal part of the tests, in their order, so that the tests of a module share its
# servers; a worker that has finished takes half of the tests that another one has left.
PARALLEL := -n $(WORKERS) --dist worksteal
DEFAULT_TESTS := not peers and not netns and not container and not soak
# The environment of the container engine, if tools/engine has started one.
ENGINE := $${XDG_CACHE_HOME:-$$HOME/.cache}/odradek/engine/env
WITH_ENGINE := if [ -f "$(ENGINE)" ]; then . "$(ENGINE)"; fi;
EXAMPLES ?= 200
ROUNDS ?= 1
SEEDS ?= 1000
KILLED ?= 50

.PHONY: help demo test test-long check format bench test-peers test-netns test-spark-3.5 test-container simulate soak docs \
	release

help:
	@sed -n 's/^#   //p' Makefile

demo:
	@tools/setup venv
	@$(BIN)/python -m odradek.demo

test:
	@tools/setup peers
	@$(PYTEST) $(PARALLEL) -m '$(DEFAULT_TESTS) and not long' $(TESTED) $(ARGS)

test-long:
	@tools/setup peers
	@$(PYTEST) $(PARALLEL) -m '$(DEFAULT_TESTS) and long' $(TESTED) $(ARGS)

test-peers:
	@tools/setup peers
	@$(PYTEST) $(PARALLEL) -m 'peers and not soak' $(TESTED) $(ARGS)

test-netns:
	@tools/setup peers
	@$(BIN)/python -m compat_tests.netns.hosts
	@ODRADEK_ROUNDS=$(ROUNDS) $(PYTEST) -s -m netns compat_tests/netns $(ARGS)

test-spark-3.5:
	@tools/setup venv
	@compat_tests/spark/with-spark-3.5 $(PYTEST) $(PARALLEL) -m 'not peers and not long' compat_tests/spark $(ARGS)

test-container:
	@tools/setup venv
	@$(WITH_ENGINE) $(PYTEST) -m container $(TESTED) $(ARGS)

simulate:
	@tools/setup venv
	@$(BIN)/python -m simulation --seeds $(SEEDS) $(ARGS)

soak: ROUNDS = 5
soak:
	@tools/setup peers
	@ODRADEK_EXAMPLES=$(EXAMPLES) $(PYTEST) $(PARALLEL) -m 'not netns and not container' $(TESTED) $(ARGS)
	@$(MAKE) simulate
	@$(BIN)/python -m compat_tests.crash --seeds $(KILLED)
	@if $(BIN)/python -m compat_tests.netns.hosts; then $(MAKE) test-netns ROUNDS=$(ROUNDS); fi

check:
	@tools/setup venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(PACKAGES)
	$(BIN)/lint-imports

format:
	@tools/setup venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench:
	@tools/setup peers
	@$(BIN)/python -m bench $(ARGS)

docs:
	@tools/setup venv
	@$(BIN)/python tools/compatibility.py

release:
	@tools/setup venv
	@$(WITH_ENGINE) $(BIN)/python tools/release.py
