"""Text rewards of the released code of arXiv 2504.02273, kept apart because they are history.

They differ from the plain readings in :mod:`paperlib.methods.baselines`: without a tag the whole
completion is the answer, so nothing stops a policy from answering with digits only; correct means
equal as a string, so "1,000" and "29.0" are wrong where the gold is "1000" and "29".
"""

import re

from paperlib.tasks.grading import strict_answer

# . stops at line ends, so reasoning of several lines never matches
_SOFT = re.compile(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>")
_STRICT = re.compile(r"<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$")


def reasoning_text(completion: str) -> str:
    """The reasoning, which the released memories store; without a tag the whole completion."""
    after = completion.rpartition("<reasoning>")[2]
    return after.partition("</reasoning>")[0].strip()


def integer(completion: str) -> float:
    """0.5 if the answer text consists of digits (no sign, no separator), else 0.0."""
    return 0.5 if strict_answer(completion).isdigit() else 0.0


def xmlcount(completion: str) -> float:
    """0.125 for each of four tags that stands exactly once, less 0.001 a character of tail; at most
    0.501, since nothing at all after ``</answer>`` earns a thousandth."""
    reward = 0.125 * (completion.count("<reasoning>\n") == 1)
    reward += 0.125 * (completion.count("\n</reasoning>\n") == 1)
    if completion.count("\n<answer>\n") == 1:
        # rpartition gives the whole text where the separator is absent, as in a completion that
        # stops right after the tag
        reward += 0.125 - 0.001 * len(completion.rpartition("\n</answer>\n")[2])
    if completion.count("\n</answer>") == 1:
        reward += 0.125 - 0.001 * (len(completion.rpartition("\n</answer>")[2]) - 1)
    return reward


def soft_format(completion: str) -> float:
    """0.5 if the completion begins with both sections, each within one line, else 0.0."""
    return 0.5 if _SOFT.match(completion) else 0.0


def strict_format(completion: str) -> float:
    """0.5 if every tag has its own line and each section is one line, final newline included."""
    return 0.5 if _STRICT.match(completion) else 0.0
