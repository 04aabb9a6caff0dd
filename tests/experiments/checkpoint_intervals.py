"""Checkpoints by the number of epochs instead of by the clock, for tests that stop runs."""

import itertools
from collections.abc import Callable

from everlight_data.runs.checkpoints import Checkpoints


def due_every(number: int) -> Callable[[Checkpoints], bool]:
    """A replacement of `Checkpoints.due`, which is true at every `n`-th call."""
    requested = itertools.count(1)
    return lambda checkpoints: next(requested) % number == 0
