# `make demo` and `make test` do all the set-up themselves. Needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
export PYTHON
BIN := .venv/bin
RUN := $(BIN)/python -m

.PHONY: help demo test test-full check lint bench docs changelog clean cluster cluster-stop

help:
	@echo "make demo    train a classifier of handwritten digits as a TrainJob of 2 nodes x 2 processes"
	@echo "make test    the tests; installs what they need; make test-full adds those on a real Kubernetes node"
	@echo "make check   format, lint, types, layers and unit tests, in under two minutes"
	@echo "make bench   the benchmarks, as ratios"
	@echo "make docs    the documentation, into docs/_build/html"
	@echo "make cluster a Kubernetes cluster of one node on this machine (needs root and Go); make cluster-stop ends it"

# The clone's own environment: packages shared through the user's cache, the project itself in editable form.
.venv/ready: requirements/dev.txt pyproject.toml scripts/environment
	@env=$$(scripts/environment dev) && rm -rf .venv && $(PYTHON) -m venv --without-pip .venv && \
	site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	$$env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$site/shared.pth && \
	$$env/bin/python -m pip --quiet --disable-pip-version-check --python $(BIN)/python \
	  install --no-deps --no-build-isolation --editable . && \
	touch $@

demo: .venv/ready
	@train=$$(scripts/environment train) && PATH="$$train/bin:$$PATH" TRAINWRIGHT=$(CURDIR)/$(BIN)/trainwright \
	bash examples/digits/demo.sh

lint: .venv/ready
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(BIN)/python -c 'from importlinter.cli import lint_imports_command as main; main()'

check: lint
	$(RUN) pytest -q -n 2 -m 'not e2e and not slow and not kubernetes'

# Where one of them cannot be installed, its tests say loudly that they did not run.
ENVS := export TRAINWRIGHT_FRAMEWORKS_ENV="$$(scripts/environment frameworks)" \
	TRAINWRIGHT_OPENMPI_ENV="$$(scripts/environment mpi-openmpi)" \
	TRAINWRIGHT_MPICH_ENV="$$(scripts/environment mpi-mpich)" \
	TRAINWRIGHT_INTEL_MPI_ENV="$$(scripts/environment mpi-intel)"

# What only `make test-full` trains with, for its size or the time that it takes.
FULL_ENVS := export TRAINWRIGHT_SDK_ENV="$$(scripts/environment sdk)" \
	TRAINWRIGHT_DEEPSPEED_ENV="$$(scripts/environment deepspeed)" \
	TRAINWRIGHT_TENSORFLOW_ENV="$$(scripts/environment tensorflow)" \
	TRAINWRIGHT_PADDLE_ENV="$$(scripts/environment paddle)" \
	TRAINWRIGHT_TORCHTUNE_ENV="$$(scripts/environment torchtune)"

# With Go, tests run against a real Kubernetes control plane; without it they say loudly that they did not.
PYTEST_ALL := train=$$(scripts/environment train) && $(ENVS) && \
	if command -v go >/dev/null; then programs=$$(scripts/cluster-programs); else programs=; \
	echo "NOT TESTED against Kubernetes: Go is not installed" >&2; fi && \
	TRAINWRIGHT_TRAIN_ENV=$$train TRAINWRIGHT_CLUSTER_PROGRAMS=$$programs \
	$(BIN)/python -m pytest -n 2 --dist loadscope --durations 15

test: .venv/ready
	@echo "Leaving out the tests on a real node: \`make test-full\` runs them too (root, iptables, containerd)"
	@$(PYTEST_ALL) -m 'not node'

test-full: .venv/ready
	@scripts/system-packages && $(FULL_ENVS) && $(PYTEST_ALL)

bench: .venv/ready
	@train=$$(scripts/environment train) && TRAINWRIGHT_TRAIN_ENV=$$train $(BIN)/python benchmarks/run.py

cluster: .venv/ready
	@test "$$(id -u)" = 0 || { echo "A node needs root: it makes namespaces, cgroups and network links" >&2; exit 1; }
	@scripts/system-packages && train=$$(scripts/environment train) && \
	programs=$$(scripts/cluster-programs coredns etcd jobset kubernetes) && \
	TRAINWRIGHT_TRAIN_ENV=$$train $(BIN)/python scripts/cluster.py start $$programs

cluster-stop: .venv/ready
	@$(BIN)/python scripts/cluster.py stop

docs: .venv/ready
	$(RUN) sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

changelog: .venv/ready
	$(RUN) towncrier build --draft

clean:
	rm -rf .venv docs/_build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
