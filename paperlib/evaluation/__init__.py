"""What a checkpoint is worth: lm-eval tasks on our sampler, pass@k, intervals."""
