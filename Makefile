# Everything a developer types. `make help` lists it; the tools live in .venv, which these make.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run quick affected test flaky under-load slow check removable docs dist bench bench-peers bench-anytime bench-strangers gpu-campaign gpu-wheels optuna-check deploy-check clean

PYTHON ?= python3
BIN := .venv/bin
# The tests start some thousand processes: each would compile Penstock anew.
unexport PYTHONDONTWRITEBYTECODE
# Threads that spin while they wait hold the core that another test's processes need.
test slow quick affected under-load: export OMP_WAIT_POLICY := passive
# Each use of the profiler of torch would write two lines.
test slow quick affected under-load: export KINETO_LOG_LEVEL := 6
# Tests also wait: three workers keep two cores busy.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)
# What says most within a minute: the core, the models, the map of the house.
QUICK := tests/scheduler tests/extensions tests/profiling tests/base tests/test_house.py
PARALLEL := $(BIN)/python tests/again.py -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 10

# Installs with pip, and prints a line for each package. What pip says else is shown where it fails: a
# pipe's status is that of its last command, so pip's own is kept in a file.
define install
{ PYTHONWARNINGS=ignore $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off $(1) \
        2> .venv/pip.log && rm -f .venv/failed || touch .venv/failed; } | \
    awk '/^ *Collecting / { n++ } \
        /^ *(Downloading|Using cached|Processing) .*[.](whl|gz)( |$$)/ { k++; split($$0, part, /[(]/); \
            name = $$0; sub(/^ *(Downloading|Using cached|Processing) /, "", name); \
            sub(/ [(].*/, "", name); sub(/^.*\//, "", name); sub(/-.*/, "", name); \
            print "  " k (n > k ? " of " n : "") ": " name (part[2] == "" ? "" : " (" part[2]); fflush() } \
        /^ *Installing collected packages/ { print "  unpacking them"; fflush() }'
@if test -e .venv/failed; then cat .venv/pip.log; exit 1; fi
endef

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

run: .venv/installed ## the quickstart: tune a small network on handwritten digits
	@$(BIN)/penstock run examples/digits.py

quick: .venv/dev ## the inner loop: style, and the tests of the core, the models and the house
	@$(BIN)/ruff check
	@$(BIN)/pytest -q -n logical --dist loadfile -m "not integration and not slow" $(QUICK)

affected: .venv/dev ## what a change reaches since SINCE=commit (or main), nearest first, for two minutes
	@$(BIN)/python tests/affected.py $(SINCE)

test: .venv/dev ## the tests, with a real broker and real workers
	@$(PARALLEL) -m "not slow"

flaky: ## note the flaky tests of a run, whose output is in LOG, in tests/flaky.txt
	@sed -n "s/^flaky: /$$(date -u +%F) /p" $(LOG) | tee -a tests/flaky.txt

under-load: .venv/dev ## each test that load could fail, TIMES times beside four endless loops
	@$(BIN)/python tests/under_load.py $(or $(TIMES),50)

slow: .venv/dev ## the tests that take long: faults of every kind, many devices, other databases
	@$(PARALLEL) -m slow $$(grep -rl 'mark\.slow' tests benchmarks --include='test_*.py')

check: .venv/dev ## all that CI asks for: style, types, import contracts, tests
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@mkdir -p .typing && ln -sfn .. .typing/penstock  # mypy wants a folder of the package's name
	@MYPYPATH=.typing $(BIN)/mypy -p penstock
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test

removable: .venv/dev ## each extension, and then all, removed from a copy: other tests and the quickstart
	@$(BIN)/python -m benchmarks.removable

docs: .venv/dev ## these pages as a site, in build/site; a broken link is an error
	@$(BIN)/python docs/build_site.py build/site

dist: .venv/dev ## a release: source distribution and wheel, built and checked, in dist/
	@rm -rf dist && mkdir -p build
	@$(BIN)/python -m build --no-isolation --outdir dist . > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@$(BIN)/twine check --strict dist/*

bench: .venv/dev ## the quick form of every benchmark; figures in build/bench
	@mkdir -p build/bench
	@for file in benchmarks/*/__main__.py tests/hostile/__main__.py; do \
	    folder=$$(dirname $$file); name=$$(basename $$folder); \
	    case $$name in gpu_campaign|measured|peers|optuna_check|deploy_check) continue;; esac; \
	    echo "== $$name"; \
	    $(BIN)/python -m $$(echo $$folder | tr / .) --quick --json build/bench/$$name.json || exit 1; \
	done

bench-peers: .venv-peers/installed .venv/dev ## beside Ray Tune, Optuna, Syne Tune; an environment of 2.5 GB
	@mkdir -p build/bench
	@echo "== ray_resize"
	@.venv-peers/bin/python benchmarks/peers/ray_resize.py --json build/bench/ray_resize.json
	@echo "== peers"
	@$(BIN)/python -m benchmarks.peers --json build/bench/peers.json

bench-anytime: .venv-peers/installed .venv-dyhpo/installed .venv/dev ## how soon each tuner has a good configuration, simulated; some days, and it goes on where it stopped
	@mkdir -p build/bench
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -r benchmarks/peers/anytime.txt
	@$(BIN)/python -m benchmarks.anytime --resume --json build/bench/anytime.json

bench-strangers: .venv-strangers/installed .venv/dev ## other people's scripts, plainly and by `penstock run`; an environment of 3 GB
	@mkdir -p build/bench
	@$(BIN)/python -m benchmarks.strangers --json build/bench/strangers.json

gpu-campaign: .venv/dev ## all that is asked of a GPU, nine minutes at a time: call it until it says no more
	@$(BIN)/python -m benchmarks.gpu_campaign --out build/bench --resume

gpu-wheels: .venv/installed ## what that needs on a machine without a network, in build/gpu-wheels
	@$(BIN)/python -m benchmarks.gpu_campaign --gather build/gpu-wheels

optuna-check: .venv/dev ## Optuna's own tests, on Penstock's storage
	@mkdir -p build/bench
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -r benchmarks/peers/optuna-check.txt
	@$(BIN)/python -m benchmarks.optuna_check --json build/bench/optuna_check.json

deploy-check: .venv/dev ## what deploy/ ships, run for real; what is not installed here is skipped
	@mkdir -p build/bench
	@$(BIN)/python -m benchmarks.deploy_check --json build/bench/deploy_check.json

clean: ## remove what these commands made, .venv included; studies are kept
	@rm -rf .venv .venv-dyhpo .venv-peers .venv-strangers .typing build dist *.egg-info
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made anew when what it is made from changes. pip comes first: --group is known from 25.1 on.
# The build warns that an editable install may be shadowed: true of any, and nothing to act on here.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Penstock needs Python 3.11 or newer, and %s is %d.%d: make PYTHON=<another>" % (sys.executable, v[0], v[1]))'
	@echo "Installing Penstock into .venv (once; some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(call install,-c constraints.txt -e .)
	@touch $@

# Helm asks for Python 3.12 and runs on 3.11: it is a Go library, and what calls it is small.
.venv/dev: .venv/installed
	@echo "Installing what the tests need (once)"
	@$(call install,-c constraints.txt -e . --group dev)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt --ignore-requires-python helm-sdkpy
	@touch $@

.venv-peers/installed: benchmarks/peers/requirements.txt
	@echo "Installing the peers into .venv-peers (once; some minutes)"
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install -qq --disable-pip-version-check -r $<
	@touch $@

.venv-dyhpo/installed: benchmarks/peers/dyhpo.txt
	@echo "Installing an older Syne Tune, the last with DyHPO, into .venv-dyhpo (once)"
	@test -x .venv-dyhpo/bin/python || $(PYTHON) -m venv .venv-dyhpo
	@.venv-dyhpo/bin/python -m pip install -qq --disable-pip-version-check -r $<
	@touch $@

.venv-strangers/installed: benchmarks/peers/strangers.txt benchmarks/peers/strangers-no-deps.txt
	@echo "Installing what the strangers' scripts import into .venv-strangers (once; some minutes)"
	@test -x .venv-strangers/bin/python || $(PYTHON) -m venv .venv-strangers
	@.venv-strangers/bin/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@PYTHONWARNINGS=ignore .venv-strangers/bin/python -m pip install -qq --disable-pip-version-check -e . torch==2.13.0 -r $<
	@.venv-strangers/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r benchmarks/peers/strangers-no-deps.txt
	@touch $@
