"""Continuation of finished runs by a further task (`everlight update`)."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from everlight.continual import Run, SequenceResult, SequenceState
from everlight.continual.engine.continued_sequence import continued_state
from everlight.continual.methods.method import Method

CONTINUES = "continues"
"""Key of the fingerprint of a run that continues an earlier one."""
_continued_state = jax.jit(continued_state, static_argnums=2)


class Continuation(NamedTuple):
    """Earlier runs that a runner's evaluation runs continue."""

    tasks: int
    """Number of tasks that the earlier runs have learned."""
    result: Callable[[Method, int], SequenceResult]
    """Function from method and seed to the result of the earlier run after its last task."""
    fingerprint: Callable[[Method, int], dict]
    """Function from method and seed to the values that identify that result."""

    def state(self, run: Run, result: SequenceResult) -> SequenceState:
        """Return the first state of a run that continues an earlier one."""
        return _continued_state(run, result, self.tasks)
