"""`everlight methods`: every method in one line."""

import shlex
from dataclasses import dataclass

from everlight.continual.methods.method_list import MethodRow, method_rows
from everlight.continual.methods.registry import METHODS
from everlight_experiments.terminal import aligned_rows

HEADER = (*MethodRow("method", "year", "paper", "keeps", "applies to"), "description")
VALUES = "Values tried for each hyper-parameter, as --hyperparameters takes them:"


@dataclass(frozen=True)
class MethodListOptions:
    """List all methods, and the values that are tried for their hyper-parameters.

    The samples, networks (old net) and statistics kept are those between tasks. Methods that apply
    to disjoint classes need new classes in every task. "In --methods all only with" names the
    benchmarks or layers with which `all` includes a method; elsewhere `--methods` runs it by its
    name.
    """


def list_methods(options: MethodListOptions) -> None:
    """Print a line per method, then one per method with a hyper-parameter."""
    rows = [HEADER, *((*row, METHODS[row.name].summary) for row in method_rows())]
    print(*aligned_rows(rows), sep="\n")
    print(f"\n{VALUES}")
    tuned = [method for method in METHODS.values() if method.hyperparameters]
    values = [",".join(f"{value:g}" for value in method.hyperparameters) for method in tuned]
    texts = [shlex.quote(f"{m.name}={text}") for m, text in zip(tuned, values, strict=True)]
    names = [method.tunes for method in tuned]
    print(*aligned_rows(list(zip(texts, names, strict=True))), sep="\n")
