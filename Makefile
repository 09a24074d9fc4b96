# `make fly` and `make test` need Python 3.11 or later, a C compiler and make; everything else they fetch.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: fly test verify lint docs benchmark bench generate clean

fly: $(READY)
	$(BIN)/companion fly bridge_hover --vehicle f550 --fcu sim

# The quick tier: linters, types, units, one sample of each slow kind.
test: $(READY) lint
	$(BIN)/companion generate
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not realtime and not verify" --durations=40

# Everything else, resumable; ends with a table.
verify: $(READY)
	$(BIN)/companion generate
	$(BIN)/python -m tests.verify

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir .site-check
	@rm -rf .site-check

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

benchmark bench: $(READY)
	$(BIN)/companion generate
	$(BIN)/python -m tests.benchmark

generate: $(READY)
	$(BIN)/companion generate

# The environment is made from the lock file alone: exact versions, checked by hash. Without --no-deps pip would look at
# newer releases of what a package asks for, and stop because the lock has no hash of them.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed ($(PYTHON) is older); set PYTHON=…"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) build site .site-check *.egg-info
