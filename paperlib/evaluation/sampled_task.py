"""The class of our lm-eval tasks, which ``tasks/_task.yaml`` names; it imports lm_eval."""

from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask

from paperlib.errors import UserError
from paperlib.tasks.prompts import special_tokens_in


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
