"""The runs and evaluations behind the papers' tables: what notebooks make, and ``plan`` counts."""

from collections.abc import Sequence

from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments import variants
from paperlib.experiments.recipes import eval_settings, methods, recipe
from paperlib.experiments.store import Run, Store

Runs = dict[str, list[Run]]  # row of a table -> its runs, one per seed


def table1_runs(
    paper: str, profile: str, preset: str, seeds: Sequence[int], store: Store,
    model: str | None = None, engine: str = "ours",
) -> Runs:
    """The runs of each row that the engine can train, one per seed (Base: a single one), whether
    they exist yet or not, as all runs here."""
    return {
        method: [
            store.run(recipe(paper, method, profile, seed, preset, model, engine))
            for seed in (seeds if method != "Base" else (0,))
        ]
        for method in methods(paper, engine)
    }


def table1_evaluations(paper: str, profile: str, model: str | None = None) -> list[EvalSettings]:
    """Validation, test, and for Memory-R+ also the greedy test: of every checkpoint."""
    splits = [eval_settings(paper, profile, s, model=model) for s in ("validation", "test")]
    if paper == "memory_r":
        splits.append(eval_settings(paper, profile, "test", greedy=True, model=model))
    return splits


def k_runs(profile: str, preset: str, seeds: Sequence[int], store: Store) -> Runs:
    """The rows of Memory-R+'s Table 2; in ``paper`` the authors' released policy is one more."""
    # smoke has 8 training questions, all of which every K from 8 on reads: two K are enough
    ks = (1, 20) if profile == "smoke" else variants.K_VALUES
    runs = {
        row: [store.run(variants.small_data(row, profile, seed, preset)) for seed in seeds]
        for row in (f"Memory-R+ K={k}" for k in ks)
    }
    if profile == "paper":
        runs[variants.AUTHORS] = [store.run(variants.authors_policy())]
    return runs


def table2_runs(profile: str, preset: str, seeds: Sequence[int], store: Store) -> Runs:
    """The runs of each row of MEDS's Table 2, one per seed."""
    return {
        name: [store.run(variants.feature_variant(name, profile, seed, preset)) for seed in seeds]
        for name in ("DAPO", *variants.FEATURES)
    }
