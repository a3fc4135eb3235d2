import io
import json
import subprocess
import tarfile

import pytest

from paperlib.environment import ROOT
from paperlib.errors import UserError
from paperlib.report.embed import embed, embed_all, embed_file


def test_embed_replaces_what_stands_between_the_comments(tmp_path):
    (tmp_path / "t.md").write_text("## Title\n\n| a |\n")
    text = "before\n<!-- artefact: t.md -->\nold\n<!-- end -->\nafter"
    new = "before\n<!-- artefact: t.md -->\n\n#### Title\n\n| a |\n\n<!-- end -->\nafter"
    assert embed(text, tmp_path) == new == embed(new, tmp_path)
    with pytest.raises(UserError, match="nothing.md does not exist"):
        embed("<!-- artefact: nothing.md -->\n<!-- end -->", tmp_path)


def test_only_markdown_cells_of_a_notebook_change(tmp_path):
    (tmp_path / "t.md").write_text("table")
    source = "<!-- artefact: t.md -->\n<!-- end -->"
    cells = [{"cell_type": kind, "source": [source]} for kind in ("markdown", "code")]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": cells}, indent=1))
    assert embed_file(path, tmp_path)
    markdown, code = json.loads(path.read_text())["cells"]
    assert "table" in "".join(markdown["source"]) and code["source"] == [source]
    assert not embed_file(path, tmp_path)


def test_committed_notebooks_show_the_committed_artefacts(tmp_path):
    # what is committed, not the working tree: whoever reproduces a table has another one there
    names = ["README.md", "notebooks", "figures/tiny"]
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", "HEAD", *names], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("not a git clone")
    tarfile.open(fileobj=io.BytesIO(archive.stdout)).extractall(tmp_path, filter="data")
    assert embed_all(tmp_path) == [], "run `python -m paperlib embed` and commit"


def test_readme_glossary_is_the_loops():
    from paperlib.rl.logs import GLOSSARY

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` | {meaning} |" in readme for name, meaning in GLOSSARY.items())
