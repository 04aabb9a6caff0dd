"""Values that several processes exchange (`jax.distributed`), or a single one keeps.

All processes call these functions in the same order.
"""

import io
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Shaped

_ERROR = "error"

Arrays = dict[str, np.ndarray]


def is_first() -> bool:
    """Return True if this process is the first, which writes for all."""
    return jax.process_index() == 0


def gather_arrays(array: Shaped[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "processes *shape"]:
    """Return arrays of equal shape from every process."""
    if jax.process_count() == 1:
        return array[None]
    return multihost_utils.process_allgather(array).reshape(jax.process_count(), *array.shape)


def synchronize(place: str) -> None:
    """Wait for the other processes at a place of the program, which its name identifies."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(place)


def broadcast_from_first(
    find: Callable[[], Arrays | None], refusal: type[Exception] = ValueError
) -> Arrays | None:
    """Return a function's result in the first process to all of them; the others do not call it.

    Args:
      find: function to named arrays or None.
      refusal: kind of error that the other processes raise with the same text.

    Raises:
      Exception: the first one raised a `refusal`.
    """
    if jax.process_count() == 1:
        return find()
    message = _pack(find, refusal) if is_first() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(message))))
    content = np.zeros(size, np.uint8)
    content[: len(message)] = np.frombuffer(message, np.uint8)
    sent = np.asarray(multihost_utils.broadcast_one_to_all(content)).astype(np.uint8).tobytes()
    if not sent:
        return None
    with np.load(io.BytesIO(sent)) as stored:
        arrays = dict(stored)
    if _ERROR in arrays:
        raise refusal(str(arrays[_ERROR]))
    return arrays


def _pack(find: Callable[[], Arrays | None], refusal: type[Exception]) -> bytes:
    try:
        arrays = find()
    except refusal as error:
        arrays = {_ERROR: np.array(str(error))}
    if arrays is None:
        return b""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()
