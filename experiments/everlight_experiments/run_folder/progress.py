"""Progress of anything that takes more than a few seconds."""

import sys

from tqdm import tqdm


def progress(label: str, total: int, done: int = 0, unit: str = "step") -> tqdm:
    """Return a progress bar on the terminal; in a log file one line every half minute."""
    interval = 0.2 if sys.stderr.isatty() else 30.0
    return tqdm(desc=label, total=total, initial=done, unit=unit, mininterval=interval)
