r"""What lm-eval's task files in ``tasks/`` name: the problems, our grader, and the scores.

The tasks run on any model and backend, without our sampler::

    lm_eval run --model hf --model_args pretrained=Qwen/Qwen2.5-0.5B-Instruct \
        --include_path "$(python -m paperlib tasks)" --tasks paperlib_gsm8k,paperlib_gsm8k_t1 \
        --apply_chat_template --log_samples --output_path out

``<task>`` is greedy, ``<task>_t1`` draws 16 responses at temperature 1; what else can be chosen,
and the traps that lm-eval leaves open, are in the header of ``tasks/_task.yaml``.
"""

from pathlib import Path
from typing import Any

from paperlib.errors import UserError, check_choice
from paperlib.evaluation.passk import pass_at_k
from paperlib.tasks.data import load_problems
from paperlib.tasks.grading import MODES, find_answer, grade_all
from paperlib.tasks.prompts import SYSTEM_PROMPTS

TASKS = Path(__file__).parent / "tasks"
SAMPLED = "_t1"  # ends the names of the sampled variants
RIGHT, WRONG, NO_ANSWER = "right", "wrong", "no answer"  # verdicts on one response


def task_names() -> list[str]:
    """The benchmarks, found without importing lm-eval. Their sampled variants are left out: they
    are for lm-eval's own command line, while :class:`EvalSettings` says how ours sample."""
    names = (path.stem for path in TASKS.glob("[!_]*.yaml"))
    return sorted(name for name in names if not name.endswith(SAMPLED))


def load_docs(
    *, dataset: str, grading: str = "math", prompt: str = "boxed", **metadata: Any
) -> dict[str, Any]:
    """The problems of a data set as lm-eval's documents.

    ``grading`` and ``prompt`` (an empty one is none) may be given by ``lm_eval run --metadata``;
    they travel in each document, the one place where lm-eval's hooks can find them.
    """
    from datasets import Dataset

    check_choice("grading", grading, MODES)
    check_choice("prompt", prompt, ("", *SYSTEM_PROMPTS))
    if prompt == "tags-oneshot":
        raise UserError("prompt 'tags-oneshot' is for training; its tests are 0-shot: use 'tags'")
    problems = load_problems(dataset)
    # a column has one type
    mixed = len({type(p.level) for p in problems if p.level is not None}) > 1
    rows = [
        {"id": p.id, "question": p.question, "answer": p.answer,
         "level": str(p.level) if mixed and p.level is not None else p.level,
         "system_prompt": SYSTEM_PROMPTS.get(prompt, ""), "grading": grading}
        for p in problems
    ]  # fmt: skip
    return {"test": Dataset.from_list(rows)}


def judge(responses: list[list[str]], docs: list[dict[str, Any]]) -> list[list[str]]:
    """lm-eval's filter: the verdict on each response to each document, all graded at once.

    A response that is not right has no answer if it marks none: no closed answer section or box,
    as where the token limit cut it, which lm-eval's own backends do not report.
    """
    # On several processes lm-eval pads by asking for the last document again; drop what is over.
    samples = min(map(len, responses))
    responses = [of_one[:samples] for of_one in responses]
    texts = [text for of_one in responses for text in of_one]
    golds = [doc["answer"] for doc in docs for _ in range(samples)]
    questions = [doc.get("question", "") for doc in docs for _ in range(samples)]
    right = grade_all(texts, golds, docs[0]["grading"], questions)
    verdicts = [
        RIGHT if ok else NO_ANSWER if find_answer(text) is None else WRONG
        for text, ok in zip(texts, right, strict=True)
    ]
    return [verdicts[i : i + samples] for i in range(0, len(verdicts), samples)]


def process_results(doc: dict[str, Any], results: list[list[str]]) -> dict[str, float]:
    """Score the verdicts on a document's n responses, each way under its own name.

    n = 1: ``accuracy``. Else ``first`` (the first response alone), ``avg@n``, and ``pass@k`` for
    k = 1, 2, 4, ... and n, unbiased. Always ``no_answer``, the share of responses without one.
    """
    (verdicts,) = results
    n, correct = len(verdicts), verdicts.count(RIGHT)
    no_answer = {"no_answer": verdicts.count(NO_ANSWER) / n}
    if n == 1:
        return {"accuracy": float(correct), **no_answer}
    return {
        "first": float(verdicts[0] == RIGHT),
        f"avg@{n}": correct / n,
        # 1, 2, 4, ... up to n, and n itself
        **{f"pass@{k}": pass_at_k(n, correct, k)
           for k in sorted({2**i for i in range(n.bit_length())} | {n})},
        **no_answer,
    }
