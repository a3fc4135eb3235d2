"""FAULTS.md names tests that are there."""

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_row_of_faults_md_names_a_test_that_there_is():
    rows = [line for line in (TESTS / "FAULTS.md").read_text("utf-8").splitlines()
            if line.count(" | ") == 3 and "---" not in line and "| test |" not in line]  # fmt: skip
    assert len(rows) > 30
    for row in rows:
        if row.split(" | ")[-1].startswith("none"):  # said to be untested, or tried by hand
            assert re.search("untested|not tested|by hand", row), row
            continue
        names, file = re.findall(r"`((?:test_\w+\.py)?::\w+)[^`]*`", row.split(" | ")[-1]), ""
        assert names, f"no test in: {row}"
        for name in names:
            file = name.partition("::")[0] or file  # `::test_x` is of the file named before
            assert f"def {name.partition('::')[2]}(" in (TESTS / file).read_text("utf-8"), name
