# Every target with a `##` is listed by `make help`.  Nothing here needs root by itself: what does
# goes through scripts/as-root, which asks sudo only when you are not root.

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

.PHONY: help image test check lint style types contract shellcheck unit integration boot smoke faults \
	bench venv clean host host-dev host-tests profile

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

image: profile host $(STAMP) ## Build an image: make image PROFILE=rx7600xt
	@[ "$$(id -u)" = 0 ] || [ -e 'recipes/locks/$(PROFILE).lock' ] || $(BIN)/imagebuilder lock '$(PROFILE)'
	@scripts/as-root $(BIN)/imagebuilder build '$(PROFILE)'

test: host-tests $(STAMP) style contract types ## Everything: lint, types, then unit, integration and boot tests
	@$(AS_ROOT) $(PYTEST) $(wildcard tests/unit tests/integration tests/faults tests/boot)

check: host-dev $(STAMP) style contract types unit ## The fast part of `make test`: no root, no network

lint: style contract shellcheck ## Style, import contract, shell scripts, conventions

style: $(STAMP) ## Style: ruff
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(STAMP) ## Types: mypy --strict
	@$(BIN)/mypy

contract: $(STAMP) ## Imports point down the flow
	@$(BIN)/lint-imports --no-logo

shellcheck: $(STAMP) ## Every shell script, with the other conventions of tests/unit/test_house.py
	@$(PYTEST) -q tests/unit/test_house.py

unit: $(STAMP) ## Unit tests: no root, no network
	@$(PYTEST) tests/unit

integration: host-tests $(STAMP) ## Integration tests: root, real builds
	@$(AS_ROOT) $(PYTEST) tests/integration

boot: host-tests $(STAMP) ## Boot tests: machines in QEMU
	@$(AS_ROOT) $(PYTEST) $(or $(wildcard tests/boot),-m boot tests)

# UEFI, and its root as its nodes have it, unless OPTIONS (those of `imagebuilder test`) say otherwise.
smoke: image ## Build, publish to a temporary tree, boot, throw away: make smoke PROFILE=generic
	@scripts/host-setup --quiet --boot
	@scripts/as-root scripts/smoke '$(PROFILE)' $(OPTIONS)

faults: host-tests $(STAMP) ## Plant every known fault: the table of what is caught, missed, false alarms
	@$(AS_ROOT) scripts/faults

bench: host $(STAMP) ## Measure, beside other tools: JSON and a page in build/bench
	@scripts/host-setup --quiet --boot
	@scripts/as-root scripts/bench $(OPTIONS)

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
	@scripts/host-setup --quiet

host-dev:
	@scripts/host-setup --quiet --dev

host-tests:
	@scripts/host-setup --quiet --tests

profile:
	@[ -n '$(PROFILE)' ] || { \
	  printf 'make image needs PROFILE=NAME, one of:\n' >&2; \
	  for recipe in recipes/*.yaml; do printf '  %s\n' "$$(basename "$$recipe" .yaml)" >&2; done; \
	  exit 2; }
