"""Runs of the papers: `everlight --help`; `load_run` reads a run's numbers as tables.

`load_net` reads networks that a run kept.

`compose` makes a benchmark from a `Config` and images (docs/pages/guide/benchmarks.md).
"""

from typing import Any

__all__ = ["Benchmark", "Config", "Metric", "compose", "load_net", "load_run"]


def __getattr__(name: str) -> Any:
    """Import the public names, and JAX with them, only where one is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from everlight_experiments.commands.load_net import load_net
    from everlight_experiments.continual.benchmarks.benchmark import Benchmark
    from everlight_experiments.continual.benchmarks.metric import Metric
    from everlight_experiments.images.benchmark import compose
    from everlight_experiments.images.config import Config
    from everlight_experiments.report.run_tables import load_run

    public = Benchmark, Config, Metric, compose, load_net, load_run
    return dict(zip(__all__, public, strict=True))[name]
