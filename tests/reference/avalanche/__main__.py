"""`python -m tests.reference.avalanche digits`: strategies beside avalanche-lib's.

Needs avalanche-lib and quadprog (`pip install ".[bench]"`), here or in the Python that the
environment variable of `runs.VARIABLE` names.
"""

import argparse
import os
import sys

from tests.reference.avalanche.compare import (
    MEAN_PLAN,
    SEEDS,
    STEP_PLAN,
    Agreement,
    Paired,
    compare,
)
from tests.reference.avalanche.material import TASKS
from tests.reference.avalanche.runs import VARIABLE, avalanche_python


def main() -> None:
    """Compare and print two Markdown tables: weights step by step, and final accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("compared", choices=("digits", "tiny-imagenet"))
    parser.add_argument("--cases", nargs="*", default=(), help="names of methods; none is all")
    given = parser.parse_args()
    python = avalanche_python()
    if python is None:
        sys.exit(
            f'no avalanche-lib here; install ".[bench]", or name in {VARIABLE} the Python of an '
            "environment with avalanche-lib and quadprog"
        )
    load = os.getloadavg()[0]
    print(shown(compare(python, given.compared, given.cases, SEEDS), load))


def shown(found: Agreement, load: float) -> str:
    """Return the results as Markdown.

    Args:
      found: results of both sides.
      load: of the machine before.
    """
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return "\n\n".join(
        [
            f"{found.compared}; {versions}; {found.seconds:,.0f} s, load {load:.1f} before and "
            f"{os.getloadavg()[0]:.1f} after.",
            f"Greatest difference of any weight after {TASKS} tasks of {STEP_PLAN.epochs} epochs, "
            "from the same weights, batches and replayed samples: as both are shipped, with "
            "settings that mean the same, and with Avalanche's equation put into everlight's "
            "strategy. The effect is how far Avalanche's weights are from its plain finetuning's:",
            _table(
                "method | as shipped | equation put in | effect | what differs in Avalanche",
                [
                    f"{row.name} | {row.as_shipped:.1e} | {row.equated:.1e} "
                    f"| {'–' if row.effect is None else f'{row.effect:.2f}'} | {row.differs or '–'}"
                    for row in found.steps
                ],
            ),
            f"Final accuracy, {MEAN_PLAN.epochs} epochs per task: everlight, everlight with "
            "Avalanche's equations, Avalanche; differences of the first two from the third, "
            "paired by seed, with the standard error, bold beyond two of these; seconds per run, "
            "everlight's without compilation:",
            _table(
                "method | task-incremental: ours | equations | Avalanche | ours above "
                "| equations above | class-incremental: ours | equations | Avalanche | ours above "
                "| equations above | s | Avalanche's s",
                [
                    f"{row.name} | {_paired(row.told)} | {_paired(row.not_told)} "
                    f"| {row.our_seconds:.2f} | {row.their_seconds:.1f}"
                    for row in found.means
                ],
            ),
        ]
    )


def _paired(pair: Paired) -> str:
    def above(value: float, error: float) -> str:
        text = f"{value:+.3f} ± {error:.3f}"
        return text if abs(value) <= 2 * error else f"**{text}**"

    return (
        f"{pair.ours:.3f} | {pair.equated:.3f} | {pair.theirs:.3f} "
        f"| {above(pair.above, pair.error)} | {above(pair.equated_above, pair.equated_error)}"
    )


def _table(header: str, rows: list[str]) -> str:
    rule = " | ".join(["---"] * (header.count("|") + 1))
    return "\n".join(f"| {line} |" for line in (header, rule, *rows))


if __name__ == "__main__":
    main()
