# make demo   answers four questions with the embedded model, in an environment of its own (.venv)
# make test   the whole test suite, with everything that it needs
# make check  lint, types and every benchmark at its smallest size as well: what CI runs
# make bench-smoke  every benchmark at its smallest size, to see that it runs

PYTHON ?= python3
VENV   ?= .venv
PIP     = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# On Linux a plain torch brings gigabytes of CUDA packages; the CPU build is enough for the tests.
TORCH  ?= $(if $(filter Linux,$(shell uname -s)),torch==2.13.0+cpu,torch==2.13.0)

.PHONY: demo test check lint types fast bench-smoke clean

demo: $(VENV)/core
	$(VENV)/bin/arbitrag demo

test: $(VENV)/dev
	$(VENV)/bin/python -m pytest --cov --cov-report=term:skip-covered --cov-fail-under=90 -n 2 --dist loadfile

fast: $(VENV)/dev
	$(VENV)/bin/python -m pytest -m "not slow and not peer"

bench-smoke: $(VENV)/dev
	$(VENV)/bin/python benchmarks --smoke

check: lint types test bench-smoke

lint: $(VENV)/dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/dev
	$(VENV)/bin/mypy

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Arbitrag needs Python 3.11 or newer; type: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing Arbitrag into $(VENV) …"
	$(PIP) --editable .
	@touch $@

$(VENV)/dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing Arbitrag, its extras and the test tools into $(VENV) …"
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[all,dev]"
	@touch $@ $(VENV)/core

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
