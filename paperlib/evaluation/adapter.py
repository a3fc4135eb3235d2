"""Our sampler as an lm-eval model. Importing lm_eval takes seconds: only harness.evaluate does."""

import time
from contextlib import redirect_stderr
from typing import Any, TextIO

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from tqdm import tqdm

from paperlib.evaluation.settings import EvalSettings
from paperlib.rl.policy import check_positions, end_tokens, pad_token
from paperlib.rl.sampling import sample_groups
from paperlib.tasks.prompts import build_prompt


class SamplerLM(LM):
    """Answers lm-eval's ``generate_until`` requests with :mod:`paperlib.rl.sampling`.

    lm-eval repeats a request once per response wanted; the repeats of a problem are sampled as one
    group, so that its prompt is prefilled once. No global generator is read or moved. Bar and
    warnings go to ``stderr``.
    """

    def __init__(
        self, model: Any, tokenizer: Any, settings: EvalSettings, stderr: TextIO, progress: bool
    ) -> None:
        super().__init__()
        self.model, self.policy_tokenizer = model, tokenizer
        self.prompt, self.batch_prompts = settings.prompt, settings.batch_prompts
        self.seed = settings.seed
        self.stderr, self.progress = stderr, progress
        self.lengths: list[int] = []  # tokens of each response, the end token included
        self.truncated: list[bool] = []  # whether the token limit cut it
        self.seconds = 0.0  # spent sampling and decoding

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """One response text per request, without special tokens."""
        started = time.perf_counter()
        samples, tokenizer = requests[0].repeats, self.policy_tokenizer
        settings = requests[0].args[1]  # the same for all problems, which are bare questions
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
                    seed=self.seed, eos_token_ids=end_tokens(self.model, tokenizer),
                    pad_token_id=pad_token(tokenizer),
                )
                self.lengths += [len(ids) for ids in drawn.completion_ids]
                self.truncated += drawn.truncated.tolist()
                texts += tokenizer.batch_decode(drawn.completion_ids, skip_special_tokens=True)
                bar.update(len(drawn.completion_ids) // samples)
        self.seconds += time.perf_counter() - started
        return texts

    loglikelihood = loglikelihood_rolling = None  # our tasks generate: none asks for either
