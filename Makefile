# Every target with a `##` is listed by `make help`.  Nothing here needs root by itself: what does
# goes through sudo, which is asked only when you are not root.

MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.DEFAULT_GOAL := help
SHELL := /bin/sh

PROFILE ?=
OPTIONS ?=
BIN := .venv/bin
STAMP := .venv/imagebuilder.stamp
# Root-owned caches in a checkout are a nuisance to its owner.
AS_ROOT := scripts/as-root env PYTHONDONTWRITEBYTECODE=1
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider
# What shares a fixture stays with one worker (tests/conftest.py).  Tests wait for programs
# and machines: with two workers more than cores, the cores are still idle for a tenth of a run.
BY_FILE := --maxprocesses 4 --dist loadfile --no-loadscope-reorder
SHARED := -n $$(($$(nproc) + 2)) $(BY_FILE)
ALL_TESTS := $(wildcard tests/unit tests/integration tests/faults tests/boot tests/systems)
UNIT_WORKERS ?= $$(($$(nproc) * 2))
# Unit tests make many small files: those of tests/unit/proof cost 7 s in the kernel on a disk, 2 s
# in memory.  It needs 4 GB there, and to start programs.  A test that failed leaves its folder.
UNIT_TEMP ?= $$(if [ "$$(df --output=avail -m /dev/shm | tail -n 1)" -gt 4000 ] && [ -w /dev/shm ] && \
  ! findmnt -n -o OPTIONS -T /dev/shm | grep -qw noexec; then echo /dev/shm; else \
  echo "$${TMPDIR:-/tmp}"; fi 2> /dev/null)
# pytest rewrites every test file, five seconds for each worker, unless it may keep the result.
UNIT := PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT="$(UNIT_TEMP)" $(PYTEST) -n $(UNIT_WORKERS) \
  $(BY_FILE) -o tmp_path_retention_policy=failed tests/unit
# mypy without its cache takes one core for half a minute: it runs beside the tests.
WITH_TYPES = said=$$(mktemp); $(BIN)/mypy > $$said 2>&1 & types=$$!; $(1); tests=$$?; \
  wait $$types; types=$$?; cat $$said; rm $$said; [ $$tests = 0 ] || exit $$tests; exit $$types

.PHONY: help image test test-all check lint style types contract shellcheck unit integration boot \
	control-node rollouts smoke faults blind inject tried bench fuzz venv clean host host-dev host-tests profile \
	bytecode

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

image: profile host bytecode ## Build an image: make image PROFILE=rx7600xt
	@$(BIN)/imagebuilder build '$(PROFILE)'
	@command -v imagebuilder >/dev/null || \
	  echo 'To use imagebuilder in this shell: . $(BIN)/activate' >&2

test: host-tests $(STAMP) bytecode style contract ## Everything: lint, types, unit, integration and boot tests
	@$(call WITH_TYPES,$(AS_ROOT) $(PYTEST) $(SHARED) $(ALL_TESTS))

test-all: host-tests $(STAMP) bytecode style contract ## `make test` with nothing sampled: every fault booted, every kill (hours)
	@$(call WITH_TYPES,$(AS_ROOT) env IMAGEBUILDER_TEST_ALL=1 IMAGEBUILDER_FAULTS=all \
	  $(PYTEST) $(SHARED) $(ALL_TESTS))

check: host-dev $(STAMP) style contract ## The fast part of `make test`: no root, no network, no slow tests
	@$(call WITH_TYPES,$(UNIT) -m 'not root and not slow')

lint: style contract shellcheck ## Style, import contract, shell scripts, conventions

style: $(STAMP) ## Style: ruff
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(STAMP) ## Types: mypy --strict
	@$(BIN)/mypy

contract: $(STAMP) ## Imports point down the flow
	@$(BIN)/lint-imports --no-logo

shellcheck: $(STAMP) ## Every shell script, with the other conventions of tests/unit/test_conventions.py
	@$(PYTEST) -q tests/unit/test_conventions.py

unit: $(STAMP) ## Unit tests: no root, no network
	@$(UNIT) -m 'not root'

integration: host-tests $(STAMP) bytecode ## Integration tests: root, real builds
	@$(AS_ROOT) $(PYTEST) $(SHARED) tests/integration

boot: host-tests $(STAMP) bytecode ## Boot tests: machines in QEMU
	@$(AS_ROOT) $(PYTEST) $(or $(wildcard tests/boot),-m boot tests)

control-node: host-tests $(STAMP) bytecode ## Type docs/control-node.md in a machine with Debian that serves nodes (half an hour)
	@$(AS_ROOT) $(PYTEST) -s tests/control

rollouts: host-tests $(STAMP) bytecode ## Roll good and broken releases out to three machines that boot for real (an hour)
	@$(AS_ROOT) $(PYTEST) -s tests/rollout

# UEFI, and its root as its nodes have it, unless OPTIONS (those of `imagebuilder test`) say otherwise.
smoke: image ## Build, publish to a temporary tree, boot, throw away: make smoke PROFILE=generic
	@scripts/host-setup --quiet --boot
	@$(AS_ROOT) scripts/smoke '$(PROFILE)' $(OPTIONS)

faults: host-tests $(STAMP) bytecode ## Plant every known fault: the table of what is caught, missed, false alarms
	@$(AS_ROOT) scripts/faults

blind: host-tests $(STAMP) bytecode ## Plant the blind corpus: faults and unusual images written without reading the checks
	@$(AS_ROOT) scripts/faults --blind

inject: host-tests $(STAMP) bytecode ## Fail, fill the disk and kill at each change of a file, in commands that publish or build (hours)
	@$(AS_ROOT) $(BIN)/python -m tests.inject $(OPTIONS)

fuzz: $(STAMP) ## Mutate every kind of file 20,000 times: make fuzz OPTIONS='--seed 2'
	@$(BIN)/python -m tests.fuzz $(OPTIONS)

# Each boots with UEFI and BIOS; PROFILES="minimal.debian-bookworm generic" tries some alone.
tried: host-tests $(STAMP) bytecode ## Build and boot every shipped profile; the table in docs/bases.md (hours)
	@$(AS_ROOT) scripts/tried $(if $(PROFILES),$(PROFILES),$(patsubst recipes/%.yaml,%,$(wildcard recipes/*.yaml)))

bench: host $(STAMP) bytecode ## Measure, beside other tools: JSON and a page in build/bench
	@scripts/host-setup --quiet --boot
	@$(AS_ROOT) scripts/bench $(OPTIONS)

venv: $(STAMP) ## Make or refresh the virtual environment in .venv

clean: ## Remove the virtual environment and caches (never images: imagebuilder gc does that)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info
	@find imagebuilder tests -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): pyproject.toml | host
	@printf 'Host: making the virtual environment\n' >&2
	@[ -x $(BIN)/pip ] || python3 -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

host:
	@scripts/host-setup --quiet --clone

host-dev:
	@scripts/host-setup --quiet --dev

host-tests:
	@scripts/host-setup --quiet --tests

# Root writes no caches into the checkout of somebody else, and each command would compile us.
bytecode: $(STAMP)
	@$(BIN)/python -m compileall -q imagebuilder

profile:
	@scripts/known-profile 'make $(firstword $(MAKECMDGOALS))' '$(PROFILE)'
