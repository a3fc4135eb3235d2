"""What a checkpoint is worth: lm-eval tasks and adapter, pass@k, intervals."""
