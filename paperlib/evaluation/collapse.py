"""Training collapse, read off a run's metrics: what happened, from which step on, does it last.

The Memory-R+ paper (Sec. 4.3) describes reward-mode collapse and both length collapses in words,
without thresholds; entropy collapse and KL blow-up are ours, and so are all numbers below. A kind
occurs when its condition, on the trailing median of WINDOW steps, holds for PERSIST steps on end,
and is over when it fails as long. Nothing looks ahead: a warning during training (CollapseWatch)
and the verdict afterwards (diagnose_run) are one computation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from paperlib.methods import baselines as b

REWARD_MODE, SHORT, LONG = "reward-mode collapse", "short-length collapse", "long-length collapse"
ENTROPY, KL = "entropy collapse", "KL blow-up"
KINDS = (REWARD_MODE, SHORT, LONG, ENTROPY, KL)

WINDOW = 8  # steps of the trailing median
PERSIST = 8  # steps a condition must hold, or fail, on end
MIN_STEPS = WINDOW + PERSIST  # a shorter run gets no verdict

START = 2  # steps that count as the start: sampled from the initial policy, or nearly so
REWARD_START = 4  # the same for rewards, which vary more from batch to batch
FALLEN = 0.6  # share of its start below which correctness has fallen
FLAT_STEPS = 64  # steps over which a mean is taken to call correctness flat
CORRECT_RISE = 0.02  # less than this above its start is flat
CEILING = 0.9  # correctness that starts above this has nowhere to rise to
FORMAT_RISE = 0.01  # a format reward (most are worth 0.5) has risen by more than this

SHORT_TOKENS = 10  # Sec. 4.3.2: "sometimes as short as just 10 tokens"
SHORT_HALF = 0.5  # ... where the run started with at least twice that
SHORT_SHARE = 0.25  # or this share of the starting length, however long
LONG_TRUNCATED = 0.9  # share of rollouts cut at the maximum: nearly every one
LONG_START = 0.5  # a run that starts with more than this is set up too short, not collapsed
ENTROPY_SHARE = 0.2  # of the starting entropy
KL_LARGE = 1.0  # nats a token; healthy runs here stay below 0.1

EASY = (b.IntegerAnswer, b.XmlCount, b.SoftFormat, b.StrictFormat, b.ReasoningSteps)

Metrics = pd.DataFrame | Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Collapse:
    """One collapse of a run: ``onset`` is its first step, ``end`` the step from which it was over
    again, None if it still lasted at the last step."""

    kind: str  # one of KINDS
    onset: int
    detail: str
    end: int | None = None

    def __str__(self) -> str:
        over = "" if self.end is None else f", over from step {self.end}"
        return f"{self.kind} from step {self.onset}{over}: {self.detail}"


def diagnose_run(metrics: Metrics) -> list[Collapse]:
    """All collapses of a run, at most one of a kind, in the order of KINDS; below MIN_STEPS steps
    only a KL that is not finite.

    ``metrics``: ``run.metrics()`` or the rows of metrics.jsonl; keys in paperlib/rl/logs.py. Absent
    keys and NaN are steps that say nothing.
    """
    frame = pd.DataFrame(metrics)
    found = (find(frame) for find in (reward_mode, short_length, long_length, entropy, kl))
    return [collapse for collapse in found if collapse]


def verdict(metrics: Metrics) -> str:
    """``collapsed``, ``recovered`` (every collapse is over), ``no collapse`` or ``too short``."""
    found = diagnose_run(metrics)
    if found:
        return "collapsed" if any(c.end is None for c in found) else "recovered"
    return "no collapse" if len(metrics) >= MIN_STEPS else "too short"


class CollapseWatch:
    """Warnings while a run is trained, one per kind: ``watch(rows so far) -> new warnings``.

    A resumed run starts with the rows it had: what is over by then is not repeated.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, rows: Metrics) -> list[str]:
        new = [c for c in diagnose_run(rows) if c.kind not in self._known]
        self._known.update(c.kind for c in new)
        return [str(c) for c in new if c.end is None]


def reward_mode(frame: pd.DataFrame) -> Collapse | None:
    """Correctness does not grow, whatever the easy rewards do (Sec. 4.3.1).

    The paper's two forms: "LLMs prioritize learning a simpler, typically format-based, reward", or
    "become confused by multiple rewards, struggling to learn any". Ours: correctness has fallen
    (below FALLEN of its start), or is flat (its mean over FLAT_STEPS is within CORRECT_RISE of its
    start or lower); the detail says which form, by whether a format reward has risen by then.
    Correctness varies by 0.15 from step to step in small runs, so that a flat curve shorter than
    FLAT_STEPS cannot be told from a slow rise, and nothing is said about it.
    """
    names = ("accuracy_drawn", "accuracy", "reward/correctness")  # drawn: before DAPO drops groups
    name = next((name for name in names if name in frame), names[0])
    start, now = _followed(frame, name, REWARD_START)
    means = _values(frame, name).rolling(FLAT_STEPS, min_periods=FLAT_STEPS // 2).mean()
    means.iloc[: REWARD_START + FLAT_STEPS - 1] = np.nan  # the start itself is not compared
    flat = (means <= start + CORRECT_RISE) & (start < CEILING)
    spells = [_spell(frame, now < FALLEN * start), _spell(frame, flat, hold=1, span=FLAT_STEPS)]
    if not any(spells):
        return None
    row, onset, end = min(spell for spell in spells if spell)
    form = "and no reward rises"
    for easy in reversed(EASY):
        before, medians = _followed(frame, f"reward/{easy.name}", REWARD_START)
        if medians.iloc[row] > before + FORMAT_RISE:
            form = f"while {easy.name} rises from {before:.3f} to {medians.iloc[row]:.3f}"
    detail = f"correctness {start:.2f} at the start, {now.iloc[row]:.2f} at step"
    return Collapse(REWARD_MODE, onset, f"{detail} {frame['step'].iloc[row]:.0f}, {form}", end)


def short_length(frame: pd.DataFrame) -> Collapse | None:
    """Mean length falls to "as short as just 10 tokens" (Sec. 4.3.2).

    Ours: to SHORT_TOKENS or fewer and SHORT_HALF of its start or less; or to SHORT_SHARE of it.
    """
    start, now = _followed(frame, "length")
    few = (now <= SHORT_TOKENS) & (now <= SHORT_HALF * start)
    return _collapse(SHORT, frame, "length", "mean length {} tokens",
                     few | (now <= SHORT_SHARE * start))  # fmt: skip


def long_length(frame: pd.DataFrame) -> Collapse | None:
    """"Output sequences that continually expand until they reach the maximum" (Sec. 4.3.2).

    Ours: LONG_TRUNCATED of the rollouts or more are cut at the maximum, LONG_START or fewer at the
    start.
    """
    start, now = _followed(frame, "truncated")
    cut = (now >= LONG_TRUNCATED) & (start <= LONG_START)
    return _collapse(LONG, frame, "truncated", "share of cut rollouts {}", cut)


def entropy(frame: pd.DataFrame) -> Collapse | None:
    """The policy hardly varies any more. Ours: entropy at ENTROPY_SHARE of its start or less."""
    start, now = _followed(frame, "entropy")
    low = (now <= ENTROPY_SHARE * start) & (start > 0)
    return _collapse(ENTROPY, frame, "entropy", "entropy {} nats", low)


def kl(frame: pd.DataFrame) -> Collapse | None:
    """The policy has left the initial model. Ours: KL of KL_LARGE or more, or log-ratios clamped
    in most steps; a KL that is not finite counts at once and for good."""
    if "kl" not in frame:
        return None
    trained = _values(frame, "length", 0.0).notna()  # a step without a batch has no KL
    broken = np.flatnonzero(~np.isfinite(frame["kl"]) & trained)
    if len(broken):
        return Collapse(KL, int(frame["step"].iloc[broken[0]]), "the KL is not finite")
    (_, large), (_, clamped) = _followed(frame, "kl"), _followed(frame, "kl_clamped")
    return _collapse(KL, frame, "kl", "KL {} nats a token", large >= KL_LARGE) or _collapse(
        KL, frame, "kl_clamped", "{} log-ratios clamped", clamped > 0
    )


def _values(frame: pd.DataFrame, name: str, absent: float = np.nan) -> pd.Series:
    return frame.get(name, pd.Series(absent, frame.index, dtype=float))


def _followed(frame: pd.DataFrame, name: str, steps: int = START) -> tuple[float, pd.Series]:
    """A metric at its start, and its trailing median by step, which shrugs off outliers and is up
    to half a window late."""
    values = _values(frame, name)
    return values.dropna().iloc[:steps].mean(), values.rolling(WINDOW, min_periods=1).median()


def _collapse(
    kind: str, frame: pd.DataFrame, name: str, what: str, condition: pd.Series
) -> Collapse | None:
    """The collapse of a metric, of which ``what`` says where it started."""
    spell = _spell(frame, condition)
    if spell is None:
        return None
    row, onset, end = spell
    start, now = _followed(frame, name)
    said = f"{what.format(f'{start:.3g}')} at the start, {now.iloc[row]:.3g} at step"
    return Collapse(kind, onset, f"{said} {frame['step'].iloc[row]:.0f}", end)


def _spell(
    frame: pd.DataFrame, condition: pd.Series, hold: int = PERSIST, span: int = PERSIST
) -> tuple[int, int, int | None] | None:
    """When the condition first held for ``hold`` steps: ``(row at which that was certain, step of
    the onset, span - 1 steps earlier, step from which it was over or None)``; None if never."""
    held = np.flatnonzero(condition.rolling(hold).sum() == hold)
    if len(frame) < MIN_STEPS or not len(held):
        return None
    steps, failed = frame["step"].to_numpy(), np.flatnonzero(condition.rolling(PERSIST).sum() == 0)
    over = failed[failed > held[-1]]
    end = int(steps[over[0] - PERSIST + 1]) if len(over) else None
    return int(held[0]), int(steps[held[0] - span + 1]), end
