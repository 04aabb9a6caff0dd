"""`everlight methods`: every method in one line."""

from dataclasses import dataclass

from everlight.continual.methods.method_list import MethodRow, method_rows

HEADER = MethodRow("method", "year", "paper", "keeps", "applies to")


@dataclass(frozen=True)
class MethodsSettings:
    """List all methods with year, paper, what they keep of earlier tasks, and where they apply.

    The samples, networks (old net) and statistics kept are those between tasks. Methods that apply
    to own classes need new classes in every task. "In --methods all only with" names the benchmarks
    or layers with which `all` includes a method; elsewhere `--methods` runs it by its name.
    `everlight run --help` has their hyper-parameters.
    """


def list_methods(settings: MethodsSettings) -> None:
    """Print a line per method."""
    rows = [HEADER, *method_rows()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
