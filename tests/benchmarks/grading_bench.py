"""Our grader beside math-verify: wrong answers paid, right ones refused, time.

The pairs are tests/answers.tsv, which this project's grader was built on: read the counts of the
other with that in mind. ``PAPERLIB_GRADING_PAIRS`` names a JSON list of other pairs (gold,
completion, right).
"""

import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import row

from paperlib.tasks import symbolic
from paperlib.tasks.grading import grade_all


def pairs() -> list[tuple[str, str, bool]]:
    """Gold, completion, right: of the tests (what a reader would call right is), or a file's."""
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


def graders() -> list[dict[str, Any]]:
    """Errors, and wall seconds an answer with a worker a core."""
    golds, texts, rights = zip(*pairs(), strict=True)

    def measured(name: str, verdicts: Callable[[], list[bool]]) -> tuple[float, str]:
        began = time.perf_counter()
        found = list(zip(verdicts(), rights, strict=True))
        seconds = (time.perf_counter() - began) / len(found)
        return seconds, (f"{name} pays {sum(v and not r for v, r in found)} wrong answers and "
                         f"refuses {sum(r and not v for v, r in found)} right ones")

    forget()
    ours, counts = measured("ours", lambda: grade_all(texts, golds))
    peer, more = measured("math-verify", lambda: list(map(math_verify, golds, texts)))
    details = f"{len(golds)} pairs, {sum(rights)} right; {counts}; {more}"
    return [row("grading against math-verify, wall seconds an answer", "math-verify", ours, peer,
                1.0, details), *batch_of_512()]  # fmt: skip


def batch_of_512() -> list[dict[str, Any]]:
    """512 completions of a training step: workers not yet started, then started, other answers."""
    rows = []
    forget()
    for name, limit, shift in (("cold", 2.1, 0), ("warm", 0.5, 1000)):
        kinds = ("{n}", r"\frac{{{n}}}{{{m}}}", r"{n}\sqrt{{{m}}}", r"{n} \text{{ cm}}")
        texts = [rf"so \boxed{{{kind.format(n=i % 37 + shift, m=i % 11 + 2)}}}"
                 for i in range(128) for kind in kinds]  # fmt: skip
        golds = [rf"\frac{{{i % 37 + shift}}}{{{i % 11 + 3}}}" for i in range(512)]
        began = time.perf_counter()
        grade_all(texts, golds)
        seconds = time.perf_counter() - began
        rows.append(row(f"grading 512 completions, {name}", "the grader before this one", seconds,
                        limit, 1.0, "wall seconds"))  # fmt: skip
    return rows


def forget() -> None:
    """No worker has been started, no verdict is remembered."""
    symbolic._free.clear()
    symbolic._verdict.cache_clear()
