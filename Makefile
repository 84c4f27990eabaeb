# Everything goes from a fresh clone with nothing but make and Python 3.11+ (or uv); the second time it starts at once.
#
# Variables: PYTHON=python3.12 chooses the interpreter of the environment; RUN_ARGS, DEMO_ARGS, TEST_ARGS and BENCH_ARGS are
# passed on. UV_TORCH_BACKEND=cpu takes the CPU build of torch, which is a tenth of the CUDA build of x86-64.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run demo test test-long faults hour promises papers mutants lint format bench bench-scale stubs check-stubs check-wire check-manifests lock sbom audit compose pi clean distclean

BIN := .venv/bin
STAMP := .venv/.installed
# Whoever runs it needs neither the tools of those who change it, nor what writes their formats; where these are, they
# are brought up to date with the rest.
READY := $(or $(wildcard $(STAMP)),.venv/.ready)
RUN_ARGS ?= --method fedavg --dataset digits --clients 4 --rounds 20

# uv knows wheels that lie on disk only by its own variable.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

# By their names the commands are found only where the environment is active.
NEXT = [ "$$(command -v fl-lab)" -ef $(BIN)/fl-lab ] || { \
	case "$$SHELL" in *fish) end=.fish ;; *csh) end=.csh ;; *) end= ;; esac; \
	echo "next: source $(BIN)/activate$$end   \# then fl-lab, fl-server and fl-client are found"; }

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## install everything into .venv (once; again when pyproject.toml or constraints.txt change)
	@$(NEXT)

run: $(READY)  ## FedAvg on digits with 4 clients, 20 rounds, as real processes on this machine
	$(BIN)/fl-lab run $(RUN_ARGS)
	@$(NEXT)

demo: $(READY)  ## a minute: a client and the server are killed with -9, and the model is the same
	@$(BIN)/fl-lab demo $(DEMO_ARGS)

test: lint  ## format, lint, types, import contracts, stubs, then the quick tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -m 'not long and not hour' -n 3 --dist worksteal -q -rs $(TEST_ARGS)

test-long: $(STAMP)  ## the tests that take minutes, but for those of `make faults`
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -m long --ignore tests/faults -n 2 -q $(TEST_ARGS)

# What neighbours would change in a measurement comes last and alone, also if TEST_ARGS says -n 3.
faults: $(STAMP)  ## every promise under faults, about an hour; `make promises` then puts the table into the docs
	@rm -f build/promises.json; failed=0; \
	export OMP_NUM_THREADS=1 PROMISES_BOOK=build/promises.json; \
	export PROMISES_COMMAND="make faults$(if $(TEST_ARGS), TEST_ARGS='$(TEST_ARGS)')"; \
	try() { $(BIN)/python -m pytest tests/faults -q --durations=20 "$$@" || [ $$? = 5 ] || failed=1; }; \
	try $(TEST_ARGS) -m 'not alone and not hour'; \
	try $(TEST_ARGS) -m alone -n 0; \
	exit $$failed

hour: $(STAMP)  ## a server that is away for an hour, three times at once; it needs little of the machine
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/faults -m hour -n 3 -q -rA --show-capture=no $(TEST_ARGS)

promises: $(STAMP)  ## put the table of the last `make faults` into docs/reliability.md
	PYTHONPATH=tests $(BIN)/python -m support.promises build/promises.json docs/reliability.md

# Which test reaches which line is seen once; `rm -r build/mutants` after the code or the tests have changed.
mutants: $(STAMP)  ## hours: break the code a little, MUTANTS=300 times, and list what no test notices
	[ -d build/mutants/reach ] || PYTHONPATH=tests $(BIN)/python -m support.mutants reach
	PYTHONPATH=tests $(BIN)/python -m support.mutants try --sample $(or $(MUTANTS),300) $(MUTANTS_ARGS)
	PYTHONPATH=tests $(BIN)/python -m support.mutants table

papers: $(STAMP)  ## renew docs/papers.md and the README's summary from papers/*.toml and papers/results
	$(BIN)/python -m edgeflock.lab.papers.page docs/papers.md README.md

lint: check-stubs check-wire
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)  ## rewrite the code as ruff would have it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## every benchmark beside its baseline: JSON and a table
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-scale: $(STAMP)  ## half an hour: fleets of up to 10,000 clients, several processes, others beside us; renews docs/performance.md
	$(BIN)/python -m benchmarks.scale --docs docs/performance.md $(SCALE_ARGS)

stubs: $(STAMP)  ## generate common/edgeflock/v1 from proto/
	$(BIN)/python proto/generate.py

check-stubs: $(STAMP)  ## compare the committed stubs with freshly generated ones
	$(BIN)/python proto/generate.py --check

check-wire: $(STAMP)  ## compare the wire with the last one that was kept (proto/breaking.py --keep keeps this one)
	$(BIN)/python proto/breaking.py

lock: $(STAMP)  ## renew deploy/supply/*.lock: what an installation takes, by version and SHA-256
	@sh deploy/supply/lock.sh

sbom: $(STAMP)  ## build/sbom.json: what the image holds, with licences, as CycloneDX
	@sh deploy/supply/sbom.sh

audit: $(STAMP)  ## known holes of what is locked, as far as those who know of them can be reached
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python deploy/supply/audit.py deploy/supply/base.lock deploy/supply/torch.lock

check-manifests: $(STAMP)  ## hold deploy/kubernetes against the schemas of Kubernetes (fetches kubernetes-validate, 21 MB)
	$(BIN)/uv tool run kubernetes-validate --strict --quiet deploy/kubernetes/*.yaml

compose:  ## a server and clients in containers (make fails with 2 whatever failed; deploy/compose.sh with its code)
	@sh deploy/compose.sh

pi: $(STAMP)  ## the project on emulated Raspberry Pis 3, 4 and 5, 3 minutes; on a Debian with qemu-user-static
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python deploy/pi/check.py build/pi

clean:  ## remove caches and built packages
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	rm -rf .venv

$(STAMP): pyproject.toml constraints.txt
	@sh deploy/venv.sh dev "make $(MAKECMDGOALS)"
	@touch $@

.venv/.ready: pyproject.toml constraints.txt
	@sh deploy/venv.sh lab "make $(MAKECMDGOALS)"
	@touch $@
