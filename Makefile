# One place for every command; README lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-to-run
# Most tests wait for processes, so there are more workers than cores; each has gateways and stores of its own.
WORKERS ?= 3

.PHONY: setup run fmt lint test bench chaos clean

setup: $(STAMP)

$(STAMP): $(RUN_STAMP) requirements-dev.txt
	@echo "Installing what the tests need"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-dev.txt
	@touch $(STAMP)

$(RUN_STAMP): requirements.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed')"
	@echo "Installing what the gateway needs; the first time takes a minute"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.txt
	@touch $(RUN_STAMP)

run: $(RUN_STAMP)
	@exec env DEBUG=$${DEBUG:-1} $(BIN)/python manage.py run_local

fmt: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup lint
	DJANGO_SETTINGS_MODULE=tests.settings $(BIN)/python manage.py makemigrations --check --dry-run
	@echo "Installing the Hermes Agents that tests run against; the first time takes minutes"
	$(BIN)/python -m tests.hermes
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST)

bench: setup
	$(BIN)/python -m bench

chaos: setup
	$(BIN)/python -m tests.chaos $(CHAOS)
	CHAOS_FRAMES=100000 $(BIN)/python -m pytest -s tests/chaos/test_noise.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
