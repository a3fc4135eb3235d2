"""Graders side by side: wrong answers paid, right ones refused, time.

The pairs are tests/answers.tsv, which this project's grader was built on: read the counts of the
others with that in mind. ``PAPERLIB_GRADING_PAIRS`` names a JSON list of other pairs (gold,
completion, right).
"""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

from measure import Row

from paperlib.tasks import symbolic
from paperlib.tasks.grading import grade_all

Pair = tuple[str, str, bool]  # gold, completion, right


def pairs() -> list[Pair]:
    """Those of the tests (what a reader would call right counts as right), or a file's."""
    if name := os.environ.get("PAPERLIB_GRADING_PAIRS"):
        rows = json.loads(Path(name).read_text(encoding="utf-8"))
        return [(row["gold"], row["completion"], row["right"]) for row in rows]
    with (Path(__file__).parents[1] / "answers.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(r["gold"], rf"\boxed{{{r['answer']}}}", r["verdict"] != "wrong") for r in rows]


def math_verify(gold: str, text: str) -> bool:
    """math-verify as its README uses it, the gold in a box; what it raises pays nothing."""
    from math_verify import parse, verify

    try:
        return bool(verify(parse(rf"\boxed{{{gold}}}"), parse(text)))
    except Exception:  # noqa: BLE001
        return False


def graders() -> list[Row]:
    """Errors, and wall seconds an answer; ours in one worker's time."""
    judged = pairs()
    golds, texts, rights = zip(*judged, strict=True)
    symbolic.stop_workers()
    symbolic._verdict.cache_clear()
    counts, seconds = [], []
    for name, grade in (
        ("ours", lambda: grade_all(texts, golds)),
        ("math-verify", lambda: [math_verify(gold, text) for gold, text, _ in judged]),
    ):
        began = time.perf_counter()
        verdicts = list(zip(grade(), rights, strict=True))
        seconds.append((time.perf_counter() - began) / len(judged))
        counts.append(f"{name} pays {sum(v and not r for v, r in verdicts)} wrong answers and "
                      f"refuses {sum(r and not v for v, r in verdicts)} right ones")
    details = f"{len(judged)} pairs, {sum(rights)} right; {'; '.join(counts)}"
    work = "grading against math-verify, wall seconds an answer"
    return [Row(work, "math-verify", *seconds, 1.0, details), *batch_of_512()]


def batch_of_512() -> list[Row]:
    """512 completions of a training step: workers not yet started, then started, other answers."""
    rows = []
    for name, limit, shift in (("cold", 2.1, 0), ("warm", 0.5, 1000)):
        if name == "cold":
            symbolic.stop_workers()
        kinds = ("{n}", r"\frac{{{n}}}{{{m}}}", r"{n}\sqrt{{{m}}}", r"{n} \text{{ cm}}")
        texts = [rf"so \boxed{{{kind.format(n=i % 37 + shift, m=i % 11 + 2)}}}"
                 for i in range(128) for kind in kinds]
        began = time.perf_counter()
        grade_all(texts, [rf"\frac{{{i % 37 + shift}}}{{{i % 11 + 3}}}" for i in range(512)])
        rows.append(Row(f"grading 512 completions, {name}", "the grader before this one",
                        time.perf_counter() - began, limit, 1.0, "wall seconds"))
    return rows
