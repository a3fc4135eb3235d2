"""Rollouts of which a test says only what matters to it."""

import io

import numpy as np
import torch

from paperlib.methods.rollouts import Rollouts


def rollouts(completions, *, step=1, accuracy=None, **changes):
    """One prompt's completions, all wrong; ``changes`` are fields as lists."""
    n = len(completions)
    fields = {
        "problem_ids": ["p"] * n, "questions": ["q"] * n, "golds": ["7"] * n,
        "lengths": np.array([len(text) for text in completions], dtype=int), "num_generations": n,
        "truncated": np.zeros(n, dtype=bool), "max_completion_length": 200, **changes,
    }  # fmt: skip
    right = np.zeros(n) if accuracy is None else np.array(accuracy, dtype=np.float64)
    return Rollouts(step=step, completions=list(completions), accuracy=right, **fields)


def saved_and_loaded(state):
    """A term's state as the next process reads it."""
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)
