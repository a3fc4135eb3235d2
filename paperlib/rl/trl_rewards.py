"""Any reward term as a plain reward function of TRL's stock ``GRPOTrainer``.

    terms = recipe("memory_r", "Memory-R+", "tiny", seed=0).terms
    GRPOTrainer(model, reward_funcs=[as_reward_function(term) for term in terms], ...)

The data set has the columns ``id``, ``question``, ``answer`` next to ``prompt``. What it costs
against our own engines: MEDS needs one more forward pass, over the wrong rollouts with an answer;
there is no dynamic sampling; a resumed run and several processes are refused, since the trainer's
checkpoints do not hold what a term remembers, and each process would remember its own rollouts.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paperlib.errors import UserError
from paperlib.methods.rollouts import RewardTerm, call_term
from paperlib.rl.collect import make_rollouts
from paperlib.rl.trl_rollouts import graded
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
    asking = term if getattr(term, "needs_layer_logits", False) else None

    def reward(
        prompts: list, completions: list, completion_ids: list[list[int]],
        log_metric: Any = None, **columns: Any,
    ) -> list[float]:
        nonlocal calls
        # a method of the trainer, and the way to its weights, tokenizer and settings
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
        problems, args = _problems(columns), trainer.args
        size = (not training and args.num_generations_eval) or args.num_generations
        ids = [problem.id for problem in problems]
        if any(ids[i : i + size] != ids[i : i + 1] * size for i in range(0, len(ids), size)):
            raise UserError(
                f"{len(ids)} completions of problems {', '.join(dict.fromkeys(ids))} are not whole "
                f"groups of {size}; choose batch sizes that are multiples of num_generations"
            )
        rows = graded(trainer, prompts, completion_ids, problems, asking)
        rollouts = make_rollouts(
            max(calls, 1), size, args.max_completion_length, *zip(*rows, strict=True)
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
