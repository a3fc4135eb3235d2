"""``make decide``: the primary claims (claims.toml), seed by seed until each is decided.

A look comes after every :data:`ROUND` seeds, the last after :data:`MOST`. Each claim has one
interval a look: paired by seed, with the spread of its paper's methods, at a level that leaves 5 %
for *all* claims and looks together (Bonferroni). It is decided at the first look where
:func:`paperlib.report.verdict.judge` says anything but "cannot be told". A round trains all methods
of a paper that has an open claim, so that what a look sees follows from its seeds alone.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from paperlib.errors import UserError, check_choice
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.grid import grid
from paperlib.experiments.recipes import METHODS, eval_settings, recipe
from paperlib.experiments.store import Store
from paperlib.files import write_json_atomic, write_text_atomic
from paperlib.report.difference import Difference
from paperlib.report.paired import family_spread, gap, measure_frame
from paperlib.report.verdict import UNTOLD, judge, write_index

CLAIMS = Path(__file__).with_name("claims.toml")
READ_OUTS = ("pass@1", "pass@8", "TF-IDF diversity", "path diversity", "same answer")
ROUND, MOST, ERROR, AT_MOST = 3, 18, 0.05, 12  # seeds, seeds, of all together, claims


@dataclass(frozen=True)
class Primary:
    """A primary claim: ``method`` against ``rival`` in ``read_out``, in points."""

    name: str
    paper: str
    words: str  # the paper's
    method: str
    rival: str
    read_out: str
    direction: str
    printed: tuple[float, ...]  # the paper's gaps, one a model
    margin: float  # the smallest effect that would matter

    def __post_init__(self) -> None:
        check_choice(f"{self.name}: paper", self.paper, METHODS)
        for which in ("method", "rival"):
            check_choice(f"{self.name}: {which}", getattr(self, which), METHODS[self.paper][1:])
        check_choice(f"{self.name}: read_out", self.read_out, READ_OUTS)
        check_choice(f"{self.name}: direction", self.direction, ("higher", "lower"))
        if not isinstance(self.margin, float | int) or not self.margin > 0:
            raise UserError(f"{self.name}: margin is {self.margin!r}; it must be above 0 points")


def primary_claims(path: Path = CLAIMS) -> list[Primary]:
    """The claims of a file, checked."""
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8"))["claims"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise UserError(f"{path} is no file of [[claims]]: {error}") from error
    names = {item.name for item in fields(Primary)}
    for number, row in enumerate(rows, start=1):
        if row.keys() != names:
            odd = ", ".join(sorted(row.keys() ^ names))
            raise UserError(f"{path}, claim {number}: {odd} missing or unknown; valid: "
                            f"{', '.join(sorted(names))}")  # fmt: skip
    claims = [Primary(**{**row, "printed": tuple(row["printed"])}) for row in rows]
    if len(claims) > AT_MOST or len({claim.name for claim in claims}) < len(claims):
        raise UserError(f"{path} has {len(claims)} claims; at most {AT_MOST}, each with its name")
    return claims


@dataclass(frozen=True)
class Look:
    """What is known of a claim: its last look, and whether the next one has its runs."""

    claim: Primary
    found: Difference | None  # None before the first look
    verdict: str
    seeds: int  # at that look

    @property
    def open(self) -> bool:
        return self.verdict == UNTOLD and self.seeds < MOST


def look(claim: Primary, frame: pd.DataFrame, level: float) -> Look:
    """The first look that decides a claim, else the last for which ``frame``, of all methods of its
    paper (:func:`paperlib.report.paired.measure_frame`), has the seeds."""
    last = Look(claim, None, UNTOLD, 0)
    for seeds in range(ROUND, MOST + 1, ROUND):
        part = frame[frame["seed"] < seeds]
        counts = part.groupby("method")["seed"].nunique()
        if len(counts) < 2 or (counts < seeds).any():
            return last
        spread = family_spread(part, claim.read_out)
        found = gap(part, claim.method, claim.rival, claim.read_out, spread=spread, level=level)
        last = Look(claim, found, judge(found, claim.direction, claim.margin), seeds)
        if last.verdict != UNTOLD:
            return last
    return last


def family(claims: Sequence[Primary], paper: str) -> list[str]:
    """The methods that a paper's claims name, in its own order."""
    named = {m for claim in claims if claim.paper == paper for m in (claim.method, claim.rival)}
    return [method for method in METHODS[paper] if method in named]


def decide(
    store: Store, folder: Path, profile: str = "tiny", *, most: int = MOST,
    claims: Sequence[Primary] | None = None, **how: Any,
) -> list[Look]:
    """Train and evaluate rounds of seeds until every claim is decided or has ``most`` of them, and
    write ``<folder>/primary.md`` and ``.json`` after each. ``how`` goes to
    :func:`paperlib.experiments.grid.grid`. Whatever is in the store is read, so that a call after
    any interruption goes on; ``most=0`` trains nothing."""
    claims = primary_claims() if claims is None else claims
    level = 1 - ERROR / len(claims) / (MOST // ROUND)
    papers = [paper for paper in METHODS if family(claims, paper)]
    tests = {paper: eval_settings(paper, profile, "test") for paper in papers}
    while True:
        frames = {p: _frame(store, p, family(claims, p), profile, tests[p]) for p in papers}
        looks = [look(claim, frames[claim.paper], level) for claim in claims]
        _write(looks, folder, level)
        seeds = min((one.seeds for one in looks if one.open), default=most) + ROUND
        if seeds > most:
            return looks
        for paper in papers:
            if any(one.open and one.seeds < seeds for one in looks if one.claim.paper == paper):
                grid([recipe(paper, method, profile, seed) for seed in range(seeds)
                      for method in family(claims, paper)], [tests[paper]], store=store, **how)


def _frame(
    store: Store, paper: str, methods: Sequence[str], profile: str, test: EvalSettings
) -> pd.DataFrame:
    """A row for each run there is, of all seeds; only complete rounds are read."""
    runs = {m: [store.run(recipe(paper, m, profile, s)) for s in range(MOST)] for m in methods}
    frame = measure_frame(runs, test)
    return frame if len(frame) else pd.DataFrame(columns=["method", "seed", *READ_OUTS])


def _write(looks: Sequence[Look], folder: Path, level: float) -> None:
    lines = [
        "## Primary claims",
        "",
        f"{len(looks)} claims, written down before their runs "
        "([claims.toml](../../paperlib/report/claims.toml)), each looked at after every "
        f"{ROUND} seeds until it is decided or has {MOST} (`make decide`). An interval is paired "
        f"by seed, with the spread of its paper's methods, at {100 * level:.2f} %, which leaves "
        f"{100 * ERROR:.0f} % of error for all claims and looks together. *Margin*: the smallest "
        "effect that would matter, from the gaps that the paper prints.",
        "",
        "| claim | printed | margin | here | seeds | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for one in looks:
        claim = one.claim
        printed = ", ".join(f"{gap:+g}" for gap in claim.printed) or "–"
        here = "–"
        if one.found:
            here = f"{one.found.mean:+.1f} [{one.found.low:+.1f}, {one.found.high:+.1f}]"
        lines.append(
            f"| **{claim.name}**: {claim.words} | {printed} | {claim.margin:g} | {here} "
            f"| {one.seeds} | **{one.verdict}** |"
        )
    decided = sum(one.verdict != UNTOLD for one in looks)
    lines += ["", f"{decided} of {len(looks)} are decided."]
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomic(folder / "primary.md", "\n".join(lines) + "\n")
    write_json_atomic(folder / "primary.json", [
        {"name": one.claim.name, "verdict": one.verdict, "seeds": one.seeds,
         "margin": one.claim.margin, "level": level,
         **({k: getattr(one.found, k) for k in ("mean", "low", "high")} if one.found else {})}
        for one in looks
    ])  # fmt: skip
    write_index(folder)
