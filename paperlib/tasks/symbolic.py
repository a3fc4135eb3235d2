"""Symbolic equality of two answers with math-verify's parser and sympy, in processes that may die.

A completion may say ``10^{10^{10}}``. Evaluating that takes all memory and hangs the interpreter,
with the lock held that a thread or a signal handler would need. So worker processes compare, and
the kernel ends one that takes more than :data:`CPU_SECONDS` of processor time (time on the wall is
also used up by what else runs). Any thread may ask; no signal or timer of the caller's is touched.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from typing import Any

CPU_SECONDS = 1.5
MEMORY_BYTES = 3 * 2**30
LARGEST = 10**20_000  # of what is computed on the way to a value
# What is read as mathematics: a text with another command, or with words, only equals itself.
_KNOWN = set(
    "frac binom sqrt sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp pi "
    "infty cdot times div pm cup cap setminus emptyset mathbb le ge ne in lfloor rfloor lceil "
    "rceil begin end max min sum prod int circ alpha beta gamma delta epsilon varepsilon zeta eta "
    "theta kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega hbar ell Delta Omega Gamma "
    "Phi".split()
)
_WORDS = re.compile(
    r"^\d?\d:\d\d\b|'|\d\s+\d|(?<![\\a-zA-Z{])[a-zA-Z]{4,}|!\s*!|[;@#$]|(?:[({]\s*){10}"
)
_EVALUATED_BY_THE_PARSER = re.compile(r"\\(?:binom|Gamma|max|min).*(?:\d{5}|[\^!])", re.DOTALL)

failures: Counter[str] = Counter()  # verdicts that are "wrong" for a technical reason, by reason


def equivalent(gold: str, answer: str) -> bool:
    """Whether two cleaned LaTeX expressions are mathematically equal, as far as can be told.

    What is too big, takes too long, or breaks the library is not equal; it is counted in
    :data:`failures` and said once.
    """
    verdict = _verdict(gold, answer)
    if verdict in ("1", "0"):
        return verdict == "1"
    failures[verdict] += 1
    if failures[verdict] == 1:
        warnings.warn(
            f"an answer counts as wrong because it could not be compared ({verdict}): "
            f"{answer[:80]!r}; further ones are only counted", RuntimeWarning, stacklevel=2,
        )
    return False


@lru_cache(100_000)
def _verdict(gold: str, answer: str) -> str:
    for text in (gold, answer):
        if _WORDS.search(text) or not _KNOWN.issuperset(re.findall(r"\\([a-zA-Z]+)", text)):
            return "0"
    return _ask(gold, answer)


def close(gold: Any, answer: Any, rounded: bool) -> bool:
    """Two numbers: equal, or, where one may be rounded, to six digits."""
    return bool(gold == answer or rounded and abs(gold - answer) <= 1e-6 * abs(gold))


def same(gold: str, answer: str) -> bool:
    """Whether two cleaned LaTeX expressions are equal; False if one cannot be parsed."""
    from sympy import Expr, MatrixBase, Set
    from sympy.logic.boolalg import Boolean

    one, other = _parse(gold), _parse(answer)
    if isinstance(one, Boolean) and isinstance(other, Boolean):
        return _relations_equal(one, other)
    if isinstance(one, Boolean | Set) and isinstance(other, Boolean | Set):
        one, other = (x.as_set() if isinstance(x, Boolean) else x for x in (one, other))
        return one == other or one.symmetric_difference(other).is_empty is True
    if isinstance(one, MatrixBase) and isinstance(other, MatrixBase):
        return one.shape == other.shape and all(map(_equal, one.flat(), other.flat()))
    decimal = "." in gold + answer
    return isinstance(one, Expr) and isinstance(other, Expr) and _equal(one, other, decimal)


def _parse(text: str) -> Any:
    """A sympy object with exact numbers in place of decimals, or None.

    Raises:
        OverflowError: a value that must not be evaluated; inner ones are looked at first.
    """
    import sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

    if _EVALUATED_BY_THE_PARSER.search(text):
        raise OverflowError("a huge number")
    text = text.replace(r"\gamma", r"\upsilon")  # which is no function to the parser
    config = ConversionConfig(lowercase_symbols=False)
    try:
        found = latex2sympy(text, None, True, True, None, config)  # real symbols, degrees
    except Exception:  # noqa: BLE001 - whatever a parser raises on model text
        return None
    if not isinstance(found, sympy.Basic):
        return found
    for part in sympy.postorder_traversal(found):
        huge = False
        if isinstance(part, sympy.Sum | sympy.Product):
            huge = any(abs(end) > 100 for _, *ends in part.limits for end in ends if end.is_number)
        elif isinstance(part, sympy.Pow | sympy.exp | sympy.factorial) and part.is_number:
            size = abs(part.evalf(3)) if abs(part.args[-1]) > 1 else 0
            huge = size != 0 and max(size, 1 / size) > LARGEST
        if huge:
            raise OverflowError("a huge number")
    exact = {number: sympy.Rational(str(number)) for number in found.atoms(sympy.Float)}
    return found.xreplace({**exact, sympy.Symbol("i", real=True): sympy.I})


def _relations_equal(one: Any, other: Any) -> bool:
    """Equations up to a factor; inequalities up to a positive one, or by their solutions."""
    from sympy import Eq, Ge, Gt, Ne, simplify

    one, other = (r.reversed if isinstance(r, Ge | Gt) else r for r in (one, other))
    if type(one) is type(other) and hasattr(one, "lhs"):
        with suppress(TypeError):  # sides that are sets or tuples
            ratio = simplify((one.lhs - one.rhs) / (other.lhs - other.rhs))
            if ratio.is_number and ratio.is_finite and ratio != 0:
                return isinstance(one, Eq | Ne) or bool(ratio > 0)
    if isinstance(one, Eq) or isinstance(other, Eq) or len(one.free_symbols) != 1:
        return False
    return one.free_symbols == other.free_symbols and one.as_set() == other.as_set()


def _equal(one: Any, other: Any, decimal: bool = False) -> bool:
    """Two expressions: rational numbers exactly, others by many digits and then by a proof."""
    import sympy

    difference = (one - other).doit()
    if difference.has(sympy.nan, sympy.zoo, sympy.oo):
        return bool(one == other)
    if decimal and difference != 0 and difference.is_number and difference.is_real:
        return close(one.evalf(20), other.evalf(20), not one.is_integer)
    if difference.is_Rational:
        return difference == 0
    symbols = sorted(difference.free_symbols, key=str)
    point = {symbol: sympy.Rational(7 + 4 * i, 5 + i) for i, symbol in enumerate(symbols)}
    if not abs(difference.evalf(20, subs=point, maxn=100)) < sympy.Float("1e-15"):
        return False
    return sympy.simplify(difference) == 0 or difference.equals(0) is True


def serve() -> None:
    """A worker: reads JSON lines ``[gold, answer]``, answers ``1``, ``0`` or why it cannot tell."""
    with suppress(ValueError, OSError):  # a system without this limit has the time limit still
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    verdicts, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no verdict
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the timer below ends the process
    same("1", "x")  # loads sympy before the clock runs
    print("ready", file=verdicts, flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            verdict = str(int(same(*json.loads(line))))
        except Exception as error:  # noqa: BLE001 - anything a library may raise on model text
            verdict = str(error) if isinstance(error, OverflowError) else type(error).__name__
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(verdict, file=verdicts, flush=True)


_free: list[subprocess.Popen] = []  # workers that wait for a question
os.register_at_fork(after_in_child=_free.clear)  # a fork must not share pipes


def _ask(gold: str, answer: str) -> str:
    worker = None
    with suppress(IndexError):
        worker = _free.pop()
    if worker is None or worker.poll() is not None:
        worker = _start()
    with suppress(BrokenPipeError):
        worker.stdin.write(json.dumps([gold, answer]) + "\n")
        worker.stdin.flush()
    verdict = worker.stdout.readline().strip()
    if verdict:
        _free.append(worker)
    else:
        worker.wait()
    return verdict or "it took too long or too much memory"


def _start() -> subprocess.Popen:
    """A new worker. It ends when its input does, which is when this process ends."""
    worker = subprocess.Popen(
        [sys.executable, "-P", __file__],  # without the caller's __main__ or its folder's modules
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    if worker.stdout.readline().strip() != "ready":
        worker.kill()
        raise RuntimeError("the process that compares answers did not start; is math-verify there?")
    return worker


if __name__ == "__main__":
    serve()
