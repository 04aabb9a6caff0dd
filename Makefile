# Every target sets up what it needs: a virtual environment with the pinned versions.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
NEWEST := build/newest
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo check test test-medium test-contracts test-slow test-all test-newest test-gpu lint docs bench lock clean

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[experiments,test]"
	touch $@

$(VENV)/bench-ready: $(VENV)/ready
	$(PIP) -e ".[bench]"
	touch $@

$(VENV)/docs-ready: $(VENV)/ready
	$(PIP) -e ".[docs]"
	touch $@

# Most of its programs run for less time than they are compiled for: without fusion emitters XLA
# compiles them in two thirds of the time, which a large net's training would pay for by a sixth.
demo: $(VENV)/ready      ## continual learning and a photograph's illuminant, no data needed, one report: about a minute
	XLA_FLAGS="--xla_cpu_use_fusion_emitters=false $$XLA_FLAGS" $(BIN)/everlight demo

# Small programs are compiled by the hundred and run for milliseconds, so the compiler optimizes little
# here; long runs (`make test-slow`) are compiled as users do. What one test compiled another finds on
# disk, and so does every process the bytecode of modules and tests.
CACHE := JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=0 \
	PYTHONDONTWRITEBYTECODE=
COMPILER := --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 --xla_llvm_disable_expensive_passes=true
PYTEST := -m pytest -n 2 --dist loadgroup -m "not slow and not medium"
TEST = JAX_COMPILATION_CACHE_DIR=$(CURDIR)/build/test-programs $(CACHE) \
	XLA_FLAGS="$(COMPILER) --xla_cpu_use_fusion_emitters=false $$XLA_FLAGS" $(BIN)/python $(PYTEST)

# jaxtyping's import hook checks every annotated call, which makes tests a third slower: it is on for
# one call of each public function, for one trace of each strategy, and for long runs.
HOOK := --jaxtyping-packages=everlight,beartype.beartype
HOOKED := tests/contracts/test_traced.py tests/contracts/test_arguments.py -k "traced or accepted"

test: $(VENV)/ready      ## the quick tests of every file
	$(TEST) tests

test-medium: $(VENV)/ready ## the tests of more than 0.6 seconds, and those under jaxtyping's import hook
	$(TEST) -m "medium and not slow" tests
	$(TEST) -m "not slow" $(HOOK) $(HOOKED)

# Quick tests of most folders: about a minute.
QUICK := tests/color/test_transforms.py tests/color/test_radiometry.py \
	tests/metrics/test_accuracy_matrix.py tests/metrics/test_angular.py \
	tests/models/test_heads.py tests/scenarios/test_class_incremental.py \
	tests/continual/engine/test_steps.py tests/continual/strategies/parts/test_quadratic.py \
	tests/data_pipelines/formats/test_unpickle.py tests/experiments/report/test_report.py tests/experiments/report/test_index.py \
	tests/plots tests/test_words.py

check: lint              ## lint and the quick tests, for every edit
	$(TEST) $(QUICK)

# Every strategy's turn at every contract, which is mostly compilation, and long runs. Each contract's
# tests of a strategy are in one part.
PART := 1/1

test-contracts: $(VENV)/ready ## the slow contracts alone: an hour of one core; PART=3/16 is the third of sixteen parts
	$(TEST) -m slow --part $(PART) tests/contracts

test-slow: test-contracts ## the slow tests alone; PART=3/16 is the third of sixteen parts
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow --part $(PART) $(HOOK) --ignore=tests/contracts tests

test-all: test test-medium test-slow ## everything

# Newer versions of jaxlib than the pinned one end the process at the flag of fusion emitters.
test-newest:             ## all but the slow tests, with the newest versions that pip finds, in build/newest; PYTHON=python3.13 chooses another Python
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[experiments,test]"
	$(NEWEST)/bin/python -m pip list --disable-pip-version-check
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/build/newest-programs $(CACHE) XLA_FLAGS="$(COMPILER) $$XLA_FLAGS" \
		$(NEWEST)/bin/python $(PYTEST) -m "not slow" tests

# On one accelerator, where a program takes one to five seconds to compile; how long all take was not
# measured. In the environment that is active, since the accelerator's packages are not among the
# pinned ones, and in one process, which does not reserve the whole memory. Compiled programs are kept
# for the next time.
GPU_TESTS := tests/color tests/illuminant tests/metrics tests/models tests/scenarios tests/continual/engine

test-gpu:                ## tests on an accelerator; GPU_TESTS=tests/continual/strategies selects others
	XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONPATH=lib:data_pipelines:experiments \
		JAX_COMPILATION_CACHE_DIR=$(CURDIR)/build/gpu-test-programs $(CACHE) \
		$(PYTHON) -m pytest -m "not slow and not cpu" $(GPU_TESTS)

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

docs: $(VENV)/docs-ready  ## the site, in build/site; `python -m http.server -d build/site` serves it with its search
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m docs.tools.check_links build/site

bench: $(VENV)/bench-ready  ## speed beside NumPy and PyTorch, taking turns; `python -m benchmarks.speed CASE` measures one
	$(BIN)/python -m benchmarks.speed

lock: $(VENV)/ready      ## requirements.lock: what the experiments need, with hashes, at the versions of constraints.txt
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml --extra experiments -c constraints.txt --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate --no-header --quiet -o requirements.lock

clean:
	rm -rf $(VENV) runs build
