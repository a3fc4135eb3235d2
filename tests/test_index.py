"""Verdicts: judged from intervals, kept beside their artefact, collected on one page."""

import pytest

from paperlib.errors import UserError
from paperlib.report.difference import difference
from paperlib.report.verdict import (
    FAILS,
    HOLDS,
    NO_EFFECT,
    SMALLER,
    UNTOLD,
    Claim,
    all_of,
    conclude,
    judge,
    judge_all,
)


def test_paired_t_interval_by_hand():
    found = difference("a - b", [12.0, 14.0, 16.0], [10.0, 10.0, 10.0])
    # gaps 2, 4, 6: mean 4, sd 2, t(0.975, 2) = 4.3027, half width 4.3027 * 2 / sqrt(3) = 4.968
    assert (found.mean, found.seeds) == (4.0, 3)
    assert (found.low, found.high) == pytest.approx((-0.968, 8.968), abs=1e-3)
    assert str(found) == "a - b: +4.0 points [-1.0, +9.0] (95 %, 3 seeds)"
    found = difference("a - b", [0.5, 0.6], [0.1, 0.1], unit="nats", decimals=2)
    assert str(found).startswith("a - b: +0.45 nats [")


@pytest.mark.parametrize(
    ("ours", "rival", "direction", "verdict"),
    [
        ([5.0, 5.1, 4.9], [1.0], "higher", HOLDS),  # one value stands for all seeds
        ([5.0, 5.1, 4.9], [1.0, 1.0, 1.0], "lower", FAILS),
        ([5.0, 0.0, -5.0], [0.0, 0.0, 0.0], "higher", UNTOLD),
        ([5.0, None], [1.0, 2.0], "higher", UNTOLD),  # one seed has no interval
        ([5.0, 6.0], [3.0, 4.0], "higher", UNTOLD),  # equal differences: no width, no interval
        ([None], [1.0], "higher", UNTOLD),
    ],
)
def test_judge(ours, rival, direction, verdict):
    assert judge(difference("x", ours, rival), direction) == verdict


def test_a_size_that_would_matter_is_excluded_or_not():
    found = difference("x", [1.0, 0.0, -1.0], [0.0, 0.0, 0.0])  # 0 [-2.48, +2.48]
    assert judge(found, "higher", 2.4) == judge(found, "lower", 2.4) == UNTOLD
    assert judge(found, "higher", 2.6) == judge(found, "lower", 2.6) == NO_EFFECT
    lopsided = difference("x", [0.0, -1.0, -3.0], [0.0, 0.0, 0.0])  # -1.3 [-5.1, +2.5]
    assert judge(lopsided, "higher", 3.0) == NO_EFFECT  # a gain of 3 is out of the question
    assert judge(lopsided, "lower", 3.0) == UNTOLD  # a loss is not
    above = difference("x", [1.0, 1.1, 0.9], [0.0, 0.0, 0.0])  # 1 [+0.75, +1.25]
    assert judge(above, "higher", 3.0) == judge_all([above, above], "higher", 3.0) == SMALLER
    assert judge(above, "higher", 1.2) == HOLDS and judge(above, "lower", 3.0) == FAILS
    assert all_of([HOLDS, SMALLER]) == SMALLER
    below = difference("x", [-5.0, -5.2], [0.0, 0.0])
    assert judge(below, "higher", 3.0) == FAILS  # and not merely no effect


def test_what_cannot_be_judged_is_refused():
    with pytest.raises(UserError, match="2 seeds against 3"):
        difference("x", [1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(UserError, match="cannot be told here"):
        Claim("a", "b", "maybe")


def test_conclude_writes_the_verdict_and_the_page(tmp_path):
    folder = tmp_path / "tiny" / "meds"
    folder.mkdir(parents=True)
    (folder / "fig10.png").write_bytes(b"")
    text = conclude(folder, "fig10", "Fig. 10: last", [Claim("a | b.", "it is.", HOLDS)])
    conclude(folder, "table2", "Table 2", [Claim("one.", "x", HOLDS), Claim("two.", "y", FAILS)])
    conclude(folder, "fig2", "Fig. 2: first", [Claim("c.", "d.", UNTOLD)])
    assert "**holds**: a | b. *Here:* it is." in text
    assert text == (folder / "fig10_verdict.md").read_text()
    page = (tmp_path / "tiny" / "index.md").read_text()
    assert "[Fig. 10: last](meds/fig10.png)" in page
    assert "a \\| b." in page  # a bar would end the cell
    assert page.index("Fig. 2") < page.index("Fig. 10") < page.index("Table 2")
    assert page.count("| Table 2 |") == 1 and "|  | two. | y | **does not hold** |" in page
    assert "From runs and code: 2 holds, 1 does not hold, 1 cannot be told here." in page
    assert "print against itself" not in page and "Primary" not in page
    (tmp_path / "tiny" / "primary.md").write_text("## Primary claims\n\nnone yet\n")
    beyond = tmp_path / "tiny" / "beyond"
    beyond.mkdir()
    conclude(beyond, "paper_audit", "Print", [Claim("p.", "q.", FAILS)])
    page = (tmp_path / "tiny" / "index.md").read_text()
    assert "The papers' print against itself: 1 does not hold." in page
    assert "2 holds, 1 does not hold, 1 cannot" in page  # print does not count as a run's
    assert page.index("none yet") < page.index("exploratory")


def test_a_claim_of_several_parts():
    up = difference("", [3.0, 3.1], [1.0, 1.2])
    down = difference("", [1.0, 1.2], [3.0, 3.1])
    unclear = difference("", [1.0, -1.0], [0.0, 0.0])
    assert judge_all([up, up], "higher") == judge_all([down], "lower") == HOLDS
    assert judge_all([up, unclear], "higher") == judge_all([up, None], "higher") == UNTOLD
    # one part that fails is not enough: of many parts one always does
    assert judge_all([up, unclear, down], "higher") == UNTOLD
    assert judge_all([down, down], "higher") == FAILS
    assert all_of([]) == UNTOLD
