"""A trained policy as an ordinary Hugging Face folder: weights, tokenizer, generation config, card.

    python -m paperlib export runs/tiny/meds-meds-s0-0123456789 my-policy

The files are the checkpoint's own, checked against its digests; the card says what they are. What
a model or a user wrote is escaped in it, and folders of this machine are named by their last part.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.files import read_json, read_jsonl, whole_checkpoints, written_together
from paperlib.markdown import escape_markdown, fenced
from paperlib.rl.checkpoint import check_policy
from paperlib.tasks.prompts import SYSTEM_PROMPTS
from paperlib.tasks.sources import CATALOGUE, Source

TEMPLATE = Path(__file__).with_name("model_card.jinja")
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
    names = [name for name in check_policy(folders[step]) if name.endswith(KINDS)]
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} is there already; give a new folder or an empty one")
    with written_together([target]) as (folder,):
        folder.mkdir()
        for name in names:
            shutil.copy2(folders[step] / name, folder / name)
        (folder / "README.md").write_text(model_card(run, step), encoding="utf-8")
    return target


def model_card(run: Path, step: int) -> str:
    """The README.md of the policy after ``step`` generation steps of a run."""
    from jinja2 import Template

    config, done = read_json(run / "config.json"), run / "complete.json"
    hub_id, base = base_model(config["model"])
    sources, data = training_data(config["dataset"])
    recipe = {**_without_folders(config), "model": base, "dataset": data}
    metrics = [row for row in read_jsonl(run / "metrics.jsonl") if row["step"] == step][-1:]
    return Template(TEMPLATE.read_text(encoding="utf-8"), keep_trailing_newline=True).render(
        md=lambda cell: escape_markdown(str(cell)), fenced=fenced, step=step, config=config,
        record=read_json(run / "environment.json"), hash=run.name.rpartition("-")[2],
        hub_id=hub_id, base=base, sources=sources, data=data,
        state=read_json(done)["reason"] if done.exists() else "the run has not finished",
        system_prompt=SYSTEM_PROMPTS[config["prompt"]],
        evaluations=_evaluations(run, step), example=_example(run, step),
        metrics=[(name, f"{value:.4g}") for row in metrics for name, value in row.items()
                 if not name.startswith("seconds/")],
        recipe=json.dumps(recipe, indent=1, ensure_ascii=False),
    )  # fmt: skip


def base_model(name: str) -> tuple[str | None, str]:
    """``(hub id or None, how to call it)`` of a config's model; no path of this machine."""
    if name == "tiny":
        return None, "the tiny world's model (paperlib)"
    if Path(name).exists() or not HUB_ID.fullmatch(name.partition("::")[0]):
        return None, Path(name).name
    return name.partition("::")[0], name


def training_data(dataset: str) -> tuple[dict[str, Source], str]:
    """``(sources by name, how to call it)`` of a config's data set."""
    parts = [Path(part).name for part in dataset.split("+")]
    names = [part.partition(":")[0] for part in parts]
    return {name: CATALOGUE[name] for name in names if name in CATALOGUE}, " + ".join(parts)


def _without_folders(value: Any) -> Any:
    """The JSON values with the last part instead of each absolute path: an encoder's, say."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _evaluations(run: Path, step: int) -> list[tuple]:
    """One row a task of each evaluation of the step."""
    rows = []
    for path in sorted((run / "evaluations").glob(f"{step:06d}-*.json")):
        result = read_json(path)
        task, n, groups = result["settings"]["task"], result["settings"]["samples"], {}
        for p in result["problems"]:  # of tasks that are joined, the level names a problem's own
            groups.setdefault(p["level"] if "+" in task else task, []).append(p["correct"] / p["n"])
        temperature = result["settings"]["temperature"]
        decoding = f"temperature {temperature}, {n} samples" if temperature or n > 1 else "greedy"
        for task, scores in groups.items():
            score, solved = sum(scores), sum(x > 0 for x in scores)
            rows.append((task, len(scores), decoding, f"{100 * score / len(scores):.1f}",
                         f"{100 * solved / len(scores):.1f} (k = {n})"))  # fmt: skip
    return rows


def _example(run: Path, step: int) -> dict[str, Any] | None:
    """The first completion of the step's rollouts, if it has any."""
    import pyarrow.parquet as pq

    path = run / "rollouts" / f"{step:06d}.parquet"
    return pq.read_table(path).slice(0, 1).to_pylist()[0] if path.exists() else None
