"""Symbolic equality of two answers, behind guards: size bounds, and processes that can be killed.

A completion may say ``10^{10^{10}}``. Evaluating that takes all memory and hangs the interpreter,
with the lock held that a thread or a signal handler would need; so nothing is evaluated in the
process that trains. What :func:`too_big` can see is refused at once; everything else goes to one of
a few worker processes (:mod:`paperlib.tasks.symbolic_worker`), which the kernel ends when a request
takes too long. Any thread may ask; no signal, timer or handler of the caller's is touched.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import re
import select
import subprocess
import sys
import threading
import warnings
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from paperlib.environment import available_cores

LONGEST_TEXT = 1000  # characters; the longest gold of the test sets has 224
DEEPEST_NESTING = 30
LARGEST_EXPONENT = 10_000
LARGEST_POWER_OF_SUM = 100  # (a + b)^n, which a simplifier may expand
LARGEST_FACTORIAL = 5_000
LARGEST_BINOMIAL = 10_000
LARGEST_BOUND = 1_000  # of sums and products
WALL_SECONDS = 60.0  # the kernel's limit on processor time comes first, unless a worker is stuck
CACHED_PAIRS = 100_000

failures: Counter[str] = Counter()  # verdicts that are "wrong" for a technical reason, by reason


def equivalent(gold: str, answer: str) -> bool:
    """Whether two cleaned LaTeX expressions are mathematically equal, as far as math-verify knows.

    What is too big, takes too long, or breaks the library is not equal; it is counted in
    :data:`failures` and said once.
    """
    verdict = _verdict(gold, answer)
    if verdict in ("1", "0"):
        return verdict == "1"
    reason = verdict.removeprefix("error: ")
    failures[reason] += 1
    if failures[reason] == 1:
        warnings.warn(
            f"an answer counts as wrong because it could not be compared ({reason}): "
            f"{answer[:80]!r}; further ones are only counted", RuntimeWarning, stacklevel=2,
        )
    return False


@lru_cache(CACHED_PAIRS)
def _verdict(gold: str, answer: str) -> str:
    if why := too_big(answer):
        return f"error: {why}"
    return _pool().ask(gold, answer)


def too_big(text: str) -> str | None:
    """Why an expression must not be evaluated, or None. Looks at the text alone."""
    if len(text) > LONGEST_TEXT:
        return f"more than {LONGEST_TEXT} characters"
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > DEEPEST_NESTING:
        return "deep nesting"
    if re.search(r"\d{300}", text):
        return "a number of more than 300 digits"
    if _exponents_too_big(text):
        return "a huge power"
    for argument in re.findall(r"(\d+|[)}])\s*!", text):
        if not argument.isdigit() or len(argument) > 5 or int(argument) > LARGEST_FACTORIAL:
            if argument.isdigit() or not re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", text)):
                return "a huge factorial"
    if re.search(r"!\s*!|!\s*[)}]+\s*!", text):
        return "a factorial of a factorial"
    if re.search(r"\\[dt]?binom|\\choose", text):
        if "^" in text or any(len(n) > 5 or int(n) > LARGEST_BINOMIAL
                              for n in re.findall(r"\d+", text)):
            return "a huge binomial"
    if re.search(r"\\(?:sum|prod|int|lim|big|iint)", text):
        if any(len(n) > 4 or int(n) > LARGEST_BOUND for n in re.findall(r"\d+", text)):
            return "a huge sum, product or integral"
    roots = re.findall(r"\\sqrt\s*\[\s*(\d+)", text)
    if any(len(n) > 3 for n in roots):
        return "a huge root"
    return None


def _exponents_too_big(text: str) -> bool:
    for power in re.finditer(r"\^|\*\*", text):
        exponent = _argument(text, power.end())
        base = text[: power.start()].rstrip()
        if "!" in exponent and not re.search(r"[a-zA-Z]", exponent):
            return True
        if len(re.findall(r"\^|\*\*", exponent)) > 1:
            return True  # a tower of three
        sizes = [float(n) if len(n) < 300 else float("inf")
                 for n in re.findall(r"\d+(?:\.\d+)?", exponent)]
        if re.search(r"\^|\*\*", exponent) and sizes:
            # a tower of two: its exponent is at least this power of its own numbers
            if not re.search(r"[a-zA-Z]", exponent) and len(sizes) > 1:
                top = sizes[-1]
                if top > 50 or max(sizes[:-1]) ** top > LARGEST_EXPONENT:
                    return True
        if any(size > LARGEST_EXPONENT for size in sizes):
            return True
        if base.endswith((")", "}", "]")) and any(s > LARGEST_POWER_OF_SUM for s in sizes):
            if re.search(r"[a-zA-Z]", base[max(0, len(base) - 60):]):
                return True
    return False


def _argument(text: str, start: int) -> str:
    """The exponent that begins at ``start``: a group in braces or brackets, or one number or sign;
    and, where another power follows, that power too (``10**10**10``)."""
    rest = text[start:].lstrip()
    if not rest:
        return ""
    if rest[0] in "{(":
        depth = end = 0
        for end, character in enumerate(rest):  # noqa: B007 - the index is what is wanted
            depth += (character in "({[") - (character in ")}]")
            if depth == 0:
                break
        end += 1
    else:
        end = re.match(r"[+-]?(?:\d+(?:\.\d+)?|\\?[a-zA-Z]+|.)", rest).end()
    after = rest[end:].lstrip()
    if after.startswith(("^", "**")):
        further = _argument(rest, len(rest) - len(after) + (1 if after[0] == "^" else 2))
        return f"{rest[:end]}^{further}"
    return rest[:end]


class Workers:
    """At most ``limit`` worker processes, started when they are needed."""

    def __init__(self, limit: int) -> None:
        self.owner = os.getpid()
        self._free: queue.LifoQueue[subprocess.Popen | None] = queue.LifoQueue()
        for _ in range(limit):
            self._free.put(None)

    def ask(self, gold: str, answer: str) -> str:
        """``1``, ``0`` or ``error: <why>``; waits for a free worker."""
        worker = self._free.get()
        try:
            if worker is None or worker.poll() is not None:
                worker = _start()
            with suppress(BrokenPipeError):
                worker.stdin.write(json.dumps([gold, answer]) + "\n")
                worker.stdin.flush()
            if not select.select([worker.stdout], [], [], WALL_SECONDS)[0]:
                worker.kill()
            line = worker.stdout.readline().strip()
            if not line:
                worker.kill()
                worker.wait()
            return line or "error: the process that compares answers was killed"
        finally:
            self._free.put(worker)

    def stop(self) -> None:
        """Kill the workers that are free."""
        with suppress(queue.Empty):
            while True:
                worker = self._free.get_nowait()
                if worker is not None and worker.poll() is None:
                    worker.kill()
                    worker.wait()


def _start() -> subprocess.Popen:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *(p for p in sys.path if p)])
    worker = subprocess.Popen(
        [sys.executable, "-c", "from paperlib.tasks.symbolic_worker import main; main()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},  # nothing of the folder's
    )
    if worker.stdout.readline().strip() != "ready":
        worker.kill()
        raise RuntimeError("the process that compares answers did not start; is math-verify there?")
    return worker


_lock = threading.Lock()
_workers: Workers | None = None


def worker_count() -> int:
    """Comparisons that can run at once: one a core this process may use, at most 16."""
    return max(1, min(16, available_cores()))


def _pool() -> Workers:
    global _workers
    with _lock:
        if _workers is None or _workers.owner != os.getpid():  # a fork must not share pipes
            _workers = Workers(worker_count())
        return _workers


@atexit.register
def _stop() -> None:
    if _workers is not None and _workers.owner == os.getpid():
        _workers.stop()
