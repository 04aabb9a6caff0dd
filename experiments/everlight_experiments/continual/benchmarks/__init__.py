"""Benchmarks as values: data, network, training and metrics in one setting."""
