"""What an interval allows to say of a claim; all claims on one page, figures/<profile>/index.md."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from paperlib.errors import check_choice
from paperlib.files import read_json, write_json_atomic, write_text_atomic
from paperlib.report.difference import Difference

PAPERS = {"memory_r": "Memory-R+", "meds": "MEDS", "beyond": "Beyond both papers"}
AUDIT = "paper_audit"  # its statements are about print, not about runs

HOLDS, FAILS, UNTOLD, SHOWN = "holds", "does not hold", "cannot be told here", "shown"
SMALLER, NO_EFFECT = "holds, but smaller than would matter", "no effect of that size"
BUILT, ABSENT = "by construction", "condition absent here"
# What each says. Only the first five speak of a claim of a paper.
VERDICTS = {
    HOLDS: "the interval lies on the claimed side of 0",
    SMALLER: "so it does, and excludes the smallest effect that would matter",
    FAILS: "it lies on the other side",
    NO_EFFECT: "it holds 0 and excludes the smallest effect that would matter",
    UNTOLD: "it holds both",
    ABSENT: "what the paper reports of its models does not occur here, so its cure cannot be tried",
    BUILT: "an identity, or a property of the code: checked, and no news",
    SHOWN: "an illustration, nothing is claimed",
}


def judge(found: Difference | None, direction: str, margin: float | None = None) -> str:
    """Whether ``found`` lies in the claimed ``direction``, "higher" or "lower".

    ``margin``, in the unit of ``found``: the smallest effect that would matter, mostly the paper's
    own. Excluded on the claimed side it is :data:`NO_EFFECT` (:data:`SMALLER` where there is one),
    whatever the other side: half of two one-sided tests, since a claim has one side.
    """
    check_choice("direction", direction, ("higher", "lower"))
    if found is None or found.low is None or found.high - found.low < 1e-9:
        return UNTOLD
    limit = found.high if direction == "higher" else -found.low
    excluded = margin is not None and limit < margin
    if found.verdict == "cannot be told":
        return NO_EFFECT if excluded else UNTOLD
    if found.verdict != direction:
        return FAILS
    return SMALLER if excluded else HOLDS


def all_of(verdicts: Iterable[str]) -> str:
    """The verdict on a claim of several parts: what all of them say. If one part that fails were
    enough, a claim of many parts would fail by chance."""
    parts = set(verdicts)
    if parts == {HOLDS, SMALLER}:
        return SMALLER
    return parts.pop() if len(parts) == 1 else UNTOLD


def judge_all(
    found: Iterable[Difference | None], direction: str, margin: float | None = None
) -> str:
    """:func:`judge` of every one of several differences, as one verdict."""
    return all_of(judge(one, direction, margin) for one in found)


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
    counts, audit, tables = Counter(), Counter(), []
    for paper, name in PAPERS.items():
        paths = sorted((profile_folder / paper).glob("*_verdict.json"), key=_natural)
        if paths:
            tables += ["", f"### {name}", ""]
            tables += ["| artefact | claim | here | verdict |", "|---|---|---|---|"]
        for path in paths:
            record = read_json(path)
            artefact = _link(path, record["title"])
            for claim in record["claims"]:
                of = audit if path.name.startswith(AUDIT) else counts
                of[claim["verdict"]] += 1
                cells = (artefact, claim["claim"], claim["finding"], f"**{claim['verdict']}**")
                tables.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
                artefact = ""  # named once
    primary = profile_folder / "primary.md"
    meanings = [f"- *{name}*: {what}" for name, what in VERDICTS.items()]

    def counted(counts: Counter[str]) -> str:
        return ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])

    lines = [
        f"# What the `{profile_folder.name}` profile says",
        "",
        "The models and data are not the papers': a verdict speaks of this profile alone. Verdicts "
        "from runs are judged by intervals over seeds, at 95 % each but for the primary claims:",
        "",
        *meanings,
        *(["", primary.read_text(encoding="utf-8").rstrip()] if primary.exists() else []),
        "",
        "## All other claims, exploratory",
        "",
        f"From runs and code: {counted(counts)}.",
        *([f"The papers' print against itself: {counted(audit)}."] if audit else []),
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
