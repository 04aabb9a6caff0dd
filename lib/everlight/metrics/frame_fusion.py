"""Classification of video: confidences of successive frames are summed.

Lomonaco and Maltoni 2017, "CORe50", section 4.
"""

import numpy as np
from jaxtyping import Float, Int


def fuse_adjacent(
    confidence: Float[np.ndarray, "m c"], recording: Int[np.ndarray, "m"], window: int
) -> Float[np.ndarray, "m c"]:
    """Return sums of the class confidences of each frame and of those just before it, `[m, c]`.

    Args:
      confidence: confidence of every frame in every class; a recording's frames are in order.
      recording: number of each frame's recording, equal ones side by side.
      window: number of summed frames; fewer where the recording has just begun.
    """
    position = np.arange(len(recording))
    begins = np.concatenate([[True], recording[1:] != recording[:-1]])
    first = np.maximum(np.maximum.accumulate(np.where(begins, position, 0)), position - window + 1)
    total = np.concatenate([np.zeros_like(confidence[:1]), np.cumsum(confidence, axis=0)])
    return total[position + 1] - total[first]


def fused_accuracies(
    confidence: Float[np.ndarray, "m c"],
    labels: Int[np.ndarray, "m"],
    recording: Int[np.ndarray, "m"],
    windows: tuple[int, ...],
) -> Float[np.ndarray, "windows"]:
    """Return the accuracy for every number of fused frames, `[windows]`.

    Args:
      confidence: confidence of every frame in every class; a recording's frames are in order.
      labels: class of each frame.
      recording: number of each frame's recording, equal ones side by side.
      windows: numbers of fused frames.
    """
    fused = (fuse_adjacent(confidence, recording, window) for window in windows)
    return np.array([np.mean(scores.argmax(axis=1) == labels) for scores in fused])
