"""One run over several processes (`jax.distributed`): they train together, the first one writes.

All of them call the same functions in the same order. The first one sends what it finds in the run
folder to the others. Their own output goes to a folder that nobody reads.
"""

import os
import re
import sys
from functools import partial

import jax

from everlight_data.errors import DataError
from everlight_data.runs import processes
from everlight_data.runs.processes import is_first
from everlight_experiments.run_folder.interruption import restore_signals

CLUSTER = "cluster"
PATIENCE = 300
"""Seconds for which a process waits for the others; then JAX ends it, with a trace."""
_PLACE = re.compile(r"(\d+)/(\d+)@(.+:\d+)")
broadcast_from_first = partial(processes.broadcast_from_first, refusal=DataError)


def join_processes(distributed: str | None) -> None:
    """Make this process one of several; to be called before JAX computes anything.

    Args:
      distributed: cluster or NUMBER/PROCESSES@HOST:PORT, as in `Distributed`; None is a run
        of one process.

    Raises:
      DataError: neither of these, or no cluster is found.
    """
    if distributed is None:
        return
    named = _PLACE.fullmatch(distributed)
    if named is None and distributed != CLUSTER:
        raise DataError(
            f"--distributed {distributed!a}; give {CLUSTER}, or number/processes@host:port, such "
            "as 0/2@localhost:1234"
        )
    number, count, address = named.groups() if named else (None, None, None)
    if named and int(number) >= int(count):
        raise DataError(f"--distributed {distributed!a}; processes are counted from 0")
    # JAX would handle SIGTERM itself, and nothing would stop.
    jax.config.update("jax_enable_preemption_service", False)
    whom = f"process {number} of {count}, at {address}," if named else "this process"
    print(f"--distributed: {whom} waits for the others, {PATIENCE} s at most", flush=True)
    try:
        with restore_signals():
            if named:
                jax.distributed.initialize(
                    address, int(count), int(number), initialization_timeout=PATIENCE
                )
            else:
                jax.distributed.initialize(initialization_timeout=PATIENCE)
    except ValueError as error:
        raise DataError(
            f"--distributed {distributed}: no cluster gives this process its number ({error}); "
            "give number/processes@host:port"
        ) from error
    if not is_first():
        # Only the first process prints.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
