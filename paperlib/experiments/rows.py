"""The runs and evaluations behind the papers' tables: what notebooks make, and ``plan`` counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments import variants
from paperlib.experiments.recipes import eval_settings, methods, models, recipe
from paperlib.experiments.store import Run, Store

Runs = dict[str, list[Run]]  # row of a table -> its runs, one per seed


@dataclass(frozen=True)
class Need:
    """Runs of one model, the evaluations of each, and of which of their checkpoints."""

    model: str
    runs: Runs
    evaluations: list[EvalSettings]
    checkpoints: str  # "last" or "all"


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


def small_data_runs(
    methods: Sequence[str], profile: str, preset: str, seeds: Sequence[int], store: Store
) -> Runs:
    """The runs of some of variants.SMALL_DATA, one per seed."""
    return {
        method: [store.run(variants.small_data(method, profile, s, preset)) for s in seeds]
        for method in methods
    }


def k_runs(profile: str, preset: str, seeds: Sequence[int], store: Store) -> Runs:
    """The rows of Memory-R+'s Table 2; in ``paper`` the authors' released policy is one more."""
    # smoke has 8 training questions, all of which every K from 8 on reads: two K are enough
    ks = (1, 20) if profile == "smoke" else variants.K_VALUES
    runs = small_data_runs([f"Memory-R+ K={k}" for k in ks], profile, preset, seeds, store)
    if profile == "paper":
        runs[variants.AUTHORS] = [store.run(variants.authors_policy())]
    return runs


def table2_runs(profile: str, preset: str, seeds: Sequence[int], store: Store) -> Runs:
    """The runs of each row of MEDS's Table 2, one per seed."""
    return {
        name: [store.run(variants.feature_variant(name, profile, seed, preset)) for seed in seeds]
        for name in ("DAPO", *variants.FEATURES)
    }


READERS: dict[str, tuple[str, ...]] = {  # table -> the other artefacts that read its runs
    "table1-memory-r": (
        "collapse-memory-r", "fidelity-beyond", "fig3-memory-r", "fig4-memory-r", "fig5-memory-r",
        "fig6-memory-r", "head-to-head-beyond", "shaping-scale-beyond", "table6-memory-r",
        "tables7to9-memory-r"),
    "table1-meds": (
        "annotation-meds", "bring-your-own-beyond", "cost-meds", "fidelity-beyond", "fig1-meds",
        "fig3-meds", "fig4-meds", "fig6-7-meds", "theorem-meds"),
    "table2-memory-r": ("fig2-memory-r", "fig5-memory-r"),
    "table2-meds": ("fig5-meds",),
}  # fmt: skip


def needs(
    table: str, profile: str, preset: str, seeds: Sequence[int], store: Store,
    chosen: Sequence[str] | str | None = None, engine: str = "ours",
) -> list[Need]:
    """All that one of these tables is made from, a :class:`Need` a model.

    ``chosen`` models (:func:`paperlib.experiments.recipes.models`) and ``engine`` are of a Table 1.
    """
    if table.startswith("table1"):
        paper = table.removeprefix("table1-").replace("-", "_")
        return [
            Need(model, table1_runs(paper, profile, preset, seeds, store, model, engine),
                 table1_evaluations(paper, profile, model), "all")
            for model in models(paper, profile, chosen)
        ]  # fmt: skip
    if table == "table2-meds":
        runs, checkpoints = table2_runs(profile, preset, seeds, store), "last"
        evaluations = [eval_settings("meds", profile, "test")]
    else:
        runs, checkpoints = k_runs(profile, preset, seeds, store), "all"
        evaluations = [variants.small_data_settings(profile, s) for s in ("validation", "test")]
    groups: dict[str, Runs] = {}
    for row, of_row in runs.items():
        groups.setdefault(of_row[0].config.model, {})[row] = of_row
    return [Need(model, of_model, evaluations, checkpoints) for model, of_model in groups.items()]
