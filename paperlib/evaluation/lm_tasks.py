"""What lm-eval's task files in ``tasks/`` name: the problems, our grader, the scores, and the class
of the tasks. They run on any model and backend, without our sampler; how, what can be chosen, and
the traps that lm-eval leaves open, are in the header of ``tasks/_task.yaml``.
"""

from typing import Any

from datasets import Dataset
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask

from paperlib.errors import UserError, check_choice
from paperlib.evaluation.passk import pass_at_k
from paperlib.tasks.data import load_problems
from paperlib.tasks.grading import MODES, find_answer, grade_all
from paperlib.tasks.prompts import SYSTEM_PROMPTS, special_tokens_in

RIGHT, WRONG, NO_ANSWER = "right", "wrong", "no answer"  # verdicts on one response


def load_docs(
    *, dataset: str, grading: str = "math", prompt: str = "boxed", **metadata: Any
) -> dict[str, Any]:
    """The problems of a data set as lm-eval's documents.

    ``grading`` and ``prompt`` (an empty one is none) may be given by ``lm_eval run --metadata``;
    they travel in each document, the one place where lm-eval's hooks can find them.
    """
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


class SampledTask(ConfigurableTask):
    """lm-eval's own task, whose sampling follows from few settings that no file can lose.

    A file's ``generation_kwargs`` replace those of the file it includes as a whole, and ``hf`` and
    ``vllm`` fill in what is missing each in its way. Ours are therefore made here: from
    ``temperature`` and ``max_gen_toks``, fields of their own in the task files, updated by
    ``generation_kwargs`` and ``--gen_kwargs``. Only the temperature decides whether to sample.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        config = {key: value for key, value in config.items() if key != "class"}
        own = {key: config.pop(key) for key in ("temperature", "max_gen_toks")}
        given = config.get("generation_kwargs") or {}
        config["generation_kwargs"] = _explicit(config["task"], own, given)
        super().__init__(config=config)

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        if key == "generation_kwargs" and update:
            value = _explicit(self.config.task, self.config.generation_kwargs, value)
        super().set_config(key, value, update)

    def construct_requests(self, doc: dict[str, Any], ctx: str, **options: Any) -> list[Instance]:
        """lm-eval's, whose backends take the name of a special token for the token."""
        n, lm = self.config.repeats, getattr(options.get("chat_template"), "__self__", None)
        if n > 1 and not self.config.generation_kwargs["do_sample"]:
            raise UserError(
                f"task {self.config.task!r}: {n} responses at temperature 0 are all alike; "
                "valid: repeats: 1, or a temperature above 0"
            )
        tokenizer = getattr(lm, "tokenizer", None)
        if hasattr(tokenizer, "added_tokens_decoder") and (
            names := special_tokens_in(tokenizer, doc["question"])
        ):
            raise UserError(
                f"task {self.config.task!r}: the question of document {doc['id']!r} names the "
                f"special token {names[0]!r}, and lm-eval would make it one, so that the question "
                "ends its turn; paperlib's own evaluation reads it as text"
            )
        return super().construct_requests(doc, ctx, **options)


def _explicit(task: str, before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """All settings of the generation, ``given`` over ``before`` over what our sampler does."""
    temperature = float({**before, **given}["temperature"])
    if not temperature >= 0 or given.get("do_sample", temperature > 0) != (temperature > 0):
        raise UserError(
            f"task {task!r}: generation_kwargs {given} at temperature {temperature}; valid: "
            "temperature 0 (greedy), or above 0 (sampled), and do_sample left out"
        )
    return {
        "until": [],  # only the end token stops: a stop string could fire inside the reasoning
        "repetition_penalty": 1.0,  # or hf takes the model's own (Qwen2.5: 1.1), and vllm does not
        # all tokens; or hf takes the model's own top_k (50 where it has none), and vllm does not
        **({"top_p": 1.0, "top_k": 0} if temperature > 0 else {}),
        **before, **given, "temperature": temperature, "do_sample": temperature > 0,
    }  # fmt: skip
