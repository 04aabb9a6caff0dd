"""Memory that is free, and the refusal of runs that need more."""

from pathlib import Path

import jax
from jaxtyping import PyTree

from everlight.trees import tree_bytes
from everlight_data.errors import DataError
from everlight_data.writing import amount

_TABLE = Path("/proc/meminfo")


def free_memory() -> int | None:
    """Return the bytes of memory available to programs; None if the system does not state them."""
    try:
        lines = _TABLE.read_text().splitlines()
        fields = [line.split() for line in lines if line.startswith("MemAvailable:")]
        return int(fields[0][1]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def refuse_large(state: PyTree, *options: str) -> None:
    """Refuse runs whose state alone is larger than the memory that is free.

    JAX on CPU waits without end for an array that it cannot allocate; other devices raise an error.

    Args:
      state: shapes and dtypes of the runs that are trained at once, by all processes.
      options: options of the command by which they become smaller.

    Raises:
      DataError: the memory is too small; the message has the needed and the free size.
    """
    if jax.default_backend() != "cpu":
        return
    needed, free = tree_bytes(state) // jax.process_count(), free_memory()
    if free is not None and needed > free:
        raise DataError(
            f"the weights, optimizer and memory of the runs that train at once take at least "
            f"{amount(needed)}, and {amount(free)} are free; make them smaller, as with "
            f"{' and '.join(options)}"
        )
