"""`python -m benchmarks.avalanche [CASE ...]` compares strategies with avalanche-lib's.

It needs avalanche-lib and quadprog: install ".[bench]", or name in EVERLIGHT_AVALANCHE the Python
of an environment that has them.
"""

import argparse
import shutil
import sys

from benchmarks.avalanche.cases import CASES, cases_of
from benchmarks.avalanche.comparison import (
    SEEDS,
    Means,
    Paired,
    Steps,
    compare_means,
    compare_steps,
)
from benchmarks.avalanche.inputs import INPUTS
from benchmarks.avalanche.runs import VARIABLE, avalanche_python
from everlight_data.errors import DataError

PAIRED = "everlight | with equation | Avalanche | everlight above | with equation above"


def main(arguments: list[str] | None = None) -> None:
    """Print a table of steps and one of means over seeds, bold beyond two standard errors."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.avalanche",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="*", help="names of methods; none is all")
    parser.add_argument("--data", choices=INPUTS, default="digits")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of the means; 0 is none")
    options = parser.parse_args(arguments)
    names = [case.name for case in CASES]
    unknown = [name for name in options.case if name not in names]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(names)}")
    if options.seeds == 1 or options.seeds < 0:
        parser.error(f"--seeds {options.seeds} has no spread; give 2 or more, or 0 for no means")
    python = avalanche_python()
    if python is not None and shutil.which(python) is None:
        parser.error(f"{VARIABLE} names {python}, which does not exist")
    if python is None:
        parser.error(f'avalanche-lib is missing: install ".[bench]", or set {VARIABLE}')
    inputs = INPUTS[options.data]()
    steps, means = (cases_of(kind, tuple(options.case)) for kind in ("steps", "means"))
    if steps:
        print(_steps_table(compare_steps(python, inputs, steps)), flush=True)
    if means and options.seeds:
        means_of_cases, versions = compare_means(python, inputs, means, options.seeds)
        print("\n" + _means_table(means_of_cases))
        print("\n" + ", ".join(f"{name} {version}" for name, version in versions.items()))


def _steps_table(rows: list[Steps]) -> str:
    lines = [
        f"{row.case.name} | {row.as_shipped:.1e} | {row.with_equation:.1e} "
        f"| {'–' if row.effect is None else f'{row.effect:.2f}'} | {row.case.differs or '–'}"
        for row in rows
    ]
    return _table("method | as shipped | with equation | effect | Avalanche differs in", lines)


def _means_table(rows: list[Means]) -> str:
    header = " | ".join(
        f"{kind}: {column}"
        for kind in ("task-masked", "class-incremental")
        for column in PAIRED.split(" | ")
    )
    lines = [
        f"{row.case.name} | {_cells(row.task_masked)} | {_cells(row.class_incremental)} "
        f"| {row.seconds[0]:.2f} | {row.seconds[1]:.1f}"
        for row in rows
    ]
    return _table(f"method | {header} | seconds | Avalanche's seconds", lines)


def _cells(pair: Paired) -> str:
    cells = [f"{mean:.3f}" for mean in pair.means]
    for above, error in zip(pair.above, pair.errors, strict=True):
        cell = f"{above:+.3f} ± {error:.3f}"
        cells.append(cell if abs(above) <= 2 * error else f"**{cell}**")
    return " | ".join(cells)


def _table(header: str, rows: list[str]) -> str:
    rule = " | ".join(["---"] * (header.count("|") + 1))
    return "\n".join(f"| {line} |" for line in (header, rule, *rows))


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        sys.exit(str(error))
