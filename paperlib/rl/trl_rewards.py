"""Any reward term as a plain reward function of TRL's stock ``GRPOTrainer``.

    terms = recipe("memory_r", "Memory-R+", "tiny", seed=0).terms
    GRPOTrainer(model, reward_funcs=[as_reward_function(term) for term in terms], ...)

The data set has the columns ``id``, ``question``, ``answer`` next to ``prompt``. Through the
``log_metric`` method that TRL hands it, the function knows the trainer: the weights that are being
trained, the tokenizer, the settings, and whether this is training.

What a stock trainer costs against our own loop:

1. MEDS needs layer logits, which our sampler records on the way. A reward function sees text and
   tokens only, so that one more forward pass, over the wrong rollouts with an answer, is made.
2. There is no dynamic sampling: groups that DAPO drops are trained on, rewarded and remembered.
3. Its checkpoints do not hold what a term remembers. A run that is resumed is refused.
4. One process only: each of several would remember its own rollouts alone.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paperlib.errors import UserError
from paperlib.methods.rollouts import RewardTerm, Rollouts, call_term
from paperlib.rl.collect import make_rollouts
from paperlib.rl.policy import end_tokens
from paperlib.rl.trl_layers import wrong_answers
from paperlib.tasks.grading import grade_all
from paperlib.tasks.rows import OWN_ROWS, Problem, check_problems, to_problem

COLUMNS = ("id", "question", "answer")
_ROWS = replace(OWN_ROWS, name="of the trainer")


def as_reward_function(term: RewardTerm) -> Callable[..., list[float]]:
    """``term`` as an entry of ``GRPOTrainer(reward_funcs=[...])``, logged under the term's name.

    The term itself is used, not a copy: look at its memory, or save its ``state_dict()``, after
    training. In evaluation (``trainer.evaluate()``, ``eval_strategy``) a copy answers, so that the
    memory is read but stays as it is. The rollouts' ``step`` counts training calls, one per
    generation batch, as in our loop; TRL's ``global_step`` counts updates.
    """
    calls = 0

    def reward(
        prompts: list, completions: list, completion_ids: list[list[int]],
        log_metric: Any = None, **columns: Any,
    ) -> list[float]:
        nonlocal calls
        trainer = getattr(log_metric, "__self__", None)
        if trainer is None:
            raise UserError(
                f"reward function {term.name!r} was called without log_metric, a method of the "
                "trainer; valid: TRL's GRPOTrainer, version 1.16, which passes it"
            )
        training = trainer.model.training  # TRL's own test for training or evaluation
        if training and not calls:
            _check_start(trainer, term)
        calls += training
        rollouts = _rollouts(trainer, max(calls, 1), completion_ids, columns)
        if getattr(term, "needs_layer_logits", False):
            rollouts.layer_logits = wrong_answers(
                trainer, term.settings, prompts, completion_ids, rollouts.accuracy
            )
        return call_term(term if training else copy.deepcopy(term), rollouts).tolist()

    reward.__name__ = term.name
    return reward


def _check_start(trainer: Any, term: RewardTerm) -> None:
    """What has to hold when training begins."""
    if trainer.args.world_size > 1:
        raise UserError(
            f"{trainer.args.world_size} processes: each would remember its own rollouts alone; "
            "reward functions made from terms are for one process"
        )
    if trainer.state.global_step and hasattr(term, "state_dict"):
        raise UserError(
            f"training was resumed at update {trainer.state.global_step}, but reward term "
            f"{term.name!r} has a memory, which the trainer's checkpoint does not hold; train from "
            "the start, or with paperlib.rl.train, which resumes exactly"
        )
    data = getattr(trainer, "train_dataset", None)
    if hasattr(data, "__getitem__"):  # a stream is checked as it comes
        _problems(data[:])


def _problems(columns: Mapping[str, Any]) -> list[Problem]:
    """The problem of each row; a UserError names rows without a gold answer and the like."""
    if missing := [name for name in COLUMNS if name not in columns]:
        raise UserError(
            f"the data set has no column {', '.join(missing)}; reward terms need "
            f"{', '.join(COLUMNS)} (a unique id, the bare question, the gold answer)"
        )
    problems = [
        to_problem(str(i), {"question": question, "answer": answer}, _ROWS)
        for i, question, answer in zip(*(columns[name] for name in COLUMNS), strict=True)
    ]
    check_problems(list(dict.fromkeys(problems)), _ROWS.name)
    return problems


def _rollouts(
    trainer: Any, step: int, completion_ids: list[list[int]], columns: dict[str, Any]
) -> Rollouts:
    """What our loop would have made of the same completions, layer logits aside."""
    problems, args = _problems(columns), trainer.args
    ids, size = [problem.id for problem in problems], args.num_generations
    if not trainer.model.training:
        size = args.num_generations_eval or size
    groups = [ids[i : i + size] for i in range(0, len(ids), size)]
    if any(group != group[:1] * size for group in groups):
        raise UserError(
            f"{len(ids)} completions of problems {', '.join(dict.fromkeys(ids))} are not whole "
            f"groups of {size}; choose batch sizes that are multiples of num_generations"
        )
    # decoded here, because a trainer that parses messages may cut the reasoning out of them
    texts = trainer.processing_class.batch_decode(completion_ids, skip_special_tokens=True)
    ends = end_tokens(trainer.model, trainer.processing_class)
    return make_rollouts(
        step, size, args.max_completion_length, problems, texts, list(map(len, completion_ids)),
        [not row or row[-1] not in ends for row in completion_ids],
        grade_all(texts, [p.answer for p in problems], questions=columns["question"]),
    )
