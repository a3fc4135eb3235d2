"""Text of others in Markdown that shows exactly that text."""

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|$~])")


def escape_markdown(text: str) -> str:
    """One line of Markdown that shows exactly ``text``; also inside a table cell."""
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", line)


def fenced(text: str, language: str = "") -> str:
    """A code block of ``text``, whatever fences it holds itself."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
