"""What each artefact says about its paper; all of it on one page, figures/<profile>/index.md."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from paperlib.errors import check_choice
from paperlib.files import read_json, write_json_atomic, write_text_atomic
from paperlib.report.verdict import VERDICTS

PAPERS = {"memory_r": "Memory-R+", "meds": "MEDS", "beyond": "Beyond both papers"}


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
    Markdown back: it is the notebook's last cell, and its first cells embed the file.

    Args:
        folder: ``figures/<profile>/<paper>``, where the artefact ``<stem>`` lies; the notebook is
            ``notebooks/<paper>/<stem>.ipynb`` up to a suffix of the stem after ``-`` or ``_``.
        title: of the artefact, for people ("Table 2: how many queries are read").
    """
    lines = [f"- **{c.verdict}**: {c.claim} *Here:* {c.finding}" for c in claims]
    text = f"**{title}**\n\n" + "\n".join(lines) + "\n"
    record = {"title": title, "claims": [asdict(claim) for claim in claims]}
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomic(folder / f"{stem}_verdict.md", text)
    write_json_atomic(folder / f"{stem}_verdict.json", record)
    write_index(folder.parent)
    return text


def write_index(profile_folder: Path) -> None:
    """Write :func:`index` to ``<profile_folder>/index.md``."""
    write_text_atomic(profile_folder / "index.md", index(profile_folder))


def index(profile_folder: Path) -> str:
    """The page: one row a claim, by paper and artefact, from all ``*_verdict.json`` there are."""
    files = {p: sorted((profile_folder / p).glob("*_verdict.json"), key=_natural) for p in PAPERS}
    records = {path: read_json(path) for of_paper in files.values() for path in of_paper}
    counts = Counter(c["verdict"] for record in records.values() for c in record["claims"])
    lines = [
        f"# What the `{profile_folder.name}` profile says",
        "",
        "Every artefact with the claim behind it, what our runs show, and the verdict: the claim "
        "*holds*, *does not hold*, or *cannot be told here*, each judged by a 95 % interval over "
        "seeds where there is one; *shown* is an illustration. The models and data are not the "
        "papers': a verdict speaks of this profile alone.",
        "",
        "In all: " + ", ".join(f"{counts[v]} {v}" for v in VERDICTS) + ".",
    ]
    for paper, name in PAPERS.items():
        if not files[paper]:
            continue
        lines += ["", f"## {name}", ""]
        lines += ["| artefact | claim | here | verdict |", "|---|---|---|---|"]
        for path in files[paper]:
            for number, claim in enumerate(records[path]["claims"]):
                artefact = _link(path, records[path]["title"]) if number == 0 else ""
                cells = (artefact, claim["claim"], claim["finding"], f"**{claim['verdict']}**")
                lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"


def _link(path: Path, title: str) -> str:
    stem = path.name.removesuffix("_verdict.json")
    made = [f"{stem}{s}" for s in (".png", ".md") if path.with_name(f"{stem}{s}").exists()]
    return f"[{title}]({path.parent.name}/{made[0]})" if made else title


def _natural(path: Path) -> list[int | str]:
    """table2 before table10."""
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", path.name)]
