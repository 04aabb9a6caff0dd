"""Commands by their words: the benchmark that they load, and what a run left."""

import numpy as np

from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import load_benchmarks
from everlight_experiments.commands.run import run_benchmark


def run(runs, *words):
    """Return the report of `everlight run` with these words, in a folder of runs."""
    return run_benchmark(options_of("run", [*words, "--runs", str(runs)]))


def arrays_of(report):
    """Return the arrays of the results beside a report."""
    with np.load(report.parent / "results.npz") as results:
        return dict(results)


def loaded(*words):
    """Return the only benchmark of `everlight run` with these words."""
    (benchmark,) = load_benchmarks(options_of("run", words)).values()
    return benchmark
