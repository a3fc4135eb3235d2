# Every command of the project. Each target does its own set-up; `make` alone lists them.
#
#   PROFILE  smoke, tiny, laptop or paper     PRESET  paper or released
#   SEEDS    numbers with commas between      JOBS    processes at once (default: one per core)
#   MODELS   of both Table 1s, with commas    FORCE   1: start although something is missing
#   ENGINE   of both Table 1s: ours or trl
#   EXECUTOR local, inline or slurm           SLURM   "{'partition': 'gpu', 'gpus': 1}": its options
#
#   ALL_CHECKPOINTS True: all of them on the test set, for the tables' columns "max"
#
# SEEDS, JOBS, MODELS, ENGINE, EXECUTOR, SLURM and ALL_CHECKPOINTS are the notebooks' own when they are not given.
# PARALLEL notebooks run at once; more than one helps when the runs are there.

PROFILE ?= tiny
PRESET ?= paper
SEEDS ?=
JOBS ?=
MODELS ?=
ENGINE ?=
EXECUTOR ?=
ALL_CHECKPOINTS ?=
SLURM ?=
FORCE ?=
PARALLEL ?= 1
BENCH ?=

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup test lint unit smoke lab artefacts reproduce-all decide bring-your-own gpu-check gpu-parity soak \
        bench gpu-bench tiny-model clean

# This clone comes first, and nothing that a shell profile put on PYTHONPATH comes at all.
export PYTHONPATH := $(CURDIR)
unexport PYTHONHOME

# Ends a recipe: the Python that `setup` found or made (and has said everything about), in the
# shell's place, so that it gets what make passes on to the shell when make is told to end.
PY = python=$$(.ci/python 2> /dev/null) && exec "$$python"

REPRODUCE = -m paperlib reproduce --parallel $(PARALLEL) -p PROFILE "$(PROFILE)" -p PRESET "$(PRESET)" \
        $(if $(SEEDS),-p SEEDS "$(SEEDS)") $(if $(JOBS),-p JOBS "$(JOBS)") \
        $(if $(MODELS),-p MODELS "$(MODELS)") $(if $(ENGINE),-p ENGINE "$(ENGINE)") \
        $(if $(ALL_CHECKPOINTS),-p ALL_CHECKPOINTS "$(ALL_CHECKPOINTS)") \
        $(if $(EXECUTOR),-p EXECUTOR "$(EXECUTOR)") $(if $(SLURM),-p SLURM "$(SLURM)") \
        $(if $(FORCE),--force)

help: ## list the targets
	@grep -hE '^[a-z0-9%-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 28

setup: ## make .venv from requirements.lock, unless the active environment fits
	@.ci/python > /dev/null

test: lint unit smoke ## everything that must pass: lint, unit tests, every notebook in small

lint: setup ## check the style of code and notebooks
	@$(PY) -m ruff check .

unit: setup ## the unit tests
	@$(PY) -m pytest -q -n auto --dist loadfile

smoke: setup ## execute every notebook with PROFILE=smoke, from nothing
	@rm -rf build/smoke-runs figures/smoke executed/smoke
	@$(PY) -m paperlib reproduce all --parallel 2 -p PROFILE smoke -p SEEDS 0,1 \
	    -p RUNS build/smoke-runs -p JOBS 1 -p EXECUTOR inline

lab: setup ## open the notebooks in JupyterLab
	@export JUPYTER_PREFER_ENV_PATH=1; \
	$(PY) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks

artefacts: setup ## list what can be reproduced, one name a table, figure or analysis
	@$(PY) -m paperlib reproduce

reproduce-all: setup ## every table, figure and analysis, and figures/<PROFILE>/index.md
	@$(PY) $(REPRODUCE) all

reproduce-%: setup ## one of them: reproduce-table1 (both papers), reproduce-fig3-meds ...
	@$(PY) $(REPRODUCE) $*

plan-%: setup ## what one of them needs and costs, and what is missing here: plan-table1 PROFILE=paper
	@$(PY) -m paperlib plan $* --profile "$(PROFILE)" --preset "$(PRESET)" \
	    $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(MODELS),--models "$(MODELS)") \
	    $(if $(ENGINE),--engine "$(ENGINE)")

decide: setup ## primary claims: three seeds at a time until each is decided; hours, goes on where it was
	@$(PY) -m paperlib decide --profile "$(PROFILE)" $(if $(JOBS),--jobs $(JOBS))

bring-your-own: setup ## a reward of your own, and both methods in a stock TRL trainer
	@$(PY) $(REPRODUCE) bring-your-own

gpu-check: setup ## SmolLM2-135M on GSM8K: four methods in ten minutes of a GPU, one JSON of results
	@$(PY) tests/benchmarks/gpu.py check --minutes 10 --out build/gpu-check.json

gpu-parity: setup ## both engines on a GPU, fp32 and bf16: losses, gradients, short runs; one JSON
	@$(PY) tests/benchmarks/gpu.py parity --out build/gpu-parity.json

soak: setup ## 500 steps with each memory: does the process, a step or a file count grow? 10 minutes
	@$(PY) tests/soak.py

bench: setup ## ours against TRL, generate and others; BENCH="step memory": some of them
	@$(PY) tests/benchmarks/bench.py $(BENCH)

gpu-bench: setup ## the same on a GPU: throughput, overheads, shares of the card's ceilings
	@$(PY) tests/benchmarks/gpu.py bench --out build/gpu-bench.json

tiny-model: setup ## rebuild the tiny world's model and encoder from scratch (changes tracked files)
	@$(PY) -m paperlib tiny-model

clean: ## delete build products and caches; runs, executed notebooks and .venv stay
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis figures/smoke executed/smoke
	find . -name .venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
