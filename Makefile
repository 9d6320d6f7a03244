# Rung. `make demo` shows it, `make test` proves it; everything else is a part of these two.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo dev cli lab lab-down test fuzz audit mutations check check-migrations check-deployment parts lock bench clean

PYTHON ?= python3.11
BIN := .venv/bin
# `--no-deps`: the lock names everything. With dependencies pip asks for the newest release of a package that another one wants
# with an extra, which the lock has without, and refuses it for want of a hash.
# The environment is current when it carries the stamp of the locked requirements.
STAMP := .venv/locked-$(shell cksum < requirements-dev.txt | tr ' ' -)
# Where the environment forbids to keep bytecode, each process of the demo and of the tests compiles the product: a second.
unexport PYTHONDONTWRITEBYTECODE
# Settings for `manage.py check --deploy`: a configuration as in production.
PRODUCTION := RUNG_SECRET_KEY=$$(printf 'only-for-this-check-%s' {a..z}) RUNG_HTTPS=true RUNG_HOSTS=rung.example.org RUNG_DATA=$$(mktemp -d) \
	RUNG_CREDENTIAL_KEYS=$$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): | requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-dev.txt
	echo "$(CURDIR)/cli" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rung-cli.pth"
	rm -f .venv/locked-*
	touch $@

demo: $(STAMP) ## Run the whole portal here: RUNG_PORT, RUNG_DATA, RUNG_DEMO_PASSWORD, RUNG_DEMO_SPEED, RUNG_LAB
	@exec $(BIN)/python -m portal.demo

dev: $(STAMP) ## The demo, which reloads Python, templates and static files when they change
	@exec $(BIN)/python -m portal.demo --reload

cli: $(STAMP) ## Put the command line into this environment: .venv/bin/rung
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable ./cli
	@echo "Now: $(BIN)/rung --help"

lab: $(STAMP) ## A real control plane with fake GPU nodes on this machine, and how to point Rung at it
	@PYTHON=$(BIN)/python lab/developer up

lab-down: ## End it
	@lab/developer down

ifdef T
test: parts $(STAMP) # one test, folder or file: no gates, no coverage
	$(BIN)/python -m pytest '$(T)'
else
test: parts check ## Every gate, then every other test with coverage; CI runs exactly this; T=tests/…::name runs one test
	$(BIN)/python -m tests.measured -n 3 --dist loadscope --durations=30 --ignore=tests/architecture
	@$(BIN)/python -m tests.coverage_gates .coverage.json
endif

check: $(STAMP) ## The gates that need no test run: style, types, layers, templates, migrations, deployment, architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=cli $(BIN)/lint-imports
	$(BIN)/djlint templates --check --lint --quiet
	@$(MAKE) --no-print-directory check-migrations
	@$(MAKE) --no-print-directory check-deployment
	$(BIN)/python -m pytest -q tests/architecture

check-migrations: $(STAMP)
	$(PRODUCTION) $(BIN)/python manage.py makemigrations --check --dry-run

check-deployment: $(STAMP)
	$(PRODUCTION) $(BIN)/python manage.py check --deploy --fail-level WARNING

parts: ## In CI: install the real servers and the browser that tests use
	@if [ "$${CI:-}" = true ]; then .ci/parts; fi

fuzz: $(STAMP) ## Ask every REST operation with generated input, 20 examples each; RUNG_FUZZ_EXAMPLES=100 asks more
	RUNG_FUZZ_EXAMPLES=$${RUNG_FUZZ_EXAMPLES:-20} $(BIN)/python -m pytest -q -p no:randomly -n 2 tests/portal/kit/api/test_fuzzing.py

# pip-audit skips what its registry does not know, as a mirror of wheels only, and writes no report without an answer.
audit: $(STAMP) ## Compare the locked requirements with known vulnerabilities, where the registry answers
	@report=$$(mktemp); status=0; \
	$(BIN)/uv tool run pip-audit@2.10.1 --require-hashes --disable-pip --progress-spinner off \
		--format json --output "$$report" -r requirements-dev.txt || status=$$?; \
	if ! test -s "$$report"; then echo "Not audited: the registry does not answer."; exit 0; fi; \
	if grep -q '"skip_reason"' "$$report"; then echo "Not audited in full: the registry does not know every release."; fi; \
	if test $$status -ne 0; then cat "$$report"; fi; exit $$status

mutations: $(STAMP) ## Break rules one by one: their tests must fail; ONLY="3 17" runs these
	@$(BIN)/python -m tests.mutations $(if $(ONLY),--only $(ONLY))

lock: $(STAMP) ## Compile the hashed requirements files again
	$(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-header -o requirements.txt
	$(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-header --group dev -o requirements-dev.txt

bench: $(STAMP) ## Run the benchmarks and print their figures
	for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python -m "benchmarks.$$(basename "$$file" .py)"; done

clean: ## Remove what the demo and the tools left, and the environment
	rm -rf .venv var staticfiles .coverage.json .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
