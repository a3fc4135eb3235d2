"""Memory-R+, Tables 6 to 9: whose responses they show, and to which questions."""

from __future__ import annotations

from typing import Any

from paperlib.report.scores import levels_of

RESPONDERS = ("Base", "R1", "Memory-R+")
QUESTIONS = 100  # the same number of each level


def fixed_questions(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The first QUESTIONS problems of an evaluation, as many of each level, in its order."""
    levels = levels_of(result["settings"]["task"])
    by_level = [
        [p for p in result["problems"] if p["level"] == level or len(levels) == 1]
        for level in levels
    ]
    return [problem for of_level in by_level for problem in of_level[: QUESTIONS // len(levels)]]
