"""What a checkpoint is worth: lm-eval runs our tasks on our sampler and grades every response.

lm-eval asks, filters, grades and aggregates, :class:`SamplerLM` answers. The tasks are the YAML
files in ``tasks/`` (:mod:`paperlib.evaluation.lm_tasks`), the same that ``lm_eval run`` takes.

``simple_evaluate``, the wrapper around what we call, would seed the caller's global generators too.
"""

import io
import logging
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
from tqdm import tqdm

from paperlib.errors import check_choice
from paperlib.evaluation.lm_tasks import NO_ANSWER, RIGHT
from paperlib.evaluation.settings import ROWS, TASKS, EvalSettings, task_names
from paperlib.rl import policy
from paperlib.rl.sampling import sample_groups
from paperlib.tasks.prompts import build_prompt


class SamplerLM(LM):
    """Answers lm-eval's ``generate_until`` requests with :mod:`paperlib.rl.sampling`.

    lm-eval repeats a request once per response wanted; the repeats of a problem are sampled as one
    group, so that its prompt is prefilled once. No global generator is read or moved. Bar and
    warnings go to what was ``sys.stderr`` when this was made.
    """

    loglikelihood = loglikelihood_rolling = None  # our tasks generate: none asks for either

    def __init__(self, model: Any, tokenizer: Any, settings: EvalSettings, progress: bool) -> None:
        super().__init__()
        self.model, self.policy_tokenizer, self.settings = model, tokenizer, settings
        self.stderr, self.progress = sys.stderr, progress
        self.lengths: list[int] = []  # tokens of each response, the end token included
        self.truncated: list[bool] = []  # whether the token limit cut it
        self.seconds = 0.0  # spent sampling and decoding

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """One response text per request, without special tokens."""
        started = time.perf_counter()
        settings, tokenizer, n = self.settings, self.policy_tokenizer, self.settings.samples
        prompts = [build_prompt(tokenizer, r.args[0], settings.prompt) for r in requests[::n]]
        policy.check_positions(self.model, prompts, settings.max_completion_length)
        texts: list[str] = []
        with (
            redirect_stderr(self.stderr),
            tqdm(total=len(prompts), desc="evaluate", unit="problem", file=self.stderr,
                 disable=not self.progress) as bar,
        ):
            together = max(1, ROWS // n)
            for start in range(0, len(prompts), together):
                drawn = sample_groups(
                    self.model, prompts[start : start + together], n,
                    max_completion_length=settings.max_completion_length,
                    temperature=settings.temperature, top_p=settings.top_p,
                    seed=settings.seed, pad_token_id=policy.pad_token(tokenizer),
                    eos_token_ids=policy.end_tokens(self.model, tokenizer),
                )
                self.lengths += [len(ids) for ids in drawn.completion_ids]
                self.truncated += drawn.truncated.tolist()
                texts += tokenizer.batch_decode(drawn.completion_ids, skip_special_tokens=True)
                bar.update(len(drawn.completion_ids) // n)
        self.seconds += time.perf_counter() - started
        return texts


def evaluate(
    checkpoint: Path | str, settings: EvalSettings, *, device: str = "cpu", progress: bool = True
) -> dict[str, Any]:
    """Sample ``settings.samples`` responses to each problem of a task, and grade them all.

    ``checkpoint`` is a folder, "tiny" or a hub id. What comes back are JSON values: ``settings``;
    ``versions``; ``metrics`` by lm-eval, for each task (of n = 1 response accuracy, else first,
    avg@n, pass@k; no_answer); ``generation_kwargs`` as lm-eval ran them; ``task_versions``;
    ``problems``, each with id, level (the task's name where several are joined), n, correct,
    no_answer and truncated (counts), mean_length (tokens, end token included), responses (n texts)
    and grades (n of 0 or 1); ``seconds``, ``seconds_sampling``.
    """
    for task in settings.tasks:
        check_choice("evaluation task", task, task_names())
    started = time.perf_counter()
    with _unnoticed():
        tasks = _load_tasks(settings)  # first: the problems may be what is missing
        model, tokenizer = policy.load_policy(checkpoint, policy.resolve_device(device))
        lm = SamplerLM(model, tokenizer, settings, progress)
        with redirect_stderr(io.StringIO()):  # lm-eval's bar over the contexts
            output = lm_eval.evaluate(lm, {"tasks": tasks}, bootstrap_iters=0)  # no standard errors
    return {
        "settings": settings.to_dict(),
        "versions": {name: version(name) for name in ("lm_eval", "transformers", "torch")},
        "task_versions": output["versions"],
        "generation_kwargs": output["configs"][settings.tasks[0]]["generation_kwargs"],
        "metrics": {name: _metrics(output["results"][name]) for name in settings.tasks},
        "problems": _problems(output["samples"], lm),
        "seconds": time.perf_counter() - started,
        "seconds_sampling": lm.seconds,
    }


def _load_tasks(settings: EvalSettings) -> dict[str, Any]:
    manager = TaskManager(
        include_path=str(TASKS),
        include_defaults=False,  # indexing the thousands of tasks of lm-eval would take seconds
        metadata={"grading": settings.grading, "prompt": ""},  # SamplerLM adds the system prompt
    )
    tasks = manager.load(settings.tasks)["tasks"]
    for task in tasks.values():
        task.set_config("repeats", settings.samples)
        task.set_config("generation_kwargs", {
            "until": [],  # only the end token stops: a stop string could fire in the reasoning
            "do_sample": settings.temperature > 0, "temperature": settings.temperature,
            "top_p": settings.top_p, "max_gen_toks": settings.max_completion_length,
        })
    return {name: tasks[name] for name in settings.tasks}


@contextmanager
def _unnoticed() -> Iterator[None]:
    """Without lm-eval's log, and without a trace in ``random``, from which it draws; no other
    global generator is moved."""
    logger, state = logging.getLogger("lm_eval"), random.getstate()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        random.setstate(state)


def _metrics(results: dict[str, Any]) -> dict[str, float]:
    """lm-eval's means by metric; its own keys are ``name,filter`` and ``name_stderr,filter``."""
    names = (key.split(",") for key in results if "," in key)
    return {n: results[f"{n},{f}"] for n, f in names if not n.endswith("_stderr")}


def _problems(samples: dict[str, list[dict[str, Any]]], lm: SamplerLM) -> list[dict[str, Any]]:
    n, names, problems = lm.settings.samples, lm.settings.tasks, []
    asked = [(name, sample) for name in names for sample in samples[name]]
    for i, (task, sample) in enumerate(asked):
        rows = slice(i * n, (i + 1) * n)  # the sampler keeps the order of the requests
        (verdicts,) = sample["filtered_resps"]
        level = task if len(names) > 1 else sample["doc"]["level"]
        problems.append({
            "id": sample["doc"]["id"], "level": level, "n": n,
            "correct": verdicts.count(RIGHT), "no_answer": verdicts.count(NO_ANSWER),
            "truncated": sum(lm.truncated[rows]), "mean_length": sum(lm.lengths[rows]) / n,
            "responses": sample["resps"][0],
            "grades": [int(verdict == RIGHT) for verdict in verdicts],
        })  # fmt: skip
    return problems
