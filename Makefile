# Two commands do everything: `make demo` and `make test`. Both set up what they need, in .venv and in a cache folder.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: bench bench-quick bench-large bench-core bench-packing compiled docs help setup control-plane demo test test-unit test-properties test-browser test-cluster test-compiled soak lint format generate lock clean

help:  ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Muster needs Python 3.11 or newer; say which with PYTHON=..."; exit 1; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY)  ## The virtual environment, from the lock file

control-plane: $(READY)  ## etcd, kube-apiserver and friends, built once into the cache
	@$(BIN)/python -m tests.controlplane.build

demo: control-plane  ## A busy hour of a real GPU cluster, in small (KEEP=1 leaves it running)
	@$(BIN)/python -m examples.demo $(if $(KEEP),--keep,)

test: lint test-unit test-properties test-browser test-cluster  ## Everything

# Modules side by side, one for each of two cores: most of their time is waiting.
SIDE_BY_SIDE := -n 2 --dist loadfile

test-unit: $(READY)  ## Pure tests, in under a minute
	$(BIN)/python -m pytest tests/unit $(SIDE_BY_SIDE)

test-properties: $(READY)  ## Invariants under random events
	$(BIN)/python -m pytest tests/properties $(SIDE_BY_SIDE)

test-browser: $(READY)  ## The pages in a real Chromium, where there is one (MUSTER_CHROMIUM, or on the path)
	$(BIN)/python -m pytest tests/browser

test-cluster: control-plane  ## Against a real control plane
	$(BIN)/python -m pytest tests/cluster $(SIDE_BY_SIDE) --no-loadscope-reorder

soak: control-plane  ## Invariants for millions of steps, and 50 kills during a run of 2,000 workloads
	MUSTER_PROPERTIES=soak $(BIN)/python -m pytest tests/properties $(SIDE_BY_SIDE)
	MUSTER_KILLS=50 MUSTER_KILL_WORKLOADS=2000 $(BIN)/python -m pytest tests/cluster/test_kills.py

# What an image has in it: the core compiled to C. Whoever runs with this environment runs that, tests and benchmarks too.
COMPILED := $(CURDIR)/build/compiled
WITH_COMPILED := PYTHONSAFEPATH=1 PYTHONPATH=$(COMPILED):$(CURDIR)

compiled: $(COMPILED)/.ready  ## The packages with the core compiled, in build/compiled (needs a C compiler; two minutes)

$(COMPILED)/.ready: $(READY) $(shell find admission queues migrations webhook-config -name '*.py' -o -name '*.yaml' -o -name '*.html')
	@echo "compiling the core into $(COMPILED) ..."
	@rm -rf $(COMPILED) build/source && mkdir -p build/source
	@cp -r pyproject.toml README.md LICENSE admission queues migrations webhook-config build/source
	@cd build/source && HATCH_BUILD_HOOK_ENABLE_MYPYC=true $(CURDIR)/$(BIN)/python -m hatchling build --target wheel > ../compiling.log 2>&1 \
		|| { tail -n 20 ../compiling.log; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) build/source/dist/*.whl
	@touch $@

test-compiled: compiled  ## The tests of the core once more, on what was compiled
	$(WITH_COMPILED) $(BIN)/python -m pytest tests/unit/core tests/unit/simulator tests/properties $(SIDE_BY_SIDE) -o pythonpath=

bench: control-plane compiled  ## Beside the peer, on the peer's own benchmark: some 45 minutes on a quiet machine
	$(WITH_COMPILED) $(BIN)/python -m benchmarks.all

bench-quick: control-plane compiled  ## A tenth of that, each scenario in under a minute
	$(WITH_COMPILED) $(BIN)/python -m benchmarks.all --quick

bench-large: control-plane compiled  ## 1,000 queues and 50,000 workloads; the peer alone needs some 25 minutes
	$(WITH_COMPILED) $(BIN)/python -m benchmarks.run large

bench-core: compiled  ## Decisions a second of the core, without an API server
	$(WITH_COMPILED) $(BIN)/python -m benchmarks.core

docs: $(READY)  ## The documentation as a site, in build/site; fails when a link leads nowhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

bench-packing: $(READY)  ## What fits, and where gangs land, by the packing of the flavor: on public traces, some minutes
	$(BIN)/python -m benchmarks.packing

lint: $(READY)  ## ruff, mypy --strict, import contracts, stale generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m admission.api.crds --check
	$(BIN)/python -m admission.api.crds --overlay --check
	$(BIN)/python -m admission.webhook.configuration --check
	$(BIN)/python -m publishing --check

format: $(READY)  ## Let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(READY)  ## The manifests, the chart and the reference that are made from the code
	$(BIN)/python -m admission.api.crds
	$(BIN)/python -m admission.api.crds --overlay
	$(BIN)/python -m admission.webhook.configuration
	$(BIN)/python -m publishing

lock: $(READY)  ## New exact versions, with hashes, from pyproject.toml
	$(BIN)/python -m pip install --quiet uv==0.13.9
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--extra dev pyproject.toml --output-file requirements.lock

clean:  ## Remove the virtual environment and caches of this checkout
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
