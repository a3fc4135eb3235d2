"""What a question and its gold answer are, wherever they come from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One row of any data set; ``answer`` is the gold answer as text."""

    id: str
    question: str
    answer: str
    level: int | str | None = None
    subject: str | None = None
