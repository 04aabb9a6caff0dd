"""`python -m benchmarks.gpu --seconds N --output FILE` measures everlight on this machine's GPU.

`python -m benchmarks.gpu --table FILE` writes the table of docs/pages/performance.md from them.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.gpu.cases import CASES
from benchmarks.gpu.schedule import measure
from benchmarks.gpu.table import write_table


def main(arguments: list[str] | None = None) -> None:
    """Measure the cases that are named, or all, or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("case", nargs="*", help=f"a name in quotation marks: {'; '.join(names)}")
    parser.add_argument("--seconds", type=float, help="time after which the command ends")
    parser.add_argument(
        "--output", type=Path, help="file of the results (JSON), which is continued"
    )
    parser.add_argument(
        "--small", action="store_true", help="least sizes, to try the code on a CPU"
    )
    parser.add_argument("--table", type=Path, metavar="FILE", help="file of results for the table")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.case if name not in names]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {'; '.join(names)}")
    if (options.table is None) == (options.seconds is None or options.output is None):
        parser.error("give --seconds and --output to measure, or --table to write the table")
    try:
        if options.table is not None:
            write_table(options.table)
        else:
            cases = [case for case in CASES if not options.case or case.name in options.case]
            measure(cases, options.seconds, options.output, options.small)
    except (ValueError, RuntimeError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
