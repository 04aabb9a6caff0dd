"""Agreement of the strategies with avalanche-lib's: `python -m tests.reference.avalanche`."""
