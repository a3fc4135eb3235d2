"""How a policy is trained: sampling, objective, loop, checkpoints."""
