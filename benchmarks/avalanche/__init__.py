"""Strategies compared with those of avalanche-lib, step by step and in the mean over seeds."""
