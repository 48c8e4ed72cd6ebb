# Every verb alone, on a fresh machine with Python 3.11, 3.12 or 3.13, Java 17 and Maven, does all of its own set-up. No
# root needed, but for test-netns.
#   make demo            a broker, an unmodified client, a streaming Spark job, its result
#   make test            the tests that need nothing more; real Python and Java clients among them
#   make test-long       those of the same tests that take long and rarely fail: more seeds, more JVMs, more kills
#   make check           ruff, mypy --strict, import-linter
#   make test-peers      Apache Kafka itself as the oracle, and its tools on our files
#   make test-netns      brokers and ZooKeeper on hosts of their own, under faults (Linux, root, TUN devices); ROUNDS of it
#   make test-spark-3.5  the Spark tests with PySpark 3.5 (fetched once) in place of 4.0
#   make test-container  the image, on a container engine (skips, saying why, when none answers)
#   make bench           speed and size, as ratios to Apache Kafka; PEER=name=host:port adds a broker
#   make docs            docs/compatibility.md from the tables of APIs and of topic settings
#   make release         dist/: sdist, wheel, bill of materials, checked; the image, where an engine answers
#   make simulate        whole clusters on virtual time, SEEDS of each kind; what fails is printed with how to repeat it
#   make soak            the same tests with more seeds, examples (EXAMPLES of each random test), ROUNDS of test-netns and
#                        KILLED runs of a process that is ended by kill -9
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
TESTED := $(wildcard wire/tests log/tests controller/tests broker/tests broker/simulation kit/tests pipeline/tests docker/tests tools/tests bench/tests compat_tests)
PACKAGES := wire/odradek_wire log/odradek_log controller/odradek_controller controller/zookeeper_double broker/odradek_broker broker/simulation kit/odradek pipeline/odradek_pipeline tools/odradek_peers tools/odradek_stacks bench compat_tests
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -ra --durations=15
# worksteal: each worker begins with one half of the tests, in their order, so that the tests of a module share its
# servers; a worker without tests takes half of those that another has left.
PARALLEL := -n $(WORKERS) --dist worksteal
ALONE := not peers and not netns and not container and not soak
# The variables of the engine that tools/engine has started, where it has.
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
	@$(PYTEST) $(PARALLEL) -m '$(ALONE) and not long' $(TESTED) $(ARGS)

test-long:
	@tools/setup peers
	@$(PYTEST) $(PARALLEL) -m '$(ALONE) and long' $(TESTED) $(ARGS)

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
