"""Primary claims: read and checked, looked at after every three seeds, decided once."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paperlib.errors import UserError
from paperlib.experiments.store import Store
from paperlib.files import read_json
from paperlib.report import primary
from paperlib.report.primary import Primary, decide, look, primary_claims
from paperlib.report.verdict import FAILS, HOLDS, NO_EFFECT, UNTOLD

CLAIM = Primary("MEDS over DAPO", "meds", "beats", "MEDS", "DAPO", "pass@1", "higher", (1.0,), 3.0)


def test_the_claims_are_the_papers_own():
    claims = primary_claims()
    assert 8 <= len(claims) <= primary.AT_MOST
    assert {claim.paper for claim in claims} == {"memory_r", "meds"}
    assert all(claim.margin >= min(3.0, *map(abs, claim.printed or [3.0])) for claim in claims)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"paper": "dapo"}, "paper.*memory_r, meds"),
        ({"method": "PPO"}, "method.*GRPO, DAPO, GRPO w/ Entropy Adv, MEDS"),
        ({"rival": "Base"}, "rival"),
        ({"read_out": "pass@7"}, "read_out.*pass@1, pass@8"),
        ({"direction": "better"}, "direction.*higher, lower"),
        ({"margin": 0.0}, "margin is 0.0; it must be above 0"),
        ({"margin": "3"}, "margin is '3'"),
    ],
)
def test_a_claim_that_cannot_be_decided_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        replace(CLAIM, **change)


def test_a_bad_file_is_refused(tmp_path):
    path = tmp_path / "claims.toml"
    row = "[[claims]]\n" + "\n".join(
        f"{key} = {list(value) if isinstance(value, tuple) else value!r}"
        for key, value in vars(CLAIM).items()
    ) + "\n"
    for text, message in (
        ("nothing = 1", "no file of"), ("[[claims", "no file of"), ("[[claims]]\nname = 'x'",
        "claim 1: direction, margin.*missing or unknown"), (row + "typo = 1", "typo"),
        (row * 2, "each with its name"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            primary_claims(path)
    path.write_text(row)
    assert primary_claims(path) == [CLAIM]


def frame(seeds, gap, sd=2.0, rng=None):
    rng = rng or np.random.default_rng(0)
    return pd.DataFrame([
        {"method": method, "seed": seed, "pass@1": 60 + shift + rng.normal(0, sd / np.sqrt(2))}
        for seed in range(seeds) for method, shift in (("DAPO", 0), ("MEDS", gap), ("GRPO", -5))
    ])  # fmt: skip


def test_a_claim_is_looked_at_every_three_seeds_and_decided_once():
    assert (look(CLAIM, frame(2, 5), 0.99).seeds, look(CLAIM, frame(2, 5), 0.99).open) == (0, True)
    won = look(CLAIM, frame(18, 20), 0.999)
    assert (won.verdict, won.seeds, won.open) == (HOLDS, 3, False)
    assert look(CLAIM, frame(18, -20), 0.999).verdict == FAILS
    null = look(CLAIM, frame(18, 0), 0.999)
    assert null.verdict == NO_EFFECT and 3 < null.seeds <= 18 and null.found.high < 3
    # seeds that came later do not change what a look saw
    assert look(CLAIM, frame(17, 0), 0.999) == look(CLAIM, frame(15, 0), 0.999)
    noisy = look(CLAIM, frame(18, 0, sd=20), 0.999)
    assert (noisy.verdict, noisy.seeds, noisy.open) == (UNTOLD, 18, False)


def test_all_looks_together_err_as_rarely_as_they_promise():
    """Truth 0: the claimed side or the other is believed in at most 5 % of claims at a level of
    1 - 0.05 / 6 a look."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(60):
        wrong += look(replace(CLAIM, margin=0.01), frame(18, 0, rng=rng), 1 - 0.05 / 6).verdict in (
            HOLDS, FAILS)
    assert wrong / 60 < 0.05


def test_decide_adds_rounds_until_all_is_decided(tmp_path, monkeypatch):
    """With made-up runs: rounds of three seeds of all methods of an open paper, none of a decided
    one; a page and an index after each; called again it trains nothing."""
    trained: list[tuple[str, str, int]] = []
    rng = np.random.default_rng(0)
    values: dict[tuple[str, str, int], float] = {}

    def grid(configs, evaluations, store, **how):
        for c in configs:
            key = (c.paper, c.method, c.seed)
            if key not in values:
                trained.append(key)
                shift = {"R1": -20, "DAPO": 0.5}.get(c.method, 0)
                values[key] = 60 + shift + rng.normal(0, 1.5)

    def measure_frame(runs, settings):
        keys = [(m, r.config.paper, r.config.seed) for m, of in runs.items() for r in of]
        return pd.DataFrame([{"method": m, "seed": s, "pass@1": values[p, m, s]}
                             for m, p, s in keys if (p, m, s) in values])  # fmt: skip

    monkeypatch.setattr(primary, "grid", grid)
    monkeypatch.setattr(primary, "measure_frame", measure_frame)
    easy = replace(CLAIM, name="easy", paper="memory_r", method="Memory-R+", rival="R1")
    claims, store = [CLAIM, easy], Store(tmp_path / "runs")
    assert all(one.seeds == 0 for one in decide(store, tmp_path, "smoke", most=0, claims=claims))
    assert not trained and "| – | 0 |" in (tmp_path / "primary.md").read_text()
    looks = decide(store, tmp_path, "smoke", claims=claims)
    assert looks[1].verdict == HOLDS and looks[1].seeds == 3
    assert looks[0].verdict in (NO_EFFECT, UNTOLD) and looks[0].seeds > 3
    assert sum(paper == "memory_r" for paper, *_ in trained) == 6  # one round of two methods
    assert sum(paper == "meds" for paper, *_ in trained) == 2 * looks[0].seeds
    page = (tmp_path / "primary.md").read_text()
    assert "**easy**: beats" in page and f"| {looks[0].seeds} |" in page
    assert read_json(tmp_path / "primary.json")[1]["verdict"] == HOLDS
    assert "easy" in (tmp_path / "index.md").read_text()
    before = len(trained)
    assert decide(store, tmp_path, "smoke", claims=claims) == looks and len(trained) == before
