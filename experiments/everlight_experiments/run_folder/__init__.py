"""Parts that all runs share: the run folder, many runs, signals, settings."""
