"""Runs of the papers: `python -m experiments --help`."""
