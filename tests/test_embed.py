import io
import json
import runpy
import subprocess
import tarfile

import pytest

from paperlib.environment import ROOT

EMBED = runpy.run_path(str(ROOT / ".ci" / "embed.py"))


def test_tables_are_filled_into_markdown_cells_alone(tmp_path):
    (tmp_path / "t.md").write_text("## Title\n\n| a |\n")
    (tmp_path / "notebooks" / "meds").mkdir(parents=True)
    text = "before\n<!-- artefact: t.md -->\nold\n<!-- end -->\nafter"
    new = "before\n<!-- artefact: t.md -->\n\n#### Title\n\n| a |\n\n<!-- end -->\nafter"
    (tmp_path / "README.md").write_text(text)
    cells = [{"cell_type": kind, "source": [text]} for kind in ("markdown", "code")]
    path = tmp_path / "notebooks" / "meds" / "n.ipynb"
    path.write_text(json.dumps({"cells": cells}, indent=1))
    assert EMBED["embed_all"](tmp_path) == [tmp_path / "README.md", path]
    assert (tmp_path / "README.md").read_text() == new
    markdown, code = json.loads(path.read_text())["cells"]
    assert "".join(markdown["source"]) == new and code["source"] == [text]
    assert EMBED["embed_all"](tmp_path) == []


def test_committed_notebooks_show_the_committed_artefacts(tmp_path):
    # what is committed, not the working tree: whoever reproduces a table has another one there
    names = ["README.md", "notebooks", "figures/tiny"]
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", "HEAD", *names], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("not a git clone")
    tarfile.open(fileobj=io.BytesIO(archive.stdout)).extractall(tmp_path, filter="data")
    assert EMBED["embed_all"](tmp_path) == [], "run `python .ci/embed.py` and commit"
