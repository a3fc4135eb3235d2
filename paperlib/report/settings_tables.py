"""Memory-R+, Tables 3 to 5: prompts, hyperparameters, models and data, read from the recipes.

What the paper prints stands beside what our recipes hold; a cell of ours is marked where it differs
from the paper, or, where the paper says nothing, from our ``paper`` profile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from paperlib.errors import check_choice
from paperlib.experiments import variants
from paperlib.experiments.benchmarks import task_data
from paperlib.experiments.recipes import eval_settings, models, recipe
from paperlib.experiments.sizes import short_name
from paperlib.files import write_texts
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.report.render import escape_latex, escape_markdown
from paperlib.rl.config import RunConfig
from paperlib.tasks.data import base_names, problem_count
from paperlib.tasks.prompts import SYSTEM_PROMPTS
from paperlib.tasks.sources import CATALOGUE

NOT_STATED = "not stated"
PRINTED = "Paper, as printed"
RUNS = ("GSM8K", "AI-MO")
TITLES = {3: "prompts", 4: "hyperparameters", 5: "models and data"}


@dataclass(frozen=True)
class Setting:
    """A row: what the paper prints for GSM8K and AI-MO (None: nothing), and how ours is read."""

    name: str
    gsm8k: str | None
    aimo: str | None
    read: Callable[[RunConfig], Any]


def _memory(config: RunConfig) -> Any:
    return next(t.settings for t in config.terms if isinstance(t, Exploit | Explore))


def _small(config: RunConfig) -> bool:
    return "K=" in config.method  # every K of Table 2 has a run, of which this is one


def _sizes_of_k(config: RunConfig) -> str:
    small = _small(config)
    return ", ".join(map(str, variants.K_VALUES)) if small else str(_memory(config).k)


def _policies(config: RunConfig) -> str:
    return config.model if _small(config) else ", ".join(models("memory_r", config.profile))


def _worked_example(config: RunConfig) -> str:
    others = () if _small(config) else models("memory_r", config.profile)
    shown = [
        short_name(m).removesuffix("-Instruct") for m in others
        if recipe("memory_r", "R1", config.profile, 0, model=m).prompt == "tags-oneshot"
    ]
    return f"{', '.join(shown)}: one of nine; else none" if shown else "none"


def _prompt_tokens(config: RunConfig) -> str:
    others = () if _small(config) else models("memory_r", config.profile)
    sizes = {m: recipe("memory_r", "R1", config.profile, 0, model=m).max_prompt_length
             for m in others}  # fmt: skip
    longer = [f"{short_name(m).removesuffix('-Instruct')} {n}" for m, n in sizes.items()
              if n != config.max_prompt_length]  # fmt: skip
    return "; ".join([str(config.max_prompt_length), *longer])


def _tests(config: RunConfig, read: Callable[[Any], str]) -> str:
    if _small(config):
        return read(variants.small_data_settings(config.profile, "test"))
    return read(eval_settings("memory_r", config.profile, "test"))


def _hub(*names: str) -> str:
    """Where data sets come from, by their hub repositories where they have one."""
    bases = [base for name in names for base in base_names(name)]
    return ", ".join((CATALOGUE[b].repository if b in CATALOGUE else None) or b for b in bases)


def _ratio(a: float, b: float) -> str:
    return f"{a / b:.1f}".removesuffix(".0")


SETTINGS: dict[int, tuple[Setting, ...]] = {
    3: (
        Setting("system prompt", None, SYSTEM_PROMPTS["think"], lambda c: SYSTEM_PROMPTS[c.prompt]),
        Setting("worked example before a training question", "Llama-3.2-1B: one of nine; else none",
                "none", _worked_example),
        Setting("prompt of tests", "the same, 0-shot", "the same, 0-shot", lambda c: _tests(
            c, lambda s: "the same, 0-shot" if s.prompt == c.prompt else s.prompt)),
    ),
    4: (
        Setting("learning rate", "5e-06", "5e-06", lambda c: f"{c.learning_rate:g}"),
        Setting("schedule", "cosine", "cosine", lambda c: c.lr_scheduler_type),
        Setting("warm-up ratio", "0.1", "0.1", lambda c: _ratio(c.warmup_steps, c.max_steps)),
        Setting("Adam betas", "0.9, 0.99", "0.9, 0.99",
                lambda c: f"{c.adam_beta1}, {c.adam_beta2}"),
        Setting("weight decay", "0.1", "0.1", lambda c: c.weight_decay),
        Setting("max gradient norm", "0.1", "0.1", lambda c: c.max_grad_norm),
        # printed as batch 2 x accumulation 8 and 4 x 16
        Setting("prompts a step (batch × accumulation)", "16", "64", lambda c: c.prompts_per_step),
        Setting("generations a prompt, G", "16", "16", lambda c: c.num_generations),
        Setting("max prompt tokens", "256", "512", _prompt_tokens),
        Setting("max completion tokens", "200", "300", lambda c: c.max_completion_length),
        Setting("epochs", "1", "4", lambda c: _ratio(
            c.max_steps * c.prompts_per_step, problem_count(c.dataset))),
        Setting("precision", "bf16", "bf16", lambda c: c.precision),
        Setting("K, queries read (Sec. 4)", "1", "1, 10, 20, 30", _sizes_of_k),
        Setting("N, queries kept (|D|)", "7473", "2000", lambda c: _memory(c).max_queries),
        Setting("L, responses kept a query", "100", "100", lambda c: _memory(c).max_responses),
        Setting("w, window of the normalisation", "100", "100", lambda c: _memory(c).window),
        Setting("unit of w", None, None, lambda c: _memory(c).window_unit),
        Setting("epsilon of the normalisation", None, None, lambda c: _memory(c).epsilon),
        Setting("explore starts after (eq. 5)", "50 steps", "50 steps",
                lambda c: f"{_memory(c).explore_warmup} {_memory(c).explore_warmup_unit}"),
        Setting("tau of success, of failure", "0.5, 0.5", "0.5, 0.5",
                lambda c: f"{_memory(c).tau_success}, {_memory(c).tau_failure}"),
        Setting("beta of exploit, of explore (eq. 7)", "1, 1", "1, 1",
                lambda c: f"{_memory(c).beta_exploit:g}, {_memory(c).beta_explore:g}"),
        Setting("beta of the KL", None, None, lambda c: c.beta),
        Setting("clip of the ratio", None, None, lambda c: c.epsilon),
        Setting("sampling temperature", None, None, lambda c: c.temperature),
        Setting("updates a step", None, None, lambda c: c.mini_batches),
        Setting("epsilon of the advantage", None, None, lambda c: c.advantage_epsilon),
        Setting("steps between checkpoints", None, None, lambda c: c.save_steps),
    ),
    5: (
        Setting("policy",
                "Qwen/Qwen2.5-0.5B-Instruct, tiiuae/Falcon3-1B-Instruct, "
                "meta-llama/Llama-3.2-1B-Instruct",
                "Qwen/Qwen2.5-0.5B-Instruct", _policies),
        Setting("sentence encoder", *["sentence-transformers/all-MiniLM-L6-v2"] * 2,
                lambda c: _memory(c).encoder),
        Setting("training data", "openai/gsm8k", "AI-MO/NuminaMath-TIR",
                lambda c: _hub(c.dataset)),
        Setting("training problems", "7473", "2000", lambda c: problem_count(c.dataset)),
        Setting("test data", *["openai/gsm8k, HuggingFaceH4/MATH-500, math-ai/aime24"] * 2,
                lambda c: _tests(c, lambda s: _hub(*task_data(s.task)))),
    ),
}


def setting_config(run: str, profile: str, preset: str = "paper") -> RunConfig:
    """Memory-R+ of the GSM8K setting, or of the AI-MO setting with the paper's best K."""
    check_choice("run", run, RUNS)
    if run == "GSM8K":
        return recipe("memory_r", "Memory-R+", profile, 0, preset)
    return variants.small_data("Memory-R+ K=20", profile, 0, preset)


def settings_frame(number: int, profile: str, preset: str = "paper") -> pd.DataFrame:
    """Table ``number`` (3, 4 or 5) of a profile, all text.

    Returns:
        Columns ``Run, Setting``, :data:`PRINTED`, ``Ours: paper``, ``Ours: <profile>`` (once if
        that is the same) and for each of ours ``<column> deviates``, true where it is to be marked.

    Raises:
        UserError: unknown table, profile or preset.
    """
    check_choice("table", number, SETTINGS)
    profiles = dict.fromkeys(("paper", profile))
    rows = []
    for run in RUNS:
        for setting in SETTINGS[number]:
            printed = setting.gsm8k if run == "GSM8K" else setting.aimo
            row = {"Run": run, "Setting": setting.name, PRINTED: printed or NOT_STATED}
            found = {p: str(setting.read(setting_config(run, p, preset))) for p in profiles}
            row |= {f"Ours: {p}": value for p, value in found.items()}
            standard = printed or found["paper"]
            row |= {f"Ours: {p} deviates": value != standard for p, value in found.items()}
            rows.append(row)
    return pd.DataFrame(rows)


def deviations(frame: pd.DataFrame, profile: str) -> list[str]:
    """``run: setting`` of every marked cell of a profile's column."""
    marked = frame[frame[f"Ours: {profile} deviates"]]
    return [f"{run}: {setting}" for run, setting in zip(marked.Run, marked.Setting, strict=True)]


def _lines(frame: pd.DataFrame, cell: Callable[[str, bool], str]) -> list[list[str]]:
    """Headings and rows, every text through ``cell(text, marked)``."""
    columns = [c for c in frame if not c.endswith(" deviates")]
    return [
        [cell(c, False) for c in columns],
        *([cell(row[c], bool(row.get(f"{c} deviates", False))) for c in columns]
          for row in frame.to_dict("records")),
    ]  # fmt: skip


def settings_markdown(frame: pd.DataFrame, title: str, notes: Sequence[str]) -> str:
    """A pipe table; marked cells are bold. A line break of a prompt shows as ``\\n``."""

    def cell(text: str, marked: bool) -> str:
        shown = escape_markdown(text.replace("\n", "\\n"))
        return f"**{shown}**" if marked else shown

    rows = ["| " + " | ".join(row) + " |" for row in _lines(frame, cell)]
    rows.insert(1, "|" + " --- |" * (rows[0].count(" | ") + 1))
    ends = [f"- {escape_markdown(note)}" for note in notes]
    return "\n".join([f"**{escape_markdown(title)}**", "", *rows, "", *ends]) + "\n"


def settings_latex(frame: pd.DataFrame, title: str, notes: Sequence[str], label: str) -> str:
    """A ``table`` environment for booktabs; marked cells are bold."""

    def cell(text: str, marked: bool) -> str:
        shown = escape_latex(text.replace("\n", "\\n"))
        return f"\\textbf{{{shown}}}" if marked else shown

    head, *body = [" & ".join(row) + r" \\" for row in _lines(frame, cell)]
    ours = head.count(" & ") - 1
    lines = [
        "% needs \\usepackage{booktabs}", "\\begin{table}[t]", "\\centering",
        f"\\caption{{{escape_latex(title)}}}", f"\\label{{tab:{label}}}",
        "\\begin{tabular}{ll" + "p{0.22\\linewidth}" * ours + "}",
        "\\toprule", head, "\\midrule", *body, "\\bottomrule", "\\end{tabular}",
        *(f"\\par\\footnotesize {escape_latex(note)}" for note in notes), "\\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def write_settings(
    frame: pd.DataFrame, folder: Path, stem: str, title: str, notes: Sequence[str]
) -> list[Path]:
    """Write ``<stem>.md``, ``.csv`` and ``.tex`` together."""
    texts = {
        ".md": settings_markdown(frame, title, notes),
        ".csv": frame.to_csv(index=False, lineterminator="\n"),
        ".tex": settings_latex(frame, title, notes, stem),
    }
    return write_texts(folder, stem, texts)
