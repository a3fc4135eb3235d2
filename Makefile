# Every command of the project. Each target does its own set-up; `make` alone lists them.
#
#   PROFILE  smoke, tiny or paper             PRESET  paper or released
#   SEEDS    numbers with commas between      JOBS    processes at once (default: one per core)

PROFILE ?= tiny
PRESET ?= paper
SEEDS ?= 0,1,2
JOBS ?=

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup test lint unit smoke lab reproduce-table1 reproduce-table1-memory-r \
        reproduce-table1-meds reproduce-explained bring-your-own tiny-model clean

# This clone comes first, and nothing that a shell profile put on PYTHONPATH comes at all.
export PYTHONPATH := $(CURDIR)
unexport PYTHONHOME

# Starts a recipe: the Python that `setup` found or made (and has said everything about).
PY = python=$$(.ci/python 2> /dev/null) && "$$python"

TABLE = -p PROFILE "$(PROFILE)" -p PRESET "$(PRESET)" -p SEEDS "$(SEEDS)" \
        $(if $(JOBS),-p JOBS "$(JOBS)")

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 28

setup: ## make .venv from requirements.lock, unless the active environment fits
	@.ci/python > /dev/null

test: lint unit smoke ## everything that must pass: lint, unit tests, every notebook in small

lint: setup ## check the style of code and notebooks
	@$(PY) -m ruff check .

unit: setup ## the unit tests
	@$(PY) -m pytest -q

smoke: setup ## execute every notebook with PROFILE=smoke, from nothing
	@rm -rf build/smoke-runs figures/smoke executed/smoke
	@python=$$(.ci/python 2> /dev/null); \
	find notebooks -name '*.ipynb' -not -path '*/.ipynb_checkpoints/*' -print0 | sort -z | \
	while IFS= read -r -d '' notebook; do \
	    "$$python" -m paperlib notebook "$$notebook" -p PROFILE smoke -p SEEDS 0,1 \
	        -p RUNS build/smoke-runs < /dev/null; \
	done

lab: setup ## open the notebooks in JupyterLab
	@export JUPYTER_PREFER_ENV_PATH=1; \
	$(PY) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks

reproduce-table1: reproduce-table1-memory-r reproduce-table1-meds ## Table 1 of both papers

reproduce-table1-memory-r: setup ## Table 1 of Memory-R+
	@$(PY) -m paperlib notebook notebooks/memory_r/table1.ipynb $(TABLE)

reproduce-table1-meds: setup ## Table 1 of MEDS
	@$(PY) -m paperlib notebook notebooks/meds/table1.ipynb $(TABLE)

reproduce-explained: setup ## both papers on toy tensors: schematics, equations, fidelity
	@$(PY) -m paperlib notebook notebooks/memory_r/explained.ipynb -p PROFILE "$(PROFILE)"
	@$(PY) -m paperlib notebook notebooks/meds/explained.ipynb -p PROFILE "$(PROFILE)"

bring-your-own: setup ## a reward of your own, and both methods in a stock TRL trainer
	@$(PY) -m paperlib notebook notebooks/beyond/bring_your_own.ipynb -p PROFILE "$(PROFILE)" \
	    -p SEEDS "$(SEEDS)"

tiny-model: setup ## rebuild the tiny world's model and encoder from scratch (changes tracked files)
	@$(PY) -m paperlib tiny-model

clean: ## delete build products and caches; runs, executed notebooks and .venv stay
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis figures/smoke executed/smoke
	find . -name .venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
