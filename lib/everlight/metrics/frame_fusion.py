"""Classification of video: confidences of successive frames are summed.

Lomonaco and Maltoni 2017, "CORe50", section 4.
"""

from typing import Annotated

import numpy as np
from jaxtyping import Float, Int

from everlight.checks import NotEmpty, PositiveInt, check_finite, checked


@checked
def fuse_adjacent(
    confidence: Float[np.ndarray, "m c"],
    recording: Int[np.ndarray, "m"],
    window: PositiveInt,
) -> Float[np.ndarray, "m c"]:
    """Return sums of the class confidences of each frame and of those just before it, `[m, c]`.

    Sums are float64: neither a long recording nor a narrow dtype rounds differences away.

    Args:
      confidence: confidence of every frame in every class; a recording's frames are in order.
      recording: number of each frame's recording, equal ones side by side.
      window: number of summed frames; fewer where the recording has just begun.

    Raises:
      ValueError: a confidence is not finite, or the window has no frame.
    """
    check_finite("confidence", confidence)
    total = np.array(confidence, np.float64)
    # A number that comes again later is another recording.
    recording = np.cumsum(np.diff(recording, prepend=recording[:1]) != 0)
    for apart in range(1, min(window, len(recording))):
        same = recording[apart:] == recording[:-apart]
        if not same.any():
            break
        total[apart:] += np.where(same[:, None], confidence[:-apart], 0)
    return total


@checked
def fused_accuracies(
    confidence: Annotated[Float[np.ndarray, "m c"], NotEmpty],
    labels: Int[np.ndarray, "m"],
    recording: Int[np.ndarray, "m"],
    windows: tuple[PositiveInt, ...],
) -> Float[np.ndarray, "windows"]:
    """Return the accuracy for every number of fused frames, `[windows]`.

    Args:
      confidence: confidence of every frame in every class; a recording's frames are in order.
      labels: class of each frame.
      recording: number of each frame's recording, equal ones side by side.
      windows: numbers of fused frames.

    Raises:
      ValueError: there is no frame, a confidence is not finite, or a window has no frame.
    """
    fused = (fuse_adjacent(confidence, recording, window) for window in windows)
    return np.array([np.mean(scores.argmax(axis=1) == labels) for scores in fused])
