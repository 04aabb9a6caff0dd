"""Progress of loops that take more than a few seconds."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

Value = TypeVar("Value")


def with_progress(values: Iterable[Value], label: str, unit: str) -> Iterable[Value]:
    """Return the values under a progress bar; in a log file it is one line every half minute."""
    interval = 0.2 if sys.stderr.isatty() else 30.0
    return tqdm(values, label, unit=unit, mininterval=interval)
