# Every target sets up .venv first, from nothing, and again whenever pyproject.toml has changed.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest -n 2 --inline-snapshot=disable

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: demo test test-all lint bench clean

demo: $(STAMP)
	@$(BIN)/redist demo

test: $(STAMP)
	$(BIN)/lint-imports --no-logo
	$(PYTEST)

test-all: $(STAMP)
	$(BIN)/lint-imports --no-logo
	$(PYTEST) -m "heavy or not heavy" --hypothesis-profile=heavy

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

bench: $(STAMP)
	@$(BIN)/redist bench --suite quick

clean:
	rm -rf .venv .hypothesis .import_linter_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "redist needs Python 3.11 or later: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --editable '.[dev]' > .venv/pip.log 2>&1 || { cat .venv/pip.log; exit 1; }
	@touch $@
