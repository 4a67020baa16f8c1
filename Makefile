# Every target sets itself up: it needs only make and Python 3.11 or newer.

PYTHON      ?= python3
VENV        ?= .venv
PYTEST_ARGS ?= -n 2 --dist loadfile -m "not slow"
BENCH_ARGS  ?=
REPRODUCE_ARGS ?= all --quick
# a constraints file of pip, none unless told
CONSTRAINTS ?=
# scikit-learn's checks of one estimator, and tests of the parts that it is made of
SMOKE       := .venv-smoke
SMOKE_TESTS := tests/test_common.py tests/test_losses.py tests/low_rank \
	tests/dual/test_cholesky.py -k "not scikit_learn_checks or laplacian"

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest smoke-oldest fuzz lint format bench reproduce docs docs-smoke clean

BIN := $(VENV)/bin

help: ## show this list
	@echo "make <target>; each target installs what it needs into $(VENV) on its first run"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.ready-demo ## compare leansvm with scikit-learn's models, print a table, write demo.html
	@$(BIN)/python examples/demo.py --output demo.html

# two processes, each with one thread: tests of threads ask for theirs
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: $(VENV)/.ready-dev ## run the tests and the examples in the docstrings
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-oldest: ## run them with the oldest packages that are supported, in .venv-oldest
	@$(MAKE) --no-print-directory test VENV=.venv-oldest CONSTRAINTS=tests/oldest.txt

# A plain installation of the wheel, with nothing but what a few tests need: less than a minute.
smoke-oldest: export OMP_NUM_THREADS = 1
smoke-oldest: export OPENBLAS_NUM_THREADS = 1
smoke-oldest: $(VENV)/.ready-dev ## install the wheel with the oldest packages, run a few tests
	rm -rf $(SMOKE)
	$(PYTHON) -m venv $(SMOKE)
	$(BIN)/python -m hatchling build --target wheel --directory $(SMOKE)/dist
	$(SMOKE)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		--constraint tests/oldest.txt $(SMOKE)/dist/*.whl pytest hypothesis
	$(SMOKE)/bin/python -m pytest -q -p no:cacheprovider $(SMOKE_TESTS)

fuzz: export OMP_NUM_THREADS = 1
fuzz: export OPENBLAS_NUM_THREADS = 1
fuzz: $(VENV)/.ready-dev ## fit 50,000 random models on awkward data (half an hour)
	$(BIN)/python -m pytest tests/fuzz -n 2 --hypothesis-profile=slow

lint: $(VENV)/.ready-dev ## check style, formatting, types and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.ready-dev ## reformat the code and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-dev ## run the benchmarks (minutes), print tables, save JSON
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

reproduce: $(VENV)/.ready-cli ## repeat the papers' tables, write reproduction/report.html (five minutes)
	$(BIN)/leansvm reproduce $(REPRODUCE_ARGS)

docs: $(VENV)/.ready-docs ## build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Every page, link and docstring, with warnings as errors; the gallery shows code without results.
docs-smoke: $(VENV)/.ready-docs ## check that the documentation builds, without running its examples
	rm -rf docs/_build/smoke
	$(BIN)/sphinx-build -W --keep-going -q -b html -D plot_gallery=0 docs docs/_build/smoke

clean: ## remove what the other targets generate (all but the environment)
	rm -rf build dist demo.html reproduction docs/_build docs/generated docs/gallery \
		.mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} +

# --- environment -----------------------------------------------------------

# .ready-<extra>: the package is installed, editable, with that extra.
$(VENV)/.ready-%: pyproject.toml src/leansvm/_version.py $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing leansvm[$*] into $(VENV) (once; may take a few minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		$(addprefix --constraint ,$(CONSTRAINTS)) --editable ".[$*]"
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
		echo "leansvm needs Python 3.11 or newer, but '$(PYTHON)' was not found;" \
			"name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "leansvm needs Python 3.11 or newer, but '$(PYTHON)' is" \
			"$$($(PYTHON) --version 2>&1); name a newer one with: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot create virtual environments; install its venv module" \
			"(on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
