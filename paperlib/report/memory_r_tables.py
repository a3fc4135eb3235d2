"""Memory-R+, Tables 2 and 6 from the run store: K on little data, and diversity of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from paperlib.evaluation.diversity import pairwise_diversity, tfidf_vectors
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.grid import fixed_threads
from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.experiments.rows import Runs, small_data_runs
from paperlib.experiments.store import Run
from paperlib.experiments.variants import small_data_settings
from paperlib.methods.embeddings import text_encoder
from paperlib.report.cells import Cell, Column, Printed, Row, Table
from paperlib.report.marking import cohen_marks, mark_table
from paperlib.report.published import memory_r_table2 as printed_table2
from paperlib.report.published import published
from paperlib.report.scores import (
    CHECKPOINT_NOTE,
    CHECKPOINTS,
    columns_of,
    last_result,
    level_name,
    level_note,
    levels_of,
)
from paperlib.report.table1 import provenance, score_row

__all__ = [
    "diversity_scores", "fixed_questions", "memory_r_table2", "memory_r_table6", "published_table6",
    "seed_values", "small_data_runs", "table6_settings",
]  # fmt: skip

RESPONDERS = ("Base", "R1", "Memory-R+")  # of Tables 6 to 9
QUESTIONS = 100  # of Tables 6 to 9, the same number of each level
SAMPLES = 3  # Table 6
MEASURES = {"TF-IDF": "tfidf", "Sentence transformer": "sentence_transformer"}


def memory_r_table2(runs: Runs, profile: str, preset: str) -> Table:
    """Table 2: accuracy by K at temperature 1, mean and std over seeds; rows as in ``runs``.

    In ``paper``, where model and data are the paper's, the printed numbers stand below ours.
    """
    test, validation = (small_data_settings(profile, split) for split in ("test", "validation"))
    columns = [(level, which, 1) for level in columns_of(test.task) for which in CHECKPOINTS]
    rows = [
        score_row(
            method.removeprefix("Memory-R+ ").replace("=", " = "), of_method, columns, test,
            validation, "measured here" if profile == "paper" else "",
        )
        for method, of_method in runs.items()
    ]
    if profile == "paper":
        rows += [
            Row(
                one.method,
                tuple(one.cells.get(level_name(x), {}).get(which) for x, which, _ in columns),
                "as printed",
            )
            for one in printed_table2()
        ]
    table = Table(
        title=f"Memory-R+ Table 2, profile {profile}, preset {preset}: accuracy in percent by "
        "number K of read queries, little training data",
        columns=tuple(Column(which, level_name(x, test.task)) for x, which, _ in columns),
        rows=tuple(rows),
        row_headers=("", "Memory-R+"),
        notes=(
            CHECKPOINT_NOTE, level_note(test.task),
            f"pass@1 from {test.samples} samples at temperature 1. Bold: best, and all within "
            "Cohen's d < 0.5 of it; underline: second, where one cell is bold. Mean and standard "
            "deviation (ddof 1) over seeds.",
        ),
        footer=provenance([run for of_method in runs.values() for run in of_method]),
    )
    return mark_table(table, cohen_marks)


def table6_settings(profile: str) -> dict[float, EvalSettings]:
    """Evaluations behind Table 6 by temperature: 0.1 as in the paper, and Table 1's at 1; in
    ``paper`` both ask the paper's geometry questions."""
    test = eval_settings("memory_r", profile, "test")
    if profile == "paper":
        test = replace(test, task="paperlib_math_geometry")
    return {0.1: replace(test, samples=SAMPLES, temperature=0.1), 1.0: test}


def fixed_questions(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The first QUESTIONS problems of an evaluation, as many of each level, in its order."""
    levels = levels_of(result["settings"]["task"])
    return [
        problem
        for level in levels
        for problem in [
            p for p in result["problems"] if p["level"] == level or len(levels) == 1
        ][: QUESTIONS // len(levels)]
    ]


def diversity_scores(runs: dict[str, list[Run]], profile: str) -> pd.DataFrame:
    """Diversity x 100 of every run's last checkpoint, a mean over the fixed questions.

    The first three stored samples of a question count. One idf for all runs of a temperature; the
    sentence transformer is the one of the method's memories.

    Returns:
        Columns ``temperature, measure, method, seed, diversity``; a run without the evaluation has
        no row.
    """
    encoder = text_encoder(recipe("memory_r", "Memory-R+", profile, 0).terms[-1].settings.encoder)
    rows = []
    for temperature, settings in table6_settings(profile).items():
        keys, texts = [], []
        for method, of_method in runs.items():
            for run in of_method:
                responses = _first_samples(run, settings)
                keys += [(method, run.config.seed)] if responses else []
                texts += responses
        if not keys:
            continue
        with fixed_threads(1):  # small models are slower with more, and the last bits differ
            spaces = (tfidf_vectors(texts), encoder.encode(texts).numpy())
        for measure, vectors in zip(MEASURES, spaces, strict=True):
            by_question = pairwise_diversity(vectors.reshape(-1, SAMPLES, vectors.shape[1]))
            for key, value in zip(keys, by_question.reshape(len(keys), -1).mean(1), strict=True):
                rows.append((temperature, measure, *key, value))
    return pd.DataFrame(rows, columns=["temperature", "measure", "method", "seed", "diversity"])


def _first_samples(run: Run, settings: EvalSettings) -> list[str]:
    """The texts of all questions, SAMPLES each; none if there is no evaluation."""
    result = last_result(run, settings)
    if result is None:
        return []
    return [text for p in fixed_questions(result) for text in p["responses"][:SAMPLES]]


def seed_values(
    scores: pd.DataFrame, temperature: float, measure: str, method: str, seeds: Sequence[int]
) -> list[float | None]:
    """One entry per seed, None where there is no result; a single one for Base."""
    of = scores[(scores.temperature == temperature) & (scores.measure == measure)]
    by_seed = of[of.method == method].set_index("seed")["diversity"].to_dict()
    return [by_seed.get(seed) for seed in ((0,) if method == "Base" else seeds)]


def memory_r_table6(
    scores: pd.DataFrame, runs: dict[str, list[Run]], profile: str, preset: str,
    seeds: Sequence[int],
) -> Table:
    """Table 6: diversity x 100 under both measures, at both temperatures, every seed shown."""
    rows = []
    levels = len(levels_of(table6_settings(profile)[1.0].task))
    for temperature in table6_settings(profile):
        for method in runs:
            cells: list[Cell | None] = []
            for measure in MEASURES:
                values = seed_values(scores, temperature, measure, method, seeds)
                alone = [None if method == "Base" else Cell.from_seeds([v]) for v in values]
                dashes = [None] * (len(seeds) - len(alone))  # Base has no seeds
                cells += [Cell.from_seeds(values), *alone, *dashes]
            rows.append(Row(method, tuple(cells), f"{temperature:g}"))
    heads = ["all seeds", *(f"seed {seed}" for seed in seeds)]
    return Table(
        title=f"Memory-R+ Table 6, profile {profile}, preset {preset}: diversity of {SAMPLES} "
        "samples, x 100",
        columns=tuple(Column(head, measure) for measure in MEASURES for head in heads),
        rows=tuple(rows),
        row_headers=("Temperature", "Method"),
        notes=(
            "100 x (1 - mean cosine over pairs of a question's samples), mean over up to "
            f"{QUESTIONS // levels} test questions{' of each level' if levels > 1 else ''} (the "
            "first in the test set's order), last checkpoint. all seeds: mean and standard "
            "deviation (ddof 1).",
            "TF-IDF: words, numbers and single signs, one idf for all runs of a temperature. "
            "Sentence transformer: the one that the method's memories use.",
            "Temperature 0.1 is the paper's; at 1 the first samples of Table 1's evaluation count.",
        ),
        footer=provenance([run for of_method in runs.values() for run in of_method]),
    )


def published_table6() -> Table:
    """Table 6 as printed: one seed, on which no method had collapsed."""
    printed = published("memory_r")["table6_diversity_x100"]
    return Table(
        title="As printed in the paper (arXiv 2504.02273), Table 6: diversity x 100",
        columns=tuple(Column(measure) for measure in MEASURES),
        rows=tuple(
            Row(method, tuple(Printed(printed[method][key]) for key in MEASURES.values()))
            for method in RESPONDERS
        ),
        notes=(
            "The paper's numbers: 100 geometry questions, 3 samples each at temperature 0.1, one "
            "seed, on which no method collapsed. They were not measured here.",
        ),
    )
