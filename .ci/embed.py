"""Fill the committed tables into notebooks and READMEs, so that a reader on the web sees results.

A Markdown text names an artefact between two comments; what stands there is replaced by the file:

    <!-- artefact: figures/tiny/meds/table1.md -->
    ...
    <!-- end -->
"""

import json
import re
from pathlib import Path

from paperlib.environment import ROOT
from paperlib.files import write_text_atomic

_BLOCK = re.compile(r"(<!-- artefact: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def embed(text: str, root: Path) -> str:
    """The text with every named artefact filled in."""

    def fill(match: re.Match[str]) -> str:
        body = (root / match[2]).read_text(encoding="utf-8").strip()
        # headings small enough for any surroundings
        return f"{match[1]}\n{re.sub(r'^#+ ', '#### ', body, flags=re.M)}\n\n{match[3]}"

    return _BLOCK.sub(fill, text)


def embed_all(root: Path) -> list[Path]:
    """Fill in the READMEs and the Markdown cells of all notebooks; those that changed."""
    changed = []
    paths = [*root.glob("README.md"), *root.glob("notebooks/README.md")]
    for path in [*paths, *sorted(root.glob("notebooks/*/*.ipynb"))]:
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
            changed.append(path)
    return changed


if __name__ == "__main__":
    for path in embed_all(ROOT):
        print(path.relative_to(ROOT))
