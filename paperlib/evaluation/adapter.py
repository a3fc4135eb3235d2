"""Our sampler as an lm-eval model. Importing lm_eval takes seconds: only harness.evaluate does."""

from __future__ import annotations

import time
from contextlib import redirect_stderr
from typing import Any, TextIO

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from tqdm import tqdm

from paperlib.errors import UserError
from paperlib.rl.policy import check_positions, end_tokens, pad_token
from paperlib.rl.sampling import sample_groups
from paperlib.tasks.prompts import build_prompt


class SamplerLM(LM):
    """Answers lm-eval's ``generate_until`` requests with :mod:`paperlib.rl.sampling`.

    lm-eval repeats a request once per response wanted; the repeats of a problem are sampled as one
    group, so that its prompt is prefilled once. What lm-eval has no place for is kept here.

    Args:
        prompt: name of the system prompt; a request's context is the bare question.
        batch_prompts: problems sampled together.
        seed: of the sampler's own generator; no global generator is read or moved.
        stderr: where the progress bar and the sampler's warnings go.

    Attributes:
        lengths: tokens of each response, the end token included, in the order of the requests.
        truncated: whether the token limit cut it, same order.
        seconds: time spent sampling and decoding.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, prompt: str, batch_prompts: int, seed: int,
        stderr: TextIO, progress: bool,
    ) -> None:
        super().__init__()
        self.model, self.policy_tokenizer = model, tokenizer
        self.prompt, self.batch_prompts = prompt, batch_prompts
        self.generator = torch.Generator(device=model.device).manual_seed(seed)
        self.stderr, self.progress = stderr, progress
        self.lengths: list[int] = []
        self.truncated: list[bool] = []
        self.seconds = 0.0

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """One response text per request, without special tokens.

        Raises:
            UserError: the task asks for stop strings, or the model has too few positions.
        """
        started = time.perf_counter()
        samples = requests[0].repeats
        settings = requests[0].args[1]  # the same for all problems of a task
        if settings["until"]:
            raise UserError(
                f"task {requests[0].task_name!r} has stop strings {settings['until']}; they can "
                "fire inside the reasoning, so until must be []: only the end token stops"
            )
        tokenizer = self.policy_tokenizer
        prompts = [build_prompt(tokenizer, r.args[0], self.prompt) for r in requests[::samples]]
        check_positions(self.model, prompts, settings["max_gen_toks"])
        texts: list[str] = []
        with (
            redirect_stderr(self.stderr),
            tqdm(total=len(prompts), desc="evaluate", unit="problem", file=self.stderr,
                 disable=not self.progress) as bar,
        ):
            for start in range(0, len(prompts), self.batch_prompts):
                drawn = sample_groups(
                    self.model, prompts[start : start + self.batch_prompts], samples,
                    max_completion_length=settings["max_gen_toks"],
                    temperature=settings["temperature"], top_p=settings["top_p"],
                    generator=self.generator, eos_token_ids=end_tokens(self.model, tokenizer),
                    pad_token_id=pad_token(tokenizer),
                )
                self.lengths += [len(ids) for ids in drawn.completion_ids]
                self.truncated += drawn.truncated.tolist()
                texts += tokenizer.batch_decode(drawn.completion_ids, skip_special_tokens=True)
                bar.update(len(drawn.completion_ids) // samples)
        self.seconds += time.perf_counter() - started
        return texts

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError("paperlib's tasks generate; none asks for log-likelihoods")

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError("paperlib's tasks generate; none asks for log-likelihoods")
