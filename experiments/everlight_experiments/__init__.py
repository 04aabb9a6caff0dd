"""Runs of the papers: `everlight --help`; `load_net` reads networks that a run kept."""

from typing import Any

__all__ = ["load_net"]


def __getattr__(name: str) -> Any:
    """Import `load_net`, and JAX with it, only where it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from everlight_experiments.commands.load_net import load_net

    return load_net
