"""Frames of the prepared release, of every recording, with fewer test frames on request."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from everlight.scenarios.core50 import TEST_SESSIONS
from everlight_data.errors import DataError
from everlight_data.images.core50 import Core50, load_core50
from everlight_data.images.core50_release import count_frames


def load_release(side: int, partial: bool) -> Core50:
    """Return the frames of the prepared release; it has some of every object and session.

    Args:
      side: side of the frames in pixels.
      partial: whether an incomplete release is permitted.

    Raises:
      DataError: the release is not prepared or incomplete, or a recording has no frame.
    """
    frames = load_core50(side, partial=partial)
    counts = count_frames(frames.session, frames.object)
    absent = np.argwhere(counts == 0)
    if len(absent):
        session, number = 1 + absent[0]
        raise DataError(
            f"{frames.name}: no frame in {len(absent)} of {counts.size} recordings, the first of "
            f"them s{session}/o{number}. A run needs some of every object in every session; "
            "prepare more of the release."
        )
    return frames


def thin_test(frames: Core50, count: int | None) -> Core50:
    """Return the frames with at most `count`, evenly spaced, of each object and test session."""
    kept = thinned(frames, TEST_SESSIONS, count)
    return frames._replace(
        images=frames.images[kept],
        session=frames.session[kept],
        object=frames.object[kept],
        frame=frames.frame[kept],
    )


def thinned(frames: Core50, sessions: Sequence[int], count: int | None) -> Int[np.ndarray, "k"]:
    """Return the places of all frames but those left out of some sessions.

    Args:
      frames: in the order of their recordings.
      sessions: in which at most `count` frames per object are kept, evenly spaced.
      count: None keeps all.
    """
    if count is None:
        return np.arange(len(frames.session))
    recording = frames.session * len(frames.object_names) + frames.object
    _, place, sizes = np.unique(recording, return_inverse=True, return_counts=True)
    rank = np.arange(len(recording)) - np.concatenate([[0], np.cumsum(sizes)[:-1]])[place]
    chosen = (rank + 1) * count // sizes[place] > rank * count // sizes[place]
    return np.flatnonzero(chosen | ~np.isin(frames.session, sessions) | (sizes[place] < count))
