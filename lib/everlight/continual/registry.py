"""Registry of methods: the rows that the modules of `strategies` declare as `METHODS`.

A new strategy is one file there. Benchmarks, help, documentation and contract tests read the rows.
"""

import importlib
import pkgutil
from collections.abc import Iterable

from flax.core import FrozenDict

from everlight.continual import strategies
from everlight.continual.method import Method

_ORDER = (
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


def collect_methods(rows: Iterable[tuple[str, dict[str, Method]]]) -> dict[str, Method]:
    """Return the rows of all modules by name.

    Args:
      rows: name of each module and its rows by the method's name.

    Raises:
      ValueError: two modules have a row of one name.
    """
    methods: dict[str, Method] = {}
    homes: dict[str, str] = {}
    for module, own in rows:
        for name, row in own.items():
            if name in homes:
                raise ValueError(f"strategies {homes[name]} and {module} both declare {name!r}")
            homes[name] = module
            # Rows are hashed as parts of keys.
            methods[name] = row._replace(name=name, authors=FrozenDict(row.authors))
    return methods


def _modules() -> list[str]:
    names = {each.name for each in pkgutil.iter_modules(strategies.__path__) if not each.ispkg}
    return [name for name in _ORDER if name in names] + sorted(names - {*_ORDER})


METHODS = collect_methods(
    (name, importlib.import_module(f"{strategies.__name__}.{name}").METHODS) for name in _modules()
)
"""All methods by name."""
