import io
import json
import runpy
import subprocess
import tarfile

import pytest

from paperlib.environment import ROOT

EMBED = runpy.run_path(str(ROOT / ".ci" / "embed.py"))


def test_committed_notebooks_show_the_committed_artefacts_and_others_are_filled_in(tmp_path):
    # what is committed, not the working tree: whoever reproduces a table has another one there
    names = ["README.md", "notebooks", "figures/tiny"]
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", "HEAD", *names], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("not a git clone")
    tarfile.open(fileobj=io.BytesIO(archive.stdout)).extractall(tmp_path, filter="data")
    assert EMBED["embed_all"](tmp_path) == [], "run `python .ci/embed.py` and commit"
    (tmp_path / "t.md").write_text("## Title\n\n| a |\n")
    old, path = "<!-- artefact: t.md -->\nold\n<!-- end -->", tmp_path / "notebooks/meds/n.ipynb"
    cells = [{"cell_type": kind, "source": [old]} for kind in ("markdown", "code")]
    path.write_text(json.dumps({"cells": cells}))
    assert EMBED["embed_all"](tmp_path) == [path]
    markdown, code = json.loads(path.read_text())["cells"]
    assert code["source"] == [old]  # headings are made small
    new = "<!-- artefact: t.md -->\n\n#### Title\n\n| a |\n\n<!-- end -->"
    assert "".join(markdown["source"]) == new
