"""Folders of runs: checkpoints, configurations, events, results, and claims on their work."""
