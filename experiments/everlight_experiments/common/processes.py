"""One run over several processes (`jax.distributed`): they train together, the first one writes.

All of them call the same functions in the same order. What the first one finds in the run folder is
told to the others, and what these would write goes to a folder that nobody reads.
"""

import io
import os
import re
import sys
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils

from everlight_data.errors import DataError
from everlight_experiments.common.interruption import signals_as_before

CLUSTER = "cluster"
PATIENCE = 300
"""Seconds for which a process waits for the others; then JAX ends it, with a trace."""
_PLACE = re.compile(r"(\d+)/(\d+)@(.+:\d+)")
_ERROR = "error"

Arrays = dict[str, np.ndarray]


def join_processes(distributed: str | None) -> None:
    """Makes this process one of several; to be called before JAX computes anything.

    Args:
      distributed: "cluster" for what the environment says (Slurm, Open MPI, Kubernetes, Cloud TPU);
        or this process's number, how many there are and where the first one listens, such as
        0/2@localhost:1234; None is a run of one process.

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
    # It would take SIGTERM for itself, and nothing would stop.
    jax.config.update("jax_enable_preemption_service", False)
    whom = f"process {number} of {count}, at {address}," if named else "this process"
    print(f"--distributed: {whom} waits for the others, {PATIENCE} s at most", flush=True)
    try:
        with signals_as_before():
            if named:
                jax.distributed.initialize(
                    address, int(count), int(number), initialization_timeout=PATIENCE
                )
            else:
                jax.distributed.initialize(initialization_timeout=PATIENCE)
    except ValueError as error:
        raise DataError(
            f"--distributed {distributed}: no cluster tells this process its place ({error}); give "
            "number/processes@host:port"
        ) from error
    if not is_first():
        # The first one tells what there is to tell.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115


def is_first() -> bool:
    """Return whether this process writes."""
    return jax.process_index() == 0


def told_by_first(find: Callable[[], Arrays | None]) -> Arrays | None:
    """Return a function's result of the first process in all of them; the others do not call it.

    Raises:
      DataError: the first one did.
    """
    if jax.process_count() == 1:
        return find()
    message = _packed(find) if is_first() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(message))))
    content = np.zeros(size, np.uint8)
    content[: len(message)] = np.frombuffer(message, np.uint8)
    sent = np.asarray(multihost_utils.broadcast_one_to_all(content)).astype(np.uint8).tobytes()
    if not sent:
        return None
    with np.load(io.BytesIO(sent)) as stored:
        arrays = dict(stored)
    if _ERROR in arrays:
        raise DataError(str(arrays[_ERROR]))
    return arrays


def _packed(find: Callable[[], Arrays | None]) -> bytes:
    try:
        found = find()
    except DataError as error:
        found = {_ERROR: np.array(str(error))}
    if found is None:
        return b""
    stream = io.BytesIO()
    np.savez(stream, **found)
    return stream.getvalue()


def from_all(own: np.ndarray) -> np.ndarray:
    """An array of equal shape from every process, `[processes, ...]`."""
    if jax.process_count() == 1:
        return own[None]
    return multihost_utils.process_allgather(own).reshape(jax.process_count(), *own.shape)


def meet(place: str) -> None:
    """Waits for the other processes at a place of the program."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(place)
