"""EvalSettings: everything that decides what an evaluation measures."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paperlib.errors import UserError, check_choice
from paperlib.files import short_hash
from paperlib.tasks.grading import MODES
from paperlib.tasks.prompts import SYSTEM_PROMPTS

ROWS = 1024  # sampled at once where they fit; no draw depends on it
TASKS = Path(__file__).parent / "tasks"  # lm-eval's task files


def task_names() -> list[str]:
    """The benchmarks. Their sampled variants are left out: they are for lm-eval's own command
    line, while :class:`EvalSettings` says how ours sample."""
    names = (path.stem for path in TASKS.glob("[!_]*.yaml"))
    return sorted(name for name in names if not name.endswith("_t1"))


@dataclass(frozen=True)
class EvalSettings:
    """One way to evaluate a checkpoint; equal settings give equal results on CPU. There are no
    defaults (but of the grading): numbers differ by settings that nobody wrote down."""

    task: str  # an lm-eval task, a file in evaluation/tasks: "tiny_test"...; "a+b" joins several
    samples: int  # n, responses per problem
    temperature: float  # 0 = greedy
    top_p: float
    max_completion_length: int  # tokens
    seed: int  # of the sampling, not of the training
    prompt: str  # a name in tasks.prompts.SYSTEM_PROMPTS
    grading: str = "math"  # a mode of tasks.grading

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p"):  # 1 and 1.0 are one setting and must hash alike
            object.__setattr__(self, name, float(getattr(self, name)))
        check_choice("prompt", self.prompt, SYSTEM_PROMPTS)
        check_choice("grading", self.grading, MODES)
        for name in ("samples", "max_completion_length"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.temperature >= 0 or not 0 < self.top_p <= 1 or not 0 <= self.seed < 2**63:
            raise UserError(
                f"temperature {self.temperature} must be 0 (greedy) or above, "
                f"top_p {self.top_p} in (0, 1], and seed {self.seed} in 0..2**63 - 1"
            )
        if self.temperature == 0 and self.samples > 1:
            raise UserError(
                f"samples is {self.samples} at temperature 0; greedy responses are all alike, so "
                "samples must be 1"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. The default grading is left out: hashes from before it had a name."""
        values = asdict(self)
        if self.grading == "math":
            del values["grading"]
        return values

    @property
    def tasks(self) -> list[str]:
        return self.task.split("+")

    @property
    def hash(self) -> str:
        return short_hash(self.to_dict())

    @property
    def name(self) -> str:
        """``<task>-n<samples>-t<temperature>-<hash>``, safe as a file name."""
        return f"{self.task}-n{self.samples}-t{self.temperature}-{self.hash}"
