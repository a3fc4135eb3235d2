"""A process that does symbolic mathematics with math-verify, and can be killed at any moment.

It reads a JSON line ``[gold, answer]`` and answers ``1``, ``0`` or ``error: ...``. Each request may
take :data:`CPU_SECONDS` of processor time. The kernel ends the process then, even inside one long
operation on big integers, where no Python signal handler or thread would ever get a turn; and
processor time, unlike time on the wall, is not used up by what else runs on the machine. Loading
sympy takes a second, so it is a child that serves, and a dead child is replaced by another fork.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

from paperlib.tasks.equality import RELATIVE_TOLERANCE

CPU_SECONDS = 1.5
MEMORY_BYTES = 3 * 2**30
EXACT_TOLERANCE = 1e-25  # of exact values, evaluated to DIGITS digits
DIGITS = 40

# What LaTeX allows and the parser does not know.
_REWRITES = [(re.compile(pattern), new) for pattern, new in (
    (r"\\(sin|cos|tan|cot|sec|csc|ln|log)\s*\^\s*\{?\s*(\d+)\s*\}?\s*(\\?[a-zA-Z]+)(?![\w(])",
     r"\\\1^{\2}(\3)"),  # \sin^2 t
    (r"\^\s*(\\frac\s*\{[^{}]*\}\s*\{[^{}]*\})", r"^{\1}"),
    (r"\s*([-+=<>*/])\s*", r"\1"),  # "a + b + c"
)]  # fmt: skip
# Compared once before the first request: the parser's tables are filled as it meets a grammar rule.
_EXAMPLES = (
    (r"\frac{a^2}{3}", r"\frac{a^2}{4}"), (r"2\sqrt{3}+\pi", r"\sqrt[3]{2}\cdot 5"),
    (r"y = 2x + 3", r"3x-2y=5"), (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\log_2(x)+e^{-t}"),
)


def main() -> None:
    """Answer requests until stdin ends."""
    with suppress(ValueError, OSError):  # a system without this limit has the time limit still
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.stdout = sys.stderr  # what a library prints is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the timer below ends the process
    for gold, answer in _EXAMPLES:
        same(gold, answer)
    _say("ready")
    while (child := os.fork()) != 0:
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        _say("error: it took too long or too much memory")
    _serve()
    os._exit(0)


def _serve() -> None:
    while line := _read_line():
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            verdict = str(int(same(*json.loads(line))))
        except Exception as error:  # noqa: BLE001 - anything a library may raise on model text
            verdict = f"error: {type(error).__name__}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(verdict)


def _read_line() -> bytes:
    """One request. Unbuffered: what a dead child had read would be lost to the next one."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 65536)
        if not more:
            return b""
        line += more
    return line


def _say(text: str) -> None:
    """Straight to the pipe; nothing is left in a buffer when the process is killed."""
    os.write(1, text.encode() + b"\n")


def same(gold: str, answer: str) -> bool:
    """Whether two cleaned LaTeX expressions are equal; False if one cannot be parsed."""
    from math_verify import verify

    mine, theirs = _parse(gold), _parse(answer)
    if mine is None or theirs is None:
        return False
    numbers = _evaluate(mine), _evaluate(theirs)
    if None not in numbers:  # math-verify would call all numbers below 1e-6 equal
        decimal = any("." in text for text in (gold, answer))
        return _close(*numbers, RELATIVE_TOLERANCE if decimal else EXACT_TOLERANCE)
    if _differ_at_a_point(mine, theirs):
        return False
    if (numbers[0] is None) != (numbers[1] is None):  # perhaps an identity: sin^2 + cos^2 is 1
        return _difference_is_zero(mine, theirs)
    return bool(verify(mine, theirs, timeout_seconds=None))


def _differ_at_a_point(one: Any, other: Any) -> bool:
    """Whether two expressions have different values at a point: much cheaper than simplifying."""
    from sympy import Expr, Rational

    if not (isinstance(one, Expr) and isinstance(other, Expr)):
        return False
    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    point = {symbol: Rational(7 + 4 * i, 5 + i) for i, symbol in enumerate(symbols)}
    try:
        values = _evaluate(one.subs(point)), _evaluate(other.subs(point))
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return False
    return None not in values and not _close(*values, RELATIVE_TOLERANCE)


def _difference_is_zero(one: Any, other: Any) -> bool:
    from sympy import Expr, simplify

    return isinstance(one, Expr) and isinstance(other, Expr) and simplify(one - other) == 0


def _parse(text: str) -> Any:
    from math_verify import LatexExtractionConfig, parse

    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    config = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
    found = parse(f"\\boxed{{{text}}}", [config], parsing_timeout=None)
    return found[0] if found and not isinstance(found[0], str) else None


def _evaluate(expression: Any) -> Any:
    """A number of DIGITS digits, or None if the expression is none."""
    from sympy import Expr

    if not isinstance(expression, Expr) or expression.free_symbols:
        return None
    try:
        value = expression.doit().evalf(DIGITS)
        return value if value.is_number and value.is_finite else None
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return None


def _close(gold: Any, answer: Any, tolerance: float) -> bool:
    if gold == 0:
        return bool(abs(answer) <= EXACT_TOLERANCE)
    return bool(abs(gold - answer) <= tolerance * abs(gold))
