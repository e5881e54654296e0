# `make demo` and `make test` do all the set-up themselves. Needs Python >= 3.11 and make.
PYTHON ?= python3
export PYTHON
BIN := .venv/bin
RUN := $(BIN)/python -m

.PHONY: demo test check unit bench docs clean

# The clone's own environment: packages shared through the cache, the project itself in editable form.
.venv/ready: requirements/dev.txt pyproject.toml scripts/environment
	@env=$$(scripts/environment dev) && rm -rf .venv && $(PYTHON) -m venv --without-pip .venv && \
	site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	$$env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$site/shared.pth && \
	$$env/bin/python -m pip --quiet --disable-pip-version-check --python $(BIN)/python install --no-deps --no-build-isolation --editable . && \
	touch $@

check: .venv/ready
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(BIN)/python -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
	$(RUN) pytest -q -m 'not e2e' -n 2

clean:
	rm -rf .venv docs/_build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
