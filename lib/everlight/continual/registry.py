"""Registry of methods: the rows that the modules of `strategies` declare as `METHODS`.

A new strategy is one file there. Benchmarks, help, documentation and contract tests read the rows.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType

from flax.core import FrozenDict

from everlight.continual import strategies
from everlight.continual.method import Method
from everlight.errors import ArgumentError

ORDER = (
    *("naive", "cumulative", "ewc", "si", "mas", "lwf"),
    *("imm", "task_arithmetic", "ties", "cofima", "gpm", "trgp"),
    *("balanced_replay", "experience_replay", "unlimited_replay", "der", "der_plus_plus", "mir"),
    *("er_ace", "er_aml", "scr", "onpro", "er_tricks", "xder_rpc", "cls_er", "mkd", "gdumb"),
    *("agem", "gem", "hal", "icarl", "lucir", "podnet", "bic", "aper", "slca", "wa", "ss_il"),
    *("expert_gate", "packnet", "hat", "continual_backprop", "redo", "shrink_and_perturb"),
    *("l2_init", "cwr", "streaming_lda", "nearest_mean", "simple_cil", "fecam", "randumb"),
    *("ranpac", "acil", "ds_al", "l2p", "coda_prompt", "lora", "inflora"),
)
"""Modules in the order of tables; others follow by name."""


def strategy_modules() -> list[ModuleType]:
    """Return the modules of `strategies`, without packages, in the order of tables."""
    names = {
        module.name for module in pkgutil.iter_modules(strategies.__path__) if not module.ispkg
    }
    ordered = [name for name in ORDER if name in names] + sorted(names - {*ORDER})
    return [importlib.import_module(f"{strategies.__name__}.{name}") for name in ordered]


def collect_methods(modules: Iterable[ModuleType]) -> dict[str, Method]:
    """Return the rows of all modules by the methods' names.

    Raises:
      ValueError: two modules declare one name; the message has both.
    """
    methods: dict[str, Method] = {}
    declared_by: dict[str, str] = {}
    for module in modules:
        for name, row in module.METHODS.items():
            if name in methods:
                raise ArgumentError(
                    f"{declared_by[name]} and {module.__name__} both declare {name!r}"
                )
            declared_by[name] = module.__name__
            # Rows are hashed as parts of keys.
            methods[name] = row._replace(name=name, authors=FrozenDict(row.authors))
    return methods


METHODS = collect_methods(strategy_modules())
"""All methods by name."""
