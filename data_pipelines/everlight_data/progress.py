"""Progress bars for work that takes more than a few seconds."""

import sys
from collections.abc import Iterable

from tqdm import tqdm


def progress(
    label: str,
    total: int | None = None,
    done: int = 0,
    unit: str = "step",
    values: Iterable | None = None,
) -> tqdm:
    """Return a progress bar; in a log file it is one line every half minute.

    Args:
      label: text before the bar.
      total: number of units; None is the number of values.
      done: units that are done already.
      unit: name of a unit.
      values: values to iterate over; without them the caller updates the bar.
    """
    interval = 0.2 if sys.stderr.isatty() else 30.0
    return tqdm(values, label, total, initial=done, unit=unit, mininterval=interval)
