SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo up down check test lint type unit lock clean bootstrap

# The Python that makes .venv; 3.11 or newer.
PYTHON ?= python3
# More arguments for pytest, e.g. make test ARGS='-k replay -x'
ARGS ?=
# Processes that run test files, each with servers of its own, since tests mostly wait: 1 to 4. 0: in pytest itself.
JOBS ?= 3

VENV := .venv/bin/python
# Without a PYTHON=… of the caller's, the one that .venv was made with stays.
BOOTSTRAP := $(PYTHON) -m dev.bootstrap $(if $(filter file,$(origin PYTHON)),--keep-python)
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" --quiet

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

demo: bootstrap ## start everything, run the story, print what was observed, stop everything
	@$(VENV) -m dev demo

up: bootstrap ## start everything and leave it running; Ctrl-C stops it, data stays until `make down`
	@$(VENV) -m dev up

down: ## end what a crashed run left behind, stop a running `make up`, remove the data
	@$(VENV) -c 'import click' 2>/dev/null || $(BOOTSTRAP)
	@$(VENV) -m dev down

check: bootstrap ## show which servers a run would use, and whether they answer
	@$(VENV) -m dev check

test: lint type ## ruff, mypy, then pytest over everything (ARGS=… is handed to pytest)
	@$(VENV) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: bootstrap ## ruff: rules and format
	@$(VENV) -m ruff check .
	@$(VENV) -m ruff format --check .

type: bootstrap ## mypy --strict
	@$(VENV) -m mypy

unit: bootstrap ## the tests that need no server
	@$(VENV) -m pytest tests/unit $(ARGS)

lock: ## resolve both lock files anew, keeping versions that still fit
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	$(PYTHON) -m venv "$$dir" && "$$dir/bin/pip" install --quiet uv && export PATH="$$dir/bin:$$PATH" && \
	$(LOCK) pyproject.toml --output-file requirements.lock && \
	$(LOCK) pyproject.toml --group dev --output-file requirements-dev.lock

clean: ## `make down`, then remove .venv and every cache; not while anything runs
	@if [ -x $(VENV) ]; then $(VENV) -m dev down --everything; fi
	@rm -rf .venv .local .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist ./*.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

bootstrap:
	@$(BOOTSTRAP)
