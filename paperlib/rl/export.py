"""A trained policy as an ordinary Hugging Face folder: weights, tokenizer, generation config, card.

    python -m paperlib export runs/tiny/meds-meds-s0-0123456789 my-policy

The files are the checkpoint's own, checked against its digests; the card says what they are. What
a model or a user wrote is escaped in it, and folders of this machine are named by their last part.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.files import read_json, read_jsonl, whole_checkpoints
from paperlib.markdown import escape_markdown, fenced
from paperlib.rl.checkpoint import damaged_files, listed_files
from paperlib.tasks.prompts import SYSTEM_PROMPTS
from paperlib.tasks.sources import CATALOGUE

PAPERS = {  # title, arXiv number
    "memory_r": ("Reasoning Under 1 Billion: Memory-Augmented Reinforcement Learning for Large "
                 "Language Models", "2504.02273"),
    "meds": ("The Past Is Not Past: Memory-Enhanced Dynamic Reward Shaping", "2604.11297"),
}  # fmt: skip
KINDS = (".safetensors", ".json", ".jinja", ".model", ".txt")  # no state.pt: it is for resuming
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def export(run: Path, target: Path, step: int | None = None) -> Path:
    """Write the policy of a run's checkpoint (default: the last) to ``target``, all or nothing."""
    run, target = Path(run).resolve(), Path(target)
    if not (run / "config.json").is_file():
        raise UserError(f"{run} is not the folder of a run: it has no config.json")
    folders = whole_checkpoints(run)
    if not folders or (step is not None and step not in folders):
        raise UserError(
            f"{run} has no checkpoint{'' if step is None else f' of step {step}'}; "
            f"it has {', '.join(map(str, folders)) or 'none'}"
        )
    step = max(folders) if step is None else step
    listed = listed_files(folders[step], state=False)
    names = [name for name in listed if name.endswith(KINDS)]
    if bad := damaged_files(folders[step], names):
        raise UserError(f"checkpoint {folders[step]} is damaged: {', '.join(bad)}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} is there already; give a new folder or an empty one")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        folder = Path(scratch) / "policy"
        folder.mkdir()
        for name in names:
            shutil.copy2(folders[step] / name, folder / name)
        (folder / "README.md").write_text(model_card(run, step), encoding="utf-8")
        folder.replace(target)
    return target


def model_card(run: Path, step: int) -> str:
    """The README.md of the policy after ``step`` generation steps of a run."""
    from huggingface_hub import ModelCard, ModelCardData

    config, record = read_json(run / "config.json"), read_json(run / "environment.json")
    hub_id, base = base_model(config["model"])
    sources, data = training_data(config["dataset"])
    title, arxiv = PAPERS[config["paper"]]
    recipe = {**_without_folders(config), "model": base, "dataset": data}
    done = run / "complete.json"
    state = read_json(done)["reason"] if done.exists() else "the run has not finished"
    libraries = (f"{name} {record['versions'][name]}" for name in ("torch", "transformers"))
    facts = [
        ("", ""), ("base model", base), ("training data", data), ("method", config["method"]),
        ("preset", config["preset"]), ("profile", config["profile"]), ("seed", config["seed"]),
        ("generation steps", f"{step} of {config['max_steps']} ({state})"),
        ("prompts x completions of a step",
         f"{config['prompts_per_step']} x {config['num_generations']}"),
        ("config hash", run.name.rpartition("-")[2]),
        ("paperlib", f"{record['paperlib']}, commit {str(record['commit'])[:10]}"),
        ("libraries", ", ".join(libraries)), ("device", record["machine"]["device"]),
    ]  # fmt: skip
    last = [row for row in read_jsonl(run / "metrics.jsonl") if row["step"] == step][-1:]
    metrics = [(name, f"{value:.4g}") for row in last for name, value in row.items()
               if not name.startswith("seconds/")]  # fmt: skip
    head = ModelCardData(
        base_model=hub_id, datasets=sources or None, library_name="transformers",
        pipeline_tag="text-generation",
        tags=["reinforcement-learning", "grpo", f"arxiv:{arxiv}"],
    )
    return str(ModelCard.from_template(
        head, template_path=str(Path(__file__).with_name("model_card.jinja")),
        method=escape_markdown(config["method"]), base=escape_markdown(base), title=title,
        arxiv=arxiv, facts=_escaped(facts), prompt=config["prompt"],
        system_prompt=fenced(SYSTEM_PROMPTS[config["prompt"]]),
        evaluations=_escaped(_evaluations(run, step)),
        metrics=_escaped(metrics and [("metric", "value"), *metrics]), example=_example(run, step),
        recipe=fenced(json.dumps(recipe, indent=1, ensure_ascii=False), "json"),
        licences=_licences(config["dataset"]),
    )) + "\n"  # fmt: skip


def base_model(name: str) -> tuple[str | None, str]:
    """``(hub id or None, how to call it)`` of a config's model; no path of this machine."""
    if name == "tiny":
        return None, "the tiny world's model (paperlib)"
    if Path(name).exists() or not HUB_ID.fullmatch(name.partition("::")[0]):
        return None, Path(name).name
    return name.partition("::")[0], name


def training_data(dataset: str) -> tuple[list[str], str]:
    """``(hub ids, how to call it)`` of a config's data set."""
    parts = [Path(part).name for part in dataset.split("+")]
    known = [CATALOGUE[p.partition(":")[0]] for p in parts if p.partition(":")[0] in CATALOGUE]
    return [s.repository for s in known if s.repository], " + ".join(parts)


def _licences(dataset: str) -> str:
    names = [part.partition(":")[0] for part in dataset.split("+")]
    told = [f"{name}: {CATALOGUE[name].licence}" for name in names if name in CATALOGUE]
    return f" ({', '.join(told)})" if told else ""


def _without_folders(value: Any) -> Any:
    """The JSON values with the last part instead of each absolute path: an encoder's, say."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _escaped(rows: list[tuple]) -> list[list[str]]:
    return [[escape_markdown(str(cell)) for cell in row] for row in rows]


def _evaluations(run: Path, step: int) -> list[tuple]:
    rows = []
    for path in sorted((run / "evaluations").glob(f"{step:06d}-*.json")):
        result = read_json(path)
        settings, groups = result["settings"], {}
        joined = "+" in settings["task"]  # then a problem's level names its task
        for problem in result["problems"]:
            groups.setdefault(problem["level"] if joined else settings["task"], []).append(problem)
        n = settings["samples"]
        greedy = n == 1 and not settings["temperature"]
        decoding = "greedy" if greedy else f"temperature {settings['temperature']}, {n} samples"
        for task, problems in groups.items():
            score = sum(p["correct"] / p["n"] for p in problems) / len(problems)
            solved = sum(p["correct"] > 0 for p in problems) / len(problems)
            rows.append((task, len(problems), decoding, f"{100 * score:.1f}",
                         f"{100 * solved:.1f} (k = {n})"))  # fmt: skip
    return rows and [("task", "problems", "decoding", "pass@1, %", "pass@k, %"), *rows]


def _example(run: Path, step: int) -> dict[str, str] | None:
    """The first completion of the step's rollouts, if it has any."""
    import pyarrow.parquet as pq

    path = run / "rollouts" / f"{step:06d}.parquet"
    if not path.exists():
        return None
    table = pq.read_table(path, columns=["problem_id", "completion", "gold", "accuracy"])
    first = table.slice(0, 1).to_pylist()[0]
    return {
        "problem_id": escape_markdown(str(first["problem_id"])),
        "gold": escape_markdown(str(first["gold"])),
        "verdict": "right" if first["accuracy"] else "wrong",
        "completion": fenced(first["completion"]),
    }
