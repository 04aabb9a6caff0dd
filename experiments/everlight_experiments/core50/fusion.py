"""Temporally adjacent frames of a recording, classified together."""

import numpy as np
from jaxtyping import Float, Int


def fuse_adjacent(
    confidence: Float[np.ndarray, "m c"], recording: Int[np.ndarray, "m"], window: int
) -> Float[np.ndarray, "m c"]:
    """Sums of the class confidences of each frame and of those just before it.

    Args:
      confidence: of every frame and class, the frames of a recording in their order.
      recording: number of each frame's recording, equal ones side by side.
      window: frames that are summed; fewer where the recording has just begun.
    """
    place = np.arange(len(recording))
    begins = np.concatenate([[True], recording[1:] != recording[:-1]])
    first = np.maximum(np.maximum.accumulate(np.where(begins, place, 0)), place - window + 1)
    total = np.concatenate([np.zeros_like(confidence[:1]), np.cumsum(confidence, axis=0)])
    return total[place + 1] - total[first]
