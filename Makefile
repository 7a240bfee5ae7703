# `make run` and `make test` need Python 3.11 and make, nothing else: they do their own set-up in .venv.
PYTHON ?= python3
VENV ?= .venv
# a Python of 3.12 or later, for which pip installs the newest JAX
NEWEST ?= $(firstword $(wildcard $(shell pyenv root 2>/dev/null)/versions/3.13*/bin/python) python3.13)
BIN := $(VENV)/bin
comma := ,
WORKERS ?= 2
BASE ?= origin/main
# SHARE=1/4 runs a quarter of the costly tests, that of index 1 of 0 to 3
SHARE ?=
OF_COSTLY := $(if $(SHARE),--share $(SHARE))
# the tests that `make test` runs, by their marks
MARKS ?= not slow and not repeat and not costly
# TORCH=,torch also runs the tests beside PyTorch
TORCH ?=
# the accelerators that `make accelerators` compiles for, and the precisions
TARGETS ?= tpu:v5e:2x2 gpu:h100
PRECISIONS ?= single double
# the starts of the names of programs, such as risk,solve; all by default
ONLY ?=
# WHOLE=--whole compiles programs for a TPU in double precision, not the kinds of their operations
WHOLE ?=
OUT ?= out/risk
SAMPLES := pricing/samples
# as root: CHROMIUM="chromium --no-sandbox"
CHROMIUM ?= chromium

.PHONY: run scenarios picture test test-repeats test-changed test-all test-newest environments test-selection coverage mutants wheel-check \
	accelerators accelerators-installed lint bench bench-page docs clean

$(VENV)/.ready-%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".$(if $(filter-out run,$*),[$*],)"
	touch $@

run: $(VENV)/.ready-run  ## calibrate, value the sample book, and write the report to $(OUT)
	$(BIN)/jaxtape risk --trades $(SAMPLES)/dax_book.csv --market $(SAMPLES)/dax_2002-07-05.json --out $(OUT)

scenarios: $(VENV)/.ready-run  ## the same in 55 scenarios, each trade valued again in each, to out/scenarios
	$(BIN)/jaxtape risk --trades $(SAMPLES)/dax_book.csv --market $(SAMPLES)/dax_2002-07-05.json \
		--scenarios $(SAMPLES)/scenarios.json --out out/scenarios

picture:  ## the README's picture, of the report that `make scenarios` wrote (chromium, the font Inter)
	$(CHROMIUM) --headless --hide-scrollbars --window-size=1200,1750 \
		--screenshot=$(CURDIR)/docs/images/report.png file://$(CURDIR)/out/scenarios/report.html

# a machine may forbid Python to keep what it compiles: these start hundreds of processes that import all of it
test test-repeats test-all test-selection: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.ready-test$(TORCH)  ## the tests of the library, without the costly ones; MARKS="not slow": all that CI runs
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "$(MARKS)" $(OF_COSTLY)
	$(BIN)/lint-imports --no-cache
	$(BIN)/ruff check .

test-repeats: $(VENV)/.ready-test$(TORCH)  ## guards of pages and benchmarks, tests of processes, costly tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "(repeat or costly) and not slow" $(OF_COSTLY)

test-changed: $(VENV)/.ready-test$(TORCH)  ## of `make test`, the tests that reach what changed since BASE
	$(BIN)/python -m tests.changed $(BASE) -n $(WORKERS) --dist worksteal -m "not slow and not repeat and not costly"

test-all: $(VENV)/.ready-test$(TORCH)  ## every test, its programs compiled as users have them
	JAXTAPE_TEST_COMPILER=optimizing $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-newest:  ## one case of each test file with the newest JAX, in .venv-newest
	$(MAKE) VENV=.venv-newest PYTHON=$(NEWEST) test-selection

environments:  ## install the environments of test-newest and, for a TPU, of accelerators
	$(MAKE) VENV=.venv-newest PYTHON=$(NEWEST) .venv-newest/.ready-test
	$(MAKE) VENV=.venv-accelerators .venv-accelerators/.ready-test,tpu

test-selection: $(VENV)/.ready-test$(TORCH)
	$(BIN)/python -m pip list | grep -iE "^jax(lib)? "
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not repeat and not costly" --selection 1

accelerators:  ## every public program, compiled for accelerators that are not here, in .venv-accelerators
	$(MAKE) VENV=.venv-accelerators accelerators-installed

accelerators-installed: $(VENV)/.ready-test$(if $(findstring tpu:,$(TARGETS)),$(comma)tpu)$(if $(findstring gpu:,$(TARGETS)),$(comma)cuda)
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -q -p no:xdist tests/jaxtape/test_compile_for.py tests/accelerators
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -q -p no:xdist -k compiled_for tests/pricing/test_prices_in_kernels.py \
		$(addprefix tests/jaxtape/test_,kernels.py lockstep.py masked_ticks.py scalars.py)
	failed=0; for precision in $(PRECISIONS); do JAX_PLATFORMS=cpu $(BIN)/python -m tests.accelerators $(TARGETS) \
		--precision $$precision --only "$(ONLY)" $(WHOLE) --out $(VENV)/$$precision.json || failed=1; done; exit $$failed

coverage: $(VENV)/.ready-test$(TORCH)  ## the tests of CI, and the lines of the packages that they run; below 90 % fails
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" --cov --cov-report=term --cov-fail-under=90

mutants: $(VENV)/.ready-test$(TORCH)  ## small mistakes in schedules, estimators and Levenberg-Marquardt: at least 85 % are noticed
	$(BIN)/python -m tests.mutation

wheel-check: $(VENV)/.ready-test$(TORCH)  ## the wheel in an empty environment: every command of the README and the docs
	$(BIN)/python -m pytest -p no:xdist tests/test_wheel.py

lint: $(VENV)/.ready-test$(TORCH) $(VENV)/.ready-lint  ## style, docstrings, plain English, layers and types
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.plain_english
	$(BIN)/pyright
	! git grep -nE '^(<<<<<<<|>>>>>>>) '

bench: $(VENV)/.ready-bench$(TORCH)  ## every benchmark, beside its peers (TORCH=,torch: PyTorch too)
	$(BIN)/jaxtape bench all --out out/bench --page out/bench/page.html

bench-page: $(VENV)/.ready-bench  ## the page of the results that are kept, to out/bench/page.html
	$(BIN)/jaxtape bench --page out/bench/page.html

docs: $(VENV)/.ready-docs  ## the pages with the API reference; a public name without a whole docstring fails
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .venv-newest .venv-accelerators out site
