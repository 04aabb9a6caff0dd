"""Costs of runs: counted, estimated before a run, and by a device's limits."""
