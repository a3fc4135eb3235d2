import pytest

from paperlib.errors import UserError
from paperlib.report.verdict import difference


def test_paired_t_interval_by_hand():
    found = difference("a - b", [12.0, 14.0, 16.0], [10.0, 10.0, 10.0])
    # gaps 2, 4, 6: mean 4, sd 2, t(0.975, 2) = 4.3027, half width 4.3027 * 2 / sqrt(3) = 4.968
    assert (found.mean, found.seeds) == (4.0, 3)
    assert (found.low, found.high) == pytest.approx((-0.968, 8.968), abs=1e-3)
    assert found.verdict == "cannot be told"
    assert str(found) == "a - b: +4.0 points [-1.0, +9.0] (95 %, 3 seeds)"


def test_verdicts_and_missing_seeds():
    assert difference("x", [20.0, 21.0, 22.0], [1.0]).verdict == "higher"
    assert difference("x", [1.0, 2.0, 3.0], [20.0]).verdict == "lower"
    assert difference("x", [5.0, None], [1.0, 2.0]).low is None
    assert difference("x", [None], [1.0]) is None
    with pytest.raises(UserError, match="2 seeds against 3"):
        difference("x", [1.0, 2.0], [1.0, 2.0, 3.0])
