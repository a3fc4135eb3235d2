"""Paper against ours: paired differences over seeds with intervals, what they allow to say of each
claim, and all of it on one page, figures/<profile>/index.md."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from paperlib.errors import UserError, check_choice
from paperlib.files import read_json, write_json_atomic, write_text_atomic

PAPERS = {"memory_r": "Memory-R+", "meds": "MEDS", "beyond": "Beyond both papers"}


@dataclass(frozen=True)
class Difference:
    """Mean of ``method - rival`` over seeds with its 95 % t-interval (None for one seed)."""

    what: str
    mean: float
    low: float | None
    high: float | None
    seeds: int
    unit: str = "points"
    decimals: int = 1

    def __str__(self) -> str:
        def number(value: float) -> str:
            return f"{value:+.{self.decimals}f}"

        text = f"{self.what}: {number(self.mean)}{' ' if self.unit else ''}{self.unit}"
        if self.low is None:
            return f"{text} (one seed, no interval)"
        return f"{text} [{number(self.low)}, {number(self.high)}] (95 %, {self.seeds} seeds)"

    @property
    def verdict(self) -> str:
        """``higher``, ``lower`` or ``cannot be told``: whether the interval excludes 0. One without
        width, of seeds that happen to differ by the same amount, says nothing of other seeds."""
        if self.low is None or self.low <= 0 <= self.high or self.high - self.low < 1e-9:
            return "cannot be told"
        return "higher" if self.low > 0 else "lower"


def difference(
    what: str, method: Sequence[float | None], rival: Sequence[float | None], *,
    unit: str = "points", decimals: int = 1,
) -> Difference | None:
    """``method - rival`` of one value per seed each, None where it is missing; None if no seed has
    both. A rival with a single value (Base) stands for all seeds."""
    rivals = list(rival) * len(method) if len(rival) == 1 else list(rival)
    if len(rivals) != len(method):
        raise UserError(f"{what}: {len(method)} seeds against {len(rivals)}; give the same seeds")
    pairs = [(a, b) for a, b in zip(method, rivals, strict=True) if None not in (a, b)]
    if not pairs:
        return None
    gaps = np.array([a - b for a, b in pairs], dtype=float)
    mean, n = float(gaps.mean()), len(gaps)
    if n == 1:
        return Difference(what, mean, None, None, 1, unit, decimals)
    # t with n - 1 degrees of freedom: with three seeds an honest interval is a wide one
    half = float(stats.t.ppf(0.975, n - 1) * gaps.std(ddof=1) / np.sqrt(n))
    return Difference(what, mean, mean - half, mean + half, n, unit, decimals)


HOLDS, FAILS, UNTOLD, SHOWN = "holds", "does not hold", "cannot be told here", "shown"
VERDICTS = (HOLDS, FAILS, UNTOLD, SHOWN)  # SHOWN: an illustration, nothing is claimed


def judge(found: Difference | None, direction: str) -> str:
    """Whether ``found`` lies in the claimed ``direction``, "higher" or "lower".

    "does not hold" needs an interval on the other side of 0; one that holds 0 tells nothing.
    """
    check_choice("direction", direction, ("higher", "lower"))
    if found is None or found.verdict == "cannot be told":
        return UNTOLD
    return HOLDS if found.verdict == direction else FAILS


def all_of(verdicts: Iterable[str]) -> str:
    """The verdict on a claim of several parts: all must hold, and one that fails is enough."""
    parts = set(verdicts)
    if FAILS in parts:
        return FAILS
    return HOLDS if parts == {HOLDS} else UNTOLD


def judge_all(found: Iterable[Difference | None], direction: str) -> str:
    """:func:`judge` of every one of several differences, as one verdict."""
    return all_of(judge(one, direction) for one in found)


@dataclass(frozen=True)
class Claim:
    """One claim of a paper and what our runs say: ``verdict`` is one of VERDICTS."""

    claim: str  # the paper's, with its numbers
    finding: str  # ours, with its interval
    verdict: str

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, VERDICTS)


def conclude(folder: Path, stem: str, title: str, claims: Sequence[Claim]) -> str:
    """Write ``<folder>/<stem>_verdict.json`` and ``.md``, renew the profile's index, and give the
    Markdown back. ``folder``: ``figures/<profile>/<paper>``, where the artefact ``<stem>`` lies;
    ``title``: of the artefact, for people ("Table 2: how many queries are read")."""
    lines = [f"- **{c.verdict}**: {c.claim} *Here:* {c.finding}" for c in claims]
    text = f"**{title}**\n\n" + "\n".join(lines) + "\n"
    record = {"title": title, "claims": [asdict(claim) for claim in claims]}
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomic(folder / f"{stem}_verdict.md", text)
    write_json_atomic(folder / f"{stem}_verdict.json", record)
    write_index(folder.parent)
    return text


def write_index(profile_folder: Path) -> None:
    """Write ``<profile_folder>/index.md``: one row a claim, by paper and artefact, from all
    ``*_verdict.json`` there are."""
    counts, tables = Counter(), []
    for paper, name in PAPERS.items():
        paths = sorted((profile_folder / paper).glob("*_verdict.json"), key=_natural)
        if paths:
            tables += ["", f"## {name}", ""]
            tables += ["| artefact | claim | here | verdict |", "|---|---|---|---|"]
        for path in paths:
            record = read_json(path)
            artefact = _link(path, record["title"])
            for claim in record["claims"]:
                counts[claim["verdict"]] += 1
                cells = (artefact, claim["claim"], claim["finding"], f"**{claim['verdict']}**")
                tables.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
                artefact = ""  # named once
    lines = [
        f"# What the `{profile_folder.name}` profile says",
        "",
        "Every artefact with the claim behind it, what our runs show, and the verdict: the claim "
        "*holds*, *does not hold*, or *cannot be told here*, each judged by a 95 % interval over "
        "seeds where there is one; *shown* is an illustration. The models and data are not the "
        "papers': a verdict speaks of this profile alone.",
        "",
        "In all: " + ", ".join(f"{counts[v]} {v}" for v in VERDICTS) + ".",
        *tables,
    ]
    write_text_atomic(profile_folder / "index.md", "\n".join(lines) + "\n")


def _link(path: Path, title: str) -> str:
    stem = path.name.removesuffix("_verdict.json")
    made = [f"{stem}{s}" for s in (".png", ".md") if path.with_name(f"{stem}{s}").exists()]
    return f"[{title}]({path.parent.name}/{made[0]})" if made else title


def _natural(path: Path) -> list[int | str]:
    """table2 before table10."""
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", path.name)]
