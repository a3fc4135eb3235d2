"""Graders side by side: wrong answers paid, right ones refused, time.

The pairs are tests/answers.tsv, which this project's grader was built on: read the counts of the
others with that in mind. ``PAPERLIB_GRADING_PAIRS`` names a JSON list of other pairs (gold,
completion, right). LightEval is measured where it can be imported.
"""

import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from measure import Row, Skipped

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


def light_eval() -> Callable[[str, str], bool]:
    """LightEval's extraction and comparison, as its mathematics metrics set them.

    Raises ImportError beside math-verify 0.9: lighteval 0.13 asks for latex2sympy2_extended 1.0.6.
    """
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
    """Errors, and wall seconds an answer with a worker a core."""
    judged = pairs()
    golds, texts, rights = zip(*judged, strict=True)

    def measured(name: str, verdicts: Callable[[], list[bool]]) -> tuple[float, str]:
        began = time.perf_counter()
        found = list(zip(verdicts(), rights, strict=True))
        seconds = (time.perf_counter() - began) / len(judged)
        return seconds, (f"{name} pays {sum(v and not r for v, r in found)} wrong answers and "
                         f"refuses {sum(r and not v for v, r in found)} right ones")

    forget()
    ours, counts = measured("ours", lambda: grade_all(texts, golds))
    counts = f"{len(judged)} pairs, {sum(rights)} right; {counts}"
    rows: list[Row | Skipped] = []
    for name, make in (("math-verify", lambda: math_verify), ("LightEval", light_eval)):
        work = f"grading against {name}, wall seconds an answer"
        try:
            grade = make()
        except ImportError as error:
            rows.append(Skipped(work, f"it cannot be used here ({error})"))
            continue
        peer, more = measured(name, lambda g=grade: [g(*pair[:2]) for pair in judged])
        rows.append(Row(work, name, ours, peer, 1.0, f"{counts}; {more}"))
    return [*rows, *batch_of_512()]


def batch_of_512() -> list[Row]:
    """512 completions of a training step: workers not yet started, then started, other answers."""
    rows = []
    for name, limit, shift in (("cold", 2.1, 0), ("warm", 0.5, 1000)):
        if name == "cold":
            forget()
        kinds = ("{n}", r"\frac{{{n}}}{{{m}}}", r"{n}\sqrt{{{m}}}", r"{n} \text{{ cm}}")
        texts = [rf"so \boxed{{{kind.format(n=i % 37 + shift, m=i % 11 + 2)}}}"
                 for i in range(128) for kind in kinds]
        began = time.perf_counter()
        grade_all(texts, [rf"\frac{{{i % 37 + shift}}}{{{i % 11 + 3}}}" for i in range(512)])
        rows.append(Row(f"grading 512 completions, {name}", "the grader before this one",
                        time.perf_counter() - began, limit, 1.0, "wall seconds"))
    return rows


def forget() -> None:
    """No worker has been started, no verdict is remembered."""
    symbolic._free.clear()
    symbolic._verdict.cache_clear()
