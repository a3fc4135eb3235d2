"""Memory-R+, Tables 7 to 9: one question's responses, and how many responses verify themselves."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from paperlib.evaluation.self_verification import count_self_verifying, wilson_interval
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.benchmarks import task_data
from paperlib.experiments.store import Run
from paperlib.report.cells import Cell, Column, Row, Table
from paperlib.report.memory_r_tables import fixed_questions
from paperlib.report.render import escape_markdown
from paperlib.report.scores import last_result, levels_of
from paperlib.report.table1 import provenance
from paperlib.tasks.data import load_problems

RULE = (
    "The question is the first of the highest level in the test set; the response is the first "
    "stored sample at temperature 1 of the last checkpoint of the first seed. Nothing was chosen "
    "by hand. All models sample with the same random numbers: texts of like models agree."
)


def first_responses(result: dict[str, Any]) -> list[str]:
    """The first stored response to each of the fixed questions: the paper's 100 responses."""
    return [problem["responses"][0] for problem in fixed_questions(result)]


def all_responses(result: dict[str, Any]) -> list[str]:
    """Every stored response to every problem."""
    return [text for problem in result["problems"] for text in problem["responses"]]


def self_verifying_share(run: Run, settings: EvalSettings, take: Any) -> float | None:
    """Percent of ``take(result)`` that hold a phrase; ``take`` is one of the two above."""
    result = last_result(run, settings)
    return None if result is None else _shares(take(result))[0]


def _shares(texts: Sequence[str]) -> tuple[float, float, float]:
    """Share and its interval in percent."""
    count = count_self_verifying(texts)
    low, high = wilson_interval(count, len(texts))
    return 100 * count / len(texts), 100 * low, 100 * high


def self_verification_table(
    runs: dict[str, list[Run]], settings: EvalSettings, profile: str, preset: str
) -> Table:
    """Share of responses with a phrase of self-verification, with its interval, run by run."""
    takes = {"one response a question": first_responses, "all samples": all_responses}
    sizes: dict[str, int] = {}
    rows = []
    for method, of_method in runs.items():
        for run in of_method:
            result = last_result(run, settings)
            cells: list[Cell | None] = []
            for name, take in takes.items():
                texts = take(result) if result else []
                sizes[name] = max(sizes.get(name, 0), len(texts))
                cells += [Cell.from_seeds([v]) for v in (_shares(texts) if texts else [None] * 3)]
            label = "" if method == "Base" else f", seed {run.config.seed}"
            rows.append(Row(f"{method}{label}", tuple(cells)))
    return Table(
        title=f"Memory-R+, self-verification, profile {profile}, preset {preset}: responses with "
        "a phrase of the list, in percent",
        columns=tuple(
            Column(head, f"{name} ({sizes[name]:,} a model)")
            for name in takes for head in ("share", "from", "to")
        ),
        rows=tuple(rows),
        notes=(
            "Temperature 1, last checkpoint. from, to: 95 % Wilson interval of the share, within "
            "one model. One response a question: the first sample to the questions of Table 6. "
            "All samples: every stored sample to every test problem.",
        ),
        footer=provenance([run for of_method in runs.values() for run in of_method]),
    )


def responses_markdown(runs: dict[str, list[Run]], settings: EvalSettings) -> str:
    """Tables 7 to 9: :data:`RULE` applied to each method, as Markdown that shows texts verbatim."""
    lines = ["**Memory-R+ Tables 7 to 9: responses to one question**", "", RULE]
    asked = None
    for method, (run, *_) in runs.items():
        result = last_result(run, settings)
        if result is None:
            lines += ["", f"**{escape_markdown(method)}**: missing"]
            continue
        levels = levels_of(settings.task)
        problem = next(
            p for p in result["problems"] if p["level"] == levels[-1] or len(levels) == 1
        )
        if asked is None:
            data = task_data(settings.task)[-1]
            asked = {p.id: p for p in load_problems(data)}[problem["id"]]
            question = escape_markdown(asked.question)
            lines += ["", f"**Question.** {question} (answer: {escape_markdown(asked.answer)})"]
        texts = problem["responses"]
        mark = "right" if problem["grades"][0] else "wrong"
        lines += [
            "",
            f"**{escape_markdown(method)}**, {mark}. Of {problem['n']} samples, right: "
            f"{problem['correct']}; with a phrase of self-verification: "
            f"{count_self_verifying(texts)}.",
            "",
            # character references: a line that begins with # is no heading in any reader
            f"<pre>{html.escape(texts[0].strip()).replace('#', '&#35;')}</pre>",
        ]
    return "\n".join(lines) + "\n"
