"""Committed tables inside notebooks and READMEs, so that a reader on the web sees results.

A Markdown text names an artefact between two comments; what stands there is replaced by the file:

    <!-- artefact: figures/tiny/meds/table1.md -->
    ...
    <!-- end -->
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from paperlib.errors import UserError
from paperlib.files import write_text_atomic

_BLOCK = re.compile(r"(<!-- artefact: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def embed(text: str, root: Path) -> str:
    """The text with every named artefact filled in. Raises UserError if one does not exist."""

    def fill(match: re.Match[str]) -> str:
        path = root / match[2]
        if not path.is_file():
            raise UserError(f"artefact {match[2]} does not exist; make it first")
        # without blank lines at the ends, and headings small enough for any surroundings
        body = re.sub(r"^#+ ", "#### ", path.read_text(encoding="utf-8").strip(), flags=re.M)
        return f"{match[1]}\n{body}\n\n{match[3]}"

    return _BLOCK.sub(fill, text)


def embed_file(path: Path, root: Path) -> bool:
    """Fill in a Markdown file or the Markdown cells of a notebook; True if it changed."""
    old = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        notebook = json.loads(old)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = embed("".join(cell["source"]), root).splitlines(keepends=True)
        new = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    else:
        new = embed(old, root)
    if new != old:
        write_text_atomic(path, new)
    return new != old


def embed_all(root: Path) -> list[Path]:
    """All notebooks and READMEs of the repository; those that changed."""
    paths = [root / "README.md", root / "notebooks" / "README.md"]
    paths += sorted((root / "notebooks").glob("*/*.ipynb"))
    return [path for path in paths if path.exists() and embed_file(path, root)]
