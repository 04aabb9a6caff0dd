"""Frames of every recording with the classes of a level, and fewer test frames on request."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from everlight.continual import TaskSequence
from everlight.scenarios.core50 import OBJECTS, TEST_SESSIONS, Level, Scenario, core50
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.images.core50.prepared import Core50, load_core50, object_category
from everlight_data.images.core50.release import count_frames
from everlight_data.sets.data_checksums import DataChecksums
from everlight_data.sets.image_set import equal_steps


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
    places = thin_frames(frames, TEST_SESSIONS, count)
    return frames._replace(
        images=frames.images[places],
        session=frames.session[places],
        object=frames.object[places],
        frame=frames.frame[places],
    )


def thin_frames(frames: Core50, sessions: Sequence[int], count: int | None) -> Int[np.ndarray, "k"]:
    """Return the places of all frames except those left out of some sessions.

    Args:
      frames: in the order of their recordings.
      sessions: in which at most `count` frames per object are kept, the last of equal steps.
      count: None keeps all.
    """
    if count is None:
        return np.arange(len(frames.session))
    recording = frames.session * len(frames.object_names) + frames.object
    _, from_end = np.unique(equal_steps(recording, count)[::-1], return_index=True)
    chosen = ~np.isin(frames.session, sessions)
    chosen[len(chosen) - 1 - from_end] = True
    return np.flatnonzero(chosen)


VALIDATION_TRAIN_SESSIONS, VALIDATION_TEST_SESSIONS = (0, 1, 3, 4, 7, 8), (5, 10)
"""Training and test sessions of sequences for validation; all are training sessions."""


@dataclass(frozen=True, eq=False)
class LabelledFrames:
    """Frames with the classes of a level."""

    frames: Core50
    level: Level
    test_frames: int | None = None
    """Largest number of test frames per recording, to which the test sessions were thinned."""

    @cached_property
    def labels(self) -> Int[np.ndarray, "n"]:
        """Class of each frame."""
        objects = self.frames.object
        return objects if self.level == "object" else object_category(objects)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes."""
        frames = self.frames
        return tuple(frames.object_names if self.level == "object" else frames.category_names)

    @cached_property
    def tested(self) -> Bool[np.ndarray, "n"]:
        """True for the frames of the test set."""
        return np.isin(self.frames.session, TEST_SESSIONS)

    @property
    def test_recordings(self) -> Int[np.ndarray, "m"]:
        """Number of each test frame's recording, an object in a session."""
        return (self.frames.session * OBJECTS + self.frames.object)[self.tested]

    @cached_property
    def checksums(self) -> DataChecksums:
        """Checksums of the images and of their labels."""
        labels, tested = self.labels, self.tested
        return DataChecksums(*checksums_of(self.frames.images, labels[~tested], labels[tested]))

    @property
    def note(self) -> str:
        """Return classes and numbers of frames in words, for reports."""
        tested, thin, side = self.tested, self.test_frames, self.frames.images.shape[1]
        recorded = "" if thin is None else f", at most {thin} per recording"
        return (
            f"{self.frames.name}, {side}×{side} pixels, {len(self.names)} classes "
            f"({self.level} level), {np.count_nonzero(~tested):,} training frames, "
            f"{np.count_nonzero(tested):,} test frames of sessions 3, 7 and 10{recorded}"
        )

    def sequence(self, scenario: Scenario, run: int, validation: bool = False) -> TaskSequence:
        """Return a published order of a scenario's batches.

        Args:
          scenario: NI, NC, NIC or static.
          run: number of the order, 0 to 9.
          validation: whether training sessions that are left out, thinned as the test set is, take
            its place.
        """
        objects, sessions = self.frames.object, self.frames.session
        if not validation:
            return core50(objects, sessions, scenario, run, self.level)
        return core50(
            objects,
            sessions,
            scenario,
            run,
            self.level,
            train_sessions=VALIDATION_TRAIN_SESSIONS,
            test_sessions=VALIDATION_TEST_SESSIONS,
            frames=thin_frames(self.frames, VALIDATION_TEST_SESSIONS, self.test_frames),
        )
