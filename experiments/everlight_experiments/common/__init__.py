"""Parts that all runs share: the run folder, checkpoints, pictures and the report."""
