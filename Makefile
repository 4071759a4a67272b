# All targets work in a fresh clone, on a machine that has only Python 3.11 or newer.

VENV   ?= .venv
PYTHON := $(VENV)/bin/python
READY  := $(VENV)/.ready
BENCH  := $(VENV)/.bench-ready
SUPPLY := $(VENV)/supply
LOCK   := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
          --no-header --no-annotate

# Tests start hundreds of processes. These share compiled modules, even if the environment turns that off.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test docs check sbom audit pinned mutants nightly bench storm format lock lock-images

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

demo: $(READY)  ## Play a simulated day, from SNMP traps to private counts and their account (about a minute), and serve it as a page
	@echo "  ('. $(VENV)/bin/activate' puts tacet on your path)"
	@$(PYTHON) -m connectors demo

test: $(READY)  ## Run all tests but the long storm; tests that need Kafka or snmptrap are skipped if it is missing
	$(PYTHON) -m pytest -m "not storm and not bench and not long" -n auto --dist loadfile

docs: $(READY)  ## Generate the parts of the documents that follow from the code: modules, commands, metrics
	$(PYTHON) docs/modules.py
	$(PYTHON) docs/tables.py

check: $(READY) sbom  ## Check lint, format, types and import contracts (also the page's); locks, licences and bill of materials
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) -m pytest -q tests/docs/test_supply.py tests/unit/serve/test_page_modules.py

sbom: $(SUPPLY)/.ready  ## Write the bill of materials of the image (sbom.json, CycloneDX)
	$(SUPPLY)/bin/cyclonedx-py requirements requirements-runtime.lock --output-reproducible --of JSON -o sbom.json

audit: $(SUPPLY)/.ready  ## Look for known vulnerabilities in the image; needs the internet
	$(PYTHON) .ci/audit

pinned: $(READY)  ## Check released bytes on the oldest NumPy and the newest Python (which is downloaded)
	.ci/pinned || [ $$? = 77 ]

mutants: $(READY)  ## Break promises one by one in a copy; a test must fail for each (MUTANTS="--changed HEAD~1")
	$(PYTHON) -m tests.mutants $(MUTANTS)

nightly: $(READY)  ## Run long checks: fuzzing, the long storm, every mutant, load and latency; two to three hours
	$(PYTHON) -m tests.unit.snmp.test_snmp_fuzz 200000
	$(PYTHON) -m tests.unit.snmp.test_v3_fuzz 1000000
	$(PYTHON) -m tests.unit.radius.test_radius_fuzz 1000000
	$(PYTHON) -m tests.unit.hooks.test_hooks_fuzz 1000000
	$(PYTHON) -m tests.unit.snmp.test_telegraf_abuse 1000000
	$(PYTHON) -m tests.acceptance.serve.test_serve_fuzz 20000
	$(PYTHON) -m pytest tests/acceptance/test_compose_up.py
	$(PYTHON) -m pytest -m long
	$(PYTHON) -m tests.simulation --level port --seed 1000 --runs 6000
	$(PYTHON) -m tests.simulation --level wire --seed 1000 --runs 1800
	$(MAKE) storm
	$(MAKE) mutants MUTANTS="--jobs $$(nproc)"
	$(MAKE) mutants MUTANTS="--standard stream --passed --jobs $$(nproc)"
	$(MAKE) pinned
	$(MAKE) bench
	$(MAKE) $(SUPPLY)/.ready && $(PYTHON) .ci/audit || [ $$? = 77 ]

bench: $(BENCH)  ## Measure speed, latency and memory beside alternatives, into docs/measurements.md (installs pysnmp and Quix Streams)
	$(PYTHON) -m tests.benchmarks --page docs/measurements.md
	$(PYTHON) -m pytest -m bench -s tests/acceptance/page

storm: $(READY)  ## Run the long storm on a real Kafka: hundreds of killed and paused workers and brokers
	TACET_REQUIRE_KAFKA=1 $(PYTHON) -m pytest -m storm -s

format: $(READY)  ## Format the code, and fix what the linter can fix
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

lock: $(READY)  ## Pin all dependencies again, with hashes (requirements*.lock: tests, image, optional libraries, benchmarks)
	$(PYTHON) -m pip install --quiet uv
	$(VENV)/bin/uv pip compile $(LOCK) --upgrade --extra build --extra test --extra bench -o requirements-bench.lock pyproject.toml
	$(VENV)/bin/uv pip compile $(LOCK) --upgrade --extra build --extra test -c requirements-bench.lock -o requirements.lock pyproject.toml
	$(VENV)/bin/uv pip compile $(LOCK) --upgrade --extra build -c requirements.lock -o requirements-runtime.lock pyproject.toml
	$(VENV)/bin/uv pip compile $(LOCK) --upgrade --extra build --extra frame --extra http --extra sinks --extra calendars --extra plots -c requirements.lock -o requirements-extras.lock pyproject.toml
	$(VENV)/bin/uv pip compile $(LOCK) --upgrade --group supply -o requirements-supply.lock

lock-images:  ## Pin the images of docker-compose.yml and the Dockerfile by digest; asks their registries
	deploy/lock-images

# The environment: the first Python that is new enough, and the locked packages, which are checked by hash.
# Debian's python3 without python3-venv cannot put pip into an environment; its own pip can then fill it.
# Modules are compiled when they are first imported: to compile all of them takes as long as to install them.
$(READY): requirements.lock pyproject.toml
	@for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then found=$$python; pip=; break; fi; \
	    if [ -z "$$found" ] && "$$python" -m pip --python "$$(command -v $$python)" --version >/dev/null 2>&1; then \
	        found=$$python; pip=--without-pip; \
	    fi; \
	    old=$$python; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "tacet: $${old:-Python 3.11 or newer} needs venv and pip: install Python >= 3.11 and, on Debian or Ubuntu," >&2; \
	    echo "       'apt-get install python3 python3-venv'" >&2; \
	    exit 1; \
	fi; \
	echo "Installing into $(VENV) with $$found; about a minute ..."; \
	if [ ! -x $(PYTHON) ]; then "$$found" -m venv $$pip $(VENV) || exit 1; fi; \
	if $(PYTHON) -m pip --version >/dev/null 2>&1; then pip="$(PYTHON) -m pip"; \
	else pip="$$found -m pip --python $(PYTHON)"; fi; \
	$$pip install --quiet --no-compile --require-hashes -r requirements.lock && \
	$$pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(BENCH): $(READY) requirements-bench.lock
	$(PYTHON) -m pip install --quiet --require-hashes -r requirements-bench.lock
	@touch $@

# Tools that read the locks are installed apart from what is tested.
$(SUPPLY)/.ready: $(READY) requirements-supply.lock
	@$(PYTHON) -m venv --without-pip $(SUPPLY)
	@if $(PYTHON) -m pip --version >/dev/null 2>&1; then pip="$(PYTHON) -m pip"; else pip="python3 -m pip"; fi; \
	$$pip --python $(SUPPLY)/bin/python install --quiet --no-compile --require-hashes -r requirements-supply.lock
	@touch $@
