"""What counts as a phrase of self-verification, what does not, and how sure a share is."""

import pytest

from paperlib.evaluation.self_verification import (
    PHRASES,
    count_self_verifying,
    self_verification_phrases,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("6*3=18\nLet me check: 18-6=12\n", ["let me check"]),  # the tiny world's
        ("Hmm. Let\u2019s  re-evaluate\nthis.", ["let's re-evaluate"]),
        ("LET'S REEVALUATE", ["let's reevaluate"]),
        ("let's consider an\nalternative approach.", ["let's consider an alternative approach"]),
        ("Let me double check. To verify, add.", ["let me double check", "to verify"]),
        ("let me double-check", ["let me double-check"]),  # not also "check"
        ("Let us verify; let us verify", ["let us verify"] * 2),
        ("let me checkmate him", []),
        ("she outlet's check", []),
        ("a let-me check", []),
        ("the shop lets us check", []),
        ("Check. Verify.", []),
        ("", []),
    ],
)
def test_whole_phrases(text, found):
    assert self_verification_phrases(text) == found


def test_every_phrase_of_the_list_finds_itself_whole_and_once():
    assert len(set(PHRASES)) == len(PHRASES)
    for phrase in PHRASES:
        assert self_verification_phrases(f"So, {phrase.upper()}: 1") == [phrase]


def test_a_response_counts_once():
    texts = ["let me check, let me check", "on second thought, let's verify", "no", ""]
    assert count_self_verifying(texts) == 2
    assert count_self_verifying([]) == 0


def test_wilson_interval_of_the_papers_counts():
    """Against the formula by hand, with z = 1.95996: centre (p + z2/2n) / (1 + z2/n)."""
    assert wilson_interval(26, 100) == pytest.approx((0.1840, 0.3537), abs=1e-4)
    assert wilson_interval(6, 100) == pytest.approx((0.0278, 0.1248), abs=1e-4)
    low, high = wilson_interval(0, 100)
    assert low == 0 and high == pytest.approx(0.0370, abs=1e-4)
