"""Runs of the papers: `everlight --help`."""
