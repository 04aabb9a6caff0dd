"""Checkpoints by the number of epochs instead of by the clock, for tests that stop runs."""

import itertools
from collections.abc import Callable

from everlight_data.runs.checkpoints import Checkpoints


def due_every(number: int) -> Callable[[Checkpoints], bool]:
    """Return a replacement of `Checkpoints.due` that is true at every `number`-th call."""
    requested = itertools.count(1)
    return lambda checkpoints: next(requested) % number == 0
