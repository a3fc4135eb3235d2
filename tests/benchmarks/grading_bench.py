"""Graders side by side: wrong answers paid, right ones refused, time.

The pairs are tests/answers.tsv, which this project's grader was built on: read the counts of the
others with that in mind. ``PAPERLIB_GRADING_PAIRS`` names a JSON list of other pairs (gold,
completion, right). LightEval's extraction is measured where lighteval can be imported.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from measure import Row, Skipped

from paperlib.tasks import symbolic
from paperlib.tasks.grading import grade_all

Pair = tuple[str, str, bool]  # gold, completion, right
Grader = Callable[[str, str], bool]


def pairs() -> list[Pair]:
    """Those of the tests (what a reader would call right counts as right), or a file's."""
    if name := os.environ.get("PAPERLIB_GRADING_PAIRS"):
        rows = json.loads(Path(name).read_text(encoding="utf-8"))
        return [(row["gold"], row["completion"], row["right"]) for row in rows]
    with (Path(__file__).parents[1] / "answers.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(r["gold"], rf"\boxed{{{r['answer']}}}", r["verdict"] != "wrong") for r in rows]


def math_verify() -> Grader:
    """math-verify as its README uses it, the gold in a box."""
    from math_verify import parse, verify

    return lambda gold, text: verify(parse(rf"\boxed{{{gold}}}"), parse(text))


def lighteval() -> Grader:
    """LightEval's extraction and comparison, as its mathematics metrics set them."""
    from lighteval.metrics.utils import extractive_match_utils as utils
    from lighteval.metrics.utils.math_comparison import compare_gold_target
    from lighteval.utils.language import Language

    kinds = (utils.ExprExtractionConfig(), utils.LatexExtractionConfig(boxed_match_priority=0))
    regexes = utils.get_extraction_regexes_inspect(kinds, Language.ENGLISH)

    def grade(gold: str, text: str) -> bool:
        wanted, found = (
            utils.extract_target_from_pred(each, regexes, "first_match", "any_match")
            for each in (rf"\boxed{{{gold}}}", text)
        )
        return any(compare_gold_target([one], [other], 6) for one in wanted for other in found)

    return grade


def graders() -> list[Row | Skipped]:
    """Errors, and CPU seconds an answer, against each of the others; ours in one worker's time."""
    judged = pairs()
    golds, texts, rights = zip(*judged, strict=True)
    symbolic.stop_workers()
    symbolic._verdict.cache_clear()
    began = time.perf_counter()
    mine = grade_all(texts, golds)
    ours = time.perf_counter() - began
    counts = f"{len(judged)} pairs, {sum(rights)} right; ours pays {_paid(mine, rights)} wrong "\
             f"answers and refuses {_refused(mine, rights)} right ones"
    rows: list[Row | Skipped] = []
    for name, make in (("math-verify", math_verify), ("LightEval", lighteval)):
        work = f"grading against {name}, wall seconds an answer"
        if name == "LightEval" and find_spec("lighteval") is None:
            rows.append(Skipped(work, "lighteval is not installed"))
            continue
        grade = make()
        began = time.perf_counter()
        verdicts = [_never_raises(grade, gold, text) for gold, text, _ in judged]
        peer = time.perf_counter() - began
        rows.append(Row(
            work, name, ours / len(judged), peer / len(judged), 1.0,
            f"{counts}; {name} pays {_paid(verdicts, rights)} and refuses "
            f"{_refused(verdicts, rights)}",
        ))
    return rows + batch_of_512()


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


def _never_raises(grade: Grader, gold: str, text: str) -> bool:
    try:
        return bool(grade(gold, text))
    except Exception:  # noqa: BLE001 - a grader that raises has not paid
        return False


def _paid(verdicts: list[bool], rights: tuple[bool, ...]) -> int:
    return sum(verdict and not right for verdict, right in zip(verdicts, rights, strict=True))


def _refused(verdicts: list[bool], rights: tuple[bool, ...]) -> int:
    return sum(right and not verdict for verdict, right in zip(verdicts, rights, strict=True))
